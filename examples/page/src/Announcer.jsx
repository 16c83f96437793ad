import { useEffect, useRef, useState } from 'react';
import { isToolUIPart } from 'ai';
import { lateness, questionOf, standing } from './words.js';

// Tells a screen reader what is new: a call that waits, what became of one, and an answer once it is complete.
export function Announcer({ messages, held, answers, busy }) {
  const [said, setSaid] = useState([]);
  const known = useRef();

  useEffect(() => {
    const now = new Map([...callsOf(messages, held, answers), ...(busy ? [] : textsOf(messages))]);
    const before = known.current ?? now;
    const news = [...now].filter(([id, text]) => text && before.get(id) !== text).map(([, text]) => text);
    known.current = new Map([...before, ...now]);
    if (news.length > 0) setSaid(news);
  }, [messages, answers, busy]);

  return (
    <div className="unseen" aria-live="polite">
      {said.map((text, place) => <p key={place}>{text}</p>)}
    </div>
  );
}

function* callsOf(messages, held, answers) {
  for (const part of messages.flatMap(message => message.parts).filter(isToolUIPart)) {
    const { hold, decision } = held.get(part.toolCallId) ?? {};
    if (!hold) continue;
    const late = answers[part.toolCallId]?.late;
    yield [part.toolCallId, `${questionOf(hold)} ${standing(part, hold, decision)}${late ? ` ${lateness(late, hold)}` : ''}`];
  }
}

function* textsOf(messages) {
  const last = messages.at(-1);
  if (last?.role !== 'assistant') return;
  // As it is shown: without the marks of Markdown.
  const shown = document.getElementById(`message-${last.id}`)?.querySelectorAll('.markdown') ?? [];
  for (const [place, { innerText }] of [...shown].entries()) yield [`${last.id} ${place}`, innerText];
}
