// The context of a call is text, fits a narrow window, and is reached by the keyboard.
import assert from 'node:assert/strict';

export default async function ({ facts, open, until }) {
  for (const viewport of [{ width: 1200, height: 800 }, { width: 320, height: 640 }]) {
    const tab = await open(`/#/call/${facts.id}`, { viewport });
    const { page } = tab;
    await tab.signsIn(facts.carol);
    await tab.shows('Asked by: the tool: each of its calls asks');
    await tab.shows(`Rent ${facts.markup}`);
    await tab.shows('The user wrote');
    const words = await page.locator('.words .value').innerText();
    assert.ok(words.startsWith(`Pay ${facts.markup}U+202E w`) && words.endsWith('w …'), words.slice(0, 80));
    await tab.shows('The end is not shown.');
    await tab.shows('The user of the thread, and people with the role chief or boss.');
    await tab.shows('dave approved the inputs as proposed');
    const earlier = page.locator('#detail .trail', { has: page.getByRole('link') }).locator('li');
    assert.match(await earlier.innerText(), /denied by dave, reason: Too much\. <img src=x onerror="alert\(1\)">/);
    assert.equal(await page.locator('#detail img').count(), 0);
    await tab.axe('the card');
    await tab.fits('the card');
    // The keyboard reaches the earlier call.
    await page.locator('#detail h2').focus();
    const isThere = () => page.evaluate(() => document.activeElement.matches('#detail .trail a'));
    for (let presses = 0; presses < 20 && !await isThere(); presses += 1) await page.keyboard.press('Tab');
    assert.ok(await isThere(), 'the link has the focus');
    await page.keyboard.press('Enter');
    await tab.shows('Denied by dave. It did not run.');
    await until('the address', () => page.evaluate(() => location.hash), `#/call/${facts.earlier}`);
  }
}
