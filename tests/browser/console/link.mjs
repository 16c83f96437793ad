// The person of a link comes to its card and decides. Another person, and a repeat, get what is theirs.
import assert from 'node:assert/strict';

export default async function ({ facts, open, until }) {
  const as = async (token, link, ...expected) => {
    const tab = await open(`/#/link/${link}`, { viewport: { width: 320, height: 700 } });
    tab.expected.push(...expected);
    await tab.signsIn(token);
    return tab;
  };
  const carol = await as(facts.carol, facts.link, '403');
  await carol.page.getByRole('heading', { name: 'This link is for another person' }).waitFor();
  await carol.axe('the link of another person');
  await carol.fits('the link of another person');
  const late = await as(facts.dana, facts.unknown, '404');
  await late.page.getByRole('heading', { name: 'This link has expired' }).waitFor();
  await late.shows('The inbox has the calls that wait.');
  await late.page.getByRole('link', { name: 'Back to the list' }).click();
  await late.rows().first().waitFor();

  const dana = await as(facts.dana, facts.link);
  await dana.shows('You can approve or deny it.');
  assert.equal(new URL(dana.page.url()).hash, `#/call/${facts.call}`, 'the token leaves the address');
  assert.equal(dana.decisions().length, 0);
  await dana.presses('Approve');
  await dana.shows('Approved by dana, and done.');
  assert.deepEqual(dana.decisions().map(({ link }) => link), [facts.link]);

  const again = await as(facts.dana, facts.link);
  await again.shows('Approved by dana, and done.');
  await until('no controls', () => again.button('Approve').count(), 0);
  assert.equal(again.decisions().length, 0);
}
