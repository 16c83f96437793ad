// An approved call that still runs: its outcome comes by itself.
import fs from 'node:fs';

export default async function ({ facts, open, until }) {
  const tab = await open();
  await tab.opens('wait_for_me');
  await tab.presses('Approve');
  await tab.shows('Approved by local, and running.');
  await until('one message', () => tab.page.locator('#detail .message').textContent(), '');
  fs.writeFileSync(facts.release, '');
  await tab.shows('Approved by local, and done.');
}
