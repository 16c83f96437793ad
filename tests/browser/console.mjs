#!/usr/bin/env node
// Scenarios of the console in one Chromium. Each command is {"id", "scenario", "facts", "folder"}. The scenario is a
// function in `console/SCENARIO.mjs`; `facts` is what the test knows. In every scenario nothing may violate the content
// security policy, fail in the page, or be requested from another origin. If the scenario fails, the folder gets a
// picture and the content of each tab.
import assert from 'node:assert/strict';
import fs from 'node:fs';
import path from 'node:path';
import { createRequire } from 'node:module';
import { launch, serve } from './driver.mjs';

const axe = fs.readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
const PATIENCE = 30_000;
const browser = await launch();

/** Waits until the value is truthy or, with `wanted`, is that value. */
async function until(what, value, wanted) {
  const end = Date.now() + PATIENCE;
  for (;;) {
    const found = await value();
    if (wanted === undefined ? found : JSON.stringify(found) === JSON.stringify(wanted)) return found;
    if (Date.now() > end) assert.deepEqual(found, wanted ?? true, `${what} did not come`);
    await new Promise(resolve => { setTimeout(resolve, 20); });
  }
}

/** Opens a tab with the console, in a profile of its own. */
async function open({ facts, tabs }, at = '/', options = {}) {
  const context = await browser.newContext({ viewport: { width: 1200, height: 800 }, ...options });
  const page = await context.newPage();
  page.setDefaultTimeout(PATIENCE);
  const tab = { context, page, requests: [], errors: [], expected: [], elsewhere: [] };
  tabs.push(tab);
  await context.addInitScript(() => {
    window.violations = [];
    document.addEventListener('securitypolicyviolation', event => window.violations.push(`${event.violatedDirective} ${event.blockedURI}`));
  });
  page.on('request', request => tab.requests.push(request));
  page.on('pageerror', error => tab.errors.push(String(error)));
  page.on('console', message => { if (message.type() === 'error') tab.errors.push(message.text()); });
  page.on('dialog', dialog => { tab.errors.push(`dialog ${dialog.message()}`); dialog.dismiss(); });
  await page.goto(facts.server + at);
  return Object.assign(tab, {
    rows: () => page.locator('#rows a'),
    card: () => page.locator('#detail'),
    button: name => page.getByRole('button', { name, exact: true }),
    /** Uses this token. */
    async signsIn(token) {
      tab.expected.push('401');
      await page.getByLabel('Access token').fill(token);
      await page.getByRole('button', { name: 'Use this token', exact: true }).click();
    },
    /** Opens the call with this text in its row. */
    async opens(text) {
      await page.locator('#rows a', { hasText: text }).first().click();
      await page.locator('#detail h2').waitFor();
    },
    /** Presses a guarded button once it is not inert. */
    async presses(name) {
      await page.locator('button:not([aria-disabled=true])').getByText(name, { exact: true }).waitFor();
      await page.getByRole('button', { name, exact: true }).click();
    },
    /**
     * Reads the card to its end: presses the button that leads to what is left, and opens what is cut, until the button approves.
     * Returns how often it was pressed.
     */
    async reads(name = 'Approve', within = '#detail') {
      const approve = page.locator(`${within} .bar .approve`);
      for (let presses = 0; presses < 200; presses += 1) {
        await page.locator(`${within} .bar .approve:not([aria-disabled=true])`).waitFor();
        if ((await approve.textContent()).startsWith(name)) return presses;
        await approve.click();
        const cut = page.locator(`${within} .part .link:focus`);
        if (await cut.count() > 0) await cut.click();
        // What has come into view counts with the next frame.
        await page.evaluate(() => new Promise(resolve => { requestAnimationFrame(() => requestAnimationFrame(() => resolve())); }));
      }
      assert.fail('the card has no end');
    },
    /** Denies the call that is shown. */
    async denies(why) {
      await page.getByRole('button', { name: 'Deny…', exact: true }).click();
      await page.getByLabel('Reason for denying').fill(why);
      await this.presses('Deny');
    },
    /** Waits until the card has this text. */
    shows: text => page.locator('#detail').getByText(text).first().waitFor(),
    focused: () => page.evaluate(() => document.activeElement.textContent.trim() || document.activeElement.id),
    /** The decisions that the page has sent. */
    decisions: () => tab.requests.filter(request => request.url().includes('/qa/validate_tool')).map(request => request.postDataJSON()),
    async axe(view) {
      await page.evaluate(axe);
      const { violations } = await page.evaluate(() => window.axe.run(document, {
        runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa'],
      }));
      const found = violations.map(({ id, nodes }) => `${id}: ${nodes.map(node => node.target.join(' ')).join(', ')}`);
      assert.deepEqual(found, [], view);
    },
    /** No view is wider than its window. */
    async fits(view) {
      const [wide, window] = await page.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
      assert.ok(wide <= window, `${view}: ${wide} of ${window} pixels`);
    },
  });
}

async function play({ scenario, facts, folder }) {
  const tabs = [];
  try {
    const { default: run } = await import(`./console/${scenario}.mjs`);
    await run({ facts, until, open: (...how) => open({ facts, tabs }, ...how) });
    for (const tab of tabs) await check(tab, facts);
  } catch (error) {
    fs.rmSync(folder, { recursive: true, force: true });
    fs.mkdirSync(folder, { recursive: true });
    for (const [n, { page, errors }] of tabs.entries()) {
      await page.screenshot({ path: path.join(folder, `${n}.png`) }).catch(() => {});
      fs.writeFileSync(path.join(folder, `${n}.html`), await page.content().catch(() => ''));
      fs.writeFileSync(path.join(folder, `${n}.errors`), errors.join('\n'));
    }
    throw error;
  } finally {
    await Promise.all(tabs.map(({ context }) => context.close()));
  }
}

async function check({ page, requests, errors, expected, elsewhere }, facts) {
  assert.deepEqual(await page.evaluate(() => window.violations), [], 'violations of the content security policy');
  // Chromium logs each refused request.
  const unexpected = errors.filter(error => !expected.some(known => error.includes(known)));
  assert.deepEqual(unexpected, [], 'errors of the page');
  // A person goes to the issuer; the page sends nothing there.
  const sent = requests.filter(request => !(request.isNavigationRequest() && elsewhere.some(origin => request.url().startsWith(origin))));
  const origins = new Set(sent.map(request => new URL(request.url())).filter(url => url.protocol !== 'data:').map(url => url.origin));
  assert.deepEqual([...origins], [facts.server], 'origins of the requests');
}

serve(play, () => browser.close());
