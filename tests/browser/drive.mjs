#!/usr/bin/env node
// A Chromium with the example page in it, for a test. `node drive.mjs URL FOLDER`: the page is built, and served by
// Vite's own preview, which hands on to the server at URL what the page asks of it. Each line of stdin is an order,
// {"tab", "do", ...}, and is answered by a line of stdout: {"ok": value} or {"error": text}. It ends with stdin. Where
// the last order was not `close`, something went wrong, and what the tabs show is put into FOLDER.
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import readline from 'node:readline';
import { execFileSync } from 'node:child_process';
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';
import { chromium } from 'playwright-core';

const [, , server, folder] = process.argv;
const example = path.resolve(import.meta.dirname, '../../examples/page');
const inExample = createRequire(path.join(example, 'package.json'));
fs.rmSync(folder, { recursive: true, force: true });
const { build, preview } = await import(pathToFileURL(inExample.resolve('vite')));

process.env.HOLDPOINT_URL = server;
// Else the preview ends this process with stdin.
process.env.CI = 'true';
const outDir = fs.mkdtempSync(path.join(os.tmpdir(), 'holdpoint-page-'));
const site = { root: example, logLevel: 'silent', build: { outDir, emptyOutDir: true } };
const built = build(site);
const browser = await chromium.launch({
  executablePath: execFileSync('sh', ['-c', 'command -v chromium'], { encoding: 'utf8' }).trim(),
  // What the page does is between it and this machine.
  args: ['--disable-gpu', '--disable-quic', '--disable-sync', '--disable-component-update'],
});
const context = await browser.newContext({ colorScheme: 'light' });
await context.addInitScript(() => {
  // The conversation, line by line, and whether the page waits for more of it.
  window.shown = () => {
    const log = document.querySelector('[role=log]');
    const lines = log?.innerText.split('\n').map(line => line.trim()) ?? [];
    return { lines: lines.filter(line => line !== ''), busy: log?.ariaBusy !== 'false' };
  };
});
await built;
const served = await preview({ ...site, preview: { host: '127.0.0.1', port: 0 } });
const home = `http://127.0.0.1:${served.httpServer.address().port}`;

const tabs = new Map();

async function open(name) {
  const page = await context.newPage();
  const tab = { page, requests: [], errors: [] };
  tabs.set(name, tab);
  page.on('request', request => {
    if (request.resourceType() === 'fetch') tab.requests.push(request);
  });
  page.on('console', message => {
    if (message.type() === 'error') tab.errors.push(message.text());
  });
  page.on('pageerror', error => tab.errors.push(String(error)));
  return tab;
}

// A page is there when it was told whether there is a turn to read along with, or says why there is none.
async function loaded(page, navigation) {
  const told = page.waitForResponse(response => response.url().endsWith('/stream'));
  await Promise.all([navigation, Promise.race([told, page.getByRole('alert').waitFor()])]);
}

const card = (page, { tool, place }) => page.getByRole('region', { name: `Tool call ${tool}` }).nth(place);

const orders = {
  open: (tab, { at }) => loaded(tab.page, tab.page.goto(home + at)),
  reload: tab => loaded(tab.page, tab.page.reload()),
  url: tab => tab.page.url().slice(home.length),
  say: async (tab, { text }) => {
    await tab.page.getByLabel('Message').fill(text);
    await tab.page.getByRole('button', { name: 'Send' }).click();
  },
  click: async (tab, { name }) => tab.page.getByRole('button', { name, exact: true }).click(),
  approve: (tab, order) => card(tab.page, order).getByRole('button', { name: 'Approve' }).click(),
  deny: async (tab, order) => {
    const question = card(tab.page, order);
    await question.getByLabel('Reason for denying').fill(order.reason);
    await question.getByRole('button', { name: 'Deny' }).click();
  },
  alert: tab => tab.page.getByRole('alert').innerText(),
  // Waits until just these lines are shown, and until nothing is under way unless that is `busy`.
  shows: async ({ page }, { lines, busy }) => {
    const wanted = JSON.stringify({ lines, busy });
    await page.waitForFunction(wanted => JSON.stringify(shown()) === wanted, wanted).catch(async error => {
      const there = JSON.stringify(await page.evaluate(() => shown()));
      throw new Error(`${error.message}\nwanted: ${wanted}\nthere:  ${there}`);
    });
  },
  // What it asked of the server, each with the status of the answer, oldest first.
  requests: tab => Promise.all(tab.requests.map(async request => {
    const { pathname, search } = new URL(request.url());
    const response = await request.response();
    return `${request.method()} ${pathname}${search} ${response?.status() ?? 'none'}`;
  })),
  errors: tab => tab.errors,
};

let closed = false;
console.log(JSON.stringify({ ok: home }));
for await (const line of readline.createInterface({ input: process.stdin })) {
  const order = JSON.parse(line);
  if (order.do === 'close') {
    closed = true;
    break;
  }
  try {
    const tab = tabs.get(order.tab) ?? (await open(order.tab));
    const ok = await orders[order.do](tab, order);
    console.log(JSON.stringify({ ok: ok ?? null }));
  } catch (error) {
    console.log(JSON.stringify({ error: error.message }));
  }
}

if (!closed) {
  fs.mkdirSync(folder, { recursive: true });
  for (const [name, { page, errors }] of tabs) {
    await page.screenshot({ path: path.join(folder, `${name}.png`), fullPage: true }).catch(() => {});
    fs.writeFileSync(path.join(folder, `${name}.html`), await page.content().catch(String));
    fs.writeFileSync(path.join(folder, `${name}.errors`), errors.join('\n'));
  }
}
await browser.close();
await served.close();
fs.rmSync(outDir, { recursive: true });
process.exit(0);
