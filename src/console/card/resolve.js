// The outcome of an interrupted call, as an operator found it out.
import { resolve } from '../api.js';
import { guard, setBusy } from './inert.js';
import { parse } from '../text/json.js';
import { el, fill } from '../text/text.js';

const ERRORS = {
  forbidden: 'Only an operator records outcomes. Nothing is recorded.',
  not_interrupted: 'Another outcome was recorded first. Yours has no effect.',
};

/** A form for what happened. `done` is called after an outcome was recorded, by this form or before it. */
export function resolution(item, done) {
  if (item.can_resolve === false) return el('p', {}, 'An operator can record what happened.');
  const message = el('p', { className: 'message', role: 'status' });
  const area = (name, label, hint) => {
    const control = el('textarea', { id: `resolve-${name}`, rows: 2, maxLength: name === 'result' ? undefined : 2000, placeholder: hint, spellcheck: name !== 'result' });
    return { control, field: el('div', { className: 'field', hidden: name !== 'reason' }, el('label', { for: control.id }, label), control) };
  };
  const result = area('result', 'Output as JSON', 'empty if it is not known');
  const error = area('error', 'What happened instead', 'required; the model reads it');
  const reason = area('reason', 'How do you know?', 'optional; the model reads it');
  const choice = (value, words) => el('label', { className: 'check' },
    el('input', { id: `resolve-${value}`, type: 'radio', name: 'resolve-outcome', value, on: { change: () => {
      result.field.hidden = value !== 'succeeded';
      error.field.hidden = value !== 'failed';
    } } }), el('span', {}, words));
  const outcomes = el('fieldset', {}, el('legend', {}, 'What happened?'),
    choice('succeeded', 'The tool had its effect'), choice('failed', 'It had no effect, or not the intended one'));
  const chosen = () => outcomes.querySelector('input:checked')?.value;
  const button = guard(el('button', { type: 'button', className: 'primary' }, 'Record this outcome'), async () => {
    const body = read(chosen(), result.control.value, error.control.value.trim(), reason.control.value.trim());
    if (typeof body === 'string') {
      fill(message, body);
      return;
    }
    setBusy([button], true);
    fill(message, 'Sending…');
    try {
      await resolve(item.tool_call_id, body);
      fill(message);
    } catch (refused) {
      fill(message, ERRORS[refused.code] ?? refused.message);
    }
    setBusy([button], false);
    await done(message.textContent);
  });
  return [el('h3', {}, 'Record the outcome'), el('div', { className: 'form' },
    el('p', { className: 'hint' }, 'Look at the system that the tool changes first. The record is final, and nothing runs.'),
    outcomes, result.field, error.field, reason.field, el('div', {}, button), message)];
}

// The request, or a sentence about what is missing.
function read(outcome, result, error, reason) {
  const why = reason === '' ? {} : { reason };
  if (outcome === undefined) return 'Choose what happened.';
  if (outcome === 'failed') return error === '' ? 'Say what happened instead.' : { outcome, error, ...why };
  if (result.trim() === '') return { outcome, ...why };
  try {
    return { outcome, result: parse(result), ...why };
  } catch {
    return 'The output is not JSON. A text is in quotes.';
  }
}
