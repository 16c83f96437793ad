// Texts of models and tools, as a person has to see them: what hides, reverses, pushes away or imitates is marked.

/** A piece of a text. `text` is the text itself in every kind, and `mark` what is shown in its place. */
export type Piece =
  | { kind: 'text'; text: string }
  /** A character that hides, reverses text, or looks like a blank: `U+202E`. */
  | { kind: 'hidden'; text: string; mark: string }
  /** At least 3 line breaks or 20 blanks in a row, which push the text after them out of view: `↵ ×900`. */
  | { kind: 'run'; text: string; mark: string }
  /** A word in letters of several scripts, such as `pаypal` with a Cyrillic `а`. */
  | { kind: 'mixed'; text: string };

// A plain blank and a line break stay. The braille blank looks like a blank and is none to Unicode. Of the marks on one
// letter those after the fifth cover other lines.
const HIDDEN = String.raw`(?![ \n])(?:[\p{Cc}\p{Cf}\p{Cn}\p{Co}\p{Cs}\p{Z}\p{Default_Ignorable_Code_Point}\u2800]|(?<=\p{M}{5})\p{M})`;

const SCRIPTS_WITH_JOINERS = [
  'Arabic', 'Devanagari', 'Bengali', 'Gurmukhi', 'Gujarati', 'Oriya', 'Tamil', 'Telugu', 'Kannada', 'Malayalam', 'Sinhala',
];
const JOINED = SCRIPTS_WITH_JOINERS.map(name => `\\p{sc=${name}}`).join('');
// Where such a character belongs to what people write: parts of an emoji, and joiners between letters that change by them.
const BELONGS = [
  String.raw`(?<=\p{Extended_Pictographic}\p{Emoji_Modifier}?)\ufe0f`,
  String.raw`(?<=[0-9#*])\ufe0f(?=\u20e3)`,
  String.raw`(?<=\p{Extended_Pictographic}[\ufe0f\p{Emoji_Modifier}]?)\u200d(?=\p{Extended_Pictographic})`,
  String.raw`(?<=(?=[\p{L}\p{M}])[${JOINED}])[\u200c\u200d](?=(?=[\p{L}\p{M}])[${JOINED}])`,
].join('|');
const MARKED = new RegExp(String.raw`(?<hidden>(?!${BELONGS})${HIDDEN})|\n(?: *\n){2,}| {20,}`, 'gu');

/** A text in pieces: the plain text, and what a person has to notice. Together the `text` of the pieces is the text. */
export function pieces(text: string): Piece[] {
  const found: Piece[] = [];
  const words = mixedWords(text).map(({ 0: word, index }) => ({ start: index, end: index + word.length }));
  let from = 0;
  let next = 0;
  const unmarked = (end: number) => {
    while (from < end) {
      while ((words[next]?.end ?? text.length) <= from) next += 1;
      const word = words[next] ?? { start: text.length, end: text.length };
      const isMixed = word.start <= from;
      const to = Math.min(end, isMixed ? word.end : word.start);
      found.push({ kind: isMixed ? 'mixed' : 'text', text: text.slice(from, to) });
      from = to;
    }
  };
  for (const match of text.matchAll(MARKED)) {
    unmarked(match.index);
    found.push(markOf(match[0], match.groups?.hidden !== undefined));
    from += match[0].length;
  }
  unmarked(text.length);
  return found;
}

function markOf(text: string, isHidden: boolean): Piece {
  if (isHidden) return { kind: 'hidden', text, mark: `U+${numberOf(text).toUpperCase().padStart(4, '0')}` };
  const lines = text.split('\n').length - 1;
  return { kind: 'run', text, mark: lines > 0 ? `↵ ×${lines}` : `␣ ×${text.length}` };
}

const numberOf = (character: string): string => character.codePointAt(0)?.toString(16) ?? '';

/**
 * The text with every character that hides, reverses text or looks like a blank replaced by its number, such as
 * `\u{202e}`, and with 3 line breaks or 20 blanks in a row replaced by their number and count, such as `\u{a}×900`. A
 * person who approves inputs has to see the inputs that run.
 */
export const visible = (text: string): string =>
  pieces(text)
    .map(piece => {
      if (piece.kind === 'hidden') return `\\u{${numberOf(piece.text)}}`;
      if (piece.kind === 'run') return `\\u{${numberOf(piece.text)}}${piece.mark.slice(2)}`;
      return piece.text;
    })
    .join('');

/** The words of a text that have letters of several scripts, in their order. */
export const mixedScripts = (text: string): string[] => mixedWords(text).map(([word]) => word);

const mixedWords = (text: string): RegExpExecArray[] => [...text.matchAll(WORD)].filter(([word]) => isMixed(word));

// Letters, marks and digits, with the joiners between them.
const WORD = /[\p{L}\p{M}\p{N}\u200c\u200d]+/gu;

// Living scripts. A letter of another script counts as one more script.
const SCRIPTS = [
  'Latin', 'Cyrillic', 'Greek', 'Armenian', 'Hebrew', 'Han', 'Hiragana', 'Katakana', 'Hangul', 'Bopomofo', 'Cherokee', 'Coptic',
  'Georgian', 'Thai', 'Lao', 'Khmer', 'Myanmar', 'Tibetan', 'Ethiopic', 'Mongolian', 'Syriac', 'Thaana', 'Lisu',
  ...SCRIPTS_WITH_JOINERS,
].map(name => ({ name, letter: new RegExp(`(?!\\p{N})\\p{sc=${name}}`, 'u') }));
const OTHER = new RegExp(
  String.raw`[^\p{N}\u200c\u200d\p{sc=Common}\p{sc=Inherited}${SCRIPTS.map(({ name }) => `\\p{sc=${name}}`).join('')}]`,
  'u',
);
// What Japanese, Korean and Chinese write in one word.
const TOGETHER = ['Hiragana Katakana', 'Hangul', 'Bopomofo'].map(own => ['Latin', 'Han', ...own.split(' ')]);

function isMixed(word: string): boolean {
  // Latin letters alone, as most words are.
  if (/^[\0-\x7f]*$/.test(word)) return false;
  const scripts = SCRIPTS.filter(({ letter }) => letter.test(word)).map(({ name }) => name);
  if (OTHER.test(word)) scripts.push('other');
  return scripts.length > 1 && !TOGETHER.some(system => scripts.every(name => system.includes(name)));
}

/** The beginning and the end of a long text. `left` is the number of characters between them. */
export type Excerpt = { start: string; end: string; left: number };

// Attacks sit at the end of a long value, so an excerpt has both.
const START = { characters: 600, breaks: 14 };
const END = { characters: 400, breaks: 8 };
// A cut that leaves less out is not worth a button.
const LEAST = { characters: 200, breaks: 4 };

/** A long text without its middle. A text that is not long is whole in `start`, and `left` is 0. */
export function excerpt(text: string): Excerpt {
  // As they are shown: a run is one mark.
  const shown = pieces(text).flatMap(piece => (piece.kind === 'run' ? [piece.text] : [...piece.text]));
  const start = shown.slice(0, countIn(shown, START));
  const rest = shown.slice(start.length);
  const end = rest.slice(rest.length - countIn([...rest].reverse(), END));
  const middle = rest.slice(0, rest.length - end.length);
  if (countIn(middle, LEAST) === middle.length) return { start: text, end: '', left: 0 };
  return { start: start.join(''), end: end.join(''), left: [...middle.join('')].length };
}

/** How many of these are at most so many characters with so many line breaks. */
function countIn(shown: readonly string[], most: { characters: number; breaks: number }): number {
  let breaks = 0;
  const first = shown.slice(0, most.characters);
  const after = first.findIndex(character => character.includes('\n') && ++breaks > most.breaks);
  return after < 0 ? first.length : after;
}
