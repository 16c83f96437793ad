// Words of two scripts and hidden characters are marked. Emoji, Persian and Hebrew stay as they are.
import assert from 'node:assert/strict';

export default async function ({ open, until }) {
  const tab = await open();
  const { page } = tab;
  await tab.opens('shell');
  const values = page.locator('#detail [data-part=inputs] .value');
  await until('the values', () => values.allInnerTexts(), [
    'p\u0430ymixed scripts: Latin, Cyrillic', 'web-1', 'p\u0430ypalmixed scripts: Latin, Cyrillic.com', '\u{1f468}\u200d\u{1f469}\u200d\u{1f467}',
    '\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645', '\u05e9\u05dc\u05d5\u05dd, abc', `a${'\u0301'.repeat(5)}U+0301 ×495 end`, 'aU+202Eb']);
  assert.equal(await page.locator('#detail h2 .mark.mixed').count(), 1);
  // A text from right to left begins at the right, and no other text turns with it.
  const sides = await values.evaluateAll(all => all.map(value => {
    const range = document.createRange();
    range.selectNodeContents(value);
    const [text, box] = [range.getBoundingClientRect(), value.getBoundingClientRect()];
    return text.left - box.left > box.right - text.right ? 'right' : 'left';
  }));
  assert.deepEqual(sides, ['left', 'left', 'left', 'left', 'right', 'right', 'left', 'left']);
  // Marks that stack cover no other line.
  const height = await values.nth(6).evaluate(value => value.getBoundingClientRect().height);
  assert.ok(height < 60, `${height} pixels`);
  await tab.axe('the card');
}
