// A link of a message to one person: it leads to the card of its call.
import { openLink } from '../api.js';
import * as card from '../card/card.js';
import * as list from '../list.js';
import { el, fill } from '../text/text.js';

const pane = document.getElementById('detail');
const HEADINGS = { 403: 'This link is for another person', 404: 'This link has expired' };

let opening = null;

/** Opens the card. The token leaves the address, so that no history and no copied address has it. */
export async function open(token) {
  if (opening === token) return;
  opening = token;
  fill(pane, el('p', { className: 'empty', role: 'status' }, 'Loading…'));
  try {
    const { tool_call_id: id } = await openLink(token);
    if (opening !== token) return;
    opening = null;
    history.replaceState(null, '', `#/call/${encodeURIComponent(id)}`);
    card.open(id, token);
  } catch (error) {
    if (opening !== token) return;
    const heading = el('h2', { tabIndex: -1 }, HEADINGS[error.status] ?? 'The link could not be opened');
    fill(pane, el('a', { className: 'back', href: list.address() }, 'Back to the list'), heading, el('p', {}, error.message));
    heading.focus();
  }
}

export function close() {
  opening = null;
}
