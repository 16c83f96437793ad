// The secret inputs of a call: masked, until the person opens them. The server records that.
import { el } from '../text/text.js';
import { values } from '../text/values.js';

// The value at a JSON pointer, if there is one.
const at = (inputs, pointer) => pointer.slice(1).split('/')
  .reduce((value, key) => value?.[key.replaceAll('~1', '/').replaceAll('~0', '~')], inputs);

/**
 * The contents of the part. What is masked counts as cut, so the part is whole only after it was opened. Without `reveal` it cannot be
 * opened here.
 */
export function secrets({ secret_inputs: places, revealed }, heading, reveal) {
  if (revealed === undefined) {
    const button = reveal && el('button', { type: 'button', className: 'link', on: { click: reveal } }, 'Reveal');
    const note = el('p', { className: 'cut' }, `Masked: ${places.join(', ')}. `,
      button ? ['The server records who opens them. ', button] : 'They are opened on the card of the call.');
    note.dataset.left = 0;
    return [heading('Secret inputs'), note];
  }
  const shown = inputs => values(Object.fromEntries(places.map(place => [place, at(inputs, place)]).filter(([, value]) => value !== undefined)));
  const { input, validated_inputs: edited } = revealed;
  return [heading('Secret inputs'), shown(input), edited && [heading('Secret inputs that a person set'), shown(edited)]];
}
