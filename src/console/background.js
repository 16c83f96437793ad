// The context of a held call: the part of the policy that asks, the words before it, earlier decisions, and the people
// that may decide.
import { headline } from './card/headline.js';
import { stateWord } from './list.js';
import { cuttable, el, person } from './text/text.js';
import { date } from './text/time.js';

const SOURCES = { session: 'the policy of the session', tool: 'the tool: each of its calls asks' };

/** The part of the policy that holds the call, in words. */
const source = name => SOURCES[name] ?? (name.startsWith('rule:') ? ['the rule ', el('code', {}, name.slice(5))] : name);

/** What surrounds the call, if the server sent it. */
export function background(item) {
  const { policy, history, others, context, thread_title: thread } = item;
  if (!policy) return null;
  return [
    policy.source && el('p', {}, 'Asked by: ', source(policy.source)),
    el('h3', {}, 'Conversation'), el('p', {}, el('b', {}, thread)), words(item, context),
    el('h3', {}, 'Who may decide'), deciders(item, others),
    el('h3', {}, 'Earlier decisions'), earlier(item, history),
  ];
}

function words(item, context) {
  if (!context) return el('p', {}, 'The words before the call are not shared with you.');
  const isSub = item.thread_id !== item.session_id;
  const quote = (name, excerpt, isEnd) => excerpt && el('div', {}, el('dt', {}, name),
    el('dd', {}, el('span', { className: 'value text' }, isEnd && excerpt.is_cut && '… ', cuttable(excerpt.text), !isEnd && excerpt.is_cut && ' …'),
      excerpt.is_cut && el('small', {}, isEnd ? 'The beginning is not shown.' : 'The end is not shown.')));
  return el('dl', { className: 'values words' },
    quote(isSub ? 'The task of the sub-agent' : 'The user wrote', context.user, false),
    quote('The model wrote before the call', context.model, true));
}

function deciders(item, { approve_roles: roles, other_person: isOther, votes }) {
  const own = `the user of the thread${isOther ? ' (may only deny)' : ''}`;
  return el('ul', { className: 'waits' },
    el('li', {}, roles.length === 0 ? `Only ${own}.` : [`${own[0].toUpperCase()}${own.slice(1)}, and people with the role `,
      roles.map((role, n) => [n > 0 && ' or ', el('code', {}, role)]), '.']),
    votes.map(({ by, on_behalf_of: other, at, edited, input_hash: hash }) => el('li', {}, el('b', {}, person(by)), other && [' in place of ', el('b', {}, person(other))], ' approved ',
      edited ? 'edited inputs' : hash === item.input_hash ? 'the inputs as proposed' : 'the inputs as they were', ' ', el('small', {}, date(at)))));
}

function earlier(item, history) {
  if (history.length === 0) {
    return el('p', {}, `None: no call of ${item.tool_name} was approved or denied for ${person(item.requested_by)} before.`);
  }
  return el('ul', { className: 'trail' }, history.map(({ tool_call_id: id, headline_parts: parts, headline: whole = `Call ${id.slice(-6)}`, state, decision }) => el('li', {},
    el('a', { href: `#/call/${id}` }, headline({ headline_parts: parts, headline: whole })), ' ', el('b', {}, decision.decision === 'approve' ? 'approved' : 'denied'),
    ' by ', person(decision.by), decision.edited && ', edited', decision.decision === 'approve' && `: ${stateWord(state)}`,
    decision.reason && [decision.decision === 'approve' ? ', note: ' : ', reason: ', el('q', {}, decision.reason)], ' ', el('small', {}, date(decision.at)))));
}
