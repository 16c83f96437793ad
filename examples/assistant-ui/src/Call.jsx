// A tool call. `approval` is set for a call that the server holds, and its `approved` for a decided one.
export function Call({ toolName, argsText, result, isError, approval, respondToApproval }) {
  const asks = approval && approval.approved === undefined && result === undefined;
  return (
    <section aria-label={`Tool call ${toolName}`}>
      <h2>{toolName}</h2>
      <pre>{argsText}</pre>
      {asks && <Question respond={respondToApproval} />}
      <p role="status">{state(asks, approval, isError, result)}</p>
    </section>
  );
}

function Question({ respond }) {
  function reject(event) {
    event.preventDefault();
    const reason = new FormData(event.currentTarget).get('reason').trim();
    respond(reason ? { approved: false, reason } : { approved: false });
  }
  return (
    // Enter in the field rejects. An approval takes a click of its own.
    <form onSubmit={reject}>
      <label>
        Reason for denying
        <input name="reason" autoComplete="off" />
      </label>
      <button>Deny</button>
      <button type="button" onClick={() => respond({ approved: true })}>Approve</button>
    </form>
  );
}

function state(asks, approval, isError, result) {
  if (asks) return 'Waits for you. Nothing has run.';
  if (approval?.approved === false) return approval.reason ? `Did not run: ${approval.reason}` : 'Did not run.';
  if (isError) return `Failed: ${typeof result === 'string' ? result : JSON.stringify(result)}`;
  return result === undefined ? 'Running.' : `Done: ${JSON.stringify(result)}`;
}
