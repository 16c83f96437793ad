// The requests of executing tools: their list above the calls, and the form of one request.
import { answer, requests } from '../api.js';
import { blank } from '../card/edit.js';
import { chip } from '../card/headline.js';
import { changed, guard, setBusy } from '../card/inert.js';
import { live } from '../live.js';
import { el, fill, person } from '../text/text.js';
import { clock } from '../text/time.js';
import { restore } from '../text/typed.js';
import { values } from '../text/values.js';
import { cutsOf } from '../view.js';

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
  shown.isOver = true;
  fill(pane, el('div', { className: 'body' }, el('a', { className: 'back', href: '#/' }, 'Back to the list'),
    el('h2', { tabIndex: -1 }, 'Request of a tool'), el('p', { className: 'outcome', role: 'status' }, text)));
  pane.querySelector('h2').focus();
}

function build(item) {
  const form = blank(item.schema);
  const heading = el('h2', { tabIndex: -1 }, asking(item));
  Object.assign(shown, { item, form, heading, message: el('p', { className: 'message', role: 'status' }), fields: el('div', {}, form.contents()), proposals: el('div', { className: 'proposals' }) });
  const { message, fields } = shown;
  const isAgreed = item.required > 1;
  const accept = guard(el('button', { type: 'button', className: 'approve' }, isAgreed ? 'Propose' : 'Send the answer'), () => {
    const content = form.read();
    if (typeof content === 'string') fill(message, content);
    else submit({ action: 'accept', content });
  });
  const button = (action, words) => guard(el('button', { type: 'button', className: 'deny' }, words), () => submit({ action }));
  shown.bar = el('div', { className: 'bar' }, message, !item.can_decline ? el('p', {}, 'You see this request, and others answer it.')
    : el('div', { className: 'approval' }, button('cancel', 'Cancel what it does'), button('decline', 'Decline'), item.can_accept && !isAgreed && accept));
  // With a quorum the form opens by itself only if there is nothing to confirm.
  shown.summary = el('summary', {});
  const own = isAgreed ? el('details', { className: 'own-proposal', open: item.proposals.length === 0 }, shown.summary, fields, accept)
    : [el('h3', {}, 'Your answer'), fields];
  fill(pane, el('div', { className: 'body', tabIndex: 0, role: 'group', 'aria-label': 'Request' },
    el('a', { className: 'back', href: '#/' }, 'Back to the list'), heading,
    el('p', { className: 'facts' }, el('code', {}, toolOf(item)), el('span', {}, 'runs for ', el('b', {}, person(item.requested_by))),
      el('span', {}, 'time to answer: ', clock(item.expires_at, 'over'))),
    el('p', {}, isAgreed && `${item.required} people have to agree on the answer. `, 'What you enter goes to this tool alone',
      isAgreed && ', and is shown to those that may confirm it', '. Enter nothing that it must not have.'),
    el('h3', {}, 'Its message'), el('p', { className: 'value text' }, item.message),
    shown.proposals, item.can_accept && own,
    el('p', {}, el('a', { href: `#/call/${item.tool_call_id}` }, 'The call'))), shown.bar);
  drawProposals();
  changed();
  heading.focus();
  restore();
}

// What people propose, each with what the caller can do about it. The form stays as it is.
function drawProposals() {
  const { item, proposals, summary } = shown;
  fill(summary, item.proposals.length === 0 ? 'Propose an answer' : 'Propose other values');
  fill(proposals, item.proposals.map(proposal => {
    const { content, content_hash: hash, by, own } = proposal;
    const drawn = el('div', {}, values(content, hash));
    const missing = item.required - by.length;
    const confirm = guard(el('button', { type: 'button', className: 'approve' }, 'Confirm'), () => {
      // What is confirmed is shown whole.
      const [cut] = cutsOf(drawn);
      if (cut === undefined) submit({ action: 'accept', content_hash: hash });
      else {
        fill(shown.message, 'A part of it is cut. Show all of it, and confirm then.');
        cut.querySelector('button').focus();
      }
    });
    return el('section', { className: 'proposal' }, el('h3', {}, names(by, own)), drawn,
      own ? el('p', {}, by.length > 1 ? 'You have agreed. ' : 'You have proposed. ', `${people(missing)} to confirm.`)
        : [missing > 1 && el('p', {}, `${people(missing)} to confirm.`), confirm]);
  }));
}

const people = n => (n === 1 ? 'One more person has' : `${n} more people have`);

// `You propose:`, `bob proposes:`, `bob and carol propose:`.
function names(by, own) {
  if (own && by.length === 1) return 'You propose:';
  const all = by.map((actor, n) => [n > 0 && ' and ', el('b', {}, person(actor))]);
  return [all, by.length === 1 ? ' proposes' : ' propose', own && ' (you are one of them)', ':'];
}

/** Reads what people propose for the request that is shown. */
async function refresh() {
  const own = shown;
  const item = await find(own.id).catch(() => undefined);
  if (own !== shown || item === undefined || JSON.stringify(item.proposals) === JSON.stringify(own.item.proposals)) return;
  own.item = item;
  const hadFocus = own.proposals.contains(document.activeElement);
  drawProposals();
  changed();
  if (hadFocus) own.heading.focus({ preventScroll: true });
}

const OUTCOMES = { accepted: 'Sent. The tool continues.', declined: 'Declined. The tool continues without an answer.', cancelled: 'Cancelled. The tool gets a request to end.' };

async function submit(body) {
  const own = shown;
  const { item, form, fields, message } = own;
  const controls = [...pane.querySelectorAll('button[data-guarded]')];
  setBusy(controls, true);
  own.isSending = true;
  fill(message, 'Sending…');
  try {
    const { state } = await answer(item.request_id, body);
    if (own === shown && state === 'open') {
      fill(message, 'Proposed.');
      own.summary.closest('details')?.removeAttribute('open');
    } else if (own === shown) end(OUTCOMES[state]);
  } catch (error) {
    if (own === shown && error.code === 'request_closed') end('The request has another answer, or has ended. Your answer has no effect.');
    else if (own === shown) {
      if (error.code === 'invalid_inputs') fill(fields, form.refused(error.details.errors ?? []));
      fill(message, error.code === 'stale' ? 'This is proposed no longer. Look at the proposals again.' : error.message);
    }
  }
  own.isSending = false;
  setBusy(controls, false);
  if (own === shown && !own.isOver) refresh();
  reload();
}

// How a request ended that another person answered.
const ENDS = {
  accepted: by => ['Answered, at last by ', el('b', {}, person(by)), '. The tool continues.'],
  declined: by => ['Declined by ', el('b', {}, person(by)), '. The tool continues without an answer.'],
  cancelled: by => ['Cancelled by ', el('b', {}, person(by)), '. The tool gets a request to end.'],
};

live.addEventListener('event', ({ detail: { type, actor, data } }) => {
  if (shown?.item === undefined || shown.isOver || data?.request_id !== shown.id) return;
  if (type === 'tool.input_proposed') refresh();
  else if (type === 'tool.input_ended' && !shown.isSending) end(ENDS[data.answer]?.(actor) ?? 'The request has ended without an answer.');
});
live.addEventListener('event', ({ detail: event }) => {
  const isOver = /^tool\.(input_ended|succeeded|failed|interrupted)$/.test(event.type);
  if (event.type === 'tool.input_requested' || (isOver && listed.some(item => item.tool_call_id === event.tool_call_id))) reload();
});
live.addEventListener('open', () => {
  reload();
  if (shown?.item && !shown.isOver) refresh();
});
