// Approving all waiting calls of one tool that the list shows, with the hashes that were shown.
import { BATCH, decideAll } from './api.js';
import { changed, guard, setBusy } from './inert.js';
import * as list from './list.js';
import { el, fill, person, title } from './text.js';
import { values } from './values.js';

const dialog = document.getElementById('dialog');

document.getElementById('batch').addEventListener('click', () => {
  // A definition that is not accepted is read in the card.
  const items = list.waiting().filter(item => item.can_decide && !item.unreadable && !item.unaccepted_definition);
  if (items.length > 0) openDialog(items);
});

function openDialog(items) {
  const heading = el('h2', { id: 'dialog-title', tabIndex: -1, autofocus: true }, `Approve ${items.length} calls of ${title(items[0].tool_name)}?`);
  const message = el('p', { className: 'message', role: 'status' });
  const cancel = el('button', { type: 'button', on: { click: () => dialog.close() } }, 'Cancel');
  const rows = new Map();
  const approve = guard(el('button', { type: 'button', className: 'approve' }, `Approve these ${items.length}`), async () => {
    setBusy([approve], true);
    cancel.textContent = 'Close';
    await send(items, rows, message);
    approve.remove();
    heading.focus();
  });
  fill(dialog, el('div', { className: 'body', tabIndex: 0, role: 'group', 'aria-label': 'Calls' }, heading,
    el('p', {}, 'Each call is approved as it is shown here. A call that has changed since is not approved.'),
    el('ol', { className: 'batch' }, items.map(item => {
      const outcome = el('p', { className: 'outcome' });
      rows.set(item.tool_call_id, outcome);
      return el('li', {}, el('h3', {}, item.headline ?? title(item.tool_name)),
        el('p', { className: 'facts' }, list.risk(item.risk_level), item.requested_by && el('span', {}, `asked for by ${person(item.requested_by)}`)),
        values(item.input, item.input_hash), outcome);
    }))), el('div', { className: 'bar' }, message, el('div', { className: 'approval' }, cancel, approve)));
  dialog.showModal();
  changed();
}

async function send(items, rows, message) {
  let [ran, other] = [0, 0];
  for (let from = 0; from < items.length; from += BATCH) {
    const some = items.slice(from, from + BATCH);
    message.textContent = `Sending ${from + 1} to ${from + some.length} of ${items.length}…`;
    const decisions = some.map(item => ({ toolCallId: item.tool_call_id, isValidated: true, inputHash: item.input_hash, resume: true }));
    let results;
    try {
      ({ results } = await decideAll(decisions));
    } catch (error) {
      message.textContent = `${error.message} ${from === 0 ? 'Look at the calls again before you repeat it.' : `${from} were sent before.`}`;
      return;
    }
    for (const { toolCallId, state, error } of results) {
      fill(rows.get(toolCallId), error ? `Not approved: ${error.message}` : `Approved: ${list.stateWord(state)}.`);
      if (error) other += 1;
      else {
        ran += 1;
        list.put({ tool_call_id: toolCallId, state, can_decide: state === 'pending' ? undefined : false });
      }
    }
  }
  message.textContent = `${ran} approved${other > 0 ? `, ${other} not approved` : ''}.`;
}
