// A command behind line breaks is in view, and Approve is live only after the whole of it was in view.
import assert from 'node:assert/strict';

export default async function ({ open, until }) {
  const tab = await open('/', { viewport: { width: 1000, height: 600 } });
  const { page } = tab;
  const command = page.locator('#detail [data-part=inputs] .value').first();
  const approve = page.locator('#detail .bar .approve');
  await tab.rows().nth(2).waitFor();

  // A long text shows its beginning and its end. Approve leads to the cut, then through the text, and decides nothing.
  await tab.rows().nth(1).click();
  await approve.and(page.locator(':not([aria-disabled=true])')).waitFor();
  assert.match(await command.innerText(), /^line 0 of a log\n[^]*; rm -rf \/srv\/data$/);
  assert.match(await command.locator('.cut').innerText(), /^Cut: [\d,]+ characters in \d+ lines are not shown here\. Hash of the whole: [0-9a-f]{64}\. Show all/);
  const height = (await command.boundingBox()).height;
  assert.ok(height < 25 * 22, `${height} pixels`);
  assert.match(await approve.textContent(), /^Read on: (\d )?inputs \([\d,]+ characters\)$/);
  await tab.axe('a call that is not read');
  await approve.click();
  assert.equal(await page.evaluate(() => document.activeElement.textContent), `Show all ${facts().length} characters`);
  await page.keyboard.press('Enter');
  await until('the whole', () => command.innerText(), facts().text);
  assert.match(await approve.textContent(), /^Read on: /);
  // A jump to the end has not shown the middle.
  await page.evaluate(() => { document.querySelector('#detail .body').scrollTop = 1e6; });
  await page.locator('#detail .trail li').first().waitFor();
  assert.match(await approve.textContent(), /^Read on: /);
  assert.ok(await tab.reads() > 1);
  assert.deepEqual(tab.decisions(), []);
  await tab.presses('Approve');
  await tab.shows('Approved by local, and done.');

  // A short text behind 900 line breaks is on the screen.
  await tab.rows().nth(2).click();
  await until('the command', () => command.innerText(), 'ls -la /var/log↵ ×900\n; rm -rf /srv/data');
  assert.equal(await command.getByRole('img', { name: '900 line breaks' }).count(), 1);
  assert.ok((await command.boundingBox()).height < 100);
  await tab.presses('Approve');
  await tab.shows('Approved by local, and done.');

  // Of many values the first and the last are shown. A screen reader gets to a button that says that the inputs are read.
  await tab.rows().nth(0).click();
  await until('the values', () => page.locator('#detail [data-part=inputs] .value').count(), 100);
  const read = page.getByRole('button', { name: 'I have read the inputs' });
  await read.focus();
  assert.ok((await read.boundingBox()).height >= 24);
  await page.keyboard.press('Enter');
  assert.match(await approve.textContent(), /^Read on: /, 'what is cut is not read');
  await tab.button('Show all 502 values').click();
  assert.match(await approve.textContent(), /^Read on: \d{3} inputs/);
  await read.focus();
  await page.keyboard.press('Enter');
  await page.locator('#detail .bar').getByText('Approve', { exact: true }).waitFor();
  await tab.axe('a long call');
  await tab.denies('No.');
  await tab.shows('Denied by local. It did not run.');
}

function facts() {
  const text = `${Array.from({ length: 100 }, (_, n) => `line ${n} of a log`).join('\n')}\n; rm -rf /srv/data`;
  return { text, length: text.length.toLocaleString('en') };
}
