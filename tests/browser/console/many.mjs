// Ten thousand waiting calls: the first page is small, and more come on request.
import assert from 'node:assert/strict';

export default async function ({ open, until }) {
  const tab = await open();
  await tab.button('Show more').waitFor();
  const first = await tab.rows().count();
  assert.ok(first > 0 && first <= 200, `${first} rows`);
  await tab.button('Show more').click();
  await until('more calls', () => tab.rows().count(), 2 * first);
}
