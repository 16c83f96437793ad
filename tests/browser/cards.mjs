// Cards of held calls by chance, and whether a page offers an approval only for what it has shown. The same seed makes the
// same cards. What a card has to show is known from how its texts are made, not from the package.

/** Numbers below 1 by chance. */
function chances(seed) {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296;
  };
}

// Pieces of a text: as it is, and as it is shown.
const PIECES = [
  ['delete all rows ', 'delete all rows '],
  ['SELECT 1;\n', 'SELECT 1;\n'],
  ['\n\n', '\n\n'],
  ['a\u202eb', 'aU+202Eb'],
  ['\u200b', 'U+200B'],
  ['\u00a0', 'U+00A0'],
  ['\ud83d\udc69\u200d\ud83d\ude80 ', '\ud83d\udc69\u200d\ud83d\ude80 '],
  ['p\u0430ypal.com ', 'p\u0430ypal.com '],
  ['\u0645\u0631\u062d\u0628\u0627. ', '\u0645\u0631\u062d\u0628\u0627. '],
  ['<script>x</script>', '<script>x</script>'],
  ['x'.repeat(300), 'x'.repeat(300)],
  [`.${'\n'.repeat(900)}rm -rf /srv`, '.↵ ×900rm -rf /srv'],
  [`.${' '.repeat(60)}rm `, '.␣ ×60rm '],
];

/** Holds by chance, each with the rows that a complete card shows: { hold, shown: { part: [texts] } }. */
function cards(seed, count) {
  const chance = chances(seed);
  const below = number => Math.floor(chance() * number);
  const text = () => {
    // Some texts are too long to be shown at once.
    const length = chance() < 0.3 ? 20 + below(20) : 1 + below(6);
    const pieces = Array.from({ length }, () => PIECES[below(PIECES.length)]);
    // Line breaks of two pieces together would be a run.
    const parted = pieces.flatMap((piece, index) => (index > 0 && pieces[index - 1][0].endsWith('\n') ? [['-', '-'], piece] : [piece]));
    return [`to: ${parted.map(([raw]) => raw).join('')} end`, `to: ${parted.map(([, shown]) => shown).join('')} end`];
  };
  const object = () => {
    const members = Array.from({ length: 1 + below(4) }, (_, index) => [`name_${index}`, text()]);
    members.push(['amount', [below(1000), null]]);
    return {
      value: Object.fromEntries(members.map(([name, [raw]]) => [name, raw])),
      rows: members.map(([, [raw, shown]]) => shown ?? JSON.stringify(raw)),
    };
  };
  return Array.from({ length: count }, (_, index) => {
    const id = `card-${seed}-${index}`;
    const input = object();
    const shown = { inputs: input.rows };
    const hold = {
      toolCallId: id, toolName: 'act', title: 'Act', input: input.value, inputHash: `hash-${id}`, requestedBy: 'user:local',
      risk: ['low', 'medium', 'high'][below(3)], expiresAt: new Date(Date.now() + 3_600_000).toISOString(),
      canEdit: chance() < 0.9, canRemember: chance() < 0.5, approvalsNeeded: 1,
    };
    if (chance() < 0.5) {
      const constants = object();
      Object.assign(hold, { constants: constants.value });
      shown.constants = constants.rows;
    }
    if (chance() < 0.6) {
      const [raw, drawn] = text();
      hold.preview = chance() < 0.7 ? { text: raw } : { failed: raw };
      shown.preview = [drawn];
    }
    if (chance() < 0.3) {
      const [[raw, drawn], [before, drawnBefore]] = [text(), text()];
      hold.unacceptedDefinition = { cause: 'changed', hash: 'd', changes: [{ field: 'description', accepted: before, current: raw }] };
      shown.definition = [drawnBefore, drawn];
    }
    const extra = chance() < 0.1;
    if (extra) shown.conversation = ['a part of a later server'];
    if (extra || chance() < 0.8) hold.cardParts = Object.keys(shown);
    if (chance() < 0.1) hold.cannotApprove = { code: 'blocked', message: 'The policy blocks it.' };
    return { hold, shown, mayEver: hold.canEdit && !hold.cannotApprove && !extra };
  });
}

/** A server that has one thread, with these cards. */
async function answer(page, all) {
  const parts = all.flatMap(({ hold }) => [
    { type: 'tool-act', toolCallId: hold.toolCallId, state: 'approval-requested', input: hold.input, approval: { id: hold.toolCallId } },
    { type: 'data-tool-hold', id: hold.toolCallId, data: hold },
  ]);
  const messages = [
    { id: 'm-1', role: 'user', parts: [{ type: 'text', text: 'act' }] },
    { id: 'm-2', role: 'assistant', parts: [{ type: 'step-start' }, ...parts] },
  ];
  const list = results => route => route.fulfill({ json: { results, has_more: false } });
  await page.route('**/api/threads?**', list([]));
  await page.route('**/api/threads/cards', route => route.fulfill({ json: { thread_id: 'cards', title: 'Cards', pending_count: all.length } }));
  await page.route('**/api/threads/cards/messages?**', list(messages));
  await page.route('**/chat_streamed/cards/stream', route => route.fulfill({ status: 204 }));
  // Nothing happens elsewhere.
  await page.route('**/api/events/**', () => {});
}

/** In the page: records which pixels of each row were in view, and finds approvals of what was not. */
function watch() {
  const seen = new Map();
  const rowsOf = part => [...part.querySelectorAll('dd')];
  const cut = row => row.querySelector('.cut') !== null;
  function view() {
    const log = document.querySelector('[role=log]');
    const box = getComputedStyle(log).overflowY === 'visible' ? { top: 0, bottom: innerHeight } : log.getBoundingClientRect();
    return { top: Math.max(box.top, 0), bottom: Math.min(box.bottom, innerHeight) };
  }
  function look() {
    const { top, bottom } = view();
    for (const row of document.querySelectorAll('.call.waits [data-part] dd pre')) {
      const box = row.getBoundingClientRect();
      if (seen.get(row)?.length !== Math.ceil(box.height)) seen.set(row, new Array(Math.ceil(box.height)).fill(false));
      const from = Math.max(0, Math.floor(top - box.top));
      const to = Math.min(Math.ceil(box.height), Math.ceil(bottom - box.top));
      if (from < to) seen.get(row).fill(true, from, to);
    }
  }
  // The most pixels in a row of a text that were never in view. A line has 20.
  function gap(row) {
    const pixels = seen.get(row) ?? [false];
    let most = 0;
    for (let from = 0, at = 0; at < pixels.length; at += 1) {
      if (pixels[at]) from = at + 1;
      else most = Math.max(most, at + 1 - from);
    }
    return most;
  }
  const texts = row => [...row.querySelectorAll('pre')].map(pre => pre.textContent).join('');
  window.cards = {
    look,
    approvable: () => [...document.querySelectorAll('.call.waits')].filter(card =>
      [...card.querySelectorAll('button')].some(button => button.innerText === 'Approve' && !button.disabled)).map(card => card.id),
    // What is wrong with an offer to approve this card.
    faults: ({ hold, shown, mayEver }) => {
      const card = document.getElementById(`call-${hold.toolCallId}`);
      if (!mayEver) return ['nobody may approve it here'];
      return Object.entries(shown).flatMap(([part, expected]) => {
        const section = card.querySelector(`[data-part=${part}]`);
        if (!section) return [`${part} is not there`];
        const rows = rowsOf(section);
        if (rows.some(cut)) return [`${part} is cut`];
        if (JSON.stringify(rows.map(texts)) !== JSON.stringify(expected)) return [`${part} is ${JSON.stringify(rows.map(texts))}`];
        const unseen = Math.max(...[...section.querySelectorAll('pre')].map(gap));
        return hold.risk !== 'low' && unseen > 25 ? [`${unseen} pixels of ${part} were not in view`] : [];
      });
    },
    scroller: () => {
      const log = document.querySelector('[role=log]');
      return getComputedStyle(log).overflowY === 'visible' ? document.scrollingElement : log;
    },
  };
  const each = () => {
    if (document.querySelector('[role=log]')) look();
    requestAnimationFrame(each);
  };
  requestAnimationFrame(each);
}

/**
 * Shows cards of this seed on a page of this size, reads them in a random order up to the end, and returns what was wrong:
 * an approval that was offered too early, too late, or not at all.
 */
export async function check(page, home, { seed, count, width, height }) {
  const all = cards(seed, count);
  const chance = chances(seed + 1);
  const faults = [];
  await answer(page, all);
  await page.setViewportSize({ width, height });
  await page.goto(`${home}/?chat=cards`);
  await page.locator('.call.waits').nth(count - 1).waitFor();
  await page.evaluate(watch);

  async function look(when) {
    // A frame, so that the page and this test have seen the same.
    await page.evaluate(() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done))));
    const found = await page.evaluate(all => {
      window.cards.look();
      const offered = all.filter(({ hold }) => window.cards.approvable().includes(`call-${hold.toolCallId}`));
      return offered.flatMap(card => window.cards.faults(card).map(fault => `${card.hold.toolCallId} (${card.hold.risk}): ${fault}`));
    }, all);
    faults.push(...found.map(fault => `${when}: Approve is offered: ${fault}`));
    const together = await page.getByRole('button', { name: /^Approve (all|the) \d+/ }).allInnerTexts();
    const counted = Number(/\d+/.exec(together[0] ?? '0')[0]);
    const ready = await page.evaluate(all => all.filter(card => window.cards.faults({ ...card, hold: { ...card.hold, risk: 'high' } }).length === 0).length, all);
    if (counted > ready) faults.push(`${when}: ${counted} are approved together, and ${ready} were read`);
  }

  await look('at first');
  for (let jump = 0; jump < 6; jump += 1) {
    const place = chance();
    await page.evaluate(place => window.cards.scroller().scrollTo(0, place * window.cards.scroller().scrollHeight), place);
    await look(`after a jump to ${place.toFixed(2)}`);
    const buttons = page.getByRole('button', { name: /^Read on/ });
    const number = await buttons.count();
    if (number > 0) await buttons.nth(Math.floor(chance() * number)).click();
    await look('after reading on');
  }
  while ((await page.locator('.cut').count()) > 0) {
    await page.locator('.cut').first().click();
    await look('after a text was opened');
  }
  const end = () => page.evaluate(() => (({ scrollTop, clientHeight, scrollHeight }) => scrollTop + clientHeight >= scrollHeight - 1)(window.cards.scroller()));
  await page.evaluate(() => window.cards.scroller().scrollTo(0, 0));
  for (await look('at the top'); !(await end()); await look('while scrolling')) {
    await page.evaluate(() => window.cards.scroller().scrollBy(0, 0.6 * Math.min(window.cards.scroller().clientHeight, innerHeight)));
  }
  const expected = all.filter(({ mayEver }) => mayEver).map(({ hold }) => `call-${hold.toolCallId}`);
  const offers = page.waitForFunction(expected => JSON.stringify(window.cards.approvable()) === JSON.stringify(expected), expected, { timeout: 5000 });
  await offers.catch(async () => {
    faults.push(`at the end: ${JSON.stringify(await page.evaluate(() => window.cards.approvable()))} in place of ${JSON.stringify(expected)}`);
  });
  return faults;
}

/** What is wrong with a page that shows every card of this seed whole, and offers an approval where it may. */
export async function checkWhole(page, home, { seed, count }) {
  const all = cards(seed, count);
  await answer(page, all);
  await page.goto(`${home}/?chat=cards`);
  const sections = page.locator('section[aria-label^="Tool call"]');
  await sections.nth(count - 1).waitFor();
  const found = await sections.evaluateAll(sections => sections.map(section => ({
    rows: [...section.querySelectorAll('pre')].map(pre => pre.textContent),
    isOffered: [...section.querySelectorAll('button')].some(button => button.innerText === 'Approve'),
  })));
  return all.flatMap(({ hold, shown, mayEver }, index) => {
    const { rows, isOffered } = found[index];
    const isWhole = JSON.stringify(rows) === JSON.stringify(Object.entries(shown).flatMap(([part, rows]) => (part === 'conversation' ? [] : rows)));
    return [
      isWhole || `${hold.toolCallId}: ${JSON.stringify(rows)} in place of ${JSON.stringify(shown)}`,
      isOffered === mayEver || `${hold.toolCallId}: Approve is offered: ${isOffered}`,
    ].filter(fault => fault !== true);
  });
}

/** In the page: brings all of the first cards that wait into view. */
export async function read(count) {
  const frame = () => new Promise(requestAnimationFrame);
  for (const card of [...document.querySelectorAll('.call.waits')].slice(0, count)) {
    for (const unit of card.querySelectorAll('[data-part] .unit')) {
      unit.scrollIntoView({ block: 'center' });
      while (unit.isConnected && unit.dataset.seen === undefined) await frame();
    }
    while (card.querySelector('[data-part]:not([data-read])')) await frame();
  }
}
