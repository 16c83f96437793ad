// An approval that is remembered: what it covers, in facts, before it is given, and its end on the card and in the session.
import assert from 'node:assert/strict';

export default async function ({ facts, open, until }) {
  const tab = await open(`/#/call/${facts.first}`);
  const { page } = tab;
  await tab.button('More').click();
  await tab.presses('Approve, and later calls too…');
  const dialog = page.getByRole('dialog');
  await dialog.getByText('Other waiting calls of Pay').waitFor();
  const says = words => until('the facts', async () => (await dialog.locator('.facts-of-grant').innerText()).replace(/\s+/g, ' '), words);
  await says('Covers this call, and all later calls of pay in this session with the same inputs, until it is revoked.');
  // The calls that wait are not chosen from the start.
  assert.deepEqual(await dialog.getByRole('checkbox').evaluateAll(boxes => boxes.map(box => box.checked)), [false, false]);
  await dialog.getByLabel('with any inputs').check();
  await says('Covers this call, and all later calls of pay in this session with any inputs, until it is revoked.');
  await dialog.getByLabel('with inputs like these').check();
  await dialog.getByLabel('note', { exact: true }).selectOption({ label: 'anything in the folder /srv/data' });
  await dialog.getByLabel('How often').selectOption({ label: '3 calls' });
  await dialog.locator('.batch li', { hasText: '/srv/data/b' }).getByRole('checkbox').check();
  await says('Covers this call and 1 of 2 other waiting calls, and all later calls of pay in this session with note in the folder /srv/data, until it is revoked, for 3 calls.');
  await tab.axe('the dialog');
  for (const [width, height] of [[320, 640], [1280, 800]]) {
    await page.setViewportSize({ width, height });
    await tab.fits(`the dialog at ${width}`);
  }
  await dialog.getByLabel('How long').selectOption({ label: 'for 1 hour' });
  await until('the end', async () => (await dialog.locator('.facts-of-grant time').count()), 1);
  // A call of high risk is approved only after it was read.
  await dialog.locator('.batch .value', { hasText: '/srv/data/b' }).scrollIntoViewIfNeeded();
  await tab.presses('Approve 2 & remember');
  await tab.shows('Approved by local, and done.');
  await tab.shows('1 other call approved with it.');
  const [{ remember: { until: end, ...remember } }] = tab.decisions();
  assert.deepEqual(remember, { when: [{ argument: '/note', under: '/srv/data' }], free: [], uses: 3, waiting: { [facts.second]: facts.hash } });
  assert.ok(Math.abs(Date.parse(end) - Date.now() - 3_600_000) < 120_000, end);

  // The card has the grant, and revokes it.
  await tab.shows('Later calls of pay in this session run without a question with note in the folder /srv/data, until ');
  await tab.axe('the grant on the card');
  await page.setViewportSize({ width: 320, height: 640 });
  await tab.fits('the grant on the card');
  await page.setViewportSize({ width: 1280, height: 800 });
  await tab.presses('Revoke');
  await tab.shows('The remembered approval is revoked. Later calls are held again.');
  await until('the grant is gone from the card', () => page.locator('.remembered').count(), 0);

  // So does the session.
  await page.goto(`${facts.server}/#/call/${facts.third}`);
  await tab.shows('/etc/c');
  await tab.button('More').click();
  await tab.presses('Approve, and later calls too…');
  await dialog.getByLabel('with any inputs').check();
  await tab.presses('Approve & remember');
  await tab.shows('Approved by local, and done.');
  await page.getByRole('link', { name: 'Policy and grants of the session' }).click();
  await tab.shows('pay with any inputs, until it is revoked, by local');
  await tab.shows('by remembered:');
  await tab.axe('the session');
  await page.getByRole('button', { name: 'Revoke the approval of pay' }).and(page.locator(':not([aria-disabled=true])')).click();
  await tab.shows('The approval of pay is revoked.');
  await tab.shows('None. Each call of a tool that asks is held.');
}
