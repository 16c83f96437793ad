import { useEffect, useRef, useState } from 'react';
import { isToolUIPart } from 'ai';
import { lateness, questionOf, statusText } from './words.js';

// Announces changes to a screen reader: a call that waits, the end of a call, and a complete answer.
export function Announcer({ messages, held, answers, busy }) {
  const [announced, setAnnounced] = useState([]);
  const known = useRef();

  useEffect(() => {
    const now = new Map([...callsOf(messages, held, answers), ...(busy ? [] : textsOf(messages))]);
    const before = known.current ?? now;
    const changed = [...now].filter(([id, text]) => text && before.get(id) !== text).map(([, text]) => text);
    known.current = new Map([...before, ...now]);
    if (changed.length > 0) setAnnounced(changed);
  }, [messages, answers, busy]);

  return (
    <div className="unseen" aria-live="polite">
      {announced.map((text, index) => <p key={index}>{text}</p>)}
    </div>
  );
}

function* callsOf(messages, held, answers) {
  for (const part of messages.flatMap(message => message.parts).filter(isToolUIPart)) {
    const { hold, decision } = held.get(part.toolCallId) ?? {};
    if (!hold) continue;
    const late = answers[part.toolCallId]?.late;
    yield [part.toolCallId, `${questionOf(hold)} ${statusText(part, hold, decision)}${late ? ` ${lateness(late, hold)}` : ''}`];
  }
}

function* textsOf(messages) {
  const last = messages.at(-1);
  if (last?.role !== 'assistant') return;
  // As it is shown: without the marks of Markdown.
  const shown = document.getElementById(`message-${last.id}`)?.querySelectorAll('.markdown') ?? [];
  for (const [index, { innerText }] of [...shown].entries()) yield [`${last.id} ${index}`, innerText];
}
