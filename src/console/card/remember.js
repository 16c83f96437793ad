// An approval that is remembered: what it covers, in facts, before it is given.
import { approvals, BATCH } from '../api.js';
import { approveButton, rest } from './approve.js';
import { entry } from '../batch.js';
import { choices, endOf, inputsOf } from '../views/grants.js';
import { changed, setBusy } from './inert.js';
import { isObject } from '../text/json.js';
import { canBatch } from '../list.js';
import { count, el, fill, title } from '../text/text.js';
import { serverNow } from '../text/time.js';

const dialog = document.getElementById('dialog');

const TIMES = [['until it is revoked', 0], ['for 1 hour', 3600], ['for 8 hours', 8 * 3600], ['for 1 day', 86400]];
const USES = [['any number of calls', 0], ['1 call', 1], ['3 calls', 3], ['10 calls', 10]];

const option = ([words], n) => el('option', { value: n }, words);

/** Shows what the approval of this call would cover, and sends it with `send`. */
export async function openDialog(item, send) {
  const tool = title(item.tool_name);
  const heading = el('h2', { id: 'dialog-title', tabIndex: -1, autofocus: true }, `Approve ${tool}, and later calls of it`);
  const message = el('p', { className: 'message', role: 'status' }, 'Looking for other waiting calls…');
  const cancel = el('button', { type: 'button', on: { click: () => dialog.close() } }, 'Cancel');
  const others = el('div', { className: 'others' });
  const facts = el('p', { className: 'facts-of-grant', role: 'status' });
  const inputs = inputsChoice(item);
  const until = el('select', { id: 'until' }, TIMES.map(option));
  const uses = el('select', { id: 'uses' }, USES.map(option));
  let entries = [];
  const chosen = () => entries.filter(({ box }) => box.checked);
  const isLeft = () => {
    const open = chosen().map(one => rest(one.item, one.drawn, true)).filter(Boolean);
    return open.length === 0 ? null : { words: `${open.length} of ${chosen().length}: ${open[0].words}`, place: open.find(({ place }) => place)?.place };
  };
  const scope = () => ({
    ...inputs.scope(),
    ...(TIMES[until.value][1] > 0 && { until: new Date(serverNow() + TIMES[until.value][1] * 1000).toISOString() }),
    ...(USES[uses.value][1] > 0 && { uses: USES[uses.value][1] }),
  });
  const approve = approveButton(() => (chosen().length === 0 ? 'Approve & remember' : `Approve ${chosen().length + 1} & remember`), isLeft, () => {
    const wrong = inputs.wrong();
    if (wrong) {
      fill(message, wrong);
      return;
    }
    setBusy([approve.button], true);
    const waiting = Object.fromEntries(chosen().map(({ item: { tool_call_id: id, input_hash: hash } }) => [id, hash]));
    dialog.close();
    send({ ...scope(), ...(chosen().length > 0 && { waiting }) });
  });
  const describe = () => {
    const { inputs: kind, ...covered } = scope();
    fill(facts, 'Covers this call', chosen().length > 0 && ` and ${chosen().length} of ${count(entries.length, 'other waiting call')}`,
      ', and all later calls of ', el('code', {}, item.tool_name), ' in this session',
      inputsOf({ ...covered, ...(kind === 'equal' && { input_hash: item.input_hash }) }), endOf({ ...covered, uses_left: covered.uses }), '.');
    fill(message);
    approve.update();
    changed();
  };
  fill(dialog, el('div', { className: 'body', tabIndex: 0, role: 'group', 'aria-label': 'What the approval covers', on: { change: describe } }, heading,
    el('p', {}, 'Later calls that are covered run without a question. A call that the operator’s rules forbid or hold is not covered.'),
    inputs.element, el('div', { className: 'limits' }, el('label', { for: 'until' }, 'How long', until), el('label', { for: 'uses' }, 'How often', uses)),
    facts, others),
  el('div', { className: 'bar' }, message, el('div', { className: 'approval' }, cancel, el('span', { className: 'gap' }), approve.button)));
  dialog.showModal();
  describe();
  fill(message, 'Looking for other waiting calls…');
  try {
    const { results, has_more: hasMore } = await approvals({ state: 'pending', tool_name: item.tool_name, session_id: item.session_id, page_size: BATCH });
    entries = results.filter(other => other.tool_call_id !== item.tool_call_id && canBatch(other)).map(entry);
    for (const { box } of entries) box.checked = false;
    if (entries.length > 0) {
      fill(others, el('h3', {}, `Other waiting calls of ${tool}`),
        el('p', {}, 'Each that you choose is approved as it is shown here, if the later calls that you chose above include it.', hasMore && ' There are more, which keep waiting.'),
        el('ol', { className: 'batch' }, entries.map(({ element }) => element)));
    }
    describe();
  } catch (error) {
    fill(message, `The other waiting calls could not be read, and keep waiting. ${error.message}`);
  }
}

// Which inputs: the same, some, or any.
function inputsChoice(item) {
  const values = Object.entries(item.input);
  const radio = (value, words, isChecked) => el('label', { className: 'check' },
    el('input', { type: 'radio', name: 'inputs', value, checked: isChecked }), el('span', {}, words));
  const secrets = item.secret_inputs ?? [];
  const rows = values.map(([name, found], n) => argument(name, found, n, secrets));
  const table = el('div', { className: 'arguments', hidden: true }, rows.map(({ element }) => element));
  const element = el('fieldset', { on: { change: () => { table.hidden = kind() !== 'some'; } } }, el('legend', {}, 'With which inputs'),
    radio('equal', 'with exactly these inputs', true), values.length > 0 && radio('some', 'with inputs like these', false), table,
    radio('any', 'with any inputs', false));
  const kind = () => element.querySelector('[name=inputs]:checked').value;
  return {
    element,
    wrong: () => (kind() === 'some' ? rows.map(row => row.wrong()).find(Boolean) : undefined),
    scope() {
      if (kind() !== 'some') return { inputs: kind() };
      const chosen = rows.map(row => row.chosen());
      return { when: chosen.filter(({ condition }) => condition).map(({ condition }) => condition), free: chosen.filter(({ condition }) => !condition).map(({ pointer }) => pointer) };
    },
  };
}

function argument(name, found, n, secrets) {
  const pointer = `/${name.replaceAll('~', '~0').replaceAll('/', '~1')}`;
  const isSecret = secrets.some(secret => secret === pointer || secret.startsWith(`${pointer}/`));
  const offered = choices(pointer, found, isSecret);
  const select = el('select', { id: `argument-${n}` }, offered.map(option));
  const limit = el('input', { type: 'number', step: 'any', hidden: true, 'aria-label': `Limit of ${name}` });
  const isTyped = () => offered[select.value][2] !== undefined;
  select.addEventListener('change', () => { limit.hidden = !isTyped(); });
  return {
    element: el('div', {}, el('label', { for: `argument-${n}` }, el('code', {}, name)), select, limit),
    wrong: () => (isTyped() && !Number.isFinite(limit.valueAsNumber) ? `Type the limit of ${name}.` : undefined),
    chosen: () => ({ pointer, condition: offered[select.value][1](limit.valueAsNumber) }),
  };
}
