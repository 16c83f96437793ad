import { useEffect, useRef, useState } from 'react';
import { excerpt, mixedScripts } from '@holdpoint/page';
import { Marked } from './Marked.jsx';
import { useSeen } from './useSeen.js';

// A part of a card: its rows, each whole or cut in the middle. `onWhole` is called once none is cut, and `onRead` once all
// of it was in view, or the person says so; a part without them is not read for a decision.
export function Section({ part, label, rows, isRead, onWhole, onRead }) {
  const [opened, setOpened] = useState([]);
  const box = useRef();
  const isWhole = rows.every(({ text }, index) => opened.includes(index) || excerpt(text).left === 0);
  useEffect(() => {
    if (isWhole) onWhole?.();
  }, [isWhole]);
  const isUnread = Boolean(onRead) && isWhole && !isRead;
  useSeen(box, isUnread, onRead);

  // The button goes away, and the focus should not be lost with it.
  function keepFocus() {
    box.current.focus({ preventScroll: true });
  }

  function open(index) {
    keepFocus();
    setOpened([...opened, index]);
  }

  function confirm() {
    keepFocus();
    onRead();
  }

  return (
    <figure ref={box} data-part={part} data-read={isRead ? '' : undefined} tabIndex={-1}>
      <figcaption>{label}</figcaption>
      <dl>
        {rows.map((row, index) => (
          <Row key={index} {...row} isOpen={opened.includes(index)} onOpen={() => open(index)} />
        ))}
      </dl>
      {/* For those who read without a view. */}
      {isUnread && <button type="button" className="on-focus" onClick={confirm}>I have read this part</button>}
    </figure>
  );
}

function Row({ name, text, isOpen, onOpen }) {
  const { start, end, left } = isOpen ? { start: text, left: 0 } : excerpt(text);
  const mixed = mixedScripts(text);
  return (
    <div>
      <dt>{name && <Marked text={name} />}</dt>
      <dd>
        <pre dir="auto"><Marked text={start} /></pre>
        {left > 0 && (
          <>
            <button type="button" className="cut" onClick={onOpen}>
              {`Show all: ${left.toLocaleString('en')} characters are left out here`}
            </button>
            <pre dir="auto"><Marked text={end} /></pre>
          </>
        )}
        {mixed.length > 0 && <p className="warning">Letters of several alphabets in <bdi>{[...new Set(mixed)].join(', ')}</bdi></p>}
      </dd>
    </div>
  );
}
