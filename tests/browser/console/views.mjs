// Every view in light and dark, on a narrow screen, in forced colours and without motion.
import assert from 'node:assert/strict';

export default async function ({ open, until }) {
  const looks = [
    { colorScheme: 'light' },
    { colorScheme: 'dark', reducedMotion: 'reduce' },
    { colorScheme: 'light', viewport: { width: 320, height: 568 } },
    { colorScheme: 'dark', forcedColors: 'active' },
  ];
  for (const look of looks) {
    const name = JSON.stringify(look);
    const tab = await open('/', look);
    await tab.rows().first().waitFor();
    await tab.axe(`inbox ${name}`);
    await tab.fits(`inbox ${name}`);
    await tab.rows().first().click();
    await tab.button('Show all 5,000 characters').waitFor();
    const approve = tab.page.locator('.approve:not([aria-disabled])');
    await approve.waitFor();
    const hash = await tab.page.locator('.cut code').first().innerText();
    assert.match(hash, /^[0-9a-f]{64}$/);
    await tab.axe(`card ${name}`);
    await tab.fits(`card ${name}`);
    // The whole button is in the window, so that it can be pressed without scrolling.
    const box = await approve.boundingBox();
    const { width, height } = tab.page.viewportSize();
    assert.ok(box.x >= 0 && box.x + box.width <= width && box.y + box.height <= height, name);
    assert.ok(box.height >= 24 && box.width >= 24, name);
    await tab.button('Show all 5,000 characters').first().click();
    await until('the whole text', () => tab.page.locator('#detail .value').first().innerText().then(text => text.length), 5000);
  }
}
