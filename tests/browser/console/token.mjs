// With tokens the console asks for one, keeps it in the tab alone, and says when it is refused.
import assert from 'node:assert/strict';

export default async function ({ facts, open, until }) {
  const tab = await open();
  const { page } = tab;
  tab.expected.push('401');
  const field = page.getByLabel('Access token');
  await field.waitFor();
  await tab.axe('the question for a token');
  await field.fill('not.a.token');
  await tab.button('Use this token').click();
  await page.getByRole('alert').getByText('The server refuses the token, or it has ended.').waitFor();
  await field.fill(facts.bob);
  await tab.button('Use this token').click();
  await page.getByText('No call waits for you.').waitFor();
  await page.locator('#connection').getByText('Live').waitFor();
  const kept = await page.evaluate(() => [document.cookie, localStorage.length, sessionStorage.length, document.documentElement.innerHTML]);
  assert.deepEqual(kept.slice(0, 3), ['', 0, 0]);
  assert.ok(!kept[3].includes(facts.bob));
  assert.ok(tab.requests.every(request => !request.url().includes(facts.bob)));
  await tab.button('Forget the token').click();
  await field.waitFor();
  await field.fill(facts.bob);
  await tab.button('Use this token').click();
  await page.getByText('No call waits for you.').waitFor();
  await page.reload();
  await field.waitFor();
  assert.equal(await page.locator('#panes').isHidden(), true);
  // An operator sees the call, and cannot decide it.
  await field.fill(facts.oscar);
  await tab.button('Use this token').click();
  await tab.opens('pay');
  await tab.shows('Other people approve this call.');
  await until('no buttons', () => page.locator('.bar button').count(), 0);
}
