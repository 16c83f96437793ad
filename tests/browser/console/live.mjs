// New calls are announced and move nothing. A decision moves no row.
import assert from 'node:assert/strict';

const held = async (facts, text) => {
  const json = { 'content-type': 'application/json' };
  const { thread_id: thread } = await (await fetch(`${facts.server}/threads`, { method: 'POST' })).json();
  await (await fetch(`${facts.server}/qa/chat_streamed/${thread}`, { method: 'POST', headers: json, body: JSON.stringify({ content: text }) })).text();
};

export default async function ({ facts, open, until }) {
  const tab = await open();
  const { page } = tab;
  await page.locator('#connection').getByText('Live').waitFor();
  await page.getByText('No call waits for you.').waitFor();
  await tab.axe('the empty inbox');
  // An empty list has nothing to move.
  await held(facts, 'write 1 to 1.txt');
  await until('the first call', () => tab.rows().count(), 1);
  await held(facts, 'write 2 to 2.txt');
  await page.locator('#new-calls').getByText('Show 1 new').click();
  await until('both calls', () => tab.rows().count(), 2);
  await tab.opens('1.txt');
  const approve = tab.button('Approve');
  await approve.waitFor();
  const places = async () => [await approve.boundingBox(), await tab.rows().nth(0).boundingBox(), await tab.rows().nth(1).boundingBox()];
  const before = await places();
  await held(facts, 'write 3 to 3.txt');
  await page.locator('#new-calls').getByText('Show 1 new').waitFor();
  assert.equal(await page.getByRole('status').filter({ hasText: '1 new call waits.' }).count(), 1);
  assert.deepEqual(await places(), before);
  assert.equal(await tab.rows().count(), 2);
  // A refused decision is reported, and the button does not move.
  await page.route('**/qa/validate_tool', route => route.abort(), { times: 1 });
  await tab.presses('Approve');
  await tab.shows('Deciding again in the same way is safe.');
  tab.expected.push('Failed to load resource');
  assert.deepEqual((await places())[0], before[0]);
  await tab.presses('Approve');
  await tab.shows('Approved by local, and done.');
  assert.deepEqual([await tab.rows().nth(0).boundingBox(), await tab.rows().nth(1).boundingBox()], before.slice(1));
  await page.locator('#new-calls').click();
  await until('the new list', () => tab.rows().locator('.headline').allInnerTexts(), ['Write 3.txt?', 'Write 2.txt?']);
}
