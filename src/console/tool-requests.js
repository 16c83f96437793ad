// The requests of executing tools: their list above the calls, and the form of one request.
import { answer, requests } from './api.js';
import { blank } from './edit.js';
import { chip } from './headline.js';
import { changed, guard, setBusy } from './inert.js';
import { live } from './live.js';
import { el, fill, person } from './text.js';
import { clock } from './time.js';

const pane = document.getElementById('detail');
const section = document.getElementById('tool-requests');
const rows = section.querySelector('ul');

/** The open requests, newest first, and the one that is shown. */
let listed = [];
let shown = null;
let round = 0;

/** Forgets everything that was read. */
export function forget() {
  round += 1;
  listed = [];
  draw();
}

/** Reads the open requests again. */
export async function reload() {
  round += 1;
  const own = round;
  const found = await requests({ state: 'open', page_size: 50 }).catch(() => null);
  if (own !== round || found === null) return;
  listed = found.results;
  draw();
}

/** `changed` when other requests are open. */
export const asks = new EventTarget();

/** The open request of this call. */
export const askedBy = callId => listed.find(({ tool_call_id: id }) => id === callId);

const toolOf = ({ mcp, tool_name: tool }) => (mcp ? `${mcp.tool} of ${mcp.server}` : tool);

// The words are those of the tool.
const asking = ({ mcp, tool_name: tool, message }) => [`${mcp?.server ?? tool} asks: `, chip(message)];

function draw() {
  section.hidden = listed.length === 0;
  fill(rows, listed.map(item => el('li', {}, el('a', { href: `#/request/${item.request_id}`, 'aria-current': item.request_id === shown?.id ? 'true' : undefined },
    el('span', { className: 'headline' }, asking(item)),
    el('span', { className: 'facts' }, el('code', {}, toolOf(item)), el('span', {}, `for ${person(item.requested_by)}`)),
    el('span', { className: 'state' }, 'waits for ', clock(item.expires_at, 'no time: it is over'))))));
  asks.dispatchEvent(new Event('changed'));
}

/** Shows the request with this id. */
export async function open(id) {
  if (shown?.id === id) return;
  shown = { id };
  const own = shown;
  fill(pane, el('p', { className: 'empty', role: 'status' }, 'Loading…'));
  const item = await find(id).catch(error => error);
  if (own !== shown) return;
  draw();
  if (item instanceof Error) end(item.message);
  else if (item === undefined) end('No such request, or it has ended.');
  else build(item);
}

async function find(id) {
  let cursor;
  do {
    const page = await requests({ state: 'open', page_size: 50, cursor });
    const item = page.results.find(({ request_id: one }) => one === id);
    if (item !== undefined) return item;
    cursor = page.next_cursor;
  } while (cursor !== undefined);
}

/** Shows no request. */
export function close() {
  shown = null;
  draw();
}

function end(text) {
  fill(pane, el('div', { className: 'body' }, el('a', { className: 'back', href: '#/' }, 'Back to the list'),
    el('h2', { tabIndex: -1 }, 'Request of a tool'), el('p', { className: 'outcome', role: 'status' }, text)));
  pane.querySelector('h2').focus();
}

function build(item) {
  const form = blank(item.schema);
  const heading = el('h2', { tabIndex: -1 }, asking(item));
  const message = el('p', { className: 'message', role: 'status' });
  const fields = el('div', {}, form.contents());
  const send = action => {
    const content = action === 'accept' ? form.read() : undefined;
    if (typeof content === 'string') fill(message, content);
    else submit(item, { action, content }, { form, fields, message });
  };
  const button = (action, className, words) => guard(el('button', { type: 'button', className }, words), () => send(action));
  shown.bar = el('div', { className: 'bar' }, message, !item.can_decline ? el('p', {}, 'You see this request, and others answer it.')
    : el('div', { className: 'approval' }, button('cancel', 'deny', 'Cancel what it does'), button('decline', 'deny', 'Decline'),
      item.can_accept && button('accept', 'approve', 'Send the answer')));
  fill(pane, el('div', { className: 'body', tabIndex: 0, role: 'group', 'aria-label': 'Request' },
    el('a', { className: 'back', href: '#/' }, 'Back to the list'), heading,
    el('p', { className: 'facts' }, el('code', {}, toolOf(item)), el('span', {}, 'runs for ', el('b', {}, person(item.requested_by))),
      el('span', {}, 'time to answer: ', clock(item.expires_at, 'over'))),
    el('p', {}, 'What you enter goes to this tool alone. Enter nothing that it must not have.'),
    el('h3', {}, 'Its message'), el('p', { className: 'value text' }, item.message),
    item.can_accept && [el('h3', {}, 'Your answer'), fields],
    el('p', {}, el('a', { href: `#/call/${item.tool_call_id}` }, 'The call'))), shown.bar);
  changed();
  heading.focus();
}

const OUTCOMES = { accepted: 'Sent. The tool continues.', declined: 'Declined. The tool continues without an answer.', cancelled: 'Cancelled. The tool gets a request to end.' };

async function submit(item, body, { form, fields, message }) {
  const own = shown;
  const controls = [...own.bar.querySelectorAll('button')];
  setBusy(controls, true);
  fill(message, 'Sending…');
  try {
    const { state } = await answer(item.request_id, body);
    if (own === shown) end(OUTCOMES[state]);
  } catch (error) {
    if (own !== shown) return;
    setBusy(controls, false);
    if (error.code === 'request_closed') end('The request has another answer, or has ended. Your answer has no effect.');
    else {
      if (error.code === 'invalid_inputs') fill(fields, form.refused(error.details.errors ?? []));
      fill(message, error.message);
    }
  }
  reload();
}

live.addEventListener('event', ({ detail: event }) => {
  const isOver = /^tool\.(input_ended|succeeded|failed|interrupted)$/.test(event.type);
  if (event.type === 'tool.input_requested' || (isOver && listed.some(item => item.tool_call_id === event.tool_call_id))) reload();
});
live.addEventListener('open', reload);
