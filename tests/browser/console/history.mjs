// The decided calls of all states, newest first, and by state.
import assert from 'node:assert/strict';

export default async function ({ facts, open, until }) {
  const tab = await open('/#/history');
  const { page } = tab;
  const states = () => tab.rows().locator('.state').allInnerTexts().then(all => all.map(text => text.split(',')[0]));
  await until('all states', states, ['expired', 'outcome unknown', 'cancelled', 'failed', 'denied', 'succeeded']);
  await tab.axe('the history');
  const shows = ['Nobody decided in time. It did not run.', 'its outcome is unknown', 'Cancelled by local. It did not run.', 'It failed: ',
    'Denied by local. It did not run.', 'Approved by local, and done.'];
  for (const [n, text] of shows.entries()) {
    await tab.rows().nth(n).click();
    await tab.shows(text);
    assert.equal(await page.locator('.bar button').count(), 0);
  }
  await tab.axe('a decided call');
  await page.getByRole('link', { name: 'History', exact: true }).click();
  await page.getByLabel('State').selectOption('failed');
  await until('the failed call', states, ['failed']);
  await page.reload();
  await until('the failed call after a reload', states, ['failed']);
  await page.goto(`${facts.server}/#/?session=${facts.session}`);
  await page.getByText('No call waits for you.').waitFor();
  await page.getByRole('link', { name: 'All sessions' }).click();
  await until('the waiting call', states, ['expires in 23 hours 59 minutes']);
}
