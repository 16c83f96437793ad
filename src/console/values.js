// Inputs, outputs and differences, complete or cut.
import { isNumber, isObject, line, text } from './json.js';
import { cuttable, el, fill } from './text.js';

const VALUES_MAX = 300;

/** The inputs or the output of a call, each value by its name. `hash` is the hash of the whole. */
export function values(value, hash) {
  const left = { count: VALUES_MAX, isCut: false };
  const tree = part(value, hash, left);
  if (!left.isCut) return tree;
  const showAll = el('button', { type: 'button', className: 'link' }, 'Show all values');
  const note = el('p', { className: 'cut' }, `Cut: only the first ${VALUES_MAX} values are shown. `,
    hash && ['Hash of the whole: ', el('code', {}, hash), '. '], showAll);
  const container = el('div', {}, tree, note);
  showAll.addEventListener('click', () => fill(container, part(value, hash, { count: Infinity })));
  return container;
}

function part(value, hash, left) {
  if (!isObject(value)) {
    left.count -= 1;
    return leaf(value, hash);
  }
  const isList = Array.isArray(value);
  const entries = Object.entries(value);
  if (entries.length === 0) {
    left.count -= 1;
    return el('span', { className: 'value other' }, isList ? '[]' : '{}');
  }
  const list = el('dl', { className: 'values' });
  for (const [name, inner] of entries) {
    if (left.count <= 0) {
      left.isCut = true;
      break;
    }
    list.append(el('div', {}, el('dt', {}, isList ? `[${name}]` : name), el('dd', {}, part(inner, hash, left))));
  }
  return list;
}

function leaf(value, hash) {
  if (typeof value !== 'string') {
    const kind = isNumber(value) ? 'number' : value === null ? 'nothing' : 'switch';
    return el('span', { className: 'value other', title: kind }, line(value));
  }
  if (value === '') return el('span', { className: 'value none' }, 'empty text');
  return el('span', { className: 'value text' }, cuttable(value, hash));
}

/** The stored JSON, folded away. */
export const stored = (title, value, hash) =>
  el('details', { className: 'stored' }, el('summary', {}, title), el('pre', { tabIndex: 0 }, cuttable(text(value), hash)));

/** The lines of a difference. */
export function changes(lines) {
  const words = { '-': 'removed', '+': 'added', ' ': '' };
  return el('div', { className: 'diff', role: 'group', 'aria-label': 'Changes' }, lines.map(([sign, line]) =>
    el('div', { className: `line ${words[sign]}` },
      el('span', { className: 'sign', 'aria-hidden': 'true' }, sign === '-' ? '−' : sign),
      words[sign] && el('span', { className: 'unseen' }, `${words[sign]}: `),
      el('span', {}, cuttable(line)))));
}
