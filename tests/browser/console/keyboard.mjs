// A denial with a reason, by the keyboard alone.
import assert from 'node:assert/strict';

export default async function ({ open }) {
  const tab = await open();
  const { keyboard } = tab.page;
  await tab.rows().nth(1).waitFor();
  const tabTo = async name => {
    for (let n = 0; n < 30; n += 1) {
      const focused = await tab.page.evaluate(() => document.activeElement.textContent.trim() || document.activeElement.id);
      if (focused.startsWith(name)) return;
      await keyboard.press('Tab');
    }
    assert.fail(`Tab does not reach ${name}`);
  };
  await tabTo('Pay');
  await keyboard.press('ArrowDown');
  await keyboard.press('ArrowUp');
  await keyboard.press('ArrowDown');
  await keyboard.press('Enter');
  await tab.page.locator('.approve:not([aria-disabled])').waitFor();
  assert.equal(await tab.focused(), 'Pay');
  await tabTo('Deny…');
  await keyboard.press('Enter');
  assert.equal(await tab.focused(), 'reason');
  // A line break is no decision.
  await keyboard.type('Too much.');
  await keyboard.press('Enter');
  await keyboard.type('Ask <b>again</b>.');
  await keyboard.press('Tab');
  assert.equal(await tab.focused(), 'Deny');
  await tab.page.locator('.denial .deny:not([aria-disabled])').waitFor();
  assert.deepEqual(tab.decisions(), []);
  await keyboard.press('Enter');
  await tab.shows('Denied by local. It did not run.');
  assert.equal(tab.decisions()[0].reason, 'Too much.\nAsk <b>again</b>.');
  await tabTo('Next waiting call');
  await keyboard.press('Enter');
  await tab.shows('You can approve or deny it.');
}
