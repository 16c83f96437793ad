// A later deadline, and the refused decisions in the evidence.
import assert from 'node:assert/strict';

export default async function ({ facts, open, until }) {
  const tab = await open('/', { viewport: { width: 320, height: 700 } });
  const { page } = tab;
  await tab.signsIn(facts.carol);
  await tab.opens('pay');
  await tab.shows('Refused decision');
  await tab.shows('an approval, about the call as it was before (rest)');
  await tab.shows('23 hours 59 minutes');
  await page.getByLabel('Let it wait for').selectOption({ label: '3 days' });
  await tab.axe('the card');
  await tab.fits('the card');
  await tab.presses('Wait longer');
  await tab.shows('The call waits longer.');
  await tab.shows('2 days 23 hours');
  await tab.shows('Extended');
  await until('the evidence', () => page.locator('.trail').last().innerText().then(text => /Extended by carol: until /.test(text)));
  assert.deepEqual(tab.decisions(), []);
  assert.equal(await tab.button('Approve').count(), 1);
}
