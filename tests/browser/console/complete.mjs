// Of many random calls, on their cards and in the dialog: Approve is live only if every part of the complete card is whole in the
// text of the page, and was in view. The responses are made up, and the reader scrolls, opens and presses at random.
import assert from 'node:assert/strict';
import { answerWith, heldCall } from '../stubs.mjs';

const CALLS = 60;
// Parts that no page draws: one of a later server, and a preview that did not come.
const LACKING = [['inputs', 'forecast'], ['inputs', 'preview']];

// A small generator, so that a seed repeats its calls (mulberry32).
function seeded(seed) {
  let state = seed;
  return n => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) % n;
  };
}

/** A call, and for each of its parts the words that the page has to show, in their order. */
function randomCall(n, random) {
  const words = {};
  let part;
  let count = 0;
  const word = () => {
    count += 1;
    const one = `w${n}x${count}y`;
    words[part].push(one);
    return one;
  };
  const gaps = [' ', '\n', '\n'.repeat(900), ' '.repeat(40), '\u200b'.repeat(50), ' \u202e', '\r\n \r\n\t\r\n\r\n', '\f'];
  const text = length => Array.from({ length }, () => word() + gaps[random(6) === 0 ? random(gaps.length) : 0]).join('');
  const value = depth => {
    const kind = random(depth > 8 ? 2 : 8);
    if (kind === 0) return text(40 + random(400));
    if (kind === 1 && depth < 9) return [value(depth + 1)];
    if (kind === 2 && depth < 2) return Array.from({ length: random(200) }, () => word());
    return text(1 + random(5));
  };
  // The name is before its value on the page, so it is made first.
  const object = length => Object.fromEntries(Array.from({ length }, () => {
    const name = random(20) === 0 ? text(150) : word();
    return [name, value(0)];
  }));
  const begin = (name, content) => {
    part = name;
    words[name] = [];
    return content();
  };
  const input = begin('inputs', () => object(1 + random(6)));
  let revealed;
  if (random(3) === 0) {
    const secret = begin('secrets', () => value(9));
    revealed = { input: { ...input, secret }, secret_inputs: ['/secret'] };
    input.secret = '•••';
  }
  const more = { tool_name: 'act', risk_level: ['low', 'medium', 'high'][random(3)], headline: `Call ${n}?` };
  if (revealed) more.secret_inputs = revealed.secret_inputs;
  if (random(2)) more.constants = begin('constants', () => object(1 + random(3)));
  if (random(3)) more.preview = begin('preview', () => (random(3) ? { text: text(1 + random(300)) } : { failed: text(10) }));
  if (random(4) === 0) {
    more.unaccepted_definition = { cause: 'new', hash: 'c'.repeat(64), changes: [{ field: 'description', current: begin('definition', () => text(5 + random(100))) }] };
  }
  const item = heldCall(n, { input, ...more });
  // Of a call of low risk the masks may stay.
  if (item.risk_level === 'low') delete words.secrets;
  return { item, words, revealed };
}

export default async function ({ facts, open, until }) {
  const random = seeded(facts.seed);
  const calls = Array.from({ length: CALLS }, (_, n) => randomCall(CALLS - n, random));
  const tab = await open('/', { viewport: { width: 900, height: 500 } });
  const { page } = tab;
  const incomplete = LACKING.map((parts, n) => heldCall(CALLS + 1 + n, { card_parts: parts, risk_level: 'low', headline: `Without ${parts[1]}?` }));
  const revealed = Object.fromEntries(calls.map(({ item, revealed }) => [item.tool_call_id, revealed]));
  const decisions = await answerWith(page, [...calls.map(({ item }) => item), ...incomplete], revealed);
  await page.addInitScript(reader);
  await page.reload();
  await tab.rows().first().waitFor();
  const sent = [];
  let presses = 0;
  for (const [n, { item, words }] of calls.entries()) {
    await page.evaluate(id => { location.hash = `#/call/${id}`; }, item.tool_call_id);
    await page.locator('#detail h2').getByText(item.headline, { exact: true }).waitFor();
    if (item.risk_level === 'low') {
      const [cuts, name] = await page.evaluate(() => [document.querySelectorAll('#detail .part:not([data-part=secrets]) .cut:not(.stored .cut)').length, document.querySelector('#detail .approve').textContent]);
      assert.equal(name === 'Approve', cuts === 0, `${item.headline} of low risk: ${name}`);
    }
    const found = await page.evaluate(how => window.readAtRandom(how), {
      seed: facts.seed + n, within: '#detail', calls: [{ words, parts: item.card_parts, mustBeSeen: item.risk_level !== 'low' }] });
    assert.deepEqual(found, [], `call ${item.headline} of seed ${facts.seed}`);
    assert.deepEqual(decisions, sent, 'a press that reads on decides nothing');
    presses += await page.evaluate(() => window.readToTheEnd());
    const whole = await page.evaluate(words => window.lacking('#detail', words), words);
    assert.deepEqual(whole, [], item.headline);
    // Each press waits for half a second, so a few stand for all.
    if (n % 10 > 0) continue;
    await tab.presses('Approve');
    sent.push(item.tool_call_id);
    await until('the decision', () => decisions.length, sent.length);
  }
  assert.ok(presses > CALLS, `${presses} presses for what was not in view`);

  for (const { tool_call_id: id, headline, card_parts: parts } of incomplete) {
    await page.evaluate(to => { location.hash = `#/call/${to}`; }, id);
    await page.locator('#detail h2').getByText(headline, { exact: true }).waitFor();
    await page.locator('#detail .approve:not([aria-disabled=true])').click();
    assert.equal(await page.locator('#detail .approve').textContent(), `Cannot be approved here: ${parts[1]}, which this page cannot show`);
  }
  assert.deepEqual(decisions, sent);

  // All of them in the dialog.
  await page.goto(`${facts.server}/#/?tool=act`);
  await page.reload();
  await tab.button('Show more').click();
  await until('all rows', () => tab.rows().count(), CALLS + LACKING.length);
  await page.locator('#batch').click();
  const listed = calls.filter(({ item }) => !item.unaccepted_definition);
  const dialog = page.getByRole('dialog');
  await until('the calls', () => dialog.locator('.batch > li').count(), listed.length + LACKING.length);
  const chosen = await dialog.getByRole('checkbox').evaluateAll(all => all.map(({ checked }) => checked));
  for (const [n, { item }] of listed.entries()) {
    if (item.risk_level !== 'low' || item.preview?.failed) assert.ok(!chosen[n], `${item.headline} is not chosen from the start`);
  }
  const found = await page.evaluate(how => window.readAtRandom(how), {
    seed: facts.seed, within: 'dialog', calls: listed.map(({ item, words }) => ({ words, parts: item.card_parts, mustBeSeen: true })) });
  assert.deepEqual(found, [], `the dialog of seed ${facts.seed}`);
  assert.equal(decisions.length, sent.length);
}

/** In the page: a reader that acts at random and reports each moment at which Approve is live and should not be. */
function reader() {
  const frame = () => new Promise(resolve => { requestAnimationFrame(() => requestAnimationFrame(resolve)); });
  const partsIn = root => Object.fromEntries([...root.querySelectorAll('[data-part]')].map(part => [part.dataset.part, part]));

  const lackingIn = (root, words) => Object.entries(words).filter(([name, all]) => {
    const part = partsIn(root)[name];
    if (part === undefined) return true;
    const copy = part.cloneNode(true);
    for (const stored of copy.querySelectorAll('.stored')) stored.remove();
    let at = 0;
    return !all.every(word => {
      at = copy.textContent.indexOf(word, at) + word.length;
      return at >= word.length;
    });
  }).map(([name]) => name);
  window.lacking = (within, words) => lackingIn(document.querySelector(within), words);

  window.readToTheEnd = async () => {
    const button = document.querySelector('#detail .bar .approve');
    for (let presses = 0; presses < 300; presses += 1) {
      if (button.textContent === 'Approve') return presses;
      button.click();
      if (document.activeElement.matches('.part .link')) document.activeElement.click();
      await frame();
    }
    throw new Error(`the card has no end: ${button.textContent}`);
  };

  window.readAtRandom = async ({ seed, within, calls }) => {
    let state = seed + 1;
    const random = n => {
      state = (Math.imul(state, 1103515245) + 12345) & 0x7fffffff;
      return (state >> 8) % n;
    };
    const root = document.querySelector(within);
    const body = root.querySelector('.body');
    const button = root.querySelector('.bar .approve');
    const roots = within === 'dialog' ? [...root.querySelectorAll('.batch > li')] : [root];
    const faults = [];
    // The first and the last line of each box, by the text that it had.
    const first = new WeakMap();
    const last = new WeakMap();
    const boxesOf = part => [...part.querySelectorAll('.value, .line, dt')].filter(box => !box.closest('.stored'));
    const look = () => {
      const view = body.getBoundingClientRect();
      for (const one of roots) {
        for (const part of Object.values(partsIn(one))) {
          for (const box of boxesOf(part)) {
            const { top, bottom } = box.getBoundingClientRect();
            if (top >= view.top - 3 && top + 18 <= view.bottom + 3) first.set(box, box.textContent);
            if (bottom <= view.bottom + 3 && bottom - 18 >= view.top - 3) last.set(box, box.textContent);
          }
        }
      }
    };
    const judge = what => {
      if (!button.textContent.startsWith('Approve')) return;
      for (const [n, { words, parts, mustBeSeen }] of calls.entries()) {
        if (within === 'dialog' && !roots[n].querySelector('[type=checkbox]').checked) continue;
        const lacking = lackingIn(roots[n], words);
        const drawn = partsIn(roots[n]);
        if (lacking.length > 0) faults.push(`${what}: call ${n} lacks ${lacking}`);
        for (const part of parts) {
          if (drawn[part] === undefined) faults.push(`${what}: call ${n} has no ${part}`);
          else if (mustBeSeen && !boxesOf(drawn[part]).every(box => first.get(box) === box.textContent && last.get(box) === box.textContent)) {
            faults.push(`${what}: ${part} of call ${n} was not in view`);
          }
        }
      }
    };
    await frame();
    look();
    judge('at the start');
    const actions = [
      ['scrolls', () => { body.scrollTop += random(700); }],
      ['scrolls', () => { body.scrollTop += random(700); }],
      ['scrolls back', () => { body.scrollTop -= random(900); }],
      ['jumps to the end', () => { body.scrollTop = 1e7; }],
      ['jumps to the start', () => { body.scrollTop = 0; }],
      ['opens a cut', () => { const cuts = [...root.querySelectorAll('.part .cut .link')]; cuts[random(cuts.length)]?.click(); }],
      ['presses', () => { if (!button.textContent.startsWith('Approve')) button.click(); }],
      ['chooses', () => {
        if (within !== 'dialog') return;
        // Mostly one call alone, near what is in view.
        const boxes = [...root.querySelectorAll('[type=checkbox]')];
        const at = random(2) ? boxes.findIndex(box => box.getBoundingClientRect().top > 0) : random(boxes.length);
        if (random(4)) for (const box of boxes) box.checked = false;
        boxes[Math.max(0, at)].click();
      }],
    ];
    for (let n = 0; n < (within === 'dialog' ? 150 : 15) && faults.length === 0; n += 1) {
      const [what, act] = within === 'dialog' && random(2) ? actions.at(-1) : actions[random(actions.length)];
      act();
      await frame();
      look();
      judge(`${what} (${n})`);
    }
    return faults;
  };
}
