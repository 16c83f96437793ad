// The details of an event of a call, besides its type and its actor.
import { el, person } from './text.js';
import { date } from './time.js';

const REFUSALS = {
  forbidden: 'not theirs to make', blocked: 'the policy forbids the call', already_decided: 'after another decision', expired: 'after the deadline',
  cancelled: 'after the call was cancelled', stale: 'about the call as it was before', tool_unavailable: 'while the tool was not available',
  unreadable: 'the inputs cannot be read',
};

/** The details of an event, in words. */
export function details({ refused, from, expires_at: deadline, to, until, reason, roles }) {
  if (roles) return ` to ${roles.join(', ')}`;
  if (to) return [': ', person(to), ' may decide until ', date(until), ', reason: ', el('q', {}, reason)];
  if (from && deadline) return [': until ', date(deadline)];
  if (!refused) return null;
  const verdict = refused.decision === 'approve' ? 'an approval' : 'a denial';
  return `: ${verdict}, ${REFUSALS[refused.code] ?? refused.code} (${refused.surface})`;
}
