// The card of one call: its facts, the decision, and the outcome.
import { decide, events, held } from './api.js';
import { definition } from './definitions.js';
import { delegation } from './delegate.js';
import { background } from './background.js';
import { editor } from './edit.js';
import { extension } from './extend.js';
import { changed, guard, setBusy } from './inert.js';
import { difference, text } from './json.js';
import * as list from './list.js';
import { live } from './live.js';
import { preview } from './preview.js';
import { resolution } from './resolve.js';
import { el, fill, person, title } from './text.js';
import { clock, date } from './time.js';
import { details } from './trail.js';
import { changes, stored, values } from './values.js';

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

// Builds the card for the current facts. Its controls stay those that they were while the call waits.
function build() {
  const { item } = card;
  const isFirst = !card.body;
  const isPending = item.state === 'pending';
  if (!isPending) card.editing = null;
  const hadFocus = !isFirst && pane.contains(document.activeElement);
  card.heading ??= el('h2', { tabIndex: -1 }, item.headline ?? title(item.tool_name));
  card.trail ??= el('ol', { className: 'trail' });
  card.body ??= el('div', { className: 'body', tabIndex: 0, role: 'group', 'aria-label': 'Call' });
  const { scrollTop } = card.body;
  const unfolded = new Set([...card.body.querySelectorAll('details[open] > summary')].map(({ textContent }) => textContent));
  fill(card.body, contents(item));
  for (const summary of card.body.querySelectorAll('details > summary')) {
    if (unfolded.has(summary.textContent)) summary.parentElement.open = true;
  }
  if (isFirst) {
    card.message = el('p', { className: 'message', role: 'status' });
    card.bar = el('div', { className: 'bar' });
    fill(pane, card.body, card.bar);
  }
  const kind = card.editing ? card.editing.step : isPending ? `${item.can_decide} ${item.can_reject} ${item.required} ${Boolean(item.unaccepted_definition)}` : 'ended';
  if (card.kind !== kind) {
    card.kind = kind;
    card.controls = card.editing ? editingControls() : isPending ? decisionControls(item) : [afterwards()];
    fill(card.bar, card.message, card.controls);
  }
  card.body.scrollTop = scrollTop;
  changed();
  if (isFirst || (hadFocus && !pane.contains(document.activeElement))) card.heading.focus({ preventScroll: true });
}

function contents(item) {
  return [
    back(),
    card.heading,
    el('p', { className: 'facts' }, list.risk(item.risk_level), el('code', {}, item.tool_name),
      item.requested_by && el('span', {}, 'asked for by ', el('b', {}, person(item.requested_by))), clock(item.created_at)),
    el('p', { className: `outcome ${item.state}` }, outcome(item)),
    item.decision?.reason && el('p', {}, 'Reason: ', el('q', {}, item.decision.reason)),
    // An item of a list does not say whether the caller may resolve it.
    item.state === 'interrupted' && (item.policy || !item.held) && (card.resolution ??= resolution(item, settled(card))),
    card.editing ? card.editing.contents() : [inputs(item), preview('Preview', item.validated_preview ?? item.preview)],
    item.constants && [el('h3', {}, 'Inputs that the operator sets'), values(item.constants)],
    item.unaccepted_definition && [el('h3', {}, 'What the server says about the tool'), definition(item.unaccepted_definition),
      el('p', {}, el('a', { href: '#/tools' }, 'Tools to accept'))],
    item.state === 'pending' && [el('h3', {}, 'Decision'), waits(item), extension(item, settled(card)),
      item.can_delegate && (card.delegation ??= delegation(item, settled(card)))],
    ended(item),
    background(item),
    el('h3', {}, 'Evidence'), card.trail,
    more(item),
  ];
}

// Reads the call again after a press on its card that is no decision.
const settled = own => async message => {
  if (own !== card) return;
  showMessage(message);
  await refresh(own);
};

const inPlaceOf = other => other && [' in place of ', el('b', {}, person(other))];
const APPROVED = ({ decision }) => ['Approved by ', el('b', {}, person(decision?.by ?? 'the policy')), inPlaceOf(decision?.on_behalf_of)];
const OUTCOMES = {
  pending: () => 'Waits for a decision. Nothing has run.',
  approved: item => [APPROVED(item), '. It has not started yet.'],
  executing: item => [APPROVED(item), ', and running.'],
  succeeded: item => [APPROVED(item), ', and done.'],
  failed: item => [APPROVED(item), '. It failed.'],
  interrupted: item => [APPROVED(item), '. The tool may have run: its outcome is unknown. Do not repeat it before you have looked.'],
  rejected: ({ decision }) => ['Denied by ', el('b', {}, person(decision?.by ?? 'the policy')), inPlaceOf(decision?.on_behalf_of), '. It did not run.'],
  expired: () => 'Nobody decided in time. It did not run.',
  cancelled: item => (item.decision?.decision === 'approve' ? [APPROVED(item), ', then cancelled. It did not run.']
    : ['Cancelled by ', el('b', {}, person(item.decision?.by ?? 'the system')), '. It did not run.']),
  invalid: () => 'The call cannot run. It did not run.',
};

function outcome(item) {
  const at = item.decision && item.state !== 'pending' ? [' ', el('small', {}, date(item.decision.at))] : [];
  return [OUTCOMES[item.state]?.(item) ?? `State: ${item.state}.`, at];
}

function waits(item) {
  const { reason, expires_at: end, required, approved_by: voters = [], can_decide: mayApprove, can_reject: mayReject, on_behalf_of: other, others } = item;
  const may = mayApprove ? ['You can approve or deny it', inPlaceOf(other), '.']
    : mayReject ? 'You can deny it; your approval would not count.'
      : mayApprove === undefined ? 'The server checks whether you may decide.' : 'You cannot decide it.';
  return el('ul', { className: 'waits' },
    reason && el('li', {}, 'Held because: ', reason),
    end && el('li', {}, 'Time to decide: ', clock(end, 'over'), ' (until ', date(end), ')'),
    el('li', {}, may),
    others?.delegations.map(delegated),
    item.remind_at && el('li', {}, 'A reminder follows ', date(item.remind_at), '.'),
    item.escalation && escalates(item.escalation),
    required > 1 && el('li', {}, `${required} people have to approve the same inputs. So far ${voters.length === 0 ? 'nobody' : voters.map(person).join(', ')}.`));
}

const delegated = ({ from, to, until, reason }) => el('li', {}, el('b', {}, person(from)), ' lets ', el('b', {}, person(to)), ' decide until ', date(until),
  ', reason: ', el('q', {}, reason));

function escalates({ roles, due_at: due, escalated_at: at }) {
  const names = roles.map((role, n) => [n > 0 && ' or ', el('code', {}, role)]);
  return el('li', {}, at ? 'Escalated ' : 'Escalates ', date(at ?? due), ': people with the role ', names, at ? ' may decide too.' : ' may decide from then on.');
}

function inputs(item) {
  if (item.unreadable) return [el('h3', {}, 'Inputs'), el('p', { className: 'error' }, 'The stored inputs cannot be read. The call can only be denied.')];
  const { input, validated_inputs: edited, input_hash: hash } = item;
  const proposed = [values(input, hash), stored('Stored JSON', input, hash)];
  if (!edited) return [el('h3', {}, 'Inputs'), proposed];
  return [
    el('h3', {}, 'Inputs that a person set'), values(edited, item.decision?.input_hash), stored('Stored JSON', edited),
    el('h3', {}, 'Changes of the proposal'), changes(difference(text(input), text(edited))),
  ];
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

const EVENTS = {
  'tool.called': 'The model made the call', 'tool.requires_approval': 'Held for an approval', 'tool.blocked': 'Refused by the policy',
  'tool.approved': 'Approved', 'tool.rejected': 'Denied', 'tool.decision_refused': 'Refused decision',
  'tool.extended': 'Extended', 'tool.delegated': 'Delegated', 'tool.reminded': 'Reminded', 'tool.escalated': 'Escalated', 'tool.expired': 'Expired', 'tool.cancelled': 'Cancelled',
  'tool.started': 'Started', 'tool.input_requested': 'The tool asked for an answer', 'tool.input_ended': 'The question of the tool ended',
  'tool.succeeded': 'Succeeded', 'tool.failed': 'Failed', 'tool.interrupted': 'Outcome unknown',
};

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
  fill(own.trail, found.map(({ type, at, actor, data }) => el('li', {}, el('b', {}, EVENTS[type] ?? type), ' by ', person(actor),
    data.decision?.surface && type !== 'tool.started' && /approved|rejected/.test(type) && ` (${data.decision.surface})`, details(data), ' ', el('small', {}, date(at)))));
}

// The controls of a call that waits. Approve is the last one and stays where it is, at the end of the bar.
function decisionControls(item) {
  const { can_decide: mayApprove = true, can_reject: mayReject = true, required = 1, unreadable } = item;
  if (!mayApprove && !mayReject) return [el('p', {}, 'You see this call, and others decide it.')];
  const reason = el('textarea', { id: 'reason', rows: 1, maxLength: 2000, placeholder: 'optional' });
  const remember = el('input', { type: 'checkbox', id: 'remember' });
  const deny = guard(el('button', { type: 'button', className: 'deny' }, 'Deny'), () => {
    const why = reason.value.trim();
    send({ isValidated: false, ...(why === '' ? {} : { reason: why }) });
  });
  const approve = guard(el('button', { type: 'button', className: 'approve' }, 'Approve'),
    () => send({ isValidated: true, ...(remember.checked ? { remember: 'session' } : {}) }));
  const edit = el('button', { type: 'button', on: { click: startEditing } }, 'Edit');
  return [
    el('div', { className: 'denial' }, el('label', { for: 'reason' }, 'Reason for denying'), reason, deny),
    mayApprove && !unreadable && el('div', { className: 'approval' },
      required === 1 && !item.unaccepted_definition && el('label', { className: 'check', for: 'remember' }, remember, el('span', {}, `Approve ${item.tool_name} in this session from now on`)),
      edit, approve),
  ];
}

function startEditing() {
  const own = card;
  card.editing = editor(card.item, step => {
    // The call may be decided, or another one shown, while the server makes a preview.
    if (own !== card || own.editing === null) return;
    if (step === 'cancel') card.editing = null;
    build();
    card.heading.focus();
  });
  build();
  card.heading.focus();
}

function editingControls() {
  const { step, errorText, cancel, review, again, decided } = card.editing;
  showMessage(errorText);
  if (step === 'form') {
    return [el('div', { className: 'approval' }, el('button', { type: 'button', on: { click: cancel } }, 'Cancel the edit'),
      el('button', { type: 'button', className: 'primary', on: { click: () => startReview(review) } }, 'Review the changes'))];
  }
  return [el('div', { className: 'approval' }, el('button', { type: 'button', on: { click: again } }, 'Back to the form'),
    guard(el('button', { type: 'button', className: 'approve' }, 'Approve with changes'),
      () => send({ isValidated: true, ...decided() })))];
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

async function send(decision) {
  const own = card;
  const buttons = [...own.bar.querySelectorAll('button, textarea, input')];
  setBusy(buttons, true);
  own.heading.focus({ preventScroll: true });
  showMessage(decision.isValidated ? 'Sending the approval…' : 'Sending the denial…');
  let message = '';
  try {
    const { state, result } = await decide({ toolCallId: own.id, inputHash: own.item.input_hash, resume: true, link: own.link, ...decision });
    own.link = undefined;
    if (state === 'pending') message = result;
    else if (state === 'executing') message = 'Approved. The tool still runs; the outcome appears here.';
  } catch (error) {
    message = CONFLICTS[error.code] ?? error.message;
    // The server refused the link: the person looks at the card again, and decides without it.
    if ([403, 404, 409].includes(error.status)) own.link = undefined;
    if (error.status === 0 || error.status === 503) message += ' Whether it was decided is not known yet. Deciding again in the same way is safe.';
    if (error.status === 429 && error.retryAfter) message += ` Try again in ${error.retryAfter} seconds.`;
    if (error.code === 'invalid_inputs') message = own.editing?.refused(error.details.errors ?? []) ?? message;
  }
  setBusy(buttons, false);
  if (own !== card) return;
  showMessage(message);
  await refresh(own);
  if (own === card && message) showMessage(message);
}

let planned = null;
live.addEventListener('event', ({ detail: event }) => {
  if (card === null || event.tool_call_id !== card.id || planned !== null) return;
  planned = setTimeout(() => {
    planned = null;
    if (card !== null) refresh(card);
  }, 60);
});
live.addEventListener('open', () => { if (card?.body) refresh(card); });
