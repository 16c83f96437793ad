// A plain blank is the only one that is shown as it is. The braille blank looks like a blank and is none to Unicode.
const HIDDEN = /(?![ \n])[\p{Cc}\p{Cf}\p{Co}\p{Cs}\p{Z}\p{Default_Ignorable_Code_Point}\u2800]/gu;

/**
 * The text with every character that hides, reverses text or looks like a blank replaced by its number, such as
 * `\u{202e}`. A person who approves inputs has to see the inputs that run. A line break stays.
 */
export const visible = (text: string): string =>
  text.replace(HIDDEN, hidden => `\\u{${hidden.codePointAt(0)?.toString(16)}}`);
