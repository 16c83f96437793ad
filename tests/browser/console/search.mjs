// The search in the inbox and in the history, and a call by its id.
import assert from 'node:assert/strict';

export default async function ({ facts, open, until }) {
  const tab = await open('/', { viewport: { width: 320, height: 700 } });
  const { page } = tab;
  const count = (what, n) => until(what, () => tab.rows().count(), n);
  const search = async words => {
    // After the listener of the console. Before that, the list is that of the words before.
    const routed = page.evaluate(() => new Promise(resolve => { addEventListener('hashchange', () => setTimeout(resolve), { once: true }); }));
    await page.getByLabel('Search').fill(words);
    await page.keyboard.press('Enter');
    await routed;
    await until('the list', () => page.locator('#rows').getAttribute('aria-busy'), 'false');
  };
  await count('all that wait', 2);
  await tab.axe('the search');
  await tab.fits('the search');
  await search('flour "müller');
  await count('the words in any case', 1);
  assert.match(await page.evaluate(() => location.hash), /q=flour/);
  await page.reload();
  await count('the same after a reload', 1);
  assert.equal(await page.getByLabel('Search').inputValue(), 'flour "müller');
  await search('flour coal');
  await page.getByText('There is no such call.').waitFor();
  await search('');
  await count('all again', 2);
  await tab.button('Menu').click();
  await page.getByRole('link', { name: 'History', exact: true }).click();
  await count('the decided call', 1);
  await search('spoilt');
  await count('the reason', 1);
  await search('coal');
  await count('nothing', 0);
  await search(facts.flour);
  await tab.shows('You can approve or deny it.');
  await until('the call', () => page.evaluate(() => location.hash), `#/call/${facts.flour}`);
}
