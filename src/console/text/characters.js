// Which characters of a text are shown by their numbers, and which words mix scripts. Every surface has the same rules, and
// `tests/characters.json` has the cases of all of them.

// Letters and signs of scripts in which an invisible joiner or non-joiner between two of them changes how they look.
const JOINED = String.raw`[[\p{L}\p{M}]&&[\p{Script=Arabic}\p{Script=Devanagari}\p{Script=Bengali}\p{Script=Gurmukhi}\p{Script=Gujarati}\p{Script=Oriya}\p{Script=Tamil}\p{Script=Telugu}\p{Script=Kannada}\p{Script=Malayalam}\p{Script=Sinhala}]]`;
const EMOJI = String.raw`\p{Extended_Pictographic}`;

// Invisible characters that belong to what is visible: parts of an emoji, and joiners of the scripts above.
const BELONGING = [
  String.raw`(?<=${EMOJI}\p{Emoji_Modifier}?)\uFE0F`,
  String.raw`(?<=[0-9#*])\uFE0F(?=\u20E3)`,
  String.raw`(?<=${EMOJI}[\uFE0F\p{Emoji_Modifier}]?)\u200D(?=${EMOJI})`,
  String.raw`(?<=${JOINED})[\u200C\u200D](?=${JOINED})`,
].join('|');

// A character that hides text, reverses it or looks like a blank. A plain blank and a line break are none. Of the marks on one
// letter those after the fifth count too: they would cover other lines.
const HIDING = String.raw`[\p{Cc}\p{Cf}\p{Cn}\p{Co}\p{Cs}\p{Z}\p{Default_Ignorable_Code_Point}\u2800]|(?<=\p{M}{5})\p{M}`;

/** The hidden characters of a text, each by itself. */
export const HIDDEN = new RegExp(String.raw`(?![ \n]|${BELONGING})(?:${HIDING})`, 'gv');

/** `U+202E` for a character. */
export const number = character => `U+${character.codePointAt(0).toString(16).toUpperCase().padStart(4, '0')}`;

/** The numbers of the hidden characters, in the order of the text. */
export const hidden = text => [...text.matchAll(HIDDEN)].map(([character]) => number(character));

// Living scripts with letters. The letters of all others count as one script.
const SCRIPTS = ['Latin', 'Cyrillic', 'Greek', 'Armenian', 'Hebrew', 'Arabic', 'Han', 'Hiragana', 'Katakana', 'Hangul', 'Bopomofo', 'Cherokee', 'Coptic',
  'Georgian', 'Devanagari', 'Bengali', 'Gurmukhi', 'Gujarati', 'Oriya', 'Tamil', 'Telugu', 'Kannada', 'Malayalam', 'Sinhala', 'Thai', 'Lao', 'Khmer',
  'Myanmar', 'Tibetan', 'Ethiopic', 'Mongolian', 'Syriac', 'Thaana', 'Lisu'].map(name => [name, new RegExp(`\\p{Script=${name}}`, 'v')]);
const NO_SCRIPT = /[\p{Script=Common}\p{Script=Inherited}\p{N}\u200C\u200D]/v;
// What Japanese, Korean and Chinese write in one word.
const TOGETHER = [['Latin', 'Han', 'Hiragana', 'Katakana'], ['Latin', 'Han', 'Hangul'], ['Latin', 'Han', 'Bopomofo']];
const WORD = /[\p{L}\p{M}\p{N}\u200C\u200D]+/gv;

function scripts(word) {
  const found = new Set();
  for (const character of word) {
    if (!NO_SCRIPT.test(character)) found.add(SCRIPTS.find(([, script]) => script.test(character))?.[0] ?? 'another script');
  }
  return [...found];
}

/**
 * The words that mix scripts, so that a letter may stand for one that looks like it: `[word, its place, its scripts]`. A word is a
 * run of letters, marks and digits.
 */
export function mixed(text) {
  // A word of ASCII alone is Latin.
  if (!/[^\x00-\x7F]/.test(text)) return [];
  return [...text.matchAll(WORD)].filter(([word]) => /[^\x00-\x7F]/.test(word)).map(({ 0: word, index }) => [word, index, scripts(word)])
    .filter(([, , names]) => names.length > 1 && !TOGETHER.some(all => names.every(name => all.includes(name))));
}
