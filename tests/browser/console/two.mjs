// Two approvers decide the same call at once, and a third one watches. One decision counts, and all three see it.
import assert from 'node:assert/strict';

export default async function ({ facts, open, until }) {
  const signedIn = async token => {
    const tab = await open();
    tab.expected.push('409');
    await tab.signsIn(token);
    await tab.opens('pay');
    await tab.shows('You can approve or deny it.');
    await tab.shows('asked for by <b>alice</b>');
    await tab.page.locator('.approve:not([aria-disabled])').waitFor();
    return tab;
  };
  const [carol, dave, watching] = [await signedIn(facts.carol), await signedIn(facts.dave), await signedIn(facts.erin)];
  await dave.button('Deny…').click();
  await dave.page.locator('.denial .deny:not([aria-disabled])').waitFor();
  const press = (tab, button) => tab.page.evaluate(button => document.querySelector(button).click(), button);
  await Promise.all([press(carol, '.approve'), press(dave, '.denial .deny')]);
  const outcomeOf = tab => until('the outcome', async () => {
    const text = await tab.page.locator('#detail .body > .outcome').innerText();
    return /^(Approved by carol, and done\.|Denied by dave\. It did not run\.)/.exec(text)?.[0];
  });
  const outcome = await outcomeOf(watching);
  assert.equal(await outcomeOf(carol), outcome);
  assert.equal(await outcomeOf(dave), outcome);
  const loser = outcome.startsWith('Approved') ? dave : carol;
  await loser.shows('Somebody else decided first. Your decision has no effect.');
  await until('the buttons', () => watching.page.locator('.bar button').count(), 0);
  const word = outcome.startsWith('Approved') ? 'succeeded, carol' : 'denied, dave';
  await until('the row', () => watching.rows().first().textContent().then(text => text.includes(word)));
}
