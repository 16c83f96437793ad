// What a call that waits is waiting for: the people, the time, and why the caller may or may not decide.
import { inPlaceOf } from './outcome.js';
import { el, person } from '../text/text.js';
import { clock, date } from '../text/time.js';

/** The facts of the wait. */
export function waits(item) {
  const { reason, expires_at: end, required, approved_by: voters = [], can_decide: mayApprove, can_reject: mayReject, on_behalf_of: other, others,
    cannot_approve: refused } = item;
  const may = refused ? [refused.message, mayReject && ' You can deny it.']
    : mayApprove ? ['You can approve or deny it', inPlaceOf(other), '.']
    : mayReject ? 'You can deny it; your approval would not count.'
      : mayApprove === undefined ? 'The server checks whether you may decide.' : 'You cannot decide it.';
  return el('ul', { className: 'waits' },
    reason && el('li', {}, 'Held because: ', reason),
    end && el('li', {}, 'Time to decide: ', clock(end, 'over'), ' (until ', date(end), ')'),
    el('li', {}, may),
    others?.delegations.map(delegated),
    item.remind_at && el('li', {}, 'A reminder follows ', date(item.remind_at), '.'),
    item.escalation && escalates(item.escalation),
    required > 1 && el('li', {}, `${required} people have to approve the same inputs. So far ${voters.length === 0 ? 'nobody' : voters.map(person).join(', ')}.`));
}

const delegated = ({ from, to, until, reason }) => el('li', {}, el('b', {}, person(from)), ' lets ', el('b', {}, person(to)), ' decide until ', date(until),
  ', reason: ', el('q', {}, reason));

function escalates({ roles, due_at: due, escalated_at: at }) {
  const names = roles.map((role, n) => [n > 0 && ' or ', el('code', {}, role)]);
  return el('li', {}, at ? 'Escalated ' : 'Escalates ', date(at ?? due), ': people with the role ', names, at ? ' may decide too.' : ' may decide from then on.');
}
