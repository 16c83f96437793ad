import { createContext, useContext } from 'react';
import { cardSections, mayApprove, mixedScripts, pieces, rowsOf, visible } from '@holdpoint/page';

// The held calls of the conversation, by the id of the call.
export const HeldCalls = createContext(new Map());

// A tool call. `approval` is set for a call that the server holds, and its `approved` for a decided one.
export function Call({ toolCallId, toolName, args, result, isError, approval, respondToApproval }) {
  // Both are absent for a moment while a stream begins the message anew.
  const { hold, decision } = useContext(HeldCalls).get(toolCallId) ?? {};
  const isPending = approval && approval.approved === undefined && result === undefined && !decision;
  const sections = sectionsOf(hold, decision, args);
  return (
    // A group, not a landmark: there may be many.
    <section role="group" className="call" aria-label={`Tool call ${toolName}`}>
      <h2><Headline hold={hold} decision={decision} name={toolName} /></h2>
      {isPending && hold && <p>{visible([`Risk: ${hold.risk}.`, hold.reason].filter(Boolean).join(' '))}</p>}
      {sections.map(section => <Section key={section.part} {...section} />)}
      {isPending && hold?.cannotApprove && <p>{visible(hold.cannotApprove.message)}</p>}
      {isPending && (
        // Every section is whole on the page, and no other one is.
        <Question mayApprove={hold && mayApprove(hold, sections.map(({ part }) => part))} respond={respondToApproval} />
      )}
      {decision?.late && <p>Your answer came too late: {decision.by} had decided.</p>}
      <p role="status">{state(isPending, approval, isError, result)}</p>
    </section>
  );
}

// What a person decides on; and what ran, of which the preview and the definition say nothing after an edit.
function sectionsOf(hold, decision, args) {
  if (!hold) return [{ part: 'inputs', label: 'Inputs', rows: rowsOf(args) }];
  const sections = cardSections(hold).filter(({ part }) => !decision || part !== 'definition');
  if (!decision?.edited) return sections;
  const [proposed, ...others] = sections.filter(({ part }) => part !== 'preview');
  return [{ ...proposed, label: 'Proposed' }, { part: 'edited', label: 'Edited', rows: rowsOf(decision.input ?? args) }, ...others];
}

// The values in a headline are the model's, and are set apart from the operator's words.
function Headline({ hold, decision, name }) {
  if (!hold?.headlineParts || decision?.edited) return visible((!decision?.edited && hold?.headline) || hold?.title || name);
  return hold.headlineParts.map(({ text, value }, index) =>
    value === undefined ? visible(text) : <code key={index} dir="auto">{visible(value)}</code>,
  );
}

const Section = ({ label, rows }) => (
  <figure>
    <figcaption>{label}</figcaption>
    {rows.map(({ name, text }, index) => (
      <div key={index}>
        {name && <p><Marked text={name} /></p>}
        <pre dir="auto"><Marked text={text} /></pre>
        {mixedScripts(text).length > 0 && <p>Letters of several alphabets in {mixedScripts(text).join(', ')}</p>}
      </div>
    ))}
  </figure>
);

// What hides, reverses or pushes text away is a mark, and so is a word that mixes alphabets.
const Marked = ({ text }) =>
  pieces(text).map(({ kind, text, mark = text }, index) => (kind === 'text' ? text : <mark key={index}>{mark}</mark>));

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
      {mayApprove && <button type="button" className="primary" onClick={() => respond({ approved: true })}>Approve</button>}
    </form>
  );
}

const json = value => visible(JSON.stringify(value));

function state(isPending, approval, isError, result) {
  if (isPending) return 'Waits for you. Nothing has run.';
  if (approval?.approved === false) return approval.reason ? `Did not run: ${visible(approval.reason)}` : 'Did not run.';
  if (isError) return `Failed: ${typeof result === 'string' ? visible(result) : json(result)}`;
  return result === undefined ? 'Running.' : `Done: ${json(result)}`;
}
