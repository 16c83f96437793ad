// In a small window, and at a zoom of 200 %, the call has the screen: the header and the bar are one line each.
import assert from 'node:assert/strict';

export default async function ({ open }) {
  for (const viewport of [{ width: 320, height: 640 }, { width: 640, height: 400 }]) {
    const name = `${viewport.width}×${viewport.height}`;
    const tab = await open('/', { viewport });
    const { page } = tab;
    await tab.opens('ls');
    await page.locator('#connection').getByText('Live').waitFor();
    const heightOf = async selector => (await page.locator(selector).boundingBox()).height;
    const taken = await heightOf('.top') + await heightOf('#detail .bar');
    assert.ok(taken <= viewport.height / 6, `${name}: ${taken} pixels`);
    await page.locator('#detail [data-part=inputs] .value').first().waitFor();
    const input = await page.locator('#detail [data-part=inputs] .value').first().boundingBox();
    assert.ok(input.y + input.height < viewport.height - await heightOf('#detail .bar'), `${name}: an input is in view`);
    const buttons = await page.locator('#detail .bar button:visible').evaluateAll(all => all.map(button => {
      const { left, right, top, bottom } = button.getBoundingClientRect();
      return [left >= 0 && right <= innerWidth && top >= 0 && bottom <= innerHeight, bottom - top >= 24];
    }));
    assert.deepEqual(buttons, Array(4).fill([true, true]), name);
    await tab.axe(`the card, ${name}`);
    await tab.fits(`the card, ${name}`);
    // Deny and Approve are at different ends.
    const [deny, approve] = [await tab.button('Deny…').boundingBox(), await page.locator('#detail .approve').boundingBox()];
    assert.ok(approve.x - (deny.x + deny.width) >= 24, name);
    await tab.button('More').click();
    await tab.button('Approve, and later calls too…').waitFor();
    await page.getByLabel('Note (kept on record)').waitFor();
    await tab.axe(`the open menu, ${name}`);
    await tab.fits(`the open menu, ${name}`);
    await tab.button('More').click();
    // The navigation opens, and closes with the next page.
    assert.ok(!await page.getByRole('link', { name: 'History', exact: true }).isVisible());
    await page.getByRole('button', { name: 'Menu' }).click();
    await tab.axe(`the open navigation, ${name}`);
    await tab.fits(`the open navigation, ${name}`);
    if (viewport.width === 640) {
      assert.ok(await tab.reads() > 0, 'the last of the inputs were not in view');
      await tab.presses('Approve');
      await tab.shows('Approved by local, and done.');
    }
    await page.getByRole('link', { name: 'Sessions' }).click();
    await tab.shows('Sessions');
    assert.ok(!await page.getByRole('link', { name: 'History', exact: true }).isVisible());
  }
}
