// Other inputs: a form of the schema, JSON with the digits of large numbers, the changes before they are sent.
import assert from 'node:assert/strict';

export default async function ({ facts, open, until }) {
  const tab = await open();
  const { page } = tab;
  await tab.opens('count');
  await tab.shows(facts.proposed);
  await tab.button('Edit').click();
  const field = page.getByLabel('to required');
  assert.equal(await field.inputValue(), facts.proposed);
  await tab.button('Review the changes').click();
  await tab.shows('Nothing is changed.');
  await field.fill('many');
  await tab.button('Review the changes').click();
  await tab.shows('to: expected a number.');
  await field.fill(facts.edited);
  await tab.axe('the form');
  await tab.button('Edit as JSON instead').click();
  const json = page.getByLabel('Inputs as JSON');
  assert.equal(await json.inputValue(), `{\n  "to": ${facts.edited}\n}`);
  // What the tool refuses is named, and the call still waits.
  await json.fill('{"to": "heavy"}');
  await tab.button('Review the changes').click();
  await tab.shows('The server refused these inputs.');
  assert.deepEqual(tab.decisions(), []);
  tab.expected.push('422');
  await page.getByLabel('Inputs as JSON').fill(`{"to": ${facts.edited}}`);
  await tab.button('Review the changes').click();
  await until('the changes', () => page.locator('.diff .line:is(.added, .removed)').allInnerTexts().then(lines => lines.length), 2);
  await tab.axe('the changes');
  assert.equal(await page.locator('.diff .removed').innerText().then(text => text.includes(facts.proposed)), true);
  await tab.presses('Approve with changes');
  await tab.shows('Inputs that a person set');
  await tab.shows('Changes of the proposal');
}
