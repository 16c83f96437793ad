// The one rule of an approval: a surface offers it only if it shows everything that the hash of the call covers.

/** The parts of a complete card that a surface does not show whole, in the order of the card. */
export const missing = (cardParts, drawn) => cardParts.filter(part => !drawn.includes(part));

/** Whether a surface that shows these parts whole may offer an approval. */
export const mayApprove = (cardParts, drawn) => missing(cardParts, drawn).length === 0;

/** The parts of the complete card of a call. An older server does not list them: then they are those that the call has. */
export const partsOf = ({ card_parts: parts, constants, preview, validated_preview: edited, unaccepted_definition: definition }) =>
  parts ?? ['inputs', constants && 'constants', (preview || edited) && 'preview', definition && 'definition'].filter(Boolean);
