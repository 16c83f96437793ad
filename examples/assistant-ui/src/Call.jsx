import { createContext, useContext } from 'react';
import { visible } from '@holdpoint/page';

// The held calls of the conversation, by the id of the call.
export const HeldCalls = createContext(new Map());

// A tool call. `approval` is set for a call that the server holds, and its `approved` for a decided one.
export function Call({ toolCallId, toolName, args, result, isError, approval, respondToApproval }) {
  // Both are absent for a moment while a stream begins the message anew.
  const { hold, decision } = useContext(HeldCalls).get(toolCallId) ?? {};
  const isPending = approval && approval.approved === undefined && result === undefined && !decision;
  return (
    <section aria-label={`Tool call ${toolName}`}>
      <h2>{(!decision?.edited && hold?.headline) || hold?.title || toolName}</h2>
      <pre>{json(args)}</pre>
      {hold?.constants && <pre>{json(hold.constants)}</pre>}
      {hold?.preview && !decision?.edited && <pre>{visible(hold.preview.text ?? `No preview: ${hold.preview.failed}`)}</pre>}
      {!decision && hold?.unacceptedDefinition?.changes.map(({ field, accepted, current }) => (
        <pre key={field}>{visible(`Not accepted: ${field}\nbefore: ${accepted ?? 'nothing'}\nnow: ${current ?? 'nothing'}`)}</pre>
      ))}
      {hold && decision?.edited && <pre>Proposed: {json(hold.input)}</pre>}
      {isPending && hold && <p>{[`Risk: ${hold.risk}.`, hold.reason].filter(Boolean).join(' ')}</p>}
      {isPending && <Question mayApprove={hold?.canEdit} respond={respondToApproval} />}
      {decision?.late && <p>Your answer came too late: {decision.by} had decided.</p>}
      <p role="status">{state(isPending, approval, isError, result)}</p>
    </section>
  );
}

const json = value => visible(JSON.stringify(value));

function Question({ mayApprove, respond }) {
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
      {mayApprove && <button type="button" onClick={() => respond({ approved: true })}>Approve</button>}
    </form>
  );
}

function state(isPending, approval, isError, result) {
  if (isPending) return 'Waits for you. Nothing has run.';
  if (approval?.approved === false) return approval.reason ? `Did not run: ${approval.reason}` : 'Did not run.';
  if (isError) return `Failed: ${typeof result === 'string' ? result : json(result)}`;
  return result === undefined ? 'Running.' : `Done: ${json(result)}`;
}
