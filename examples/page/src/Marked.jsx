import { Fragment, memo } from 'react';
import { pieces } from '@holdpoint/page';

// A text of a model or a tool as a person has to see it: what hides, reverses or pushes text away is a mark, and so is a
// word that mixes alphabets. The text is in units, which `useSeen` watches: a line each, or a piece of a long line.
export const Marked = memo(({ text }) =>
  unitsOf(text).map((unit, index) => (
    <span key={index} className="unit">
      {unit.map((piece, index) => <Fragment key={index}>{piece.kind === 'text' ? piece.text : <Mark {...piece} />}</Fragment>)}
    </span>
  )),
);

const TITLES = {
  hidden: 'A character that hides or reverses text',
  run: 'Line breaks or blanks that push text out of view',
  mixed: 'Letters of several alphabets',
};

const Mark = ({ kind, text, mark = text }) => <mark className={kind} title={TITLES[kind]}>{mark}</mark>;

// A unit is at most a few lines on the narrowest page, so that it is in view as a whole.
const SIZE = 80;
const LINES = new RegExp(`[^\\n]{1,${SIZE}}\\n?|\\n`, 'gu');

function unitsOf(text) {
  const units = [];
  let room = 0;
  const add = piece => {
    if (piece.text.length > room) {
      units.push([]);
      room = SIZE;
    }
    units.at(-1).push(piece);
    room = piece.text.endsWith('\n') ? 0 : room - piece.text.length;
  };
  for (const piece of pieces(text)) {
    if (piece.mark) add(piece);
    else for (const line of piece.text.match(LINES)) add({ ...piece, text: line });
  }
  return units;
}
