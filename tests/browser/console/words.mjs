// A note with an approval, and a denial that its form confirms. The rows say how long ago the decision was.
import assert from 'node:assert/strict';

export default async function ({ open, until }) {
  const tab = await open();
  const { page } = tab;
  await tab.rows().nth(1).waitFor();
  // As if both had waited for an hour.
  await page.route('**/approvals?*', async route => {
    const response = await route.fetch();
    const body = await response.json();
    for (const item of body.results) item.created_at = new Date(Date.now() - 3_600_000).toISOString();
    return route.fulfill({ response, json: body });
  });
  await page.reload();
  await tab.rows().nth(0).click();
  await tab.button('More').click();
  await page.getByLabel('Note (kept on record)').fill('Seen the <b>bill</b>.');
  await tab.presses('Approve');
  await tab.shows('Approved by local, and done.');
  assert.equal(tab.decisions()[0].reason, 'Seen the <b>bill</b>.');
  await page.locator('#detail .rest > p').getByText('Note: Seen the <b>bill</b>.').waitFor();
  await until('the age of the decision', () => tab.rows().nth(0).locator('.state').innerText().then(text => /^succeeded, local, decided \d+ seconds? ago$/.test(text)));
  await page.locator('#detail .trail').getByText('The model made the call for local').waitFor();

  await tab.rows().nth(1).click();
  await tab.button('Deny…').click();
  assert.equal(await tab.focused(), 'reason');
  assert.ok(!await page.locator('#detail .approve').isVisible());
  await tab.axe('the form of a denial');
  await page.keyboard.press('Escape');
  assert.equal(await tab.focused(), 'Deny…');
  assert.equal(tab.decisions().length, 1);
  await tab.denies('Too much.');
  await tab.shows('Denied by local. It did not run.');
  await page.locator('#detail .rest > p').getByText('Reason: Too much.').waitFor();
  assert.equal(tab.decisions()[1].reason, 'Too much.');
}
