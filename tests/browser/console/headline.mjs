// The values of the model are chips in the question: in the rows, on the card and in the title of the window.
import assert from 'node:assert/strict';

export default async function ({ facts, open, until }) {
  const tab = await open();
  const { page } = tab;
  await tab.rows().first().waitFor();
  for (const place of ['#rows .headline', '#detail h2']) {
    await page.locator(place).waitFor();
    await until(place, () => page.locator(`${place} .chip`).allInnerTexts(), [facts.command, 'web-1\\u{202e}']);
    assert.equal(await page.locator(place).innerText(), `Run ${facts.command} on web-1\\u{202e}?`);
    const fonts = await page.locator(place).evaluate(all => [all, ...all.querySelectorAll('.chip')].map(one => getComputedStyle(one).fontFamily));
    assert.deepEqual(fonts.map(font => font.includes('monospace')), [false, true, true]);
    if (place.startsWith('#rows')) await tab.rows().first().click();
  }
  assert.equal(await page.title(), `(1) Run “${facts.command}” on “web-1\\u{202e}”? · holdpoint`);
  await page.goto(`${facts.server}/#/history`);
  await until('the title', () => page.title(), 'holdpoint');
}
