// Controls that decide do nothing for a moment after what they decide about has changed: a press that was meant for
// something else must not decide.

const INERT = 500;

let since = Infinity;
let round = 0;

/** Makes all guarded controls inert, until what changed has been visible for long enough. */
export function changed() {
  since = Infinity;
  round += 1;
  const own = round;
  draw(true);
  // No frame is drawn while the tab is hidden.
  requestAnimationFrame(() => requestAnimationFrame(() => {
    if (own !== round) return;
    since = performance.now();
    setTimeout(() => { if (own === round) draw(false); }, INERT);
  }));
}

function draw(isInert) {
  for (const button of document.querySelectorAll('button[data-guarded]')) {
    if (isInert) button.setAttribute('aria-disabled', 'true');
    else if (!('busy' in button.dataset)) button.removeAttribute('aria-disabled');
  }
}

/** Guards a button: a press counts only if the button was not inert when the person pressed. */
export function guard(button, pressed) {
  button.dataset.guarded = '';
  if (since === Infinity || performance.now() - since < INERT) button.setAttribute('aria-disabled', 'true');
  button.addEventListener('click', event => {
    event.preventDefault();
    if (event.timeStamp - since < INERT || 'busy' in button.dataset) return;
    pressed();
  });
  return button;
}

/** While a request is in progress its controls do nothing. */
export function setBusy(buttons, isBusy) {
  for (const button of buttons) {
    if (isBusy) {
      button.dataset.busy = '';
      button.setAttribute('aria-disabled', 'true');
    } else {
      delete button.dataset.busy;
      button.removeAttribute('aria-disabled');
    }
  }
}

// The press that brings the window to the front, or a second press of a double click elsewhere, decides nothing.
addEventListener('focus', changed);
document.addEventListener('visibilitychange', changed);
