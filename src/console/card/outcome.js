// What became of a call, in one sentence.
import { line } from '../text/json.js';
import { el, person } from '../text/text.js';
import { clock, date } from '../text/time.js';

const WORDS_MAX = 300;

export const inPlaceOf = other => other && [' in place of ', el('b', {}, person(other))];
const APPROVED = ({ decision }) => ['Approved by ', el('b', {}, person(decision?.by ?? 'the policy')), inPlaceOf(decision?.on_behalf_of)];
const OUTCOMES = {
  approved: item => [APPROVED(item), '. It has not started yet.'],
  executing: (item, request) => (request ? [APPROVED(item), '. The tool runs and asks: ', el('a', { href: `#/request/${request.request_id}` }, 'answer it'), '.']
    : [APPROVED(item), ', and running.']),
  succeeded: item => [APPROVED(item), ', and done.'],
  failed: item => [APPROVED(item), item.result ? ['. It failed: ', brief(item.result)] : '. It failed.'],
  interrupted: item => [APPROVED(item), '. The tool may have run: its outcome is unknown. Do not repeat it before you have looked.', said(item)],
  rejected: ({ decision }) => ['Denied by ', el('b', {}, person(decision?.by ?? 'the policy')), inPlaceOf(decision?.on_behalf_of), '. It did not run.'],
  expired: () => 'Nobody decided in time. It did not run.',
  cancelled: item => (item.decision?.decision === 'approve' ? [APPROVED(item), ', then cancelled. It did not run.']
    : ['Cancelled by ', el('b', {}, person(item.decision?.by ?? 'the system')), '. It did not run.']),
  invalid: () => 'The call cannot run. It did not run.',
};

// What the server of the tool said about an unknown outcome.
const SAID = ' The server said: ';
function said({ result }) {
  const at = result?.indexOf(SAID) ?? -1;
  return at >= 0 && [SAID, brief(result.slice(at + SAID.length))];
}

// The whole is further down.
const brief = text => el('span', { className: 'words-of-tool' }, text.length > WORDS_MAX ? `${text.slice(0, WORDS_MAX)}…` : text);

/**
 * Says in this element what became of the call. The element is one live region for the whole life of its card, so that a screen
 * reader speaks each change. `request` is what the tool asks while it runs.
 */
export function say(region, item, request) {
  const at = item.decision && item.state !== 'pending' ? [' ', el('small', {}, date(item.decision.at))] : [];
  const next = el('p', {}, item.state === 'pending' ? null : [OUTCOMES[item.state]?.(item, request) ?? `State: ${item.state}.`, at]);
  region.className = `outcome ${item.state}`;
  if (next.textContent !== region.textContent) region.replaceChildren(...next.childNodes);
}

// A number that the server writes with a fraction is the number itself.
const number = value => (value === undefined ? undefined : Number(line(value)));

/** How far the tool says that the call has come. After an output it says nothing new. */
export function progress({ state, progress: last }) {
  if (!last || state === 'succeeded') return null;
  const { message, at } = last;
  const [done, total] = [last.done, last.total].map(number);
  const share = done === undefined ? total !== undefined && `of ${total}` : total === undefined ? String(done) : `${done} of ${total}`;
  return el('p', { className: 'progress' }, 'The tool says: ', message && el('q', {}, message), message && share && ' ', share && `(${share})`,
    ' ', el('small', {}, clock(at)));
}

/** The words of the person that decided. */
export const words = ({ decision }) => decision?.reason
  && el('p', {}, decision.decision === 'approve' ? 'Note: ' : 'Reason: ', el('q', {}, decision.reason));
