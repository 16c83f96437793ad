// The start of the console: the views by the fragment of the address, and the sign-in of the caller.
import { caller, hasToken, isSignedIn, setToken, signals, signOut } from './api.js';
import * as toolRequests from './views/tool-requests.js';
import './batch.js';
import * as card from './card/card.js';
import * as definitions from './views/definitions.js';
import { isSupported } from './text/json.js';
import * as link from './views/link.js';
import * as list from './list.js';
import { follow, live, stop } from './live.js';
import * as session from './views/session.js';
import * as sessions from './views/sessions.js';
import { begin, failure, resume } from './views/sign-in.js';
import * as signIns from './views/sign-ins.js';
import { el, fill } from './text/text.js';
import * as typed from './text/typed.js';
import * as webhooks from './views/webhooks.js';

const byId = id => document.getElementById(id);
const panes = byId('panes');
const gate = byId('gate');
const form = gate.querySelector('form');
// The views with a link in the navigation, besides the inbox.
const NAMED = ['history', 'tools', 'sessions', 'webhooks'];

// The views of the right pane, by the first part of the fragment.
const VIEWS = { call: card, link, session, sessions, 'sign-ins': signIns, tools: definitions, webhooks, request: toolRequests };

/** Opens and closes the navigation of a small window. */
function showMenu(isOpen) {
  document.body.classList.toggle('has-menu', isOpen);
  byId('menu').ariaExpanded = String(isOpen);
}

function closeViews(except) {
  for (const [name, view] of Object.entries(VIEWS)) {
    if (name !== except) view.close();
  }
}

// The link of the navigation for a list.
const at = (view, { state }) => {
  if (view === 'history' && state === 'interrupted') return '#/history?state=interrupted';
  return NAMED.includes(view) ? `#/${view}` : '#/';
};

function route() {
  const [path, query = ''] = location.hash.replace(/^#\/?/, '').split('?');
  const [view, id] = path.split('/').map(part => {
    try {
      return decodeURIComponent(part);
    } catch {
      return part;
    }
  });
  const filters = Object.fromEntries(new URLSearchParams(query));
  const isTools = view === 'tools';
  const isDetail = isTools || ['sessions', 'sign-ins', 'webhooks'].includes(view) || (['call', 'link', 'session', 'request'].includes(view) && id);
  document.body.classList.toggle('has-detail', Boolean(isDetail));
  for (const link of document.querySelectorAll('nav a')) {
    if (!id) link.ariaCurrent = link.hash === at(view, filters) ? 'page' : null;
  }
  closeViews(view);
  if (view === 'call' && id) {
    list.begin();
    card.open(id);
  } else if (view === 'link' && id) {
    list.begin();
    link.open(id);
  } else if (view === 'session' && id) {
    list.begin();
    session.open(id);
  } else if (isTools) {
    list.begin();
    definitions.open();
  } else if (view === 'request' && id) {
    list.begin();
    toolRequests.open(id);
  } else if (view === 'sessions') {
    list.begin();
    sessions.open();
  } else if (view === 'sign-ins') {
    list.begin();
    signIns.open();
  } else if (view === 'webhooks') {
    list.begin();
    webhooks.open();
  } else {
    list.show(view === 'history' ? 'history' : 'inbox', filters);
    fill(byId('detail'), el('p', { className: 'empty' }, 'Choose a call.'));
  }
}

async function start() {
  if (!isSupported) {
    fill(document.querySelector('main'), el('p', { className: 'notice' },
      'This browser cannot show large numbers exactly. Use Chrome or Edge 114, Firefox 135, Safari 18.4, or later.'));
    panes.hidden = false;
    return;
  }
  try {
    const found = await caller();
    const { user_id: user, tenant_id: tenant } = found;
    typed.begin(found);
    if (hasToken() || isSignedIn()) fill(byId('caller'), isSignedIn() ? el('a', { href: '#/sign-ins' }, user) : user, ' of ', tenant);
  } catch (error) {
    if (error.status === 401) return;
    byId('connection').textContent = error.message;
    // Without the answer no other request has the value that it needs.
    if (error.status === 503) {
      setTimeout(start, (error.retryAfter ?? 1) * 1000);
      return;
    }
  }
  gate.hidden = true;
  panes.hidden = false;
  resume();
  byId('sign-out').hidden = !hasToken() && !isSignedIn();
  byId('sign-out').textContent = isSignedIn() ? 'Sign out' : 'Forget the token';
  follow();
  list.loadTools().catch(() => {});
  route();
}

function showSignIn(why, path) {
  const wasIn = hasToken() || !panes.hidden;
  // Other requests of the same moment are refused too.
  if (!wasIn && !gate.hidden) return;
  setToken(null);
  stop();
  closeViews();
  fill(byId('detail'));
  list.forget();
  toolRequests.forget();
  panes.hidden = true;
  gate.hidden = false;
  byId('sign-out').hidden = true;
  byId('connection').textContent = '';
  fill(byId('caller'));
  fill(gate.querySelector('.error'), wasIn ? why : failure() ?? '');
  if (path) {
    byId('sign-in').href = path.replace(/^\//, '');
    byId('sign-in').focus();
  } else {
    form.elements.token.focus();
  }
}

/** Shows the forms of sign-in that the server supports. */
function showWays(path) {
  byId('with-sign-in').hidden = !path;
  byId('without-sign-in').hidden = Boolean(path);
}

signals.addEventListener('unauthenticated', ({ detail }) => {
  if (!panes.hidden) typed.keep();
  const path = detail.details.sign_in;
  const why = isSignedIn() ? 'Your session has ended.' : 'The server refuses the token, or it has ended.';
  showWays(path);
  showSignIn(why, path);
});
byId('sign-in').addEventListener('click', begin);
form.addEventListener('submit', event => {
  event.preventDefault();
  // A header takes no other characters, and a token has none.
  const token = form.elements.token.value.trim().replace(/^Bearer\s+/i, '');
  form.elements.token.value = '';
  if (!/^[\x21-\x7e]+$/.test(token)) {
    fill(gate.querySelector('.error'), 'Expected a token without blanks.');
    return;
  }
  setToken(token);
  start();
});
byId('sign-out').addEventListener('click', async () => {
  const why = isSignedIn() ? 'You are signed out here. The session at the issuer stays.' : 'The token is forgotten.';
  let atIssuer;
  try {
    atIssuer = await signOut();
  } catch (error) {
    if (error.status !== 401) byId('connection').textContent = error.message;
    return;
  }
  typed.forget();
  showSignIn(why, byId('with-sign-in').hidden ? null : byId('sign-in').getAttribute('href'));
  if (atIssuer) location.assign(atIssuer);
});
byId('menu').addEventListener('click', () => showMenu(!document.body.classList.contains('has-menu')));
live.addEventListener('open', () => { byId('connection').textContent = 'Live'; });
live.addEventListener('lost', () => { byId('connection').textContent = 'Not connected, trying again…'; });
addEventListener('hashchange', () => {
  showMenu(false);
  if (!panes.hidden) route();
});
start();
