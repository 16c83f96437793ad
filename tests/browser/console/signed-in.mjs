// Sessions that the server keeps: what was typed is there after a new sign-in, and a person signs each of their browsers out.
import assert from 'node:assert/strict';

export default async function ({ facts, open, until }) {
  const tab = await open(`/#/call/${facts.edited}`);
  const { page } = tab;
  tab.expected.push('401');
  tab.elsewhere.push(`${facts.issuer}/`);
  const link = page.getByRole('link', { name: 'Sign in at the issuer' });
  const signsIn = async () => {
    await link.waitFor();
    await link.click();
    await page.getByText('ann of acme').waitFor();
  };
  // The session ends once the card has read all that it shows, so that the press is the first request that is refused.
  const isRead = () => page.locator('#detail .trail li').first().waitFor();
  const ends = async () => {
    await isRead();
    await page.context().clearCookies();
  };
  await signsIn();

  // The session ends while an edit is reviewed.
  await tab.shows('pay');
  await isRead();
  await tab.button('Edit').click();
  await page.getByLabel('note').fill('11');
  await tab.button('Review the changes').click();
  await tab.button('Back to the form').waitFor();
  await ends();
  await tab.reads('Approve with changes');
  await tab.presses('Approve with changes');
  await signsIn();
  await page.getByLabel('note').waitFor();
  assert.equal(await page.getByLabel('note').inputValue(), '11');
  assert.deepEqual(await page.evaluate(() => [document.cookie, localStorage.length, sessionStorage.length]), ['', 0, 0]);
  await tab.button('Review the changes').click();
  await tab.reads('Approve with changes');
  await tab.presses('Approve with changes');
  await tab.shows('succeeded');

  // The session ends before a denial is sent.
  await page.goto(`${facts.server}/#/call/${facts.denied}`);
  await page.locator('#detail .value', { hasText: '20' }).first().waitFor();
  await isRead();
  await tab.button('Deny…').click();
  await page.getByLabel('Reason for denying').fill('Not <b>now</b>.');
  await ends();
  await tab.presses('Deny');
  await signsIn();
  await until('the reason', () => page.getByLabel('Reason for denying').inputValue(), 'Not <b>now</b>.');
  assert.deepEqual(tab.decisions().filter(({ isValidated }) => !isValidated).length, 1, 'only a person denies');
  await tab.presses('Deny');
  await tab.shows('rejected');

  // The two ended browsers are still signed in at the server, and are signed out here.
  await page.getByRole('link', { name: 'ann', exact: true }).click();
  await page.getByRole('heading', { name: 'Where you are signed in' }).waitFor();
  const entries = page.locator('#detail li');
  await until('three sign-ins', () => entries.count(), 3);
  await tab.axe('the sign-ins');
  await tab.fits('the sign-ins');
  assert.ok((await entries.first().innerText()).includes('this browser'));
  for (const left of [2, 1]) {
    const button = entries.last().getByRole('button');
    await page.locator('#detail li button:not([aria-disabled=true])').last().waitFor();
    await button.click();
    await until('one fewer', () => entries.count(), left);
  }
  // The end of the session leads to the page of the issuer where its own ends.
  await page.getByRole('banner').getByRole('button', { name: 'Sign out' }).click();
  await page.waitForURL(url => url.href.startsWith(`${facts.issuer}/session/end`));
  await page.goto(`${facts.server}/`);
  await link.waitFor();
}
