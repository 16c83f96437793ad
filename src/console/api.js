// Requests to the public API of this server.
import { parse } from './text/json.js';
import { setClock } from './text/time.js';

// Only this variable holds the token, so the token ends with the tab. After a sign-in it is in a cookie that no script can read, and
// each request needs a value that only a page of this origin gets.
let token = null;
let csrf = null;

export const hasToken = () => token !== null;
export const setToken = next => { token = next; };

/** Dispatches `unauthenticated` when the server does not know the caller, with the error as `detail`. */
export const signals = new EventTarget();

/** A refused request. The status is 0 if there was no response. */
export class Failure extends Error {
  constructor(status, { code = 'unreachable', message, details = {} }, retryAfter) {
    super(message);
    Object.assign(this, { status, code, details, retryAfter });
  }
}

const UNREACHABLE = { message: 'The server could not be reached.' };

function headers(more) {
  if (token !== null) return { ...more, authorization: `Bearer ${token}` };
  return csrf === null ? more : { ...more, 'x-csrf-token': csrf };
}

async function send(method, path, options) {
  let response;
  try {
    response = await fetch(path, { method, cache: 'no-store', redirect: 'error', ...options });
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    throw new Failure(0, UNREACHABLE);
  }
  if (response.ok) return response;
  let error = { code: 'unknown', message: `The server answered with status ${response.status}.` };
  try {
    error = parse(await response.text()).error ?? error;
  } catch { /* The body is that of a proxy. */ }
  const failure = new Failure(response.status, error, Number(response.headers.get('retry-after')) || undefined);
  if (response.status === 401) signals.dispatchEvent(new CustomEvent('unauthenticated', { detail: failure }));
  throw failure;
}

async function request(method, path, body) {
  const json = body === undefined ? {} : { body: JSON.stringify(body) };
  const type = body === undefined ? {} : { 'content-type': 'application/json' };
  const response = await send(method, path, { ...json, headers: headers(type) });
  setClock(response.headers.get('date'));
  let text;
  try {
    text = await response.text();
  } catch {
    throw new Failure(0, UNREACHABLE);
  }
  return text === '' ? null : parse(text);
}

const query = parameters => {
  const set = Object.entries(parameters).filter(([, value]) => value !== undefined && value !== null && value !== '');
  return set.length === 0 ? '' : `?${new URLSearchParams(set)}`;
};
const id = encodeURIComponent;

/** The largest page that the server gives. */
export const PAGE = 50;
/** The most decisions in one request, unless the server sets a lower limit. */
export const BATCH = 50;

/** The caller as the server knows them. */
export async function caller() {
  csrf = null;
  const found = await request('GET', 'auth/session');
  csrf = found.csrf_token ?? null;
  return found;
}

/** Whether the caller has signed in, so that they can sign out. */
export const isSignedIn = () => csrf !== null;

/** Ends the session of this browser, or forgets the token. Returns where the session at the issuer ends, if there is such an address. */
export async function signOut() {
  const ended = isSignedIn() ? await request('POST', 'auth/sign-out') : {};
  csrf = null;
  token = null;
  return ended.end_session_url;
}

export const signIns = () => request('GET', 'auth/sign-ins');
export const endSignIn = signInId => request('DELETE', `auth/sign-ins/${id(signInId)}`);

export const approvals = parameters => request('GET', `approvals${query(parameters)}`);
/** The requests of tools that run. */
export const requests = parameters => request('GET', `tool_requests${query(parameters)}`);
export const answer = (requestId, body) => request('POST', `tool_requests/${id(requestId)}/answer`, body);
export const call = callId => request('GET', `tool_calls/${id(callId)}`);
export const tools = () => request('GET', 'tools');
export const accept = (tool, hash) => request('POST', `tools/${id(tool)}/accept`, { hash });
export const events = (callId, cursor) => request('GET', `tool_calls/${id(callId)}/events${query({ page_size: 100, cursor })}`);
export const decide = decision => request('POST', 'qa/validate_tool', decision);
export const previewEdit = (callId, inputs) => request('POST', `tool_calls/${id(callId)}/preview`, { validated_inputs: inputs });
export const reveal = callId => request('POST', `tool_calls/${id(callId)}/reveal`);
export const openLink = link => request('POST', 'links/open', { link });
export const resolve = (callId, finding) => request('POST', `tool_calls/${id(callId)}/resolve`, finding);
export const extend = (callId, seconds) => request('POST', `tool_calls/${id(callId)}/extend`, { expires_in: seconds });
export const delegate = (callId, body) => request('POST', `approvals/${id(callId)}/delegate`, body);
export const decideAll = decisions => request('POST', 'qa/validate_tools', { decisions });
export const policy = session => request('GET', `sessions/${id(session)}/policy`);
export const grants = (session, cursor) => request('GET', `sessions/${id(session)}/grants${query({ page_size: 100, cursor })}`);
export const sessions = cursor => request('GET', `sessions${query({ page_size: PAGE, cursor })}`);
export const webhooks = () => request('GET', 'webhooks');
export const enableWebhook = name => request('POST', `webhooks/${id(name)}/enable`);
export const revoke = (session, grant) => request('DELETE', `sessions/${id(session)}/grants/${id(grant)}`);

/** The call with all that a decider sees. A call that was never held has no more than the call itself. */
export async function held(callId) {
  try {
    return await request('GET', `approvals/${id(callId)}`);
  } catch (error) {
    if (error.status !== 404) throw error;
    return { ...await call(callId), can_decide: false, can_reject: false };
  }
}

/** The stream of events, from now on or after an event. */
export const stream = (after, signal) => send('GET', 'events/stream', {
  headers: headers({ accept: 'text/event-stream', ...(after === null ? {} : { 'last-event-id': after }) }),
  signal,
});
