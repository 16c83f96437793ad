// An approval for the session, the session's policy, and the revocation.
export default async function ({ open }) {
  const tab = await open();
  const { page } = tab;
  await tab.opens('pay');
  await tab.button('More').click();
  await page.getByLabel('Approve pay in this session from now on').check();
  await tab.presses('Approve');
  await tab.shows('Approved by local, and done.');
  await page.getByRole('link', { name: 'Policy and grants of the session' }).click();
  await tab.shows('pay with any inputs, by local');
  await tab.shows('by remembered:');
  await tab.axe('the session');
  await page.getByRole('button', { name: 'Revoke the approval of pay' }).and(page.locator(':not([aria-disabled=true])')).click();
  await tab.shows('The approval of pay is revoked.');
  await tab.shows('None. Each call of a tool that asks is held.');
}
