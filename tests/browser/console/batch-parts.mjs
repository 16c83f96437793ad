// Each call of the dialog is shown as on its card, and chosen by itself.
import assert from 'node:assert/strict';

export default async function ({ open, until }) {
  const tab = await open('/', { viewport: { width: 1000, height: 600 } });
  const { page } = tab;
  await tab.rows().nth(4).waitFor();
  await page.locator('select[name=tool]').selectOption('delete_file');
  await page.locator('#batch').click();
  const dialog = page.getByRole('dialog');
  const calls = dialog.locator('.batch > li');
  await calls.nth(4).waitFor();
  // Newest first: two scripts in one word, no preview, a cut preview, and two plain ones.
  assert.deepEqual(await calls.evaluateAll(all => all.map(one => [...one.querySelectorAll('[data-part]')].map(part => part.dataset.part))),
    Array(5).fill(['inputs', 'constants', 'preview']));
  assert.deepEqual(await calls.locator('[data-part=constants] .value').allInnerTexts(), Array(5).fill('berlin'));
  assert.deepEqual(await calls.locator('h3 .chip').allInnerTexts(), ['p\u0430ypalmixed scripts: Latin, Cyrillic.txt', 'd.txt', 'c.txt', 'b.txt', 'a.txt']);
  const chosen = () => calls.getByRole('checkbox').evaluateAll(all => all.map(({ checked }) => checked));
  assert.deepEqual(await chosen(), [false, false, false, true, true]);
  await calls.nth(1).getByText('The tool could not say what the call would do: no such file').waitFor();
  await calls.nth(3).getByText('Refunds 9999.99 EUR.').waitFor();
  await tab.axe('the dialog');
  const approve = dialog.locator('.approve');
  await until('what is left', () => approve.textContent().then(text => /^Read on: 2 of 2: /.test(text)));
  await calls.nth(3).getByRole('checkbox').uncheck();
  await until('one', () => approve.textContent().then(text => /^Read on: 1 of 1: /.test(text)));
  await approve.and(page.locator(':not([aria-disabled=true])')).click();
  assert.deepEqual(tab.decisions(), []);
  // A call with a cut is not approved before the cut is opened.
  await calls.nth(2).getByRole('checkbox').check();
  await tab.reads('Approve 2 of 5', 'dialog');
  assert.equal(await calls.nth(2).locator('[data-part=preview] .cut').count(), 0);
  await calls.nth(2).getByRole('checkbox').uncheck();
  // The dialog belongs to its page.
  await page.goBack();
  await until('the dialog', () => dialog.count(), 0);
  await page.goForward();
  await page.locator('#batch').click();
  await calls.nth(3).getByRole('checkbox').uncheck();
  await tab.reads('Approve 1 of 5', 'dialog');
  await tab.presses('Approve 1 of 5');
  await dialog.getByText('1 approved.').waitFor();
  assert.deepEqual(tab.decisions().map(({ decisions }) => decisions.length), [1]);
}
