// An operator sees why a webhook is disabled, and enables it; another user reads that only operators see the view.
export default async function ({ facts, open }) {
  const as = async (token, options) => {
    const tab = await open('/#/webhooks', options);
    await tab.signsIn(token);
    await tab.page.getByRole('heading', { name: 'Webhooks' }).waitFor();
    return tab;
  };
  const user = await as(facts.user);
  user.expected.push('403');
  await user.shows('Only a caller with one of auth.operator_roles');

  const narrow = await as(facts.operator, { viewport: { width: 320, height: 568 } });
  await narrow.shows('the receiver answered 410');
  await narrow.axe('a disabled webhook');
  await narrow.fits('a disabled webhook');

  const tab = await as(facts.operator);
  await tab.shows('1 failed attempt');
  await tab.shows('The oldest event that is not delivered');
  await tab.page.getByRole('link', { name: 'Webhooks' }).and(tab.page.locator('[aria-current=page]')).waitFor();
  await tab.presses('Enable gone');
  await tab.shows('The delivery to gone continues.');
  await tab.page.locator('#detail b', { hasText: 'delivering' }).waitFor();
  await tab.axe('an enabled webhook');
}
