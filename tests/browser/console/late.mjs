// Decisions that are refused: another one was first, or the tool has changed since the call was shown.
import assert from 'node:assert/strict';

export default async function ({ facts, open, until }) {
  const tab = await open();
  const { page } = tab;
  tab.expected.push('409', 'Failed to load resource');
  await tab.rows().nth(1).waitFor();

  // The hash is another one, as it is after the tool has changed.
  await page.route('**/qa/validate_tool', route => {
    const body = { ...route.request().postDataJSON(), inputHash: '0'.repeat(64) };
    return route.continue({ postData: JSON.stringify(body) });
  }, { times: 1 });
  await tab.opens('pay');
  await tab.presses('Approve');
  await tab.shows('The tool has changed since the call was shown. Nothing is decided');
  await tab.shows('You can approve or deny it.');

  // The response is lost: the outcome is not known, and a repeated decision is safe.
  await page.route('**/qa/validate_tool', route => route.abort(), { times: 1 });
  await tab.presses('Approve');
  await tab.shows('Deciding again in the same way is safe.');

  // Another approver decides while the request is in flight.
  await page.route('**/qa/validate_tool', async route => {
    const { toolCallId } = route.request().postDataJSON();
    await fetch(`${facts.server}/qa/validate_tool`, { method: 'POST', headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ toolCallId, isValidated: false, reason: 'no' }) });
    await route.continue();
  }, { times: 1 });
  await tab.presses('Approve');
  await tab.shows('Somebody else decided first. Your decision has no effect.');
  await tab.shows('Denied by local. It did not run.');
  await until('the buttons', () => page.locator('.bar button').count(), 0);
  assert.equal(tab.decisions().length, 3);
}
