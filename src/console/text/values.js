// Inputs, outputs and differences, complete or cut.
import { isNumber, isObject, line, text } from './json.js';
import { count, cuttable, el, opened } from './text.js';

// Of more values than this the first and the last are shown.
const VALUES_MAX = 120;
const [VALUES_FIRST, VALUES_LAST] = [80, 20];
// A deeper value is one line of JSON: each level is narrower than the one around it.
const DEPTH_MAX = 6;

/** The inputs or the output of a call, each value by its name. `hash` is the hash of the whole. */
export function values(value, hash) {
  const total = size(value);
  if (total <= VALUES_MAX) return part(value, hash, { at: 0, first: Infinity }, 0);
  const container = el('div', {});
  const showAll = el('button', { type: 'button', className: 'link' }, `Show all ${count(total, 'value')}`);
  showAll.addEventListener('click', () => opened(container, part(value, hash, { at: 0, first: Infinity }, 0)));
  const gap = el('p', { className: 'cut' }, `Cut: ${count(total - VALUES_FIRST - VALUES_LAST, 'value')} are not shown here. `,
    hash && ['Hash of the whole: ', el('code', {}, hash), '. '], showAll);
  gap.dataset.left = 0;
  container.append(part(value, hash, { at: 0, first: VALUES_FIRST, last: total - VALUES_LAST, gap, isPlaced: false }, 0));
  return container;
}

const isBranch = (value, depth) => isObject(value) && depth < DEPTH_MAX && Object.keys(value).length > 0;

/** The number of boxes of a value. */
function size(value, depth = 0) {
  return isBranch(value, depth) ? Object.values(value).reduce((sum, inner) => sum + size(inner, depth + 1), 0) : 1;
}

// `shown` counts the boxes so far. Those between `first` and `last` are left out, with the note `gap` in their place.
function part(value, hash, shown, depth) {
  if (!isBranch(value, depth)) {
    shown.at += 1;
    return leaf(value, hash);
  }
  const isList = Array.isArray(value);
  const list = el('dl', { className: 'values' });
  for (const [name, inner] of Object.entries(value)) {
    const inside = shown.first === Infinity ? 0 : size(inner, depth + 1);
    if (shown.at >= shown.first && shown.at + inside <= shown.last) {
      shown.at += inside;
      if (!shown.isPlaced) list.append(el('div', {}, el('dt', {}, '…'), el('dd', {}, shown.gap)));
      shown.isPlaced = true;
      shown.gap.dataset.left = Number(shown.gap.dataset.left) + line(inner).length;
    } else {
      list.append(el('div', {}, el('dt', {}, isList ? `[${name}]` : key(name)), el('dd', {}, part(inner, hash, shown, depth + 1))));
    }
  }
  return list;
}

const key = name => (name.trim() === '' ? ['a name of blanks: ', line(name)] : cuttable(name));

function leaf(value, hash) {
  if (isObject(value)) {
    const words = line(value);
    return el('span', { className: 'value other', title: 'JSON' }, cuttable(words, hash));
  }
  if (typeof value !== 'string') {
    const kind = isNumber(value) ? 'number' : value === null ? 'nothing' : 'switch';
    return el('span', { className: 'value other', title: kind }, cuttable(line(value), hash));
  }
  if (value === '') return el('span', { className: 'value none' }, 'empty text');
  return el('span', { className: 'value text' }, cuttable(value, hash));
}

/** The stored JSON, folded away. */
export const stored = (title, value, hash) =>
  el('details', { className: 'stored' }, el('summary', {}, title), el('pre', { tabIndex: 0 }, cuttable(text(value), hash)));

// Of more lines than this the first and the last are shown.
const LINES_MAX = 60;
const [LINES_FIRST, LINES_LAST] = [36, 18];

/** The lines of a difference. */
export function changes(lines) {
  const words = { '-': 'removed', '+': 'added', ' ': '' };
  const draw = some => some.map(([sign, line]) =>
    el('div', { className: `line ${words[sign]}` },
      el('span', { className: 'sign', 'aria-hidden': 'true' }, sign === '-' ? '−' : sign),
      words[sign] && el('span', { className: 'unseen' }, `${words[sign]}: `),
      el('span', {}, cuttable(line))));
  const box = el('div', { className: 'diff', role: 'group', 'aria-label': 'Changes' });
  if (lines.length <= LINES_MAX) box.append(...draw(lines));
  else {
    const left = lines.slice(LINES_FIRST, -LINES_LAST);
    const showAll = el('button', { type: 'button', className: 'link' }, `Show all ${count(lines.length, 'line')}`);
    showAll.addEventListener('click', () => opened(box, draw(lines)));
    const note = el('p', { className: 'cut' }, `Cut: ${count(left.length, 'line')} are not shown here. `, showAll);
    note.dataset.left = left.reduce((sum, [, line]) => sum + line.length, 0);
    box.append(...draw(lines.slice(0, LINES_FIRST)), note, ...draw(lines.slice(-LINES_LAST)));
  }
  return box;
}
