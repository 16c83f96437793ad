// The sign-ins of the person, and the end of each.
import { endSignIn, signIns } from '../api.js';
import { changed, guard, setBusy } from '../card/inert.js';
import { address } from '../list.js';
import { el, fill } from '../text/text.js';
import { date } from '../text/time.js';

const pane = document.getElementById('detail');

let isShown = false;

/** Shows the sign-ins. */
export async function open(notice = '') {
  isShown = true;
  fill(pane, el('p', { className: 'empty', role: 'status' }, 'Loading…'));
  const found = await signIns().catch(error => error);
  if (!isShown) return;
  const heading = el('h2', { tabIndex: -1 }, 'Where you are signed in');
  fill(pane, el('div', { className: 'body', tabIndex: 0, role: 'group', 'aria-label': 'Where you are signed in' },
    el('a', { className: 'back', href: address() }, 'Back to the list'), heading,
    notice && el('p', { role: 'status', className: 'outcome' }, notice),
    found instanceof Error ? el('p', {}, found.message)
      : found.results.length === 0 ? el('p', {}, 'The server keeps no sign-in of yours: a session here ends with its access token.')
        : el('ul', { className: 'policy' }, found.results.map(draw))));
  heading.focus();
  changed();
}

export function close() {
  isShown = false;
}

function draw({ sign_in_id: id, browser, begun_at: begun, ends_at: ends, is_current: isCurrent }) {
  const status = el('p', { role: 'status' });
  const name = browser === '' ? 'A browser without a name' : browser;
  // "Sign out" above ends this one.
  const button = !isCurrent && guard(el('button', { type: 'button', className: 'deny', 'aria-label': `Sign out ${name}` }, 'Sign out'), async () => {
    setBusy([button], true);
    try {
      await endSignIn(id);
    } catch (error) {
      if (error.status !== 404) {
        status.textContent = error.message;
        setBusy([button], false);
        return;
      }
    }
    if (isShown) await open('That browser is signed out.');
  });
  return el('li', {}, el('p', {}, name, isCurrent && [' ', el('b', {}, 'this browser')]),
    el('p', { className: 'hint' }, 'Since ', date(begun), ', until ', date(ends), ' at the latest'), button, status);
}
