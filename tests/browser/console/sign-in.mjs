// A person signs in at the issuer, comes back to the card they were on, approves, and signs out.
import assert from 'node:assert/strict';

export default async function ({ facts, open, until }) {
  const tab = await open(`/#/call/${facts.call}`);
  const { page } = tab;
  tab.expected.push('401');
  tab.elsewhere.push(`${facts.issuer}/`);
  const link = page.getByRole('link', { name: 'Sign in at the issuer' });
  await link.waitFor();
  await tab.axe('the question to sign in');
  await tab.fits('the question to sign in');
  await link.click();
  await tab.shows('pay');
  await page.getByText('ann of acme').waitFor();
  await page.locator('#connection').getByText('Live').waitFor();
  await tab.axe('the console after a sign-in');
  // No script has the token.
  const kept = await page.evaluate(() => [document.cookie, localStorage.length, sessionStorage.length]);
  assert.deepEqual(kept, ['', 0, 0]);
  const cookies = (await page.context().cookies(facts.server)).filter(({ name }) => name.startsWith('__Host-'));
  assert.deepEqual(cookies.map(({ name, secure, httpOnly, sameSite, path }) => ({ name, secure, httpOnly, sameSite, path })), [
    { name: '__Host-holdpoint', secure: true, httpOnly: true, sameSite: 'Strict', path: '/' },
  ]);
  // The session ends with the token, which lasts ten minutes, and the leeway of one.
  const left = cookies[0].expires - Date.now() / 1000;
  assert.ok(left > 500 && left <= 660, `${left} seconds`);
  await tab.presses('Approve');
  await tab.shows('succeeded');
  await page.reload();
  await tab.shows('succeeded');
  await tab.button('Sign out').click();
  await page.getByRole('alert').getByText('You are signed out here.').waitFor();
  await until('no cookie', async () => (await page.context().cookies(facts.server)).filter(({ name }) => name.startsWith('__Host-')).length, 0);
  await page.reload();
  await link.waitFor();
  // A failed sign-in says what failed.
  await page.goto(`${facts.server}/auth/callback?code=x&state=y`);
  await page.getByRole('alert').getByText('did not start in this browser').waitFor();
}
