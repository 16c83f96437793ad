import { cardSections, mayApprove } from '@holdpoint/page';

// The calls that wait, however far up they are. Several are approved at once if their cards were read.
export function Waiting({ waiting, answers, readOf, onApproveAll }) {
  if (waiting.length === 0) return null;
  const isFree = ({ toolCallId }) => !answers[toolCallId]?.busy && !answers[toolCallId]?.counted;
  const drawn = hold => cardSections(hold).map(({ part }) => part);
  const approvable = waiting.filter(hold => isFree(hold) && mayApprove(hold, drawn(hold)));
  const read = approvable.filter(hold => mayApprove(hold, readOf(hold)));
  const unread = approvable.filter(hold => !read.includes(hold));

  function show({ toolCallId }) {
    const card = document.getElementById(`call-${toolCallId}`);
    card?.scrollIntoView({ block: 'start' });
    card?.focus({ preventScroll: true });
  }

  return (
    <section className="waiting" aria-label="Waiting calls">
      <p>
        {waiting.length === 1 ? 'A call waits for you.' : `${waiting.length} calls wait for you.`}
        {waiting.length > 1 && unread.length > 0 && ` You have not read ${unread.length} of them.`}
      </p>
      <button type="button" onClick={() => show(unread[0] ?? waiting[0])}>Show</button>
      {read.length > 1 && (
        <button type="button" onClick={() => onApproveAll(read)}>
          {unread.length > 0 ? `Approve the ${read.length} that you have read` : `Approve all ${read.length}`}
        </button>
      )}
    </section>
  );
}
