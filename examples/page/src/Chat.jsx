import { useEffect, useRef } from 'react';
import { errorText, heldCalls, pendingCalls, visible } from '@holdpoint/page';
import { Announcer } from './Announcer.jsx';
import { Composer } from './Composer.jsx';
import { Message } from './Message.jsx';
import { Badge } from './Threads.jsx';
import { isUnanswered, useConversation } from './useConversation.js';
import { useDecisions } from './useDecisions.js';
import { useFollow } from './useFollow.js';
import { useReading } from './useReading.js';
import { Waiting } from './Waiting.jsx';

// One thread. A new chat has no id yet: `onStart` makes the thread, and shows it with the text as `first`.
export function Chat({ id, title, first, focus, onStart, ...stored }) {
  const { messages, busy, error, live, send, stop, resume, older } = useConversation({ id, ...stored });
  const { answers, decide, approveAll, deciding } = useDecisions(resume);
  const { readOf, onRead } = useReading();
  const { element: log, atEnd, follow } = useFollow();
  const heading = useRef();
  const began = useRef(false);
  const held = heldCalls(messages);
  const waiting = pendingCalls(messages);

  useEffect(() => {
    if (first && !began.current) void send(first);
    began.current = true;
  }, []);
  useEffect(() => {
    if (focus === 'title') heading.current.focus();
  }, []);
  useEffect(() => {
    const count = waiting.length > 0 ? `(${waiting.length}) ` : '';
    document.title = `${count}${visible(title)} – holdpoint`;
  });

  async function sendMessage(text) {
    follow();
    await (id ? send(text) : onStart(text));
  }

  function approveShown(holds) {
    // The button goes away, and the focus should not be lost with it.
    log.current.focus();
    void approveAll(holds);
  }

  const unanswered = !busy && !deciding && isUnanswered(messages);
  const running = messages.at(-1)?.parts.some(part => part.state === 'approval-responded' && part.approval.approved);
  return (
    <main>
      <header>
        <h1 ref={heading} tabIndex={-1}>{visible(title)}</h1>
        <Badge count={waiting.length} />
      </header>
      {/* The announcer tells what is new: streamed text would be read piece by piece. */}
      <div className="log" role="log" aria-live="off" aria-label="Conversation" aria-busy={busy} tabIndex={0} ref={log}>
        <div className="messages">
          {older && <button type="button" onClick={older}>Older messages</button>}
          {messages.length === 0 && !busy && (
            <p className="hint">Try: list files, write hello to notes.txt, delete notes.txt, what happened</p>
          )}
          {messages.map(message => (
            <Message
              key={message.id}
              message={message}
              held={held}
              answers={answers}
              readOf={readOf}
              onRead={onRead}
              onDecide={decide}
            />
          ))}
        </div>
      </div>
      <div className="foot">
        {!atEnd && <button type="button" className="to-end" onClick={follow}>To the end</button>}
        {!live && <p className="hint" role="status">Live updates are interrupted. The page tries again by itself.</p>}
        {busy && <p className="hint" role="status">The model is at work …</p>}
        {error && <p role="alert">{errorText(error)}</p>}
        {(unanswered || (error && !busy && messages.length > 0)) && (
          // Late, because the server or another tab may be about to continue.
          <button type="button" className={error ? undefined : 'late'} onClick={() => send()}>Go on</button>
        )}
        <Waiting waiting={waiting} answers={answers} readOf={readOf} onApproveAll={approveShown} />
        <Composer busy={busy} stoppable={busy || running} autoFocus={focus === 'composer'} onSend={sendMessage} onStop={stop} />
      </div>
      <Announcer messages={messages} held={held} answers={answers} busy={busy} />
    </main>
  );
}
