// Definitions of MCP tools that no operator has accepted: in a card, and as a view of all such tools.
import { accept, tools } from '../api.js';
import { changed, guard, setBusy } from '../card/inert.js';
import { difference } from '../text/json.js';
import { address } from '../list.js';
import { el, fill } from '../text/text.js';
import { changes } from '../text/values.js';

const pane = document.getElementById('detail');
const CAUSES = {
  changed: 'The server of the tool has changed what it says about the tool, and no operator has accepted that.',
  new: 'The tool is new at its server, and no operator has accepted what the server says about it.',
  unknown: 'What operators have accepted could not be read.',
};
// So many lines without a change are shown around each change.
const AROUND = 3;

/** A definition that is not accepted: why, and what is different. */
export const definition = ({ cause, hash, changes: found }) => el('div', { className: 'definition' },
  el('p', { className: 'warning' }, CAUSES[cause] ?? cause, ' Each call of the tool asks.'),
  found.map(({ field, accepted, current }) => [el('h4', {}, field), changes(near(lines(accepted, current)))]),
  el('p', { className: 'hint' }, 'Hash: ', el('code', {}, hash)));

function lines(accepted, current) {
  if (accepted === undefined) return current.split('\n').map(line => ['+', line]);
  if (current === undefined) return accepted.split('\n').map(line => ['-', line]);
  return difference(accepted, current);
}

function near(all) {
  const isNear = at => all.slice(Math.max(0, at - AROUND), at + AROUND + 1).some(([sign]) => sign !== ' ');
  const kept = [];
  for (const [at, line] of all.entries()) {
    if (isNear(at)) kept.push(line);
    else if (kept.at(-1)?.[1] !== '…') kept.push([' ', '…']);
  }
  return kept;
}

let isShown = false;

/** Shows the tools whose definitions are not accepted. */
export async function open(notice = '') {
  isShown = true;
  fill(pane, el('p', { className: 'empty', role: 'status' }, 'Loading…'));
  const found = await tools().catch(error => error);
  if (!isShown) return;
  const heading = el('h2', { tabIndex: -1 }, 'Tools to accept');
  fill(pane, el('div', { className: 'body', tabIndex: 0, role: 'group', 'aria-label': 'Tools to accept' },
    el('a', { className: 'back', href: address() }, 'Back to the list'), heading,
    notice && el('p', { role: 'status', className: 'outcome' }, notice),
    found instanceof Error ? el('p', {}, found.message) : [draw(found.results.filter(tool => tool.unaccepted_definition)), drawLeftOut(found.left_out)]));
  heading.focus();
  changed();
}

export function close() {
  isShown = false;
}

/** The tools that no model gets, each with the reason. */
function drawLeftOut(found) {
  if (found.length === 0) return '';
  return [el('h3', {}, 'Tools that cannot be used'), el('ul', { className: 'definitions' }, found.map(({ server, tool, why }) =>
    el('li', {}, el('p', {}, el('code', {}, tool), ' of ', el('code', {}, server), `: ${why}`))))];
}

function draw(found) {
  if (found.length === 0) return el('p', {}, 'None. What MCP servers say about their tools is accepted.');
  const status = el('p', { role: 'status' });
  return [status, el('ul', { className: 'definitions' }, found.map(tool => {
    const { tool_name: name, unaccepted_definition: unaccepted, can_accept: mayAccept } = tool;
    const entry = el('li', {}, el('h3', {}, el('code', {}, name)), definition(unaccepted));
    if (!mayAccept) {
      entry.append(el('p', {}, 'An operator can accept it.'));
      return entry;
    }
    const button = guard(el('button', { type: 'button', className: 'primary', 'aria-label': `Accept this definition of ${name}` }, 'Accept this definition'), async () => {
      setBusy([button], true);
      try {
        await accept(name, unaccepted.hash);
        if (isShown) await open(`The definition of ${name} is accepted. Its calls run again where the policy lets them.`);
      } catch (error) {
        if (!isShown) return;
        if (error.code === 'stale') {
          await open(`The definition of ${name} has changed again. Nothing is accepted: read it again.`);
          return;
        }
        status.textContent = error.message;
        setBusy([button], false);
      }
    });
    entry.append(button);
    return entry;
  }))];
}
