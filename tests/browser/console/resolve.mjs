// An operator records the outcomes of interrupted calls; the user of the thread cannot.
import assert from 'node:assert/strict';

export default async function ({ facts, open, until }) {
  const signedIn = async (token, options) => {
    const tab = await open('/#/history?state=interrupted', options);
    await tab.signsIn(token);
    await tab.rows().first().waitFor();
    return tab;
  };
  const alice = await signedIn(facts.alice);
  await alice.rows().first().click();
  await alice.shows('An operator can record what happened.');
  assert.equal(await alice.button('Record this outcome').count(), 0);

  const oscar = await signedIn(facts.oscar, { viewport: { width: 320, height: 640 } });
  const { page } = oscar;
  await oscar.button('Menu').click();
  assert.equal(await page.getByRole('link', { name: 'Interrupted' }).getAttribute('aria-current'), 'page');
  assert.equal(await oscar.rows().count(), 2);
  await oscar.rows().first().click();
  await oscar.presses('Record this outcome');
  await oscar.shows('Choose what happened.');
  await page.getByLabel('It had no effect, or not the intended one').check();
  await oscar.presses('Record this outcome');
  await oscar.shows('Say what happened instead.');
  await page.getByLabel('What happened instead').fill(facts.markup);
  await oscar.axe('the form');
  await oscar.fits('the form');
  await oscar.presses('Record this outcome');
  await oscar.shows('It failed: ');
  await until('no form', () => oscar.button('Record this outcome').count(), 0);
  assert.equal(await page.locator('#detail img').count(), 0);

  // The other one with the keyboard alone.
  await page.goto(`${facts.server}/#/history?state=interrupted`);
  await oscar.rows().filter({ hasText: 'outcome unknown' }).focus();
  await page.keyboard.press('Enter');
  await page.getByLabel('The tool had its effect').waitFor();
  const reaches = async what => {
    const isThere = () => page.evaluate(name => document.activeElement.matches(name), what);
    for (let presses = 0; presses < 40 && !await isThere(); presses += 1) await page.keyboard.press('Tab');
    assert.ok(await isThere(), `${what} has the focus`);
  };
  await reaches('[name=resolve-outcome]');
  await page.keyboard.press('Space');
  await reaches('#resolve-result');
  await page.keyboard.type('12345678901234567890');
  await reaches('#resolve-reason');
  await page.keyboard.type('I looked.');
  await reaches('.form .primary');
  await page.locator('.form .primary:not([aria-disabled=true])').waitFor();
  await page.keyboard.press('Enter');
  await oscar.shows('Approved by alice, and done.');
  await oscar.shows('12345678901234567890');
  await page.getByRole('link', { name: 'Back to the list' }).first().click();
}
