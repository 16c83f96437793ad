#!/usr/bin/env node
// A page in Chromium, for tests. The arguments are the folder of the page, the folder of the installed `@holdpoint/page`,
// and the address of a server, to which the page's own configuration of Vite forwards its requests (HOLDPOINT_URL). Each
// line of stdin is a command, [NAME, argument], and is answered by a line of stdout: {"ok": value} or {"error": text}.
//   open {cut}: a tab of its own, whose requests with a URL of the form `cut` are lost
//   say TEXT · click NAME · isEnabled NAME: of a button
//   shows {with, without}: until all texts of the one list are on the page, and none of the other
//   reported: the texts of `alert` and the errors of the page
// The process ends with stdin.
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import readline from 'node:readline';
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';
import { launch } from './driver.mjs';

const [root, holdpointPage, server] = process.argv.slice(2);
const inExample = createRequire(path.resolve(import.meta.dirname, '../../examples/page/package.json'));
const { build, preview } = await import(pathToFileURL(inExample.resolve('vite')));

// Otherwise a preview ends this process with stdin, before its cleanup.
process.env.CI = 'true';
process.env.HOLDPOINT_URL = server;
const outDir = fs.mkdtempSync(path.join(os.tmpdir(), 'holdpoint-sample-'));
const resolve = { alias: { '@holdpoint/page': holdpointPage }, dedupe: ['react', 'react-dom'] };
const site = { root, logLevel: 'silent', resolve, build: { outDir, emptyOutDir: true } };
const [browser, served] = await Promise.all([
  launch(),
  build(site).then(() => preview({ ...site, preview: { host: '127.0.0.1', port: 0 } })),
]);

let page, reported;
const button = name => page.getByRole('button', { name, exact: true });
const commands = {
  open: async ({ cut }) => {
    await page?.context().close();
    page = await (await browser.newContext()).newPage();
    page.setDefaultTimeout(15_000);
    const own = { alerts: [], errors: [] };
    reported = own;
    page.on('dialog', dialog => {
      own.alerts.push(dialog.message());
      return dialog.accept();
    });
    page.on('pageerror', error => own.errors.push(String(error)));
    if (cut) await page.route(new RegExp(cut), route => route.abort());
    await page.goto(`http://127.0.0.1:${served.httpServer.address().port}`);
    await page.getByLabel('Message').waitFor();
  },
  say: async text => {
    const field = page.getByLabel('Message');
    await field.fill(text);
    // A click on a button that the page disables at this moment sends nothing, and the field keeps the text.
    do await button('Send').click();
    while ((await field.inputValue()) === text);
  },
  click: name => button(name).click(),
  isEnabled: name => button(name).isEnabled(),
  shows: async expected => {
    const fits = expected => {
      const text = document.body.innerText;
      return expected.with.every(it => text.includes(it)) && !expected.without.some(it => text.includes(it));
    };
    await page.waitForFunction(fits, expected).catch(async error => {
      throw new Error(`${error.message}\nexpected: ${JSON.stringify(expected)}\nthere: ${await page.innerText('body')}\nreported: ${JSON.stringify(reported)}`);
    });
  },
  reported: async () => reported,
};

for await (const line of readline.createInterface({ input: process.stdin })) {
  const [name, argument] = JSON.parse(line);
  const answer = await commands[name](argument).then(ok => ({ ok: ok ?? null }), error => ({ error: error.message }));
  console.log(JSON.stringify(answer));
}
await Promise.all([browser.close(), served.close()]);
fs.rmSync(outDir, { recursive: true });
process.exit(0);
