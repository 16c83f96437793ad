// The preview of a call.
import { cuttable, el } from './text.js';

/** The preview under a heading, if the tool gave one. */
export function preview(heading, result) {
  if (!result) return null;
  return [el('h3', {}, heading), result.text === undefined
    ? el('p', { className: 'error' }, 'The tool could not say what the call would do: ', result.failed)
    : el('div', { className: 'value text preview' }, cuttable(result.text))];
}
