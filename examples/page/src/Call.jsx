import { Fragment } from 'react';
import { getToolName } from 'ai';
import { visible } from '@holdpoint/page';
import { Countdown } from './Countdown.jsx';
import { Json, Preview, Text } from './Json.jsx';
import { Question } from './Question.jsx';
import { CAUSES, lateness, nameOf, questionOf, RISKS, statusText, timeOf } from './words.js';

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

// A held call: the card for a decision, and the outcome. `answer` is the decision of this page.
export function HeldCall({ part, hold, decision, answer, onDecide }) {
  const isPending = !decision;
  const title = questionOf(hold, decision);
  return (
    // A group, not a landmark: there may be many.
    <section
      role="group"
      id={`call-${part.toolCallId}`}
      className={`call ${isPending ? 'waits' : part.state}`}
      aria-label={`Tool call ${hold.toolName}: ${title}`}
      tabIndex={-1}
    >
      <p className="facts">
        <span className={`risk ${hold.risk}`}>{RISKS[hold.risk]}</span>
        <span>{visible(hold.title)}</span>
      </p>
      <h2>{title}</h2>
      {isPending && <Facts hold={hold} />}
      {isPending && hold.unacceptedDefinition && <Definition {...hold.unacceptedDefinition} />}
      <Inputs part={part} hold={hold} decision={decision} />
      {isPending && <Question hold={hold} answer={answer} onDecide={answer => onDecide(hold, answer)} />}
      <p className="status">{statusText(part, hold, decision)}</p>
      {answer?.counted && isPending && <p className="status">Your approval counts. More people have to approve.</p>}
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

function Facts({ hold }) {
  return (
    <dl>
      {hold.description && <Fact name="The tool" value={visible(hold.description)} />}
      {hold.reason && <Fact name="Why you are asked" value={visible(hold.reason)} />}
      {hold.mcp && <Fact name="MCP server" value={visible(hold.mcp.server)} />}
      {/* The page of a thread belongs to its user. */}
      <Fact name="Requested by" value={`you (${visible(hold.requestedBy)})`} />
      <Fact name="Expires" value={<Countdown until={hold.expiresAt} />} />
    </dl>
  );
}

const Fact = ({ name, value }) => (
  <div>
    <dt>{name}</dt>
    <dd>{value}</dd>
  </div>
);

// What an MCP server says about the tool, where no operator has accepted it.
function Definition({ cause, changes }) {
  return (
    <>
      <p className="error">{CAUSES[cause]}</p>
      {changes.map(({ field, accepted, current }) => (
        <Fragment key={field}>
          <Text label={`${visible(field)}, as accepted`} value={accepted} />
          <Text label={`${visible(field)}, now`} value={current} />
        </Fragment>
      ))}
    </>
  );
}

// All that runs, never a part of it: a headline may leave inputs out.
function Inputs({ part, hold, decision }) {
  const edited = decision?.edited;
  return (
    <>
      <Json label={edited ? 'Proposed by the model' : 'Inputs'} value={hold.input} />
      {edited && (
        <Json label={`Edited by ${nameOf(decision.by, hold)} on ${timeOf(decision.at)}`} value={decision.input ?? part.input} />
      )}
      <Json label="Set by the operator" value={hold.constants} />
      {/* It is about the proposed inputs. */}
      {!edited && <Preview label="What the tool says that it would do" preview={hold.preview} />}
    </>
  );
}
