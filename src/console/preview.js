// What the tool says that a call would do.
import { cuttable, el } from './text.js';

/** The preview under a heading, if the tool gave one. */
export function preview(heading, said) {
  if (!said) return null;
  return [el('h3', {}, heading), said.text === undefined
    ? el('p', { className: 'error' }, 'The tool could not say what the call would do: ', said.failed)
    : el('div', { className: 'value text preview' }, cuttable(said.text))];
}
