// The form of a call that two people approved: one proposes, and another one confirms what is shown.
import assert from 'node:assert/strict';

export default async function ({ facts, open, until }) {
  const signedIn = async (token, options) => {
    const tab = await open('/', options);
    await tab.signsIn(token);
    await tab.page.locator('#tool-requests a', { hasText: 'Amount to pay?' }).click();
    await tab.shows('2 people have to agree on the answer.');
    return tab;
  };
  const [bob, carol] = [await signedIn(facts.bob), await signedIn(facts.carol)];
  await bob.axe('the form');
  const amount = tab => tab.page.getByLabel('amount required');
  await amount(carol).fill('5');
  await amount(bob).fill('999999');
  await bob.page.getByLabel('send note').check();
  await bob.page.getByLabel('note', { exact: true }).fill('pay\u202eeva');
  await bob.presses('Propose');
  await bob.shows('You have proposed. One more person has to confirm.');
  // The open form of the other person learns of it, and keeps what is in it.
  const proposal = (tab, words) => tab.page.locator('.proposal', { hasText: words });
  await proposal(carol, 'bob proposes:').waitFor();
  assert.equal(await amount(carol).inputValue(), '5');
  assert.match(await proposal(carol, 'bob proposes:').innerText(), /999999[^]*payU\+202Eeva/);
  await carol.axe('a proposal');
  assert.equal(await bob.button('Confirm').count(), 0);
  await carol.page.getByLabel('send note').check();
  await carol.page.getByLabel('note', { exact: true }).fill('a line\n'.repeat(60));
  await carol.presses('Propose');
  await carol.shows('You have proposed. One more person has to confirm.');
  await proposal(bob, 'carol proposes:').waitFor();
  const small = await signedIn(facts.dora, { viewport: { width: 320, height: 640 } });
  await until('the proposals', () => small.page.locator('.proposal').count(), 2);
  await small.axe('the proposals, small');
  await small.fits('the proposals, small');
  // What is confirmed is shown whole.
  await bob.presses('Confirm');
  await bob.shows('A part of it is cut. Show all of it, and confirm then.');
  await bob.page.locator('.proposal .cut button:focus').click();
  await bob.presses('Confirm');
  await bob.shows('Sent. The tool continues.');
  for (const tab of [carol, small]) await tab.shows('Answered, at last by bob. The tool continues.');
  await until('the request', () => carol.page.locator('#tool-requests').isHidden());
  const sent = tab => tab.requests.filter(request => request.url().endsWith('/answer')).map(request => request.postDataJSON());
  const [proposed, confirmed] = sent(bob);
  assert.deepEqual(proposed, { action: 'accept', content: { amount: 999_999, note: 'pay\u202eeva' } });
  assert.deepEqual(Object.keys(confirmed), ['action', 'content_hash']);
}
