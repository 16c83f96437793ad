// All texts reach the page through this module. Text of models, tools and people becomes text nodes, never markup.
import { marks } from './marks.js';

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

/** The text with a mark for whatever in it hides something. */
export function shown(text, found = marks(text), from = 0, to = text.length) {
  const parts = document.createDocumentFragment();
  let at = from;
  for (const { start, end, words, spoken, breaks, kind } of found) {
    if (start < from || end > to) continue;
    if (start > at) parts.append(text.slice(at, start));
    const mark = document.createElement('span');
    mark.className = `mark ${kind}`;
    if (spoken) {
      mark.role = 'img';
      mark.ariaLabel = spoken;
    }
    mark.append(words);
    parts.append(mark, breaks ? '\n' : '');
    at = end;
  }
  if (at < to) parts.append(text.slice(at, to));
  return parts;
}

/** `1 line`, `1,200 lines`. */
export const count = (n, word) => `${n.toLocaleString('en')} ${word}${n === 1 ? '' : 's'}`;

// A box is at most so many rows high, with its note.
const ROWS = 24;
const [ROWS_FIRST, ROWS_LAST] = [13, 8];

/**
 * The text, cut if it is long. A cut text shows its beginning and its end, with a note between them: how much is not shown, the
 * hash of the whole, and a button that shows it.
 */
export function cuttable(text, hash) {
  const found = marks(text);
  const columns = Math.max(24, Math.min(80, Math.floor((innerWidth - 48) / 9)));
  if (rowsEnd(text, found, columns, ROWS) === text.length) return shown(text, found);
  const first = rowsEnd(text, found, columns, ROWS_FIRST);
  const last = Math.max(first, rowsStart(text, found, columns, ROWS_LAST));
  if (first === last) return shown(text, found);
  const left = text.slice(first, last);
  const lines = left.split('\n').length - 1;
  const container = el('span', {}, shown(text, found, 0, first), '…');
  const showAll = el('button', { type: 'button', className: 'link' }, `Show all ${count(text.length, 'character')}`);
  const note = el('span', { className: 'cut' }, `Cut: ${count(left.length, 'character')}${lines > 0 ? ` in ${count(lines + 1, 'line')}` : ''} are not shown here. `,
    hash && ['Hash of the whole: ', el('code', {}, hash), '. '], showAll);
  note.dataset.left = left.length;
  showAll.addEventListener('click', () => opened(container, shown(text, found)));
  container.append(note, '…', shown(text, found, last));
  return container;
}

/** Puts the whole in the place of what is cut. The focus stays at the place. */
export function opened(container, whole) {
  fill(container, whole);
  container.tabIndex = -1;
  container.focus({ preventScroll: true });
  container.dispatchEvent(new Event('opened', { bubbles: true }));
}

// Steps over the text from its start: each mark and each character takes columns, and a line break begins a row.
function rowsEnd(text, found, columns, rows) {
  let [at, row, column, mark] = [0, 1, 0, 0];
  while (at < text.length) {
    while (mark < found.length && (found[mark].start < at || found[mark].start === found[mark].end)) mark += 1;
    const here = found[mark]?.start === at && found[mark].end > at ? found[mark] : null;
    const isBreak = here ? here.breaks : text[at] === '\n';
    column += here ? here.words.length + 1 : width(text.charCodeAt(at));
    if (isBreak || column > columns) {
      row += 1;
      column = isBreak ? 0 : column - columns;
    }
    if (row > rows) return whole(text, at);
    at = here ? here.end : at + 1;
  }
  return at;
}

function rowsStart(text, found, columns, rows) {
  let [at, row, column, mark] = [text.length, 1, 0, found.length - 1];
  while (at > 0) {
    while (mark >= 0 && (found[mark].end > at || found[mark].start === found[mark].end)) mark -= 1;
    const here = found[mark]?.end === at && found[mark].start < at ? found[mark] : null;
    const isBreak = here ? here.breaks : text[at - 1] === '\n';
    column += here ? here.words.length + 1 : width(text.charCodeAt(at - 1));
    if (isBreak || column > columns) {
      row += 1;
      column = isBreak ? 0 : column - columns;
    }
    if (row > rows) return whole(text, at);
    at = here ? here.start : at - 1;
  }
  return at;
}

// Characters of East Asia are wide; an emoji is two units.
const width = unit => (unit >= 0x1100 && !(unit >= 0xd800 && unit < 0xe000) ? 2 : 1);

// A surrogate pair is not split.
const whole = (text, at) => (at > 0 && text.charCodeAt(at - 1) >= 0xd800 && text.charCodeAt(at - 1) < 0xdc00 ? at - 1 : at);

/** `Delete file` for `delete_file`. */
export function title(tool) {
  const words = tool.replace(/[_-]/g, ' ').trim();
  return words === '' ? tool : words[0].toUpperCase() + words.slice(1);
}

/** `alice` for `user:alice`; other actors as they are. */
export const person = actor => actor.replace(/^user:/, '');
