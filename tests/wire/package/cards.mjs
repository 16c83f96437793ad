// Tests of the functions of `@holdpoint/page` about cards and texts. The arguments are the package's module, and the name of
// a test. What is made by chance depends on a seed, which a failure names.
import assert from 'node:assert/strict';
import fs from 'node:fs';
import path from 'node:path';
import { pathToFileURL } from 'node:url';

const [module, name] = process.argv.slice(2);
const page = await import(pathToFileURL(module));
const table = JSON.parse(fs.readFileSync(path.join(import.meta.dirname, '../../characters.json')));

/** A function that gives whole numbers below its argument by chance. */
function chances(seed) {
  let state = seed + 1;
  return below => {
    state = Math.imul(state ^ (state >>> 15), 0x2c1b3c6d) + 0x9e3779b9;
    return (Math.imul(state ^ (state >>> 13), 0x297a2d39) >>> 3) % below;
  };
}

const marks = (text, kind) => page.pieces(text).filter(piece => piece.kind === kind);

const tests = {
  characters() {
    assert.ok(table.length > 30);
    for (const { case: what, text, hidden, mixed } of table) {
      assert.deepEqual(marks(text, 'hidden').map(({ mark }) => mark), hidden, what);
      assert.deepEqual(page.mixedScripts(text), mixed, what);
    }
  },

  texts() {
    const alphabet = [...new Set(table.flatMap(({ text }) => [...text])), '\n\n\n', ' '.repeat(20), 'word ', '.'];
    for (let seed = 0; seed < 3000; seed += 1) {
      const chance = chances(seed);
      const text = Array.from({ length: chance(seed % 10 === 0 ? 3000 : 30) }, () => alphabet[chance(alphabet.length)]).join('');
      assert.equal(page.pieces(text).map(piece => piece.text).join(''), text, `seed ${seed}`);
      const shown = page.visible(text);
      assert.equal(marks(shown, 'hidden').length, 0, `seed ${seed}`);
      assert.doesNotMatch(shown, /\n *\n *\n|\u0020{20}|[\u202e\u200b\u00a0\u3164\r\t]/, `seed ${seed}`);
      const { start, end, left } = page.excerpt(text);
      assert.ok(text.startsWith(start) && text.endsWith(end), `seed ${seed}`);
      assert.equal([...text].length, [...start].length + [...end].length + left, `seed ${seed}`);
      assert.ok([...text].length < 1000 || left > 0 || marks(text, 'run').length > 0, `seed ${seed}`);
    }
    assert.equal(page.visible(`a${'\n'.repeat(900)}b${' '.repeat(25)}c`), 'a\\u{a}×900b\\u{20}×25c');
    assert.equal(page.visible('a\n \n\nb'), 'a\\u{a}×3b');
    assert.equal(page.visible('a\n\nb'), 'a\n\nb');
    assert.deepEqual(page.excerpt(`${'a'.repeat(5000)}z`), { start: 'a'.repeat(600), end: `${'a'.repeat(399)}z`, left: 4001 });
  },

  cards() {
    const parts = ['inputs', 'secrets', 'constants', 'preview', 'definition', 'of a later server'];
    const some = chance => parts.filter(() => chance(2) === 0);
    for (let seed = 0; seed < 3000; seed += 1) {
      const chance = chances(seed);
      const hold = { input: { note: '10' }, canEdit: chance(4) > 0 };
      const there = ['inputs'];
      const add = (part, field, value) => chance(2) === 0 && (there.push(part), Object.assign(hold, { [field]: value }));
      let revealed;
      if (chance(2) === 0) {
        Object.assign(hold, { input: { note: '•••' }, inputHash: 'h', secretInputs: ['/note'] });
        // The inputs of another card are not those of this one.
        revealed = [undefined, { input: { note: 'canary' }, input_hash: 'other' }, { input: { note: 'canary' }, input_hash: 'h' }][chance(3)];
        if (revealed?.input_hash === 'h') there.push('secrets');
      }
      const isOpen = there.includes('secrets');
      add('constants', 'constants', { shop: 'berlin' });
      add('preview', 'preview', chance(2) === 0 ? { text: 'deletes all' } : { failed: 'gone' });
      add('definition', 'unacceptedDefinition', { cause: 'new', changes: [] });
      if (chance(4) === 0) hold.cannotApprove = { code: 'blocked', message: 'No.' };
      // A server of an earlier version sends no list.
      if (chance(2) === 0) hold.cardParts = some(chance);
      // Such a server has no secrets either.
      if (hold.secretInputs) hold.cardParts ??= [...new Set([...there, 'secrets'])];
      const complete = hold.cardParts ?? there;
      const shown = some(chance);
      const missing = complete.filter(part => !shown.includes(part));
      assert.deepEqual(page.completeCard(hold), complete, `seed ${seed}`);
      assert.deepEqual(page.missingParts(hold, shown), missing, `seed ${seed}`);
      assert.equal(page.mayApprove(hold, shown), hold.canEdit && !hold.cannotApprove && missing.length === 0, `seed ${seed}`);
      assert.deepEqual(page.cardSections(hold, revealed).map(({ part }) => part), there, `seed ${seed}`);
      assert.equal(JSON.stringify(page.cardSections(hold, revealed)).includes('canary'), isOpen, `seed ${seed}`);
    }
    const input = { text: '10', number: 10, word: 'ten', nothing: '', list: ['10'], quoted: '"10"' };
    const rows = page.rowsOf(input).map(({ name, text }) => [name, text]);
    assert.deepEqual(rows, [
      ['text', '"10"'], ['number', '10'], ['word', 'ten'], ['nothing', '""'], ['list', '[\n  "10"\n]'], ['quoted', '"\\"10\\""'],
    ]);
    assert.deepEqual(page.rowsOf('{"__proto__": 1}'), [{ name: '', text: '{"__proto__": 1}' }]);
    assert.deepEqual(page.rowsOf({}), [{ name: '', text: '{}' }]);
    const changes = [{ field: 'description', accepted: 'Reads.', current: 'Writes.' }, { field: 'schema', current: '{}' }];
    const { rows: changed } = page.cardSections({ input: {}, unacceptedDefinition: { cause: 'changed', changes } }).at(-1);
    assert.deepEqual(changed.map(({ text }) => text), ['Reads.', 'Writes.', 'nothing', '{}']);
  },

  answers() {
    const message = (state, hash, approval) => ({
      id: 'm', role: 'assistant',
      parts: [
        { type: 'tool-pay', toolCallId: 'c', state, approval: { id: 'c', ...approval } },
        { type: 'data-tool-hold', id: 'c', data: { toolCallId: 'c', inputHash: hash } },
      ],
    });
    for (const [approved, hash, kept] of [[true, 'one', true], [true, 'two', false], [false, 'one', true], [false, 'two', true]]) {
      const shown = [message('approval-responded', 'one', { approved })];
      const [merged] = page.withStored(shown, [message('approval-requested', hash)]);
      assert.equal(merged.parts[0].state, kept ? 'approval-responded' : 'approval-requested', `${approved} ${hash}`);
      assert.equal(merged.parts[1].data.inputHash, hash);
    }
  },
};

tests[name]();
