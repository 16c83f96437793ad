#!/usr/bin/env node
// Chromium with an example page in it, for tests. The argument is the folder of the installed `@holdpoint/page`. Each page
// is built once, for its first test, and served by Vite's own preview, which forwards the requests of the page to a test's
// server. Each line of stdin is an order, {"id", "test", "do", ...}, and is answered by a line of stdout:
// {"id", "ok": value} or {"id", "error": text}. A test has cookies, tabs and an address of its own, from `start` to
// `close`; `fail` puts what its tabs show into a folder. All of it ends with stdin.
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import readline from 'node:readline';
import { execFileSync } from 'node:child_process';
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';
import { chromium } from 'playwright-core';

const examples = path.resolve(import.meta.dirname, '../../examples');
const inExample = createRequire(path.join(examples, 'page/package.json'));
const { build, preview } = await import(pathToFileURL(inExample.resolve('vite')));
const axe = fs.readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
// The package as it is published, in place of the folder of the repository.
const resolve = { alias: { '@holdpoint/page': process.argv[2] } };

// Else a preview ends this process with stdin, before what it has to put away.
process.env.CI = 'true';
const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'holdpoint-page-'));
const browser = await chromium.launch({
  executablePath: execFileSync('sh', ['-c', 'command -v chromium'], { encoding: 'utf8' }).trim(),
  // What the page does is between it and this machine.
  args: ['--disable-gpu', '--disable-quic', '--disable-sync', '--disable-component-update'],
});

// The folder of an example, such as `page`, to the site that is built from it.
const sites = new Map();

function built(example) {
  if (!sites.has(example)) {
    const outDir = path.join(folder, example);
    const site = { root: path.join(examples, example), logLevel: 'silent', resolve, build: { outDir, emptyOutDir: true } };
    sites.set(example, build(site).then(() => site));
  }
  return sites.get(example);
}

// The page's own configuration reads where the server is from the environment, so one begins after the other.
let begun = Promise.resolve();
async function serve(server, example) {
  const site = await built(example);
  const served = begun.then(() => {
    process.env.HOLDPOINT_URL = server;
    return preview({ ...site, preview: { host: '127.0.0.1', port: 0 } });
  });
  begun = served.catch(() => {});
  return served;
}

const tests = new Map();

async function start({ test, server, example }) {
  const [served, context] = await Promise.all([serve(server, example), browser.newContext({ colorScheme: 'light' })]);
  await context.addInitScript(() => {
    // The conversation, line by line, and whether the page waits for more of it.
    window.shown = () => {
      const log = document.querySelector('[role=log]');
      const lines = log?.innerText.split('\n').map(line => line.trim()) ?? [];
      // The time that is left changes by itself.
      const timers = [...(log?.querySelectorAll('[role=timer]') ?? [])].map(timer => timer.innerText);
      return { lines: lines.filter(line => line !== '' && !timers.includes(line)), busy: log?.ariaBusy !== 'false' };
    };
    // What a screen reader was told, oldest first.
    window.told = [];
    new MutationObserver(() => {
      const texts = [...document.querySelectorAll('[aria-live=polite] p')].map(text => text.innerText);
      if (JSON.stringify(texts) !== JSON.stringify(told.now ?? [])) told.push(...texts);
      told.now = texts;
    }).observe(document, { subtree: true, childList: true, characterData: true });
  });
  const home = `http://127.0.0.1:${served.httpServer.address().port}`;
  tests.set(test, { served, context, home, tabs: new Map() });
}

async function close({ test }) {
  const { served, context } = tests.get(test);
  tests.delete(test);
  await Promise.all([context.close(), served.close()]);
}

async function fail(order) {
  fs.rmSync(order.folder, { recursive: true, force: true });
  fs.mkdirSync(order.folder, { recursive: true });
  for (const [name, { page, errors }] of tests.get(order.test).tabs) {
    const file = ending => path.join(order.folder, `${name}.${ending}`);
    await page.screenshot({ path: file('png'), fullPage: true });
    fs.writeFileSync(file('html'), await page.content());
    fs.writeFileSync(file('errors'), errors.join('\n'));
  }
  await close(order);
}

async function open({ test, tab: name, at }) {
  const { context, home, tabs } = tests.get(test);
  const page = await context.newPage();
  const tab = { page, home, requests: [], errors: [] };
  tabs.set(name, tab);
  page.on('request', request => {
    if (request.resourceType() === 'fetch') tab.requests.push(request);
  });
  page.on('console', message => {
    if (message.type() === 'error') tab.errors.push(message.text());
  });
  page.on('pageerror', error => tab.errors.push(String(error)));
  await loaded(page, page.goto(home + at));
}

// A page is there when it was told whether there is a turn to read along with, says why there is none, or has no chat.
async function loaded(page, navigation) {
  const told = page.waitForResponse(response => /\/chat_streamed\/[^/]+\/stream$/.test(response.url()));
  const other = page.locator('[role=alert], [role=log] .hint').first().waitFor();
  // Whichever comes second may never come.
  for (const sign of [told, other]) sign.catch(() => {});
  await Promise.all([navigation, Promise.race([told, other])]);
}

const card = (page, { tool, place }) => page.locator(`section[aria-label^="Tool call ${tool}"]`).nth(place);
const button = (within, name) => within.getByRole('button', { name, exact: true });

const inTab = {
  reload: ({ page }) => loaded(page, page.reload()),
  // The next request of this path waits until it is let go.
  hold: async (tab, { path }) => {
    tab.held = new Promise(resolve => tab.page.route(path, resolve, { times: 1 }));
  },
  // Up to the question whether there is a turn to read along with, which waits until it is let go.
  reloadHeld: async tab => {
    tab.held = new Promise(resolve => tab.page.route('**/chat_streamed/**', resolve, { times: 1 }));
    await tab.page.reload();
    await tab.held;
  },
  letGo: async ({ held }) => (await held).continue(),
  url: ({ page, home }) => page.url().slice(home.length),
  say: async ({ page }, { text }) => {
    await page.getByLabel('Message').fill(text);
    await page.getByRole('button', { name: 'Send' }).click();
  },
  click: ({ page }, { name, role = 'button' }) => page.getByRole(role, { name, exact: true }).click(),
  press: ({ page }, { key }) => page.keyboard.press(key),
  type: ({ page }, { text }) => page.keyboard.type(text),
  clickInCard: ({ page }, order) => button(card(page, order), order.name).click(),
  // A text, or whether a box is checked.
  fillInCard: ({ page }, order) => {
    const field = card(page, order).getByLabel(order.label, { exact: true });
    return typeof order.value === 'boolean' ? field.setChecked(order.value) : field.fill(order.value);
  },
  chooseInCard: ({ page }, order) => card(page, order).getByLabel(order.label, { exact: true }).selectOption({ label: order.value }),
  approve: ({ page }, order) => button(card(page, order), 'Approve').click(),
  deny: async ({ page }, order) => {
    const reason = card(page, order).getByLabel('Reason for denying');
    // One of the pages asks for the reason first.
    if (!(await reason.isVisible())) await button(card(page, order), 'Deny').click();
    await reason.fill(order.reason);
    await button(card(page, order), 'Deny').click();
  },
  resize: ({ page }, { width, height }) => page.setViewportSize({ width, height }),
  emulate: ({ page }, { media }) => page.emulateMedia(media),
  // From now on the page gets no answer to requests of this path.
  cut: ({ page }, { path }) => page.route(path, route => route.abort()),
  evaluate: ({ page }, { script }) => page.evaluate(script),
  becomes: async ({ page }, { script, value }) => {
    const wanted = JSON.stringify(value);
    // An expression about an element that is not there yet throws.
    const holds = `(() => { try { return JSON.stringify(${script}) === ${JSON.stringify(wanted)} } catch { return false } })()`;
    await page.waitForFunction(holds).catch(async error => {
      throw new Error(`${error.message}\n${script}\nwanted: ${wanted}\nthere:  ${JSON.stringify(await page.evaluate(script))}`);
    });
  },
  // What axe finds, and whether the page is wider than its window.
  faults: async ({ page }) => {
    // What is still fading in has another contrast. An animation of an element that has gone is cancelled.
    await page.evaluate(() => Promise.allSettled(document.getAnimations().map(animation => animation.finished)));
    await page.evaluate(axe);
    const tags = ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'];
    const { violations } = await page.evaluate(tags => axe.run(document, { runOnly: tags }), tags);
    const wide = await page.evaluate(() => document.documentElement.scrollWidth > innerWidth);
    const found = violations.flatMap(({ id, nodes }) => nodes.map(node => `${id}: ${node.html} ${node.failureSummary}`));
    return wide ? [...found, 'the page is wider than its window'] : found;
  },
  alert: ({ page }) => page.getByRole('alert').innerText(),
  shows: async ({ page }, { lines, busy }) => {
    const wanted = JSON.stringify({ lines, busy });
    await page.waitForFunction(wanted => JSON.stringify(shown()) === wanted, wanted).catch(async error => {
      const there = JSON.stringify(await page.evaluate(() => shown()));
      throw new Error(`${error.message}\nwanted: ${wanted}\nthere:  ${there}`);
    });
  },
  // What it asked of the server, each with the status of the answer, oldest first.
  requests: ({ requests }) => Promise.all(requests.map(async request => {
    const { pathname, search } = new URL(request.url());
    const response = await request.response();
    return `${request.method()} ${pathname}${search} ${response?.status() ?? 'none'}`;
  })),
  errors: ({ errors }) => errors,
};

async function obey(order) {
  const whole = { start, close, fail, open }[order.do];
  return whole ? whole(order) : inTab[order.do](tests.get(order.test).tabs.get(order.tab), order);
}

const underWay = new Set();
// Whoever gave an order may be gone.
process.stdout.on('error', () => {});
// What came while all this was made ready is still there.
const orders = readline.createInterface({ input: process.stdin });
orders.on('line', line => {
  const order = JSON.parse(line);
  const answer = answer => console.log(JSON.stringify({ id: order.id, ...answer }));
  const obeyed = obey(order).then(ok => answer({ ok: ok ?? null }), error => answer({ error: error.message }));
  underWay.add(obeyed);
  obeyed.finally(() => underWay.delete(obeyed));
});
orders.on('close', async () => {
  await Promise.all(underWay);
  await browser.close();
  fs.rmSync(folder, { recursive: true });
  process.exit(0);
});
