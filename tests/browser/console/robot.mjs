// A robot without a session opens the link of a message, presses everything that it sees, and submits every form.
import assert from 'node:assert/strict';

export default async function ({ facts, open }) {
  const at = `/#/link/${facts.link}`;
  const tab = await open(at);
  const { page } = tab;
  tab.expected.push('401');
  const gate = page.getByRole('heading', { name: 'Sign in' });
  await gate.waitFor();
  const controls = page.locator('a, button, summary, input, select');
  for (let n = 0; n < await controls.count(); n += 1) {
    await page.goto(facts.server + at);
    await page.reload();
    await gate.waitFor();
    if (await controls.nth(n).isVisible()) await controls.nth(n).click();
  }
  const forms = await page.evaluate(() => document.forms.length);
  assert.ok(forms > 1);
  for (const how of ['requestSubmit', 'submit']) {
    for (let n = 0; n < forms; n += 1) {
      await page.goto(facts.server + at);
      await page.reload();
      await gate.waitFor();
      await page.evaluate(([index, name]) => {
        const form = document.forms[index];
        for (const field of form.querySelectorAll('input')) field.value = 'x';
        form[name]();
      }, [n, how]);
      await gate.waitFor();
    }
  }
  await page.waitForLoadState('networkidle');
  const changing = tab.requests.filter(request => request.method() !== 'GET').map(request => request.url());
  assert.deepEqual(changing, [], 'requests that may change something');
  // What is after # is in no address that reaches the server or a proxy.
  const sent = tab.requests.map(request => request.url().split('#')[0]).filter(url => url.includes(facts.link));
  assert.deepEqual(sent, [], 'addresses with the token');
}
