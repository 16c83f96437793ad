import { visible } from '@holdpoint/page';

export const RISKS = { low: 'Low risk', medium: 'Medium risk', high: 'High risk' };

// The page of a thread belongs to the requester.
export function nameOf(actor, hold) {
  if (actor === hold.requestedBy) return 'you';
  const [, kind, name] = /^(user|handler|system):(.*)$/s.exec(actor) ?? [];
  if (kind === 'user') return visible(name);
  return kind === 'handler' ? `the handler ${visible(name)}` : visible(actor);
}

// The parts of a card, for the button that goes to them.
export const PARTS = { inputs: 'inputs', secrets: 'secret inputs', constants: "the operator's inputs", preview: 'what the tool says', definition: 'what changed' };

// The question to the approver. The headline has the proposed inputs in it, not the edited ones.
export const questionOf = (hold, decision) =>
  visible(hold.headline !== undefined && !decision?.edited ? hold.headline : `${hold.title}?`);

export const timeOf = at => new Date(at).toLocaleString([], { dateStyle: 'medium', timeStyle: 'short' });

const VERBS = { approve: 'approved it', reject: 'denied it', cancel: 'cancelled it' };

// Why an answer of this page did not count.
export function lateness(late, hold) {
  if (late.decision === 'expire') return 'Your answer came too late: the time to decide was over.';
  return `Your answer came too late: ${nameOf(late.by, hold)} had ${VERBS[late.decision]} on ${timeOf(late.at)}.`;
}

// The status of a call, in a sentence.
export function statusText(part, hold, decision) {
  if (hold && !decision) return waits(hold);
  if (decision) return decided(part, hold, decision);
  switch (part.state) {
    case 'input-streaming':
      return 'The model is writing this call.';
    case 'output-available':
      return 'Done.';
    case 'output-error':
      return visible(part.errorText);
    case 'output-denied':
      return 'Did not run.';
    default:
      return 'Running.';
  }
}

function waits({ canEdit, cannotApprove, approvalsNeeded }) {
  if (!canEdit || (cannotApprove && cannotApprove.code !== 'invalid_inputs')) return 'Waits for another person. Nothing has run.';
  if (approvalsNeeded > 1) return `Waits for ${approvalsNeeded} people. Nothing has run.`;
  return 'Waits for you. Nothing has run.';
}

function decided(part, hold, { decision, by, reason, edited }) {
  const actorName = nameOf(by, hold);
  switch (decision) {
    case 'reject':
      return `Denied by ${actorName}${reason ? `: ${visible(reason)}` : ''}. It did not run.`;
    case 'expire':
      return `Nobody decided until ${timeOf(hold.expiresAt)}. It did not run.`;
    case 'cancel':
      return `Cancelled by ${actorName}. It did not run.`;
  }
  const approved = `Approved by ${actorName}${edited ? ', with other inputs' : ''}`;
  if (part.state === 'output-available') return `${approved}, and done.`;
  // The text says whether it ran: it may have failed, or the outcome may be unknown.
  return part.state === 'output-error' ? `${approved}. ${visible(part.errorText)}` : `${approved}. Running.`;
}
