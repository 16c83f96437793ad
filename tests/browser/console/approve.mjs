// Two actions from the inbox to a decision. A press on a card that has just appeared does nothing.
import assert from 'node:assert/strict';

export default async function ({ open, until }) {
  const tab = await open();
  await tab.rows().first().waitFor();
  assert.equal(await tab.rows().count(), 1);
  // The card and the press in one task: no time passes between them.
  await tab.page.evaluate(() => {
    new MutationObserver((_, observer) => {
      const approve = document.querySelector('#detail .approve');
      if (approve === null) return;
      observer.disconnect();
      approve.click();
    }).observe(document.getElementById('detail'), { childList: true, subtree: true });
    document.querySelector('#rows a').click();
  });
  const approve = tab.button('Approve');
  await approve.waitFor();
  assert.notEqual(await tab.focused(), 'Approve');
  assert.equal(await tab.focused(), 'Pay');
  await tab.presses('Approve');
  await tab.shows('Approved by local, and done.');
  await tab.shows('Output');
  assert.deepEqual(tab.decisions().map(({ isValidated, resume }) => [isValidated, resume]), [[true, true]]);
  assert.match(tab.decisions()[0].inputHash, /^[0-9a-f]{64}$/);
  await until('the row', () => tab.rows().first().textContent().then(text => text.includes('succeeded, local')));
  assert.equal(await tab.focused(), 'Pay');
  await until('the evidence', () => tab.page.locator('.trail li').count(), 5);
}
