// The delegation of a call: another person decides in place of its approver.
import { delegate } from '../api.js';
import { guard, setBusy } from './inert.js';
import { el, fill } from '../text/text.js';
import { serverNow, span } from '../text/time.js';

const CHOICES = [3600, 8 * 3600, 86_400];
const DEADLINE = 'deadline';

/** A form that delegates the call. `done` is called with a sentence about what happened. */
export function delegation(item, done) {
  const message = el('p', { className: 'message', role: 'status' });
  const to = el('input', { id: 'delegate-to', type: 'text', maxLength: 256, autocomplete: 'off', spellcheck: false });
  const until = el('select', { id: 'delegate-until' }, CHOICES.map(value => el('option', { value: String(value) }, `for ${span(value)}`)),
    el('option', { value: DEADLINE }, 'until its deadline'));
  const reason = el('textarea', { id: 'delegate-reason', rows: 1, maxLength: 2000, placeholder: 'required' });
  const field = (label, control) => el('div', { className: 'field' }, el('label', { for: control.id }, label), control);
  const button = guard(el('button', { type: 'button' }, 'Delegate'), async () => {
    const [user, why] = [to.value.trim(), reason.value.trim()];
    if (user === '' || why === '') {
      fill(message, user === '' ? 'Name the person.' : 'Say why.');
      return;
    }
    setBusy([button], true);
    let notice = '';
    try {
      await delegate(item.tool_call_id, { to: user, until: end(until.value, item.expires_at), reason: why });
      notice = `${user} may decide now. You have one vote together.`;
      for (const control of [to, reason]) control.value = '';
      fill(message);
    } catch (refused) {
      fill(message, `The call is not delegated. ${refused.message}`);
    }
    setBusy([button], false);
    if (notice !== '') await done(notice);
  });
  return el('details', { className: 'delegation' }, el('summary', {}, 'Let another person decide'), el('div', { className: 'form' },
    el('p', { className: 'hint' }, 'That person sees this call and decides it in your place. Another delegation replaces this one.'),
    field('User', to), field('How long', until), field('Reason', reason), el('div', {}, button), message));
}

// The chosen time, at most the deadline of the call.
function end(choice, deadline) {
  const at = choice === DEADLINE ? Infinity : serverNow() + Number(choice) * 1000;
  return at < Date.parse(deadline) ? new Date(at).toISOString() : deadline;
}
