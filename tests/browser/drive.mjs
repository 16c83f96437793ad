#!/usr/bin/env node
// Chromium with an example page in it, for tests. Each page is built once, for its first test, and served by Vite's own
// preview, which forwards the requests of the page to a test's server. Each line of stdin is an order, {"id", "test", "do", ...}, and is
// answered by a line of stdout: {"id", "ok": value} or {"id", "error": text}. A test has cookies, tabs and an address of
// its own, from `start` to `close`; `fail` puts what its tabs show into a folder. All of it ends with stdin.
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
    const site = { root: path.join(examples, example), logLevel: 'silent', build: { outDir, emptyOutDir: true } };
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
      return { lines: lines.filter(line => line !== ''), busy: log?.ariaBusy !== 'false' };
    };
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

// A page is there when it was told whether there is a turn to read along with, or says why there is none.
async function loaded(page, navigation) {
  const told = page.waitForResponse(response => response.url().endsWith('/stream'));
  await Promise.all([navigation, Promise.race([told, page.getByRole('alert').waitFor()])]);
}

const card = (page, { tool, place }) => page.getByRole('region', { name: `Tool call ${tool}` }).nth(place);

const inTab = {
  reload: ({ page }) => loaded(page, page.reload()),
  // Up to the question whether there is a turn to read along with, which waits until it is let go.
  reloadHeld: async tab => {
    const held = new Promise(resolve => tab.page.route('**/stream', resolve, { times: 1 }));
    await tab.page.reload();
    tab.held = await held;
  },
  letGo: ({ held }) => held.continue(),
  url: ({ page, home }) => page.url().slice(home.length),
  say: async ({ page }, { text }) => {
    await page.getByLabel('Message').fill(text);
    await page.getByRole('button', { name: 'Send' }).click();
  },
  click: ({ page }, { name }) => page.getByRole('button', { name, exact: true }).click(),
  approve: ({ page }, order) => card(page, order).getByRole('button', { name: 'Approve' }).click(),
  deny: async ({ page }, order) => {
    await card(page, order).getByLabel('Reason for denying').fill(order.reason);
    await card(page, order).getByRole('button', { name: 'Deny' }).click();
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
