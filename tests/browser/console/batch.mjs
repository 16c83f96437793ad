// All waiting calls of one tool, with the hashes that were shown.
import assert from 'node:assert/strict';

export default async function ({ facts, open, until }) {
  const tab = await open();
  const { page } = tab;
  await tab.rows().nth(3).waitFor();
  assert.ok(await page.locator('#batch').isHidden());
  await page.locator('select[name=tool]').selectOption('pay');
  await page.locator('#batch').click();
  const dialog = page.getByRole('dialog');
  await dialog.getByText('Approve calls of Pay').waitFor();
  assert.deepEqual(await dialog.locator('.value').allInnerTexts(), ['3', '2', '1']);
  assert.equal(await tab.focused(), 'Approve calls of Pay');
  await tab.axe('the dialog');
  // One of them is denied meanwhile.
  await fetch(`${facts.server}/qa/validate_tool`, { method: 'POST', headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ toolCallId: facts.denied, isValidated: false }) });
  // A call of high risk is chosen by the person.
  await tab.presses('Approve 0 of 3');
  await dialog.getByText('Choose a call.').waitFor();
  assert.deepEqual(tab.decisions(), []);
  for (const box of await dialog.getByRole('checkbox').all()) await box.check();
  await tab.presses('Approve 3 of 3');
  await dialog.getByText('2 approved, 1 not approved.').waitFor();
  assert.deepEqual(tab.decisions()[0].decisions.map(({ isValidated, inputHash }) => [isValidated, inputHash.length]), Array(3).fill([true, 64]));
  await tab.button('Close').click();
  await until('the rows', () => tab.rows().locator('.state').allInnerTexts().then(states => states.map(state => state.split(',')[0])), ['succeeded', 'denied', 'succeeded']);
}
