// The policy in force in a session, and its remembered approvals.
import { grants, policy, revoke } from '../api.js';
import { endOf, inputsOf } from './grants.js';
import { changed, guard, setBusy } from '../card/inert.js';
import { address } from '../list.js';
import { el, fill, person } from '../text/text.js';
import { date } from '../text/time.js';

const pane = document.getElementById('detail');
const VERDICTS = { run: 'runs', ask: 'asks', forbid: 'never runs' };

let shown = null;

/** Shows the session with this id. */
export async function open(id, notice = '') {
  shown = id;
  fill(pane, el('p', { className: 'empty', role: 'status' }, 'Loading…'));
  // The server refuses each by itself: a granter may see grants and not the policy.
  const [rules, remembered] = await Promise.all([policy(id), all(id)].map(read => read.catch(error => error)));
  if (shown !== id) return;
  const heading = el('h2', { tabIndex: -1 }, 'Session');
  fill(pane, el('div', { className: 'body', tabIndex: 0, role: 'group', 'aria-label': 'Session' },
    el('a', { className: 'back', href: address() }, 'Back to the list'), heading, el('p', {}, el('code', {}, id)),
    el('p', {}, el('a', { href: `#/?session=${id}` }, 'Waiting calls'), ' · ', el('a', { href: `#/history?session=${id}` }, 'History')),
    notice && el('p', { role: 'status', className: 'outcome' }, notice),
    el('h3', {}, 'Remembered approvals'), refused(remembered) ?? drawGrants(id, remembered, rules),
    el('h3', {}, 'Policy in force'), refused(rules) ?? drawPolicy(rules)));
  heading.focus();
  changed();
}

export function close() {
  shown = null;
}

async function all(id) {
  const found = [];
  let cursor;
  do {
    const page = await grants(id, cursor);
    found.push(...page.results);
    cursor = page.next_cursor;
  } while (cursor !== undefined);
  return found;
}

function refused(result) {
  if (!(result instanceof Error)) return null;
  return el('p', {}, result.status === 404 ? 'Not for you to see: the user of the session and operators see it.' : result.message);
}

function drawGrants(session, found, rules) {
  if (found.length === 0) return el('p', {}, 'None. Each call of a tool that asks is held.');
  const status = el('p', { role: 'status' });
  const list = el('ul', { className: 'grants' }, found.map(grant => {
    const entry = el('li', {}, el('p', {}, el('code', {}, grant.tool_name), inputsOf(grant), endOf(grant),
      ', by ', el('b', {}, person(grant.granted_by)), ', ', date(grant.created_at)));
    const button = guard(el('button', { type: 'button', className: 'deny', 'aria-label': `Revoke the approval of ${grant.tool_name}` }, 'Revoke'), async () => {
      setBusy([button], true);
      try {
        await revoke(session, grant.grant_id);
        await open(session, `The approval of ${grant.tool_name} is revoked. Later calls are held again.`);
      } catch (error) {
        if (error.status === 404) {
          await open(session, `The approval of ${grant.tool_name} was revoked before.`);
          return;
        }
        status.textContent = error.message;
        setBusy([button], false);
      }
    });
    entry.append(button);
    return entry;
  }));
  return [rules.grants_end === 'with_process' && el('p', {}, 'They end with the process of the server.'), list, status];
}

function drawPolicy({ mode, session, tools }) {
  const own = Object.entries(session.tools ?? {});
  return [
    el('p', {}, 'Calls of tools that ask: ', el('b', {}, mode), '. ',
      session.mode || own.length > 0 ? 'The session has a policy of its own' : 'The session has no policy of its own',
      own.length > 0 && [': ', own.map(([name, word]) => `${name} ${word}`).join(', ')], '.'),
    el('ul', { className: 'policy' }, tools.map(tool => el('li', {},
      el('p', {}, el('code', {}, tool.tool_name), ' ', el('b', {}, VERDICTS[tool.verdict] ?? tool.verdict), ' ', el('small', {}, `by ${tool.source}`)),
      tool.reason && el('p', { className: 'hint' }, tool.reason),
      tool.rules.map(rule => el('p', { className: 'hint' }, `Rule ${rule.name} (${rule.effect}) covers some calls: ${rule.reason}`))))),
  ];
}
