// A call that waits long: its reminder and its escalation.
export default async function ({ facts, open, until }) {
  const tab = await open('/', { viewport: { width: 320, height: 700 } });
  await tab.signsIn(facts.erin);
  await tab.opens('pay');
  await tab.shows('A reminder follows');
  await tab.shows('people with the role boss may decide too.');
  await until('the evidence', () => tab.page.locator('.trail').last().innerText().then(text => /Escalated by .* to boss/.test(text)));
  await tab.axe('the card');
  await tab.fits('the card');
  await tab.presses('Approve');
  await tab.shows('Approved by erin, and done.');
}
