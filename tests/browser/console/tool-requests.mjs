// The form of a tool that runs: its fields by the schema, what does not fit, and the answer.
import assert from 'node:assert/strict';

export default async function ({ facts, open, until }) {
  const tab = await open();
  const { page } = tab;
  await page.locator('#tool-requests a', { hasText: 'Which PIN?' }).click();
  await tab.shows('s asks: Which PIN?');
  assert.equal(await page.locator('#tool-requests .headline').innerText(), 's asks: Which PIN?');
  await tab.shows('act of s');
  await tab.axe('the request');
  // The card of the call leads to the question.
  await page.getByRole('link', { name: 'The call' }).click();
  await tab.shows('The tool runs and asks: answer it.');
  await page.locator('#detail .outcome').getByRole('link', { name: 'answer it' }).click();
  const pin = page.getByLabel('pin required');
  await pin.fill('1');
  await tab.presses('Send the answer');
  await tab.shows('The request stays open.');
  tab.expected.push('422');
  await page.getByLabel('send attempts').check();
  await page.getByLabel('attempts', { exact: true }).fill('2');
  await pin.fill(facts.pin);
  await tab.axe('the refused answer');
  await tab.presses('Send the answer');
  await tab.shows('Sent. The tool continues.');
  await until('the request', () => page.locator('#tool-requests').isHidden());
  const sent = tab.requests.filter(request => request.url().endsWith('/answer')).map(request => request.postDataJSON());
  assert.deepEqual(sent.at(-1), { action: 'accept', content: { pin: facts.pin, attempts: 2 } });
  // Another request comes while the page is open, and is declined.
  await fetch(`${facts.server}/qa/validate_tool`, { method: 'POST', headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ toolCallId: facts.next, isValidated: true }) });
  await page.locator('#tool-requests a', { hasText: 'Which other PIN?' }).click();
  await tab.shows('Which other PIN?');
  await tab.presses('Decline');
  await tab.shows('Declined.');
}
