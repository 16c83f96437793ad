import { Marked } from './Marked.jsx';
import { questionOf } from './words.js';

// The question of the operator. The values in it are the model's, and are set apart from the words.
export function Headline({ hold, decision }) {
  if (!hold.headlineParts || decision?.edited) return questionOf(hold, decision);
  return hold.headlineParts.map(({ text, value }, index) =>
    value === undefined ? <Marked key={index} text={text} /> : <code key={index} dir="auto"><Marked text={value} /></code>,
  );
}
