// The parts of a complete card, as the card and the dialog for several calls draw them.
import { definition } from '../views/definitions.js';
import { difference, text } from '../text/json.js';
import { preview } from './preview.js';
import { secrets } from './secrets.js';
import { el } from '../text/text.js';
import { changes, stored, values } from '../text/values.js';
import { cutsOf, isRead, read, unread, watch } from '../view.js';

const WORDS = { inputs: 'inputs', secrets: 'secret inputs', constants: 'inputs of the operator', preview: 'preview', definition: 'definition of the tool' };

/**
 * The parts of a call, each drawn once for the same facts, so that what a person has opened and seen stays. `level` is the
 * element of their headings, and `reveal` opens the secret inputs, where that is possible.
 */
export function parts(level = 'h3', reveal = undefined) {
  const drawn = new Map();
  const one = (name, source, contents, key = name) => {
    const facts = JSON.stringify(source);
    if (drawn.get(key)?.facts !== facts) drawn.set(key, { facts, element: section(name, contents(heading => el(level, {}, heading))) });
    return drawn.get(key).element;
  };
  const self = {
    /** The elements of the parts, in the order of a card. */
    draw(item) {
      const now = {
        inputs: one('inputs', [item.unreadable, item.input, item.validated_inputs, item.input_hash], heading => inputs(item, heading)),
        secrets: item.secret_inputs && one('secrets', [item.secret_inputs, item.revealed], heading => secrets(item, heading, reveal)),
        constants: item.constants && one('constants', item.constants, heading => [heading('Inputs that the operator sets'), values(item.constants)]),
        preview: shownPreview(item) && one('preview', shownPreview(item), heading => [heading('Preview'), preview(shownPreview(item))]),
        definition: item.unaccepted_definition && one('definition', item.unaccepted_definition,
          heading => [heading('What the server says about the tool'), definition(item.unaccepted_definition)]),
      };
      return self.keep(now);
    },
    /** The same for an edit that is reviewed: its changes in place of the inputs, and its own preview. */
    drawEdit(item, { inputs: edited, preview: said }) {
      return self.keep({ ...self.draw(item),
        inputs: one('inputs', edited, heading => [heading('Your changes'), changes(difference(text(item.input), text(edited)))], 'edited inputs'),
        preview: said && one('preview', said, heading => [heading('Preview of your changes'), preview(said)], 'preview of the edit') });
    },
    keep(now) {
      self.now = Object.fromEntries(Object.entries(now).filter(([, element]) => element));
      return self.now;
    },
    /** The names of the parts that are shown whole; with `mustBeRead` only those that were in view. */
    shown: mustBeRead => Object.entries(self.now).filter(([, element]) => cutsOf(element).length === 0 && (!mustBeRead || isRead(element))).map(([name]) => name),
    now: {},
  };
  return self;
}

const shownPreview = item => item.validated_preview ?? item.preview;

function section(name, contents) {
  const element = el('div', { className: 'part', tabIndex: -1, role: 'group', 'aria-label': WORDS[name] }, contents);
  element.dataset.part = name;
  watch(element);
  const button = el('button', { type: 'button', className: 'unseen read', on: { click: () => read(element) } }, `I have read the ${WORDS[name]}`);
  element.append(button);
  return element;
}

function inputs(item, heading) {
  if (item.unreadable) return [heading('Inputs'), el('p', { className: 'error' }, 'The stored inputs cannot be read. The call can only be denied.')];
  const { input, validated_inputs: edited, input_hash: hash } = item;
  if (!edited) return [heading('Inputs'), values(input, hash), stored('Stored JSON', input, hash)];
  return [
    heading('Inputs that a person set'), values(edited, item.decision?.input_hash), stored('Stored JSON', edited),
    heading('Changes of the proposal'), changes(difference(text(input), text(edited))),
  ];
}

/**
 * What is left to read of these parts, in words, and the first place of it: an unseen text, or a cut with its button. A part that
 * is not drawn has no place.
 */
export function left(names, { now }) {
  let place = null;
  const words = names.map(name => {
    const element = now[name];
    if (!element) return `${WORDS[name] ?? name}, which this page cannot show`;
    const { texts, characters, first } = unread(element);
    const cuts = cutsOf(element);
    place ??= first ?? cuts[0];
    const isMany = /^(inputs|constants)$/.test(name) && texts > 1;
    return { words: isMany ? `${texts} ${WORDS[name]}` : WORDS[name], cut: cuts.reduce((sum, note) => sum + Number(note.dataset.left), characters) };
  });
  const characters = words.reduce((sum, { cut = 0 }) => sum + cut, 0);
  const list = words.map(entry => entry.words ?? entry).join(', ');
  return { words: characters > 0 ? `${list} (${characters.toLocaleString('en')} characters)` : list, place };
}
