// JSON that keeps the digits of every number, and differences between two texts.
import { HIDDEN } from './characters.js';

/** Whether this browser can keep the digits of numbers. */
export const isSupported = typeof JSON.rawJSON === 'function';

/** Parses JSON. A number that JavaScript would change is kept as its text, which `text` writes again. */
export const parse = source => JSON.parse(source, (_, value, context) =>
  typeof value === 'number' && String(value) !== context.source ? JSON.rawJSON(context.source) : value);

export const isNumber = value => typeof value === 'number' || JSON.isRawJSON(value);
export const isObject = value => typeof value === 'object' && value !== null && !JSON.isRawJSON(value);

// As JSON escapes: half of a pair at a time.
const escaped = hidden => hidden.split('').map(unit => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`).join('');

/** The value as JSON text in which every hidden character is an escape. */
export const text = value => JSON.stringify(value, null, 2).replace(HIDDEN, escaped);

/** The value as JSON text on one line. */
export const line = value => JSON.stringify(value).replace(HIDDEN, escaped);

const LINES_MAX = 1500;

/**
 * The lines of both texts in order: `[sign, line]`, where the sign is `-` for a line of the first text alone, `+` for
 * one of the second alone, and a blank for a line of both.
 */
export function difference(before, after) {
  const [a, b] = [before.split('\n'), after.split('\n')];
  let start = 0;
  while (start < a.length && start < b.length && a[start] === b[start]) start += 1;
  let end = 0;
  while (end < a.length - start && end < b.length - start && a.at(-1 - end) === b.at(-1 - end)) end += 1;
  const same = lines => lines.map(line => [' ', line]);
  const [left, right] = [a.slice(start, a.length - end), b.slice(start, b.length - end)];
  return [...same(a.slice(0, start)), ...changed(left, right), ...same(a.slice(a.length - end))];
}

// By the longest common subsequence.
function changed(a, b) {
  const removed = line => ['-', line];
  const added = line => ['+', line];
  if (a.length > LINES_MAX || b.length > LINES_MAX) return [...a.map(removed), ...b.map(added)];
  const common = Array.from({ length: a.length + 1 }, () => new Uint16Array(b.length + 1));
  for (let i = a.length - 1; i >= 0; i -= 1) {
    for (let j = b.length - 1; j >= 0; j -= 1) {
      common[i][j] = a[i] === b[j] ? common[i + 1][j + 1] + 1 : Math.max(common[i + 1][j], common[i][j + 1]);
    }
  }
  const lines = [];
  let [i, j] = [0, 0];
  while (i < a.length && j < b.length) {
    if (a[i] === b[j]) {
      lines.push([' ', a[i]]);
      i += 1;
      j += 1;
    } else if (common[i + 1][j] >= common[i][j + 1]) {
      lines.push(removed(a[i]));
      i += 1;
    } else {
      lines.push(added(b[j]));
      j += 1;
    }
  }
  return [...lines, ...a.slice(i).map(removed), ...b.slice(j).map(added)];
}
