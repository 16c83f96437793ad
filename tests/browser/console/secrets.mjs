// Secret inputs: masked on the card, opened by the person, and only then approved. Several calls at once are not.
import assert from 'node:assert/strict';

export default async function ({ facts, open }) {
  const tab = await open();
  const { page } = tab;
  const shown = () => page.locator('body').innerText();
  const isHidden = async () => {
    const text = await shown();
    assert.ok(!facts.secrets.some(secret => text.includes(secret)), text);
  };
  await tab.rows().nth(1).waitFor();
  await isHidden();
  await page.locator('select[name=tool]').selectOption('login');
  await page.locator('#batch').click();
  const dialog = page.getByRole('dialog');
  await dialog.getByText('They are opened on the card of the call.').first().waitFor();
  for (const box of await dialog.getByRole('checkbox').all()) assert.ok(await box.isDisabled());
  await isHidden();
  await tab.axe('the dialog');
  await tab.button('Cancel').click();

  await tab.opens('Log');
  await tab.shows('Masked: /card/pin, /keys/0/token, /keys/1/token, /password.');
  await isHidden();
  await tab.axe('the masked card');
  // The fields of an edit begin with the masks.
  await tab.button('Edit').click();
  assert.equal(await page.getByLabel('password', { exact: true }).inputValue(), '•••');
  await tab.button('Cancel the edit').click();
  assert.match(await page.locator('#detail .approve').textContent(), /^Read on: .*secret inputs/);
  assert.equal(tab.requests.filter(request => request.url().endsWith('/reveal')).length, 0);
  await page.getByRole('button', { name: 'Reveal', exact: true }).click();
  for (const secret of facts.secrets) await tab.shows(secret);
  await tab.shows('Secret inputs read');
  await tab.axe('the opened card');
  await tab.reads();
  await tab.presses('Approve');
  await tab.shows('Approved by local, and done.');
  assert.equal(tab.requests.filter(request => request.url().endsWith('/reveal')).length, 1);
}
