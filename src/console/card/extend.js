// A later deadline for a call that waits.
import { extend } from '../api.js';
import { guard, setBusy } from './inert.js';
import { el } from '../text/text.js';
import { serverNow, span } from '../text/time.js';

const CHOICES = [3600, 8 * 3600, 86_400, 3 * 86_400];

/** The control that lets the call wait longer, if it can. `done` is called with a sentence about what happened. */
export function extension(item, done) {
  if (item.state !== 'pending' || !item.extendable_until) return null;
  const seconds = at => Math.floor((Date.parse(at) - serverNow()) / 1000);
  // A second less: the request takes time.
  const [least, most] = [seconds(item.expires_at), seconds(item.extendable_until) - 1];
  if (most <= least) return null;
  const choices = [...CHOICES.filter(choice => choice > least + 60 && choice < most - 60), most];
  const choice = el('select', { id: 'extension' }, choices.map(value => el('option', { value: String(value) },
    value === most ? `as long as possible, ${span(value)}` : span(value))));
  const button = guard(el('button', { type: 'button' }, 'Wait longer'), async () => {
    setBusy([button], true);
    let message = 'The call waits longer.';
    try {
      // The longest time gets shorter while the card is open.
      await extend(item.tool_call_id, Math.min(Number(choice.value), seconds(item.extendable_until) - 1));
    } catch (error) {
      message = `The deadline stays as it is. ${error.message}`;
    }
    setBusy([button], false);
    await done(message);
  });
  return el('p', { className: 'extension' }, el('label', { for: 'extension' }, 'Let it wait for'), choice, button);
}
