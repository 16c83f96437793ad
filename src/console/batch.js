// Approving several waiting calls of one tool that the list shows, with the hashes that were shown.
import { BATCH, decideAll } from './api.js';
import { approveButton, rest } from './card/approve.js';
import { partsOf } from './card/complete.js';
import { headline } from './card/headline.js';
import { changed, setBusy } from './card/inert.js';
import * as list from './list.js';
import { parts } from './card/parts.js';
import { el, fill, person, title } from './text/text.js';

const dialog = document.getElementById('dialog');

document.getElementById('batch').addEventListener('click', () => {
  const items = list.waiting().filter(list.canBatch);
  if (items.length > 0) openDialog(items);
});

// A call is chosen from the start only if nothing about it needs a closer look.
const isPlain = (item, drawn) => item.risk_level === 'low' && item.preview?.failed === undefined && rest(item, drawn, false) === null
  && Object.values(drawn.now).every(part => part.querySelector('.mark') === null);

function openDialog(items) {
  const tool = title(items[0].tool_name);
  const heading = el('h2', { id: 'dialog-title', tabIndex: -1, autofocus: true }, `Approve calls of ${tool}`);
  const message = el('p', { className: 'message', role: 'status' });
  const cancel = el('button', { type: 'button', on: { click: () => dialog.close() } }, 'Cancel');
  const entries = items.map(entry);
  const chosen = () => entries.filter(({ box }) => box.checked);
  const isLeft = () => {
    const open = chosen().map(one => rest(one.item, one.drawn, true)).filter(Boolean);
    return open.length === 0 ? null : { words: `${open.length} of ${chosen().length}: ${open[0].words}`, place: open.find(({ place }) => place)?.place };
  };
  const approve = approveButton(() => `Approve ${chosen().length} of ${items.length}`, isLeft, async () => {
    const sent = chosen();
    if (sent.length === 0) {
      fill(message, 'Choose a call.');
      return;
    }
    setBusy([approve.button], true);
    for (const { box } of entries) box.disabled = true;
    cancel.textContent = 'Close';
    await send(sent, message);
    approve.button.remove();
    heading.focus();
  });
  fill(dialog, el('div', { className: 'body', tabIndex: 0, role: 'group', 'aria-label': 'Calls' }, heading,
    el('p', {}, 'Each chosen call is approved as it is shown here. A call that has changed since is not approved.'),
    el('ol', { className: 'batch', on: { change: () => {
      fill(message);
      approve.update();
      changed();
    } } }, entries.map(({ element }) => element))),
  el('div', { className: 'bar' }, message, el('div', { className: 'approval' }, cancel, el('span', { className: 'gap' }), approve.button)));
  dialog.showModal();
  changed();
}

/** One call of the dialog: its card and its choice. */
export function entry(item) {
  const drawn = parts('h4');
  const body = Object.values(drawn.draw(item));
  // Secret inputs are opened on the card of the call.
  const box = el('input', { type: 'checkbox', checked: isPlain(item, drawn), disabled: partsOf(item).includes('secrets') });
  const outcome = el('p', { className: 'outcome' });
  const element = el('li', {}, el('h3', {}, el('label', { className: 'check' }, box, el('span', {}, headline(item)))),
    el('p', { className: 'facts' }, list.risk(item.risk_level), item.requested_by && el('span', {}, `asked for by ${person(item.requested_by)}`)),
    body, outcome);
  return { item, drawn, box, outcome, element };
}

async function send(sent, message) {
  let [ran, other] = [0, 0];
  for (let from = 0; from < sent.length; from += BATCH) {
    const some = sent.slice(from, from + BATCH);
    fill(message, `Sending ${from + 1} to ${from + some.length} of ${sent.length}…`);
    const decisions = some.map(({ item }) => ({ toolCallId: item.tool_call_id, isValidated: true, inputHash: item.input_hash, resume: true }));
    let results;
    try {
      ({ results } = await decideAll(decisions));
    } catch (error) {
      fill(message, `${error.message} ${from === 0 ? 'Look at the calls again before you repeat it.' : `${from} were sent before.`}`);
      return;
    }
    for (const { toolCallId, state, error } of results) {
      const { outcome } = some.find(({ item }) => item.tool_call_id === toolCallId);
      fill(outcome, error ? `Not approved: ${error.message}` : `Approved: ${list.stateWord(state)}.`);
      if (error) other += 1;
      else {
        ran += 1;
        list.put({ tool_call_id: toolCallId, state, can_decide: state === 'pending' ? undefined : false });
      }
    }
  }
  fill(message, `${ran} approved${other > 0 ? `, ${other} not approved` : ''}.`);
}

// The dialog belongs to the page on which it was opened.
addEventListener('hashchange', () => dialog.close());
