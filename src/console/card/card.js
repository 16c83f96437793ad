// The card of one call: its facts, the decision, and the outcome.
import { decide, events, held, reveal } from '../api.js';
import { approveButton, rest } from './approve.js';
import { background } from '../background.js';
import { decision } from './bar.js';
import { delegation } from './delegate.js';
import { editor } from './edit.js';
import { extension } from './extend.js';
import { remembered } from '../views/grants.js';
import { headline, headlineText } from './headline.js';
import { changed, setBusy } from './inert.js';
import * as list from '../list.js';
import { live } from '../live.js';
import { progress, say, words } from './outcome.js';
import { parts } from './parts.js';
import { resolution } from './resolve.js';
import { count, el, fill, person } from '../text/text.js';
import { clock } from '../text/time.js';
import { asks, askedBy } from '../views/tool-requests.js';
import { draw as drawTrail } from './trail.js';
import * as typed from '../text/typed.js';
import { stored, values } from '../text/values.js';
import { waits } from './waits.js';

const pane = document.getElementById('detail');

/** The card that is shown: the call, the bar of its controls, and the inputs of the person while they edit. */
let card = null;

/** Shows the call with this id. `link` is the token of the link that led here; the next decision uses it up. */
export async function open(id, link) {
  if (card?.id === id) return;
  card = { id, link, item: list.known(id) ?? null, editing: null };
  const own = card;
  list.setSelected(id);
  if (own.item) build();
  else fill(pane, el('p', { className: 'empty', role: 'status' }, 'Loading…'));
  await refresh(own);
}

/** Shows no call. */
export function close() {
  card = null;
  list.setSelected(null);
}

// Reads the call again. Facts that are the same change nothing on the page.
async function refresh(own) {
  try {
    const facts = await held(own.id);
    if (own !== card) return;
    const isNew = JSON.stringify(facts) !== JSON.stringify(own.item) || !own.body;
    own.item = facts;
    list.put(facts);
    if (isNew) build();
    typed.restore(reopen);
    // The card says it.
    if (own.isSending && facts.state !== 'pending') showMessage();
    await loadTrail(own);
  } catch (error) {
    if (own !== card) return;
    if (own.body) showMessage(error.message);
    else {
      fill(pane, back(), el('h2', { tabIndex: -1 }, error.status === 404 ? 'No such call' : 'The call could not be loaded'),
        el('p', {}, error.message));
      pane.querySelector('h2').focus();
    }
  }
}

const back = () => el('a', { className: 'back', href: list.address() }, 'Back to the list');

// Builds the card for the current facts. Its controls stay those that they were while the call waits, and so does the element that
// says the outcome.
function build() {
  const { item } = card;
  const isFirst = !card.body;
  const isPending = item.state === 'pending';
  if (!isPending) card.editing = null;
  const focused = pane.contains(document.activeElement) ? document.activeElement : null;
  if (isFirst) frame();
  const { scrollTop } = card.body;
  const unfolded = new Set([...card.rest.querySelectorAll('details[open] > summary')].map(({ textContent }) => textContent));
  if (card.heading.textContent !== el('h2', {}, headline(item)).textContent) fill(card.heading, headline(item));
  list.setTitle(headlineText(item));
  fill(card.facts, list.risk(item.risk_level), el('code', {}, item.tool_name),
    item.requested_by && el('span', {}, 'asked for by ', el('b', {}, person(item.requested_by))), clock(item.created_at));
  say(card.outcome, item, askedBy(item.tool_call_id));
  fill(card.rest, contents(item));
  for (const summary of card.rest.querySelectorAll('details > summary')) {
    if (unfolded.has(summary.textContent)) summary.parentElement.open = true;
  }
  const kind = card.editing ? card.editing.step : isPending ? JSON.stringify([item.can_decide, item.can_reject, item.required, item.can_remember, item.can_edit,
    item.cannot_approve?.code, Boolean(item.unaccepted_definition)]) : 'ended';
  if (card.kind !== kind) {
    card.kind = kind;
    card.controls = controls(item, isPending);
    fill(card.bar, card.message, card.controls.controls);
  } else card.controls.update();
  card.body.scrollTop = scrollTop;
  changed();
  if (isFirst) card.heading.focus({ preventScroll: true });
  else if (focused !== null && focused !== document.activeElement) (focused.isConnected ? focused : card.heading).focus({ preventScroll: true });
}

// What stays for the whole life of the card.
function frame() {
  card.heading = el('h2', { tabIndex: -1 });
  card.facts = el('p', { className: 'facts' });
  card.outcome = el('p', { role: 'status' });
  card.rest = el('div', { className: 'rest' });
  card.trail = el('ol', { className: 'trail' });
  const own = card;
  card.drawn = parts('h3', () => openSecrets(own));
  card.body = el('div', { className: 'body', tabIndex: 0, role: 'group', 'aria-label': 'Call' }, back(), card.heading, card.facts, card.outcome, card.rest);
  card.message = el('p', { className: 'message', role: 'status' });
  card.bar = el('div', { className: 'bar' });
  fill(pane, card.body, card.bar);
}

function controls(item, isPending) {
  const own = card;
  if (card.editing) return editingControls();
  if (isPending) return decision(item, () => rest(own.item, own.drawn), send, startEditing);
  return { controls: [afterwards()], update() {} };
}

function contents(item) {
  return [
    words(item),
    progress(item),
    // An item of a list does not say whether the caller may resolve it.
    item.state === 'interrupted' && (item.policy || !item.held) && (card.resolution ??= resolution(item, settled(card))),
    drawnParts(item),
    item.unaccepted_definition && el('p', {}, el('a', { href: '#/tools' }, 'Tools to accept')),
    item.state === 'pending' && [el('h3', {}, 'Decision'), waits(item), extension(item, settled(card)),
      item.can_delegate && (card.delegation ??= delegation(item, settled(card)))],
    ended(item),
    item.grant && remembered(item.grant, settled(card)),
    background(item),
    el('h3', {}, 'Evidence'), card.trail,
    more(item),
  ];
}

function drawnParts(item) {
  const facts = { ...item, revealed: card.revealed };
  if (card.editing?.step === 'review') return Object.values(card.drawn.drawEdit(facts, card.editing.edited()));
  const { inputs, preview, ...others } = card.drawn.draw(facts);
  return card.editing ? [card.editing.contents(), Object.values(others)] : [inputs, others.secrets, others.constants, preview, others.definition];
}

// Reads the call again after a press on its card that is no decision.
const settled = own => async message => {
  if (own !== card) return;
  showMessage(message);
  await refresh(own);
};

// Opens the secret inputs. They stay open on this card, until another call is shown.
async function openSecrets(own) {
  try {
    own.revealed = await reveal(own.id);
  } catch (error) {
    if (own === card) showMessage(error.message);
    return;
  }
  if (own !== card) return;
  showMessage();
  build();
  (own.drawn.now.secrets ?? own.heading).focus({ preventScroll: true });
  await loadTrail(own);
}

function ended(item) {
  if (item.output !== undefined) return [el('h3', {}, 'Output'), values(item.output), stored('Output as JSON', item.output)];
  return item.result && [el('h3', {}, 'What the model reads'), values(item.result)];
}

function more(item) {
  const pairs = [['Call', item.tool_call_id], ['Run', item.run_id], ['Thread', item.thread_id], ['Session', item.session_id],
    ['Hash of the inputs', item.input_hash], ['Hash of the schema', item.schema_hash]];
  return [
    el('p', {}, el('a', { href: `#/session/${item.session_id}` }, 'Policy and grants of the session'), ' · ',
      el('a', { href: `#/?session=${item.session_id}` }, 'Waiting calls of the session')),
    item.tool_description && el('details', {}, el('summary', {}, 'The tool'), el('p', {}, item.tool_description),
      item.input_schema && stored('Schema of the inputs', item.input_schema)),
    el('details', {}, el('summary', {}, 'Ids and hashes'), el('dl', { className: 'ids' },
      pairs.map(([name, value]) => el('div', {}, el('dt', {}, name), el('dd', {}, el('code', {}, value)))))),
  ];
}

async function loadTrail(own) {
  const found = [];
  let cursor;
  do {
    const page = await events(own.id, cursor).catch(error => ({ results: [], failed: error.message }));
    if (own !== card) return;
    if (page.failed) {
      fill(own.trail, el('li', {}, page.failed));
      return;
    }
    found.push(...page.results);
    cursor = page.next_cursor;
  } while (cursor !== undefined);
  drawTrail(own.trail, found);
}

function startEditing() {
  const own = card;
  card.editing = editor(card.item, step => {
    // The call may be decided, or another one shown, while the server makes a preview.
    if (own !== card || own.editing === null) return;
    if (step === 'cancel') {
      card.editing = null;
      typed.forget();
    }
    build();
    card.heading.focus();
  });
  build();
  card.heading.focus();
}

// Opens the forms in which the person has typed before they signed in again.
function reopen(values) {
  const has = beginning => [...values.keys()].some(id => id.startsWith(beginning));
  const press = words => [...pane.querySelectorAll('button')].find(({ textContent }) => textContent === words)?.click();
  if (has('field-') || has('set-') || has('edit-json')) press('Edit');
  if (has('edit-json')) press('Edit as JSON instead');
  if (has('note')) press('More');
  if (has('reason')) press('Deny…');
}

function editingControls() {
  const own = card;
  const { step, errorText, cancel, review, again, decided } = card.editing;
  showMessage(errorText);
  if (step === 'form') {
    return { update() {}, controls: [el('div', { className: 'approval' }, el('button', { type: 'button', on: { click: cancel } }, 'Cancel the edit'),
      el('span', { className: 'gap' }), el('button', { type: 'button', className: 'primary', on: { click: () => startReview(review) } }, 'Review the changes'))] };
  }
  const { button, update } = approveButton(() => 'Approve with changes', () => rest(own.item, own.drawn), () => send({ isValidated: true, ...decided() }));
  return { update, controls: [el('div', { className: 'approval' }, el('button', { type: 'button', on: { click: again } }, 'Back to the form'),
    el('span', { className: 'gap' }), button)] };
}

async function startReview(review) {
  const own = card;
  const message = await review();
  if (own === card && own.editing !== null) showMessage(message);
}

function afterwards() {
  const next = list.next(card.id);
  const link = next === undefined ? el('a', { href: list.address() }, 'Back to the list') : el('a', { href: `#/call/${next}` }, 'Next waiting call');
  return el('p', { className: 'afterwards' }, link);
}

function showMessage(message = '') {
  if (card?.message && card.message.textContent !== message) fill(card.message, message);
}

const CONFLICTS = {
  already_decided: 'Somebody else decided first. Your decision has no effect.',
  expired: 'The time to decide is over. Your decision has no effect.',
  cancelled: 'The call was cancelled before. Your decision has no effect.',
  stale: 'The tool has changed since the call was shown. Nothing is decided: look at the call again.',
};

async function send(decided) {
  const own = card;
  own.isSending = true;
  const buttons = [...own.bar.querySelectorAll('button, textarea, input')];
  setBusy(buttons, true);
  own.heading.focus({ preventScroll: true });
  showMessage(decided.isValidated ? 'Sending the approval…' : 'Sending the denial…');
  let message = '';
  try {
    const { state, result, remembered: also } = await decide({ toolCallId: own.id, inputHash: own.item.input_hash, resume: true, link: own.link, ...decided });
    own.link = undefined;
    if (state === 'pending') message = result;
    else if (also && also.approved.length + also.left.length > 0) message = withOthers(also);
  } catch (error) {
    message = CONFLICTS[error.code] ?? error.message;
    // The server refused the link: the person looks at the card again, and decides without it.
    if ([403, 404, 409].includes(error.status)) own.link = undefined;
    if (error.status === 0 || error.status === 503) message += ' Whether it was decided is not known yet. Deciding again in the same way is safe.';
    if (error.status === 429 && error.retryAfter) message += ` Try again in ${error.retryAfter} seconds.`;
    if (error.code === 'invalid_inputs') message = own.editing?.refused(error.details.errors ?? []) ?? message;
  }
  own.isSending = false;
  setBusy(buttons, false);
  if (own !== card) return;
  showMessage(message);
  await refresh(own);
  if (own === card && message) showMessage(message);
}

const withOthers = ({ approved, left }) => `${count(approved.length, 'other call')} approved with it${left.length === 0 ? '' :
  `, ${left.length} not: they have changed, or what you chose does not include them`}.`;

let planned = null;
live.addEventListener('event', ({ detail: event }) => {
  if (card === null || event.tool_call_id !== card.id || planned !== null) return;
  planned = setTimeout(() => {
    planned = null;
    if (card !== null) refresh(card);
  }, 60);
});
live.addEventListener('open', () => { if (card?.body) refresh(card); });
asks.addEventListener('changed', () => { if (card?.body) say(card.outcome, card.item, askedBy(card.id)); });
