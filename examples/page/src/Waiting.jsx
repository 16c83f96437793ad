// The calls that wait, however far up they are.
export function Waiting({ waiting, answers, onApproveAll }) {
  if (waiting.length === 0) return null;
  const approvable = waiting.filter(({ toolCallId, canEdit }) => canEdit && !answers[toolCallId]?.busy && !answers[toolCallId]?.counted);

  function showFirst() {
    const card = document.getElementById(`call-${waiting[0].toolCallId}`);
    card?.scrollIntoView({ block: 'start' });
    card?.focus({ preventScroll: true });
  }

  return (
    <section className="waiting" aria-label="Waiting calls">
      <p>{waiting.length === 1 ? 'A call waits for you.' : `${waiting.length} calls wait for you.`}</p>
      <button type="button" onClick={showFirst}>Show</button>
      {approvable.length > 1 && (
        <button type="button" className="yes" onClick={() => onApproveAll(approvable)}>
          Approve all {approvable.length}
        </button>
      )}
    </section>
  );
}
