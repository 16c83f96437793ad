// A call that two people have to approve.
import assert from 'node:assert/strict';

export default async function ({ facts, open, until }) {
  const signedIn = async token => {
    const tab = await open();
    await tab.signsIn(token);
    await tab.opens('pay');
    return tab;
  };
  const carol = await signedIn(facts.carol);
  await carol.shows('2 people have to approve the same inputs. So far nobody.');
  assert.equal(await carol.page.getByLabel('from now on').count(), 0);
  const dave = await signedIn(facts.dave);
  await dave.shows('So far nobody.');
  await carol.presses('Approve');
  await carol.shows('One more person has to approve it before it runs.');
  await carol.shows('So far carol.');
  await carol.shows('You have approved. One more person has to.');
  await carol.page.locator('.trail').getByText('Approved, more approvals needed by carol').waitFor();
  assert.equal(await carol.button('Approve').count(), 0);
  // The open card of the other approver learns of the vote.
  await dave.shows('So far carol.');
  await dave.presses('Approve');
  await dave.shows('Approved by dave, and done.');
  await carol.shows('Approved by dave, and done.');
  await until('the buttons', () => carol.page.locator('.bar button').count(), 0);
}
