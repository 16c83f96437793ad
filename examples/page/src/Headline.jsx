import { Marked } from './Marked.jsx';
import { questionOf } from './words.js';

const LONGEST = 60;

// The question of the operator. The values in it are the model's, and are set apart from the words.
export function Headline({ hold, decision }) {
  if (!hold.headlineParts || decision?.edited) return questionOf(hold, decision);
  return hold.headlineParts.map(({ text, value }, index) =>
    value === undefined ? <Marked key={index} text={text} /> : <Value key={index} value={value} />,
  );
}

function Value({ value }) {
  const characters = [...value];
  const isCut = characters.length > LONGEST;
  return (
    <code dir="auto">
      <Marked text={isCut ? characters.slice(0, LONGEST).join('') : value} />
      {isCut && '…'}
    </code>
  );
}
