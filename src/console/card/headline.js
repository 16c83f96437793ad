// The question of a call. The words of the operator and the values of the model are apart.
import { el, shown, title } from '../text/text.js';

const VALUE_MAX = 60;

const brief = text => ([...text].length > VALUE_MAX ? `${[...text].slice(0, VALUE_MAX).join('')}…` : text);

/** A text that is not of the product or the operator. */
export const chip = text => el('code', { className: 'chip' }, text === '' ? 'empty text' : brief(text));

/** The question, each value of the model in a chip. */
export const headline = ({ headline_parts: parts, headline: whole, tool_name: tool }) =>
  parts?.map(({ text, value }) => (value === undefined ? text : chip(value))) ?? whole ?? title(tool);

/** The question as plain text, for the title of the window. */
export function headlineText({ headline_parts: parts, headline: whole, tool_name: tool }) {
  const words = parts?.map(({ text, value }) => (value === undefined ? text : `“${brief(value)}”`)).join('') ?? whole ?? title(tool);
  return shown(words).textContent;
}
