// One person decides in place of another.
import assert from 'node:assert/strict';

export default async function ({ facts, open, until }) {
  const as = async token => {
    const tab = await open('/', { viewport: { width: 320, height: 700 } });
    await tab.signsIn(token);
    return tab;
  };
  const bob = await as(facts.bob);
  await bob.page.getByText('No call waits for you.').waitFor();
  await bob.page.locator('#connection').getByText('Live').waitFor();
  const carol = await as(facts.carol);
  await carol.opens('pay');
  await carol.page.getByText('Let another person decide').click();
  await carol.presses('Delegate');
  await carol.shows('Name the person.');
  await carol.page.getByLabel('User', { exact: true }).fill('bob');
  await carol.page.getByLabel('How long').selectOption({ label: 'until its deadline' });
  await carol.page.getByLabel('Reason', { exact: true }).fill(`Away. ${facts.markup}`);
  await carol.axe('the form');
  await carol.fits('the form');
  await carol.presses('Delegate');
  await carol.shows('bob may decide now. You have one vote together.');
  await carol.shows('carol lets bob decide until');
  await until('the evidence', () => carol.page.locator('.trail').last().innerText().then(text => /Delegated by carol: bob may decide until /.test(text)));
  await carol.shows(facts.markup);

  // The call comes into the list by itself, and no other call does.
  await until('the call', () => bob.rows().count(), 1);
  await bob.opens('pay');
  await bob.shows('You can approve or deny it in place of carol.');
  assert.equal(await bob.page.getByText('Let another person decide').count(), 0);
  assert.equal(await bob.page.locator('#remember').count(), 0, 'a delegate remembers nothing');
  await bob.axe('the card of the delegate');
  await bob.fits('the card of the delegate');
  await bob.presses('Approve');
  await bob.shows('Approved by bob in place of carol');
  assert.equal(carol.decisions().length + bob.decisions().length, 1);
}
