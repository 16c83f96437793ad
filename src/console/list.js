// The list of held calls: those that wait, or those that are decided.
import { approvals, PAGE, tools } from './api.js';
import { headline } from './card/headline.js';
import { live } from './live.js';
import { found as isFound, isId } from './views/search.js';
import { el, fill, person, title } from './text/text.js';
import { clock } from './text/time.js';

const byId = id => document.getElementById(id);
const rows = byId('rows');
const newCallsButton = byId('new-calls');
const filterForm = byId('filters');

// The states of the history. A list is in the order in which the model made the calls.
const DECIDED = ['succeeded', 'failed', 'interrupted', 'rejected', 'expired', 'cancelled', 'executing', 'approved'];
const STATE_WORDS = { rejected: 'denied', executing: 'running', approved: 'approved, not started', interrupted: 'outcome unknown' };
export const stateWord = state => STATE_WORDS[state] ?? state;

// Without a filter of the API for the risk and for words, so many pages are looked through for one page of the list.
const PAGES_MAX = 4;

let view = { mode: 'inbox', filters: {} };
// Which reading of the list counts; 0 before the first.
let generation = 0;
let rounds = 0;
let sources = [];
let more = false;
/** The calls in the list, by their ids, in its order. */
const listed = new Map();
/** The ids of waiting calls that the list does not show yet. */
const fresh = new Set();

export const waiting = () => [...listed.values()].map(({ item }) => item).filter(item => item.state === 'pending');

/** Whether the call can be approved together with others. A definition that is not accepted is read in the card. */
export const canBatch = item => item.can_decide && !item.cannot_approve && !item.unreadable && !item.unaccepted_definition;

/** The call of the list with this id. */
export const known = id => listed.get(id)?.item;

/** The next call after this one that waits, or the first. */
export function next(id) {
  const ids = [...listed.keys()];
  const after = [...ids.slice(ids.indexOf(id) + 1), ...ids.slice(0, Math.max(0, ids.indexOf(id)))];
  return after.find(other => other !== id && listed.get(other).item.state === 'pending');
}

function addressOf(wanted) {
  const set = Object.entries(wanted).filter(([, value]) => value);
  return `#/${view.mode === 'inbox' ? '' : 'history'}${set.length === 0 ? '' : `?${new URLSearchParams(set)}`}`;
}

/** The address of the list that is shown. */
export const address = () => addressOf(view.filters);

/** Shows another list, unless it is the one that is shown. */
export function show(mode, wanted) {
  const same = view.mode === mode && JSON.stringify(view.filters) === JSON.stringify(wanted);
  if (same && generation > 0) return;
  view = { mode, filters: wanted };
  showFilters();
  reload();
}

// Only for another view: a list that is read again leaves what a person types.
function showFilters() {
  const { mode, filters: wanted } = view;
  byId('list-title').textContent = mode === 'inbox' ? 'Waiting calls' : 'History';
  byId('in-session').hidden = !wanted.session;
  if (wanted.session) {
    fill(byId('in-session'), 'In one session. ', el('a', { href: addressOf({ ...wanted, session: '' }) }, 'All sessions'));
  }
  filterForm.elements.state.closest('label').hidden = mode === 'inbox';
  for (const name of ['tool', 'risk', 'state']) select(filterForm.elements[name], wanted[name] ?? '');
  filterForm.elements.q.value = wanted.q ?? '';
}

/** Shows the inbox if there is no list yet. */
export function begin() {
  if (generation === 0) show('inbox', {});
}

/** Forgets everything that was read. */
export function forget() {
  generation = 0;
  view = { mode: 'inbox', filters: {} };
  listed.clear();
  fresh.clear();
  rows.replaceChildren();
  announceNew();
}

/** Reads the list again from its first page. */
export async function reload() {
  const { mode, filters: wanted } = view;
  const states = mode === 'inbox' ? ['pending'] : wanted.state ? [wanted.state] : DECIDED;
  const query = { tool_name: wanted.tool, session_id: wanted.session };
  sources = states.map(state => ({ query: { ...query, state }, items: [], cursor: null, isDone: false }));
  listed.clear();
  fresh.clear();
  rows.replaceChildren();
  announceNew();
  await load();
}

// A value that is no choice yet, such as a removed tool, becomes one.
function select(element, value) {
  if (![...element.options].some(option => option.value === value)) element.append(el('option', { value }, value));
  element.value = value;
}

async function load() {
  rounds += 1;
  generation = rounds;
  const own = generation;
  rows.ariaBusy = 'true';
  byId('more').hidden = true;
  byId('batch').hidden = true;
  note(listed.size === 0 ? 'Loading…' : 'Loading more…');
  try {
    const found = await page();
    if (own !== generation) return;
    for (const item of found) add(item);
    announceNew();
    byId('more').hidden = !more;
    showSummary();
    if (isUnsure) lookAgain();
  } catch (error) {
    if (own !== generation) return;
    note(error.message, el('button', { type: 'button', on: { click: listed.size === 0 ? reload : load } }, 'Try again'));
  }
  rows.ariaBusy = 'false';
}

// One page of all sources together, newest first. The ids grow with the time of the call.
async function page() {
  const found = [];
  let pages = 0;
  more = true;
  while (found.length < PAGE) {
    const empty = sources.filter(source => source.items.length === 0 && !source.isDone);
    if (empty.length > 0 && pages === PAGES_MAX) return found;
    if (empty.length > 0) pages += 1;
    await Promise.all(empty.map(read));
    const newest = sources.filter(source => source.items.length > 0)
      .sort((a, b) => (a.items[0].tool_call_id < b.items[0].tool_call_id ? 1 : -1))[0];
    if (newest === undefined) {
      if (sources.every(source => source.isDone)) {
        more = false;
        return found;
      }
      continue;
    }
    const item = newest.items.shift();
    if (fits(item)) found.push(item);
  }
  more = sources.some(source => source.items.length > 0 || !source.isDone);
  return found;
}

// Whether a call fits the filters that the API lacks.
const fits = item => (!view.filters.risk || item.risk_level === view.filters.risk) && isFound(view.filters.q, item);

async function read(source) {
  const size = sources.length === 1 ? PAGE : Math.ceil(PAGE / 2);
  const { results, next_cursor: cursor } = await approvals({ ...source.query, page_size: size, cursor: source.cursor });
  Object.assign(source, { items: results, cursor, isDone: cursor === undefined });
}

function add(item) {
  const id = item.tool_call_id;
  fresh.delete(id);
  if (listed.has(id)) return;
  const element = el('li');
  listed.set(id, { item, element });
  draw(id);
  rows.append(element);
}

function draw(id) {
  const { item, element } = listed.get(id);
  const isPending = item.state === 'pending';
  const by = item.decision && !isPending ? `${stateWord(item.state)}, ${person(item.decision.by)}, decided ` : `${stateWord(item.state)}, made `;
  // A line of its own in each state, so that a decision moves no row.
  const status = el('span', { className: 'state' }, !isPending ? [by, clock(item.decision?.at ?? item.created_at)]
    : item.expires_at ? ['expires in ', clock(item.expires_at, 'no time: it is over')] : 'no deadline');
  const link = element.firstElementChild ?? el('a', { href: `#/call/${id}` });
  fill(link,
    el('span', { className: 'headline' }, headline(item)),
    el('span', { className: 'facts' },
      risk(item.risk_level), el('code', {}, item.tool_name),
      item.requested_by && el('span', {}, `for ${person(item.requested_by)}`),
      isPending && item.unaccepted_definition && el('span', { className: 'warning' }, 'definition not accepted')), status);
  element.className = isPending ? '' : 'decided';
  if (!link.isConnected) element.append(link);
  mark();
}

/** A risk by its word. */
export const risk = level => el('span', { className: `risk ${level}` }, `${level} risk`);

/** Puts a newer state of a call into the list, in its place. */
export function put(item) {
  const entry = listed.get(item.tool_call_id);
  if (entry === undefined) return;
  entry.item = { ...entry.item, ...item };
  draw(item.tool_call_id);
  showSummary();
}

let titled = '';
/** Shows this text in the title of the window, beside the number of waiting calls. */
export function setTitle(text = titled) {
  titled = text;
  const n = waiting().length;
  document.title = [view.mode === 'inbox' && n > 0 && `(${n}${more ? '+' : ''})`, titled && `${titled} ·`, 'holdpoint'].filter(Boolean).join(' ');
}

let selected = null;
/** Marks the call that is shown beside the list. */
export function setSelected(id) {
  selected = id;
  if (id === null) setTitle('');
  mark();
}

function mark() {
  for (const [id, { element }] of listed) element.firstElementChild.ariaCurrent = id === selected ? 'true' : null;
}

function note(...content) {
  fill(byId('list-note'), ...content);
}

function showSummary() {
  const count = waiting().length;
  setTitle();
  const { risk: wanted, q } = view.filters;
  const nothing = view.mode === 'inbox' && !q ? 'No call waits for you.' : 'There is no such call.';
  note(listed.size === 0 && !more ? nothing : `${listed.size} shown${more ? ', there are more' : ''}.`,
    (wanted || q) && more && ` The ${wanted ? 'risk' : 'text'} is looked for in up to ${PAGE * PAGES_MAX} calls at a time.`);
  byId('batch').hidden = !(view.mode === 'inbox' && view.filters.tool && waiting().filter(canBatch).length > 1);
  byId('batch').textContent = `Approve all of ${title(view.filters.tool ?? '')}…`;
}

function announceNew() {
  const n = fresh.size;
  byId('new-calls-status').textContent = n === 0 ? '' : `${n} new ${n === 1 ? 'call waits' : 'calls wait'}.`;
  newCallsButton.hidden = n === 0;
  newCallsButton.textContent = `Show ${n} new`;
}

const ENDS = {
  'tool.approved': 'approved', 'tool.rejected': 'rejected', 'tool.expired': 'expired', 'tool.cancelled': 'cancelled',
  'tool.started': 'executing', 'tool.succeeded': 'succeeded', 'tool.failed': 'failed', 'tool.interrupted': 'interrupted',
};

// The events after which a call that is not in the list may wait for this person.
const WAITS = ['tool.requires_approval', 'tool.delegated', 'tool.escalated'];

live.addEventListener('event', ({ detail: event }) => {
  const id = event.tool_call_id;
  const state = ENDS[event.type];
  if (state !== undefined) {
    if (fresh.delete(id)) announceNew();
    if (listed.has(id)) put({ tool_call_id: id, state, can_decide: false, can_reject: false, decision: event.data.decision });
  } else if (WAITS.includes(event.type) && view.mode === 'inbox' && !listed.has(id) && matchesFilters(event)) {
    fresh.add(id);
    announceNew();
    // Nothing is below the pointer of an empty list.
    if (listed.size === 0 && rows.ariaBusy !== 'true') reload();
  }
});

function matchesFilters({ session_id: session, data }) {
  const { tool, session: wanted } = view.filters;
  return (!tool || tool === data.tool_name) && (!wanted || wanted === session) && fits({ ...data, input: data.args });
}

// Calls may have been held after the list was read and before events arrived.
let isUnsure = false;
live.addEventListener('open', () => {
  if (rows.ariaBusy === 'true') isUnsure = true;
  else if (generation > 0) lookAgain();
});

async function lookAgain() {
  isUnsure = false;
  if (view.mode !== 'inbox') return;
  const { tool, session } = view.filters;
  const own = generation;
  const first = await approvals({ tool_name: tool, session_id: session, page_size: PAGE }).catch(() => null);
  if (own !== generation || first === null) return;
  const newest = [...listed.keys()][0] ?? '';
  for (const item of first.results) {
    const id = item.tool_call_id;
    if (!listed.has(id) && id > newest && fits(item)) fresh.add(id);
  }
  announceNew();
  if (listed.size === 0 && fresh.size > 0) reload();
}

/** Reads the names of the tools for the filter. */
export async function loadTools() {
  const { results } = await tools();
  const chosen = filterForm.elements.tool.value;
  fill(filterForm.elements.tool, el('option', { value: '' }, 'all'),
    results.map(({ tool_name: name }) => el('option', { value: name }, name)));
  select(filterForm.elements.tool, chosen);
}

fill(filterForm.elements.state, el('option', { value: '' }, 'all'),
  DECIDED.map(state => el('option', { value: state }, stateWord(state))));
filterForm.addEventListener('submit', event => event.preventDefault());
filterForm.addEventListener('change', () => {
  const { tool, risk: level, state, q } = filterForm.elements;
  const words = q.value.trim();
  // The id of a call opens the call, also one that is in no list.
  location.hash = isId(words) ? `#/call/${words}`
    : addressOf({ ...view.filters, tool: tool.value, risk: level.value, state: view.mode === 'inbox' ? '' : state.value, q: words });
});
byId('more').addEventListener('click', load);
newCallsButton.addEventListener('click', async () => {
  await reload();
  byId('list-title').focus();
});
// The arrows move among the calls, as Tab does.
rows.addEventListener('keydown', event => {
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (step === undefined) return;
  const links = [...rows.querySelectorAll('a')];
  const to = links[links.indexOf(document.activeElement) + step];
  if (to === undefined) return;
  event.preventDefault();
  to.focus();
});
