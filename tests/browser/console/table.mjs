// The hidden characters and the mixed words of the cases that all surfaces share.
import assert from 'node:assert/strict';
import fs from 'node:fs';

export default async function ({ facts, open }) {
  const cases = JSON.parse(fs.readFileSync(new URL('../../characters.json', import.meta.url), 'utf8'));
  assert.ok(cases.length > 40);
  const { page } = await open();
  const found = await page.evaluate(async ([module, texts]) => {
    const { hidden, mixed } = await import(module);
    return texts.map(text => ({ hidden: hidden(text), mixed: mixed(text).map(([word]) => word) }));
  }, [`${facts.server}/console/text/characters.js`, cases.map(({ text }) => text)]);
  assert.deepEqual(found.map((one, n) => ({ case: cases[n].case, ...one })), cases.map(({ text, ...expected }) => expected));
}
