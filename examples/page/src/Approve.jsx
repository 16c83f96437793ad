import { useEffect, useState } from 'react';
import { PARTS } from './words.js';

const GUARD = 500;

// Approves what was read. Until then it says what is not, and goes there.
export function Approve({ hold, unread, disabled, onApprove, children }) {
  // The second press of two must not approve what the first one brought into view.
  const [pressed, setPressed] = useState(0);
  useEffect(() => {
    const timer = setTimeout(() => setPressed(0), GUARD);
    return () => clearTimeout(timer);
  }, [pressed]);

  function readOn() {
    setPressed(pressed + 1);
    goToUnread(hold, unread);
  }

  if (unread.length > 0) {
    return <button key="read" type="button" onClick={readOn}>Read on: {unread.map(part => PARTS[part] ?? part).join(', ')}</button>;
  }
  return (
    <button key="approve" type="button" className="yes" disabled={disabled || pressed > 0} onClick={onApprove}>
      {children}
    </button>
  );
}

function goToUnread({ toolCallId }, [part]) {
  const section = document.querySelector(`#call-${toolCallId} [data-part=${part}]`);
  const [cut, unit] = ['.cut', '.unit:not([data-seen])'].map(place => section.querySelector(place));
  (cut ?? unit ?? section).scrollIntoView({ block: cut ? 'center' : 'start' });
  (cut ?? section).focus({ preventScroll: true });
}
