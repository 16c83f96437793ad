// Complete cards: what a card has to show before it offers an approval.
import type { RevealedInputs } from './api.js';
import type { CardPart, ToolHold, UnacceptedDefinition } from './parts.js';

/** A text of a card with its name. The name is empty if the section has this text alone. */
export type CardRow = { name: string; text: string };

/** The content of one part of a card, for people. All texts are plain, and may have characters that hide: see `pieces`. */
export type CardSection = { part: CardPart; label: string; rows: CardRow[] };

/** The parts that the card of this call has to show whole before it offers an approval, in the order of a card. */
export const completeCard = (hold: ToolHold): CardPart[] => hold.cardParts ?? cardSections(hold).map(({ part }) => part);

/** The parts that a card lacks which shows these parts whole. */
export const missingParts = (hold: ToolHold, shown: readonly CardPart[]): CardPart[] =>
  completeCard(hold).filter(part => !shown.includes(part));

/**
 * Whether a card that shows these parts whole may offer an approval to this user: the one rule of all surfaces. A part
 * with a name that the page does not know is missing.
 */
export const mayApprove = (hold: ToolHold, shown: readonly CardPart[]): boolean =>
  hold.canEdit && !hold.cannotApprove && missingParts(hold, shown).length === 0;

/**
 * The parts of a complete card with their content, in the order of a card. A page that shows every row whole shows all of it. The
 * secret inputs are there only if the person has opened them: `revealed` is what `reveal` of the client returned.
 */
export function cardSections(hold: ToolHold, revealed?: RevealedInputs): CardSection[] {
  const sections: CardSection[] = [{ part: 'inputs', label: 'Inputs', rows: rowsOf(hold.input) }];
  if (hold.secretInputs && revealed?.input_hash === hold.inputHash) sections.push(secretSection(hold.secretInputs, revealed.input));
  if (hold.constants) sections.push({ part: 'constants', label: 'Set by the operator', rows: rowsOf(hold.constants) });
  if (hold.preview) sections.push(previewSection(hold.preview));
  if (hold.unacceptedDefinition) sections.push(definitionSection(hold.unacceptedDefinition));
  return sections;
}

const secretSection = (places: readonly string[], input: unknown): CardSection => ({
  part: 'secrets',
  label: 'Secret inputs',
  rows: places.map(place => ({ name: place, text: textOf(valueAt(input, place)) })),
});

/** The value at a JSON Pointer (RFC 6901). */
function valueAt(input: unknown, pointer: string): unknown {
  const keys = pointer.slice(1).split('/').map(key => key.replaceAll('~1', '/').replaceAll('~0', '~'));
  return keys.reduce<unknown>((value, key) => (value as Record<string, unknown> | undefined)?.[key], input);
}

function previewSection({ text, failed }: NonNullable<ToolHold['preview']>): CardSection {
  return text !== undefined
    ? { part: 'preview', label: 'What the tool says that it would do', rows: [{ name: '', text }] }
    : { part: 'preview', label: 'The tool could not say what the call would do', rows: [{ name: '', text: failed }] };
}

const CAUSES = {
  changed: 'The server of the tool has changed what it says about the tool, and no operator has accepted that',
  new: 'No operator has accepted what the server of the tool says about it',
  unknown: 'It could not be read whether an operator has accepted what the server of the tool says about it',
};

const definitionSection = ({ cause, changes }: UnacceptedDefinition): CardSection => ({
  part: 'definition',
  label: CAUSES[cause] ?? CAUSES.unknown,
  rows: changes.flatMap(({ field, accepted, current }) => [
    { name: `${field}, as accepted`, text: accepted ?? 'nothing' },
    { name: `${field}, now`, text: current ?? 'nothing' },
  ]),
});

/** The members of an object as rows. Other values are one row: inputs that JavaScript cannot hold are a text of JSON. */
export function rowsOf(value: unknown): CardRow[] {
  if (typeof value === 'string') return [{ name: '', text: value }];
  const isObject = typeof value === 'object' && value !== null && !Array.isArray(value);
  if (!isObject || Object.keys(value).length === 0) return [{ name: '', text: textOf(value) }];
  return Object.entries(value).map(([name, member]) => ({ name, text: textOf(member) }));
}

/** A value of JSON as a text. A string has quotes if it reads like JSON without them: `"10"` is a string, `10` a number. */
function textOf(value: unknown): string {
  const json = JSON.stringify(value, null, 2) ?? '';
  return typeof value === 'string' && !readsLikeJson(value) ? value : json;
}

function readsLikeJson(text: string): boolean {
  if (text.trim() === '') return true;
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}
