import { useState } from 'react';
import { getToolName } from 'ai';
import { cardSections, errorText, mayApprove, rowsOf, visible } from '@holdpoint/page';
import { Countdown } from './Countdown.jsx';
import { Headline } from './Headline.jsx';
import { holdpoint } from './holdpoint.js';
import { Json } from './Json.jsx';
import { Question } from './Question.jsx';
import { Section } from './Section.jsx';
import { lateness, nameOf, questionOf, RISKS, statusText, timeOf } from './words.js';

// A call that was not held: one line, until it is opened.
export function Call({ part }) {
  const name = getToolName(part);
  return (
    <details className={`call ${part.state}`}>
      <summary>{name}: {statusText(part)}</summary>
      <Json label="Inputs" value={part.input} />
      <Json label="Result" value={part.output} />
    </details>
  );
}

// A held call: the card for a decision, and the outcome. `answer` is the decision of this page, and `read` the parts of the
// card that were read.
export function HeldCall({ part, hold, decision, answer, read, onRead, onDecide }) {
  const isPending = !decision;
  return (
    // A group, not a landmark: there may be many.
    <section
      role="group"
      id={`call-${part.toolCallId}`}
      className={`call ${isPending ? 'waits' : part.state}`}
      aria-label={`Tool call ${hold.toolName}: ${questionOf(hold, decision)}`}
      tabIndex={-1}
    >
      <p className="facts">
        <span className={`risk ${hold.risk}`}>{RISKS[hold.risk]}</span>
        <span>{visible(hold.title)}</span>
      </p>
      <h2><Headline hold={hold} decision={decision} /></h2>
      {isPending ? (
        <Pending key={hold.inputHash} hold={hold} answer={answer} read={read} onRead={onRead} onDecide={onDecide} />
      ) : (
        <Decided part={part} hold={hold} decision={decision} />
      )}
      <p className="status">{statusText(part, hold, decision)}</p>
      {decision?.decision === 'approve' && decision.reason && <p className="status">Note: {visible(decision.reason)}</p>}
      {answer?.counted && isPending && !hold.cannotApprove && (
        <p className="status">Your approval counts. More people have to approve.</p>
      )}
      {answer?.late && <p className="status">{lateness(answer.late, hold)}</p>}
      {part.state === 'output-available' && (
        <details>
          <summary>Result</summary>
          <Json value={part.output} />
        </details>
      )}
    </section>
  );
}

function Pending({ hold, answer, read, onRead, onDecide }) {
  const [whole, setWhole] = useState([]);
  const [revealed, setRevealed] = useState();
  const sections = cardSections(hold, revealed);
  const isMasked = hold.secretInputs && !sections.some(({ part }) => part === 'secrets');
  const drawn = sections.map(({ part }) => part);
  const isAsked = mayApprove(hold, drawn);
  // Inputs that the tool no longer takes may still be edited.
  const isEditable = isAsked || (hold.cannotApprove?.code === 'invalid_inputs' && mayApprove({ ...hold, cannotApprove: undefined }, drawn));
  return (
    <>
      <Facts hold={hold} />
      {sections.map(({ part, ...section }) => (
        <Section
          key={part}
          part={part}
          {...section}
          isRead={read.includes(part)}
          onWhole={() => setWhole(now => [...now, part])}
          onRead={isEditable ? () => onRead(hold, part) : undefined}
        />
      ))}
      {isMasked && <Secrets hold={hold} onRevealed={setRevealed} />}
      <Question
        hold={hold}
        isMasked={isMasked}
        answer={answer}
        isAsked={isAsked}
        isEditable={isEditable}
        // What does little harm is approved at a glance.
        shown={hold.risk === 'low' ? whole : read}
        onDecide={answer => onDecide(hold, answer)}
      />
    </>
  );
}

// The button that opens the secret inputs, which the server records.
function Secrets({ hold, onRevealed }) {
  const [failed, setFailed] = useState();
  const reveal = () => holdpoint.reveal(hold.toolCallId).then(onRevealed, setFailed);
  return (
    <p>
      Secret inputs are masked: {visible(hold.secretInputs.join(', '))}.{' '}
      <button type="button" onClick={reveal}>Reveal</button> The server records who reveals them.
      {failed && <span role="alert"> {errorText(failed)}</span>}
    </p>
  );
}

function Facts({ hold }) {
  return (
    <dl>
      {hold.description && <Fact name="The tool" value={visible(hold.description)} />}
      {hold.reason && <Fact name="Why you are asked" value={visible(hold.reason)} />}
      {hold.mcp && <Fact name="MCP server" value={visible(hold.mcp.server)} />}
      {/* The page of a thread belongs to its user. */}
      <Fact name="Requested by" value="you" />
      <Fact name="Expires" value={<Countdown until={hold.expiresAt} />} />
    </dl>
  );
}

const Fact = ({ name, value }) => (
  <div>
    <dt>{name}</dt>
    <dd dir="auto">{value}</dd>
  </div>
);

// What ran, or did not. The preview is about the proposed inputs, and the definition was a question of the decision.
function Decided({ part, hold, decision }) {
  const { edited, by, at } = decision;
  return cardSections(hold).map(section => {
    if (section.part === 'definition' || (section.part === 'preview' && edited)) return null;
    if (section.part !== 'inputs' || !edited) return <Section key={section.part} {...section} />;
    return [
      <Section key="proposed" {...section} label="Proposed by the model" />,
      <Section
        key="edited"
        part="edited"
        label={`Edited by ${nameOf(by, hold)} on ${timeOf(at)}`}
        rows={rowsOf(decision.input ?? part.input)}
      />,
    ];
  });
}
