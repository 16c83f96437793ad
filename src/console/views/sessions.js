// The sessions of the caller; for an operator those of the tenant.
import { sessions } from '../api.js';
import { changed } from '../card/inert.js';
import { address } from '../list.js';
import { el, fill } from '../text/text.js';
import { date } from '../text/time.js';

const pane = document.getElementById('detail');

let isShown = false;

/** Shows the newest sessions. */
export async function open() {
  isShown = true;
  fill(pane, el('p', { className: 'empty', role: 'status' }, 'Loading…'));
  const first = await sessions().catch(error => error);
  if (!isShown) return;
  const heading = el('h2', { tabIndex: -1 }, 'Sessions');
  const body = el('div', { className: 'body', tabIndex: 0, role: 'group', 'aria-label': 'Sessions' },
    el('a', { className: 'back', href: address() }, 'Back to the list'), heading);
  if (first instanceof Error) body.append(el('p', {}, first.message));
  else if (first.results.length === 0) body.append(el('p', {}, 'There is no session yet.'));
  else body.append(...paged(first));
  fill(pane, body);
  heading.focus();
  changed();
}

export function close() {
  isShown = false;
}

function paged(first) {
  const list = el('ul', { className: 'policy' });
  const status = el('p', { role: 'status' });
  const more = el('button', { type: 'button', on: { click: showMore } }, 'Show older sessions');
  let cursor;
  function add(page) {
    list.append(...page.results.map(draw));
    cursor = page.next_cursor;
    more.hidden = !page.has_more;
  }
  async function showMore() {
    more.disabled = true;
    try {
      add(await sessions(cursor));
      status.textContent = '';
    } catch (error) {
      status.textContent = error.message;
    }
    more.disabled = false;
  }
  add(first);
  return [list, status, more];
}

function draw(session) {
  const count = session.pending_count;
  const waiting = el('a', { href: `#/?session=${session.session_id}` }, count === 1 ? '1 call waits' : `${count} calls wait`);
  return el('li', {},
    el('p', {}, el('a', { href: `#/session/${session.session_id}` }, session.title), ' of ', el('b', {}, session.user_id)),
    el('p', { className: 'hint' }, 'Last changed ', date(session.updated_at), count > 0 && [' · ', waiting],
      session.has_policy && ' · has a policy of its own'));
}
