#!/usr/bin/env node
// Chromium with an example page in it, for tests. The argument is the folder of the installed `@holdpoint/page`. Each page
// is built once, for its first test, and served by Vite's own preview, which forwards the requests of the page to a test's
// server. Each command is {"id", "test", "do", ...}. A test has cookies, tabs and an address of its own, from `start` to
// `close`; `fail` writes the contents of its tabs into a folder.
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';
import { check, checkWhole, read } from './cards.mjs';
import { launch, serve as serveCommands } from './driver.mjs';

const examples = path.resolve(import.meta.dirname, '../../examples');
const inExample = createRequire(path.join(examples, 'page/package.json'));
const { build, preview } = await import(pathToFileURL(inExample.resolve('vite')));
const axe = fs.readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
// The package as it is published, in place of the folder of the repository.
const resolve = { alias: { '@holdpoint/page': process.argv[2] } };

// Otherwise a preview ends this process with stdin, before its cleanup.
process.env.CI = 'true';
const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'holdpoint-page-'));
const browser = await launch();

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

// The page's own configuration reads the address of the server from the environment, so the previews start one after the other.
let lastServed = Promise.resolve();
async function serve(server, example) {
  const site = await built(example);
  const served = lastServed.then(() => {
    process.env.HOLDPOINT_URL = server;
    return preview({ ...site, preview: { host: '127.0.0.1', port: 0 } });
  });
  lastServed = served.catch(() => {});
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
    // The announcements to a screen reader, oldest first.
    window.announced = [];
    new MutationObserver(() => {
      const texts = [...document.querySelectorAll('[aria-live=polite] p')].map(text => text.innerText);
      if (JSON.stringify(texts) !== JSON.stringify(announced.now ?? [])) announced.push(...texts);
      announced.now = texts;
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

async function fail(command) {
  fs.rmSync(command.folder, { recursive: true, force: true });
  fs.mkdirSync(command.folder, { recursive: true });
  for (const [name, { page, errors }] of tests.get(command.test).tabs) {
    const file = ending => path.join(command.folder, `${name}.${ending}`);
    await page.screenshot({ path: file('png'), fullPage: true });
    fs.writeFileSync(file('html'), await page.content());
    fs.writeFileSync(file('errors'), errors.join('\n'));
  }
  await close(command);
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

// A page is loaded when its request for a running turn has a response, when it shows an error, or when it has no chat.
async function loaded(page, navigation) {
  const attached = page.waitForResponse(response => /\/chat_streamed\/[^/]+\/stream$/.test(response.url()));
  const other = page.locator('[role=alert], [role=log] .hint').first().waitFor();
  // The other sign may never come.
  for (const sign of [attached, other]) sign.catch(() => {});
  await Promise.all([navigation, Promise.race([attached, other])]);
}

const card = (page, { tool, index = 0 }) => page.locator(`section[aria-label^="Tool call ${tool}"]`).nth(index);
const button = (within, name) => within.getByRole('button', { name, exact: true });

const inTab = {
  reload: ({ page }) => loaded(page, page.reload()),
  // The next request of this path waits until it is released.
  hold: async (tab, { path }) => {
    tab.held = new Promise(resolve => tab.page.route(path, resolve, { times: 1 }));
  },
  // Up to the request for a running turn, which waits until it is released.
  reloadHeld: async tab => {
    tab.held = new Promise(resolve => tab.page.route('**/chat_streamed/**', resolve, { times: 1 }));
    await tab.page.reload();
    await tab.held;
  },
  release: async ({ held }) => (await held).continue(),
  url: ({ page, home }) => page.url().slice(home.length),
  say: async ({ page }, { text }) => {
    await page.getByLabel('Message').fill(text);
    await page.getByRole('button', { name: 'Send' }).click();
  },
  click: ({ page }, { name, role = 'button' }) => page.getByRole(role, { name, exact: true }).click(),
  press: ({ page }, { key }) => page.keyboard.press(key),
  type: ({ page }, { text }) => page.keyboard.type(text),
  clickInCard: ({ page }, command) => button(card(page, command), command.name).click(),
  // A text, or whether a box is checked.
  fillInCard: ({ page }, command) => {
    const field = card(page, command).getByLabel(command.label, { exact: true });
    return typeof command.value === 'boolean' ? field.setChecked(command.value) : field.fill(command.value);
  },
  chooseInCard: ({ page }, command) => card(page, command).getByLabel(command.label, { exact: true }).selectOption({ label: command.value }),
  // What the person has not seen yet is read first.
  approve: async ({ page }, command) => {
    const [approve, readOn, cut] = ['Approve', /^Read on/, /^Show all/].map(name => card(page, command).getByRole('button', { name, exact: true }));
    for (await approve.or(readOn).waitFor(); (await readOn.count()) > 0; await approve.or(readOn).waitFor()) {
      // The last part may come into view meanwhile, and the button is Approve then.
      await ((await cut.count()) > 0 ? cut.first() : readOn).click({ timeout: 2000 }).catch(() => {});
    }
    await approve.click();
  },
  deny: async ({ page }, command) => {
    const reason = card(page, command).getByLabel('Reason for denying');
    // One of the pages asks for the reason first.
    if (!(await reason.isVisible())) await button(card(page, command), 'Deny').click();
    await reason.fill(command.reason);
    await button(card(page, command), 'Deny').click();
  },
  // Brings all of the first cards that wait into view.
  read: ({ page }, { count }) => page.evaluate(read, count),
  cards: ({ page, home }, command) => check(page, home, command),
  wholeCards: ({ page, home }, command) => checkWhole(page, home, command),
  resize: ({ page }, { width, height }) => page.setViewportSize({ width, height }),
  emulate: ({ page }, { media }) => page.emulateMedia(media),
  // From now on requests of this path get no response.
  cut: ({ page }, { path }) => page.route(path, route => route.abort()),
  evaluate: ({ page }, { script }) => page.evaluate(script),
  becomes: async ({ page }, { script, value }) => {
    const expected = JSON.stringify(value);
    // An expression about an element that is not there yet throws.
    const holds = `(() => { try { return JSON.stringify(${script}) === ${JSON.stringify(expected)} } catch { return false } })()`;
    await page.waitForFunction(holds).catch(async error => {
      throw new Error(`${error.message}
${script}
expected: ${expected}
found:    ${JSON.stringify(await page.evaluate(script))}`);
    });
  },
  // The findings of axe, and whether the page is wider than its window.
  faults: async ({ page }) => {
    // An element that fades in has another contrast. The animation of a removed element is cancelled.
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
    const expected = JSON.stringify({ lines, busy });
    await page.waitForFunction(expected => JSON.stringify(shown()) === expected, expected).catch(async error => {
      const there = JSON.stringify(await page.evaluate(() => shown()));
      throw new Error(`${error.message}\nexpected: ${expected}\nfound:    ${there}`);
    });
  },
  // The requests of the page with the status of each response, oldest first.
  requests: ({ requests }) => Promise.all(requests.map(async request => {
    const { pathname, search } = new URL(request.url());
    const response = await request.response();
    return `${request.method()} ${pathname}${search} ${response?.status() ?? 'none'}`;
  })),
  errors: ({ errors }) => errors,
};

async function run(command) {
  const forTest = { start, close, fail, open }[command.do];
  return forTest ? forTest(command) : inTab[command.do](tests.get(command.test).tabs.get(command.tab), command);
}

serveCommands(run, async () => {
  await browser.close();
  fs.rmSync(folder, { recursive: true });
});
