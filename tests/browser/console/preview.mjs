// A preview on the card, and the preview of an edit beside its changes.
import assert from 'node:assert/strict';

export default async function ({ facts, open, until }) {
  const tab = await open();
  const { page } = tab;
  await tab.opens('wipe');
  const previewText = () => page.locator('#detail .preview').innerText();
  await until('the preview', previewText, 'Wipes old.');
  await tab.button('Edit').click();
  await page.getByLabel('note required').fill(facts.markup);
  // The review is read to its end as the card is.
  await page.setViewportSize({ width: 900, height: 320 });
  await tab.button('Review the changes').click();
  await tab.shows('Preview of your changes');
  assert.equal(await previewText(), `Wipes ${facts.markup}.`);
  await tab.axe('the changes with their preview');
  assert.match(await page.locator('#detail .approve').textContent(), /^Read on: /);
  assert.ok(await tab.reads('Approve with changes') > 0);
  assert.deepEqual(tab.decisions(), []);
  await tab.presses('Approve with changes');
  await tab.shows('Approved by local, and done.');
  assert.equal(await previewText(), `Wipes ${facts.markup}.`);
  assert.match(tab.decisions()[0].previewHash, /^[0-9a-f]{64}$/);
}
