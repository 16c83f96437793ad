import { useState } from 'react';

// The parts of cards that a person has read on this page. A card whose content has changed is a new one.
export function useReading() {
  const [read, setRead] = useState({});
  const keyOf = ({ toolCallId, inputHash }) => `${toolCallId} ${inputHash}`;
  const readOf = hold => read[keyOf(hold)] ?? [];

  function onRead(hold, part) {
    setRead(now => ({ ...now, [keyOf(hold)]: [...(now[keyOf(hold)] ?? []), part] }));
  }

  return { readOf, onRead };
}
