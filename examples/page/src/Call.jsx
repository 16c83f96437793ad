import { getToolName } from 'ai';

// A tool call: what is to run with which inputs, the question if a person has to decide, and what became of it.
export function Call({ part, busy, onDecide }) {
  const asks = part.state === 'approval-requested';
  const name = getToolName(part);
  return (
    <section className={`call ${part.state}`} aria-label={`Tool call ${name}`} tabIndex={-1}>
      <h2>{name}</h2>
      <Json value={part.input} />
      {asks && <Question id={part.approval.id} busy={busy} onDecide={onDecide} />}
      <p role="status">{standing(part)}</p>
      {part.state === 'output-available' && <Json value={part.output} />}
    </section>
  );
}

function Question({ id, busy, onDecide }) {
  const decide = (event, approved) => {
    event.preventDefault();
    const form = event.currentTarget.form ?? event.currentTarget;
    const reason = new FormData(form).get('reason').trim();
    // The buttons go away, and the keyboard should not be lost with them.
    form.closest('section').focus();
    onDecide(approved || !reason ? { id, approved } : { id, approved, reason });
  };
  return (
    // Who presses Enter says no: a yes is a click of its own.
    <form onSubmit={event => decide(event, false)}>
      <button type="button" className="yes" disabled={busy} onClick={event => decide(event, true)}>
        Approve
      </button>
      <button className="no" disabled={busy}>Deny</button>
      <input name="reason" aria-label="Reason for denying" placeholder="Why not? (the model is told)" autoComplete="off" />
    </form>
  );
}

function standing(part) {
  switch (part.state) {
    case 'input-streaming':
      return 'The model is writing this call.';
    case 'input-available':
      return 'Running.';
    case 'approval-requested':
      return 'Waits for you. Nothing has run.';
    case 'approval-responded':
      return part.approval.approved ? 'Approved.' : 'Denied.';
    case 'output-available':
      return part.approval ? 'Approved, and done.' : 'Done.';
    case 'output-error':
      return part.errorText;
    case 'output-denied':
      // A call that expired, or was cancelled, comes with that word.
      return part.approval.reason ? `Did not run: ${part.approval.reason}` : 'Did not run.';
  }
}

// What is approved has to be what is seen: characters that hide, turn the text around or look like a blank are shown by
// their numbers.
const HIDDEN = /(?! )[\p{Cf}\p{Co}\p{Z}\p{Default_Ignorable_Code_Point}\u2800\u007f-\u009f]/gu;

function Json({ value }) {
  if (value === undefined) return null;
  const text = JSON.stringify(value, null, 2);
  const number = hidden => `\\u{${hidden.codePointAt(0).toString(16)}}`;
  return <pre tabIndex={0}>{text.replace(HIDDEN, number)}</pre>;
}
