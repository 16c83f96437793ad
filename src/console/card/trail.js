// The events of a call, as evidence.
import { el, fill, person } from '../text/text.js';
import { date } from '../text/time.js';

const EVENTS = {
  'tool.called': 'The model made the call', 'tool.requires_approval': 'Held for an approval', 'tool.blocked': 'Refused by the policy',
  'tool.voted': 'Approved, more approvals needed', 'tool.approved': 'Approved', 'tool.rejected': 'Denied', 'tool.decision_refused': 'Refused decision',
  'tool.extended': 'Extended', 'tool.delegated': 'Delegated', 'tool.inputs_revealed': 'Secret inputs read', 'tool.reminded': 'Reminded', 'tool.escalated': 'Escalated', 'tool.expired': 'Expired', 'tool.cancelled': 'Cancelled',
  'tool.started': 'Started', 'tool.progressed': 'Progress', 'tool.input_requested': 'The tool asked for an answer', 'tool.input_proposed': 'Answer proposed, more people have to confirm it',
  'tool.input_ended': 'The question of the tool ended',
  'tool.succeeded': 'Succeeded', 'tool.failed': 'Failed', 'tool.interrupted': 'Outcome unknown',
};
// A model acts for a person, and every other actor for itself.
const FOR = new Set(['tool.called']);
const DECIDED = new Set(['tool.voted', 'tool.approved', 'tool.rejected']);

const REFUSALS = {
  forbidden: 'not theirs to make', blocked: 'the policy forbids the call', already_decided: 'after another decision', expired: 'after the deadline',
  cancelled: 'after the call was cancelled', stale: 'about the call as it was before', tool_unavailable: 'while the tool was not available',
  unreadable: 'the inputs cannot be read',
};

/** Draws the events into the list. */
export const draw = (list, events) => fill(list, events.map(({ type, at, actor, data }) => el('li', {},
  el('b', {}, EVENTS[type] ?? type), FOR.has(type) ? ' for ' : ' by ', person(actor),
  DECIDED.has(type) && data.decision?.surface && ` (${data.decision.surface})`, details(data), ' ', el('small', {}, date(at)))));

// The details of an event, in words.
function details({ refused, from, expires_at: deadline, to, until, reason, roles }) {
  if (roles) return ` to ${roles.join(', ')}`;
  if (to) return [': ', person(to), ' may decide until ', date(until), ', reason: ', el('q', {}, reason)];
  if (from && deadline) return [': until ', date(deadline)];
  if (!refused) return null;
  const verdict = refused.decision === 'approve' ? 'an approval' : 'a denial';
  return `: ${verdict}, ${REFUSALS[refused.code] ?? refused.code} (${refused.surface})`;
}
