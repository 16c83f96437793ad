// A call that reports its progress while it runs: the card shows the last report, as text.
import fs from 'node:fs';

export default async function ({ facts, open, until }) {
  const tab = await open();
  await tab.opens('ship');
  await tab.presses('Approve');
  await tab.shows('Approved by local, and running.');
  const progress = () => tab.page.locator('#detail .progress').textContent();
  await until('the report', async () => (await progress()).split(' (3 of 7)')[0], 'The tool says: packs <b>U+202E');
  await tab.shows('Progress');
  fs.writeFileSync(facts.seen, '');
  await tab.shows('Approved by local, and done.');
  await until('no report after the output', () => tab.page.locator('#detail .progress').count(), 0);
}
