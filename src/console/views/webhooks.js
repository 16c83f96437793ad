// The webhooks and recipients of the tenant, and the state of the delivery to each.
import { enableWebhook, webhooks } from '../api.js';
import { changed, guard, setBusy } from '../card/inert.js';
import { address } from '../list.js';
import { el, fill } from '../text/text.js';
import { clock, date } from '../text/time.js';

const pane = document.getElementById('detail');
const REASONS = { gone: 'the receiver answered 410', failed_too_long: 'the attempts failed for three days' };
const FAILURES = { no_answer: 'no answer in time', not_sent: 'the request could not be sent' };

let isShown = false;

/** Shows the webhooks. */
export async function open(notice = '') {
  isShown = true;
  fill(pane, el('p', { className: 'empty', role: 'status' }, 'Loading…'));
  const found = await webhooks().catch(error => error);
  if (!isShown) return;
  const heading = el('h2', { tabIndex: -1 }, 'Webhooks');
  fill(pane, el('div', { className: 'body', tabIndex: 0, role: 'group', 'aria-label': 'Webhooks' },
    el('a', { className: 'back', href: address() }, 'Back to the list'), heading,
    notice && el('p', { role: 'status', className: 'outcome' }, notice),
    found instanceof Error ? el('p', {}, found.message)
      : found.results.length === 0 ? el('p', {}, 'The configuration names no webhook and no recipient of your tenant.')
        : el('ul', { className: 'policy' }, found.results.map(draw))));
  heading.focus();
  changed();
}

export function close() {
  isShown = false;
}

/** Says where the events go: to an address, or to a name at the service of the channel. */
function placeOf(channel, origin) {
  if (channel === 'webhook') return `at ${origin}`;
  if (origin.includes('://')) return `messages to ${origin}`;
  const to = origin.slice(origin.indexOf(':') + 1);
  return channel === 'mail' ? `by mail to ${to}` : `in ${channel[0].toUpperCase()}${channel.slice(1)} to ${to}`;
}

function draw(webhook) {
  const { name, channel, origin, events, state, cursor, failures, refused } = webhook;
  const place = placeOf(channel, origin);
  const status = el('p', { role: 'status' });
  return el('li', {},
    el('p', {}, el('code', {}, name), ' ', el('b', {}, state), ' ', el('small', {}, place)),
    webhook.disabled_reason && el('p', {}, 'Disabled since ', date(webhook.disabled_at), ': ', REASONS[webhook.disabled_reason] ?? webhook.disabled_reason, '.'),
    failures && el('p', {}, `${failures.count} failed ${failures.count === 1 ? 'attempt' : 'attempts'} since `, date(failures.since),
      '; the last one: ', FAILURES[failures.last] ?? `status ${failures.last_status}`, '.',
      webhook.next_attempt_at && [' The next attempt is in ', clock(webhook.next_attempt_at, 'a moment'), '.']),
    refused && el('p', { className: 'notice' }, `${refused.count} ${refused.count === 1 ? 'message was' : 'messages were'} refused, the last with status ${refused.last_status}, `, date(refused.last_at), '.'),
    webhook.waiting_since ? el('p', {}, 'The oldest event that is not delivered was written ', clock(webhook.waiting_since), '.')
      : el('p', {}, 'Every event is delivered.'),
    webhook.has_gap && el('p', { className: 'notice' }, 'Events were deleted before they were delivered.'),
    el('p', { className: 'hint' }, `Delivered up to event ${cursor}. Types: ${events.join(', ')}`),
    state !== 'delivering' && enabling(webhook, status), status);
}

function enabling({ name, state }, status) {
  const words = state === 'disabled' ? `Enable ${name}` : `Try ${name} now`;
  const button = guard(el('button', { type: 'button' }, words), async () => {
    setBusy([button], true);
    try {
      await enableWebhook(name);
      if (isShown) await open(`The delivery to ${name} continues.`);
    } catch (error) {
      status.textContent = error.message;
      setBusy([button], false);
    }
  });
  return button;
}
