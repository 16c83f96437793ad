// All texts reach the page through this module. Text of models, tools and people becomes text nodes, never markup.
import { HIDDEN, mixed, number } from './characters.js';


/** A new element. Strings among the children become text nodes in which hidden characters are numbers. */
export function el(name, properties = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (key === 'on') {
      for (const [type, listener] of Object.entries(value)) element.addEventListener(type, listener);
    } else if (key.includes('-') || key === 'role' || key === 'for') {
      if (value !== undefined) element.setAttribute(key, value);
    } else if (value !== undefined) {
      element[key] = value;
    }
  }
  append(element, ...children);
  return element;
}

/** Appends children: nodes, strings, lists of both; `null` and `false` are skipped. */
export function append(parent, ...children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    parent.append(child instanceof Node ? child : shown(String(child)));
  }
}

/** Replaces all children. */
export function fill(parent, ...children) {
  parent.replaceChildren();
  append(parent, ...children);
}

/** The text with hidden characters as numbers. */
export function shown(text) {
  const parts = document.createDocumentFragment();
  let from = 0;
  for (const { 0: hidden, index } of text.matchAll(HIDDEN)) {
    if (index > from) parts.append(text.slice(from, index));
    const number = `U+${hidden.codePointAt(0).toString(16).toUpperCase().padStart(4, '0')}`;
    const mark = document.createElement('span');
    mark.className = 'hidden-character';
    mark.append(number);
    parts.append(mark);
    from = index + hidden.length;
  }
  if (from < text.length) parts.append(text.slice(from));
  return parts;
}

/** Whether the text has a hidden character. */
export const hasHidden = text => text.search(HIDDEN) !== -1;

const TEXT_MAX = 2000;

/** The text, cut if it is long. A cut text has a note with the hash of the full text, and a button that shows the full text. */
export function cuttable(text, hash) {
  if (text.length <= TEXT_MAX) return shown(text);
  let end = TEXT_MAX / 2;
  // A surrogate pair is not split.
  if (text.charCodeAt(end - 1) >= 0xd800 && text.charCodeAt(end - 1) < 0xdc00) end -= 1;
  const container = el('span', {}, text.slice(0, end), '… ');
  const showAll = el('button', { type: 'button', className: 'link' }, `Show all ${text.length.toLocaleString('en')} characters`);
  const note = el('span', { className: 'cut' }, `Cut: ${(text.length - end).toLocaleString('en')} characters are not shown. `,
    hash && ['Hash of the whole: ', el('code', {}, hash), '. '], showAll);
  showAll.addEventListener('click', () => fill(container, text));
  container.append(note);
  return container;
}

/** `Delete file` for `delete_file`. */
export function title(tool) {
  const words = tool.replace(/[_-]/g, ' ').trim();
  return words === '' ? tool : words[0].toUpperCase() + words.slice(1);
}

/** `alice` for `user:alice`; other actors as they are. */
export const person = actor => actor.replace(/^user:/, '');
