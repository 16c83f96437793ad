// The preview of a call.
import { cuttable, el } from '../text/text.js';

/** What the tool says that the call would do, or why it says nothing. */
export const preview = result => (result.text === undefined
  ? el('p', { className: 'error' }, 'The tool could not say what the call would do: ', cuttable(result.failed))
  : el('div', { className: 'value text preview' }, cuttable(result.text)));
