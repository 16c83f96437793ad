// Two approvers decide the same call at once, and a third one looks on. One decision counts, and everybody sees it.
import assert from 'node:assert/strict';

export default async function ({ facts, open, until }) {
  const signedIn = async token => {
    const tab = await open();
    tab.expected.push('409');
    await tab.signsIn(token);
    await tab.opens('pay');
    await tab.says('You can approve or deny it.');
    await tab.says('asked for by <b>alice</b>');
    await tab.page.locator('.approve:not([aria-disabled])').waitFor();
    return tab;
  };
  const [carol, dave, watching] = [await signedIn(facts.carol), await signedIn(facts.dave), await signedIn(facts.erin)];
  const press = (tab, button) => tab.page.evaluate(button => document.querySelector(button).click(), button);
  await Promise.all([press(carol, '.approve'), press(dave, '.deny')]);
  const told = tab => until('the outcome', async () => {
    const text = await tab.page.locator('#detail .body > .outcome').innerText();
    return /^(Approved by carol, and done\.|Denied by dave\. It did not run\.)/.exec(text)?.[0];
  });
  const outcome = await told(watching);
  assert.equal(await told(carol), outcome);
  assert.equal(await told(dave), outcome);
  const loser = outcome.startsWith('Approved') ? dave : carol;
  await loser.says('Somebody else decided first. Your decision has no effect.');
  await until('the buttons', () => watching.page.locator('.bar button').count(), 0);
  const word = outcome.startsWith('Approved') ? 'succeeded, carol' : 'denied, dave';
  await until('the row', () => watching.rows().first().textContent().then(text => text.includes(word)));
}
