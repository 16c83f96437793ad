// Markup and scripts in each text that is not of the console have no effect, and hidden characters are numbers.
import assert from 'node:assert/strict';

// Every text of a response that a model, a tool, a person or an operator writes.
const WRITTEN = new Set(['tool_description', 'description', 'headline', 'reason', 'requested_by', 'by', 'actor', 'result', 'message', 'source',
  'thread_title', 'text', 'failed']);

function planted(value, markup) {
  if (Array.isArray(value)) return value.map(inner => planted(inner, markup));
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([name, inner]) =>
    [name, WRITTEN.has(name) && typeof inner === 'string' ? `${inner} ${markup}` : planted(inner, markup)]));
}

export default async function ({ facts, open }) {
  const tab = await open();
  const { page } = tab;
  await tab.opens('pay');
  await tab.shows('<img src=x onerror="alert(1)">');
  assert.deepEqual(await page.locator('#detail .values:not(.words) .hidden-character').allInnerTexts(), ['U+202E', 'U+200B', 'U+E0041']);
  assert.ok(!(await page.locator('body').innerText()).match(/[\u202e\u200b]/));
  await page.getByText('Stored JSON').click();
  assert.ok((await page.locator('.stored pre').first().innerText()).includes('\\u202e'));
  // A text with hidden characters is edited as JSON, in which they are escapes.
  await tab.button('Edit').click();
  assert.ok((await page.getByLabel('note').inputValue()).includes('\\u202e\\u200b'));
  await tab.button('Cancel the edit').click();
  await tab.denies(facts.markup);
  await tab.shows('Denied by local. It did not run.');
  // The same call again, with markup in each text of each response.
  for (const path of ['**/approvals?*', '**/approvals/*', '**/tool_calls/**', '**/sessions/**']) {
    await page.route(path, async route => {
      const response = await route.fetch();
      return route.fulfill({ response, json: planted(await response.json(), facts.markup) });
    });
  }
  await page.goto(`${facts.server}/#/history`);
  await page.reload();
  await tab.opens('pay');
  await tab.shows(`Denied by local ${facts.markup}. It did not run.`);
  await page.locator('.trail').getByText(facts.markup).first().waitFor();
  await page.getByRole('link', { name: 'Policy and grants of the session' }).click();
  await page.getByText(`by tool ${facts.markup}`).first().waitFor();
  await page.unrouteAll();
  for (const at of ['#/history', `#/session/${encodeURIComponent(facts.markup)}`, `#/call/${encodeURIComponent(facts.markup)}`,
    `#/?tool=${encodeURIComponent(facts.markup)}&risk=${encodeURIComponent(facts.markup)}`]) {
    await page.goto(`${facts.server}/${at}`);
    await page.waitForLoadState();
  }
  await page.locator('#list-note').getByText('No call waits for you.').waitFor();
  tab.expected.push('404');
  assert.equal(await page.locator('body img, body script, body iframe, body b:has(script)').count(), 0);
  assert.equal(await page.evaluate(() => window.planted), undefined);
}
