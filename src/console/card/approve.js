// The button that approves. Until everything is shown that the approval covers, it says what is left, and leads there.
import { missing, partsOf } from './complete.js';
import { changed, guard } from './inert.js';
import { left } from './parts.js';
import { el, fill } from '../text/text.js';
import { goTo, view } from '../view.js';

/**
 * What is left to show of a call before it may be approved, or nothing. Only a call of low risk may be approved before its parts
 * were in view.
 */
export function rest(item, drawn, mustBeRead = item.risk_level !== 'low') {
  const names = missing(partsOf(item), drawn.shown(mustBeRead));
  return names.length === 0 ? null : left(names, drawn);
}

/** The button. `words` is its name, and `isLeft` what is left, both at each moment. */
export function approveButton(words, isLeft, pressed) {
  let wasLeft = false;
  const button = guard(el('button', { type: 'button', className: 'approve' }), () => {
    const found = isLeft();
    if (found === null) pressed();
    else if (found.place) goTo(found.place);
  });
  const update = () => {
    const found = isLeft();
    const name = found === null ? words() : found.place ? `Read on: ${found.words}` : `Cannot be approved here: ${found.words}`;
    if (button.textContent !== name) fill(button, name);
    button.title = found === null ? '' : name;
    button.classList.toggle('left', found !== null);
    // A press that was meant to read on does not approve.
    if (wasLeft && found === null) changed();
    wasLeft = found !== null;
  };
  const seen = () => {
    if (button.isConnected) update();
    else view.removeEventListener('seen', seen);
  };
  view.addEventListener('seen', seen);
  update();
  return { button, update };
}
