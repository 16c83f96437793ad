// An operator finds the sessions of the tenant, and from there the calls that wait and the policy.
import assert from 'node:assert/strict';

export default async function ({ facts, open, until }) {
  const as = async (token, options) => {
    const tab = await open('/#/sessions', options);
    await tab.signsIn(token);
    await tab.page.getByRole('heading', { name: 'Sessions' }).waitFor();
    return tab;
  };
  const entries = tab => tab.page.locator('#detail li');
  const narrow = await as(facts.operator, { viewport: { width: 320, height: 568 } });
  await until('a page', () => entries(narrow).count(), 50);
  await narrow.axe('sessions');
  await narrow.fits('sessions');

  const tab = await as(facts.operator);
  await tab.page.getByRole('link', { name: 'Sessions' }).and(tab.page.locator('[aria-current=page]')).waitFor();
  await tab.button('Show older sessions').click();
  await until('every session', () => entries(tab).count(), 52);
  assert.equal(await tab.button('Show older sessions').isVisible(), false);
  // Markup and hidden characters of a title are text.
  assert.ok((await entries(tab).first().innerText()).startsWith(`Rent ${facts.markup}U+202E of alice`));
  await entries(tab).first().getByRole('link', { name: '1 call waits' }).click();
  await until('the call of the session', () => tab.rows().count(), 1);

  const user = await as(facts.user);
  await until('the own session', () => entries(user).count(), 1);
  await entries(user).first().getByRole('link').first().click();
  await user.page.getByRole('heading', { name: 'Policy in force' }).waitFor();
}
