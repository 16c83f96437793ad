// The marks in a text: hidden characters, runs that push text out of view, and words that mix scripts.
import { HIDDEN, mixed, number } from './characters.js';

// Three or more line breaks, also with blanks between them, and twenty or more blanks.
const RUN = /[ \t]*(?:\r?\n[ \t\r]*){2,}\r?\n|[ \t]{20,}/g;
// The same hidden character, often.
const SAME_MIN = 3;

/**
 * The marks in the order of the text: `start` and `end` of what a mark replaces, its `words`, what a screen reader says instead
 * (`spoken`), whether a line break follows (`breaks`), and its `kind`.
 */
export function marks(text) {
  // Most texts have none.
  if (!/[^\x20-\x7E\n]|\s{3}/.test(text)) return [];
  const runs = [...text.matchAll(RUN)].map(run);
  const hidden = [];
  let next = 0;
  for (const { 0: character, index } of text.matchAll(HIDDEN)) {
    while (next < runs.length && runs[next].end <= index) next += 1;
    if (next < runs.length && runs[next].start <= index) continue;
    const last = hidden.at(-1);
    if (last?.character === character && last.end === index) last.end += character.length;
    else hidden.push({ character, start: index, end: index + character.length });
  }
  const words = mixed(text).map(([word, index, scripts]) => ({ start: index + word.length, end: index + word.length, words: `mixed scripts: ${scripts.join(', ')}`, kind: 'mixed' }));
  return [...runs, ...hidden.flatMap(numbers), ...words].sort((a, b) => a.start - b.start || a.end - b.end);
}

function run({ 0: found, index }) {
  const start = index;
  const lines = found.split('\n').length - 1;
  const n = (lines || found.length).toLocaleString('en');
  const [sign, what] = lines > 0 ? ['↵', 'line breaks'] : ['␣', 'blanks'];
  return { start, end: start + found.length, words: `${sign} ×${n}`, spoken: `${n} ${what}`, breaks: lines > 0, kind: 'run' };
}

function numbers({ character, start, end }) {
  const times = (end - start) / character.length;
  const kind = 'hidden-character';
  if (times >= SAME_MIN) return [{ start, end, words: `${number(character)} ×${times.toLocaleString('en')}`, kind }];
  return Array.from({ length: times }, (_, n) => ({ start: start + n * character.length, end: start + (n + 1) * character.length, words: number(character), kind }));
}
