// A changed definition: the card shows what is different, an operator accepts it, and then the call is approved.
import assert from 'node:assert/strict';

export default async function ({ facts, open, until }) {
  const signedIn = async (token, at = '/') => {
    const tab = await open(at);
    await tab.signsIn(token);
    await tab.page.locator('#connection').getByText('Live').waitFor();
    return tab;
  };
  const carol = await signedIn(facts.carol);
  await carol.page.locator('#rows').getByText('definition not accepted').waitFor();
  await carol.opens('s__act');
  await carol.shows('The server of the tool has changed what it says about the tool, and no operator has accepted that.');
  const different = tab => tab.page.locator('.definition .line').evaluateAll(lines =>
    lines.map(line => [line.className, line.lastElementChild.textContent]));
  const expected = [['line removed', 'Does it.'], ['line added', facts.markup], ['line added', 'Second line\\u{202e}.']];
  assert.deepEqual(await different(carol), expected);
  assert.equal(await carol.page.locator('#remember').count(), 0, 'the approval is for this call alone');
  await carol.axe('the card');
  await carol.fits('the card');
  await carol.page.locator('#detail').getByRole('link', { name: 'Tools to accept' }).click();
  await carol.shows('An operator can accept it.');
  assert.equal(await carol.page.getByText('Tools that cannot be used').count(), 0);
  assert.equal(await carol.page.getByRole('button', { name: 'Accept this definition of s__act' }).count(), 0);

  const oscar = await signedIn(facts.oscar, '/#/tools');
  await oscar.shows('The server of the tool has changed');
  assert.deepEqual(await different(oscar), expected);
  await oscar.shows('Tools that cannot be used');
  await oscar.shows('odd of s: its schema is one of "string", and expected is one of an object');
  await oscar.axe('the tools');
  await oscar.fits('the tools');
  assert.equal(await oscar.page.locator('nav a[aria-current]').innerText(), 'Tools');
  const accept = oscar.page.getByRole('button', { name: 'Accept this definition of s__act' });
  await accept.and(oscar.page.locator(':not([aria-disabled=true])')).click();
  await oscar.shows('The definition of s__act is accepted.');
  await oscar.shows('None. What MCP servers say about their tools is accepted.');
  await oscar.axe('no tools');

  await carol.page.goto(`${facts.server}/#/`);
  await carol.opens('s__act');
  await until('the warning is gone', () => carol.page.locator('#detail .warning').count(), 0);
  await carol.page.locator('#remember').waitFor({ state: 'attached' });
  await carol.presses('Approve');
  await carol.shows('Approved by carol, and done.');
  assert.equal(await carol.page.locator('body img').count(), 0);
}
