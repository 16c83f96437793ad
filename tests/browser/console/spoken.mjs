// What becomes of a call is in one live region, as the tree for a screen reader has it.
import assert from 'node:assert/strict';
import fs from 'node:fs';

// The texts of the live regions in the tree for assistive technology.
async function regions(page) {
  const session = await page.context().newCDPSession(page);
  const { nodes } = await session.send('Accessibility.getFullAXTree');
  await session.detach();
  const byId = new Map(nodes.map(node => [node.nodeId, node]));
  const textOf = node => (node.role?.value === 'StaticText' ? node.name?.value ?? '' : (node.childIds ?? []).map(id => textOf(byId.get(id))).join(''));
  return nodes.filter(node => node.role?.value === 'status' && !node.ignored).map(textOf).filter(text => text !== '');
}

export default async function ({ facts, open, until }) {
  const tab = await open();
  const { page } = tab;
  await tab.rows().nth(5).waitFor();
  const region = () => page.locator('#detail .body > [role=status]');
  const cases = [
    [() => tab.presses('Approve'), 'Approved by local, and done.'],
    [() => tab.presses('Approve'), 'Approved by local. It failed: '],
    [() => tab.presses('Approve'), 'Approved by local. The tool may have run: its outcome is unknown.'],
    [() => tab.denies('No.'), 'Denied by local. It did not run.'],
    // Another page decides.
    [async id => fetch(`${facts.server}/qa/validate_tool`, { method: 'POST', headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ toolCallId: id, isValidated: false }) }), 'Denied by local. It did not run.'],
    [async () => fs.writeFileSync(facts.expire, ''), 'Nobody decided in time. It did not run.'],
  ];
  for (const [n, [act, expected]] of cases.entries()) {
    await tab.rows().nth(n).click();
    const id = new URL(page.url()).hash.split('/').at(-1);
    await page.locator('#detail .approve:not([aria-disabled=true])').waitFor();
    // The region is there before it says anything, and stays.
    assert.equal(await region().textContent(), '');
    await region().evaluate(element => { element.isTheFirst = true; });
    await act(id);
    await until(expected, () => regions(page).then(texts => texts.some(text => text.startsWith(expected))));
    assert.ok(await region().evaluate(element => element.isTheFirst), expected);
    assert.ok(!(await regions(page)).some(text => text.startsWith('Sending')), expected);
  }
}
