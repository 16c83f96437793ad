import { useEffect, useState } from 'react';
import { useChat } from '@ai-sdk/react';
import {
  DefaultChatTransport,
  isReasoningUIPart,
  isTextUIPart,
  isToolUIPart,
  lastAssistantMessageIsCompleteWithApprovalResponses,
} from 'ai';
import { Call } from './Call.jsx';
import { messagesOf, sentence, stop } from './thread.js';

class Transport extends DefaultChatTransport {
  async reconnectToStream(options) {
    const stream = await super.reconnectToStream(options);
    if (stream === null) await this.onNothingUnderWay();
    return stream;
  }
}

export function Chat({ id, messages: stored }) {
  const [transport] = useState(() => new Transport({ api: '/qa/chat_streamed' }));
  const { messages, setMessages, status, error, sendMessage, addToolApprovalResponse } = useChat({
    id,
    messages: stored,
    transport,
    // Reads along with a turn that was under way when the page was loaded.
    resume: true,
    // Posts once every card of the last answer is decided: the decisions are in what is posted.
    sendAutomaticallyWhen: lastAssistantMessageIsCompleteWithApprovalResponses,
  });
  useEffect(() => {
    transport.onNothingUnderWay = async () => {
      // A turn that ended after the messages were loaded, and before the page asked for it, is in neither answer.
      if (messages.at(-1)?.role !== 'user') return;
      const stored = await messagesOf(id);
      // Unless the user has written on meanwhile.
      setMessages(now => (now.length === messages.length ? stored : now));
    };
  });
  const busy = status === 'submitted' || status === 'streaming';

  async function decide(message, answer) {
    await addToolApprovalResponse(answer);
    // For a card further up nothing is posted by itself.
    if (message !== messages.at(-1)) await sendMessage();
  }

  function ask(event) {
    event.preventDefault();
    const form = event.currentTarget;
    const text = new FormData(form).get('text').trim();
    if (!text) return;
    form.reset();
    sendMessage({ text });
  }

  return (
    <main>
      <header>
        <h1>holdpoint</h1>
        <a href="/">New chat</a>
      </header>
      <div role="log" aria-label="Conversation" aria-busy={busy}>
        {messages.length === 0 && !busy && (
          <p className="hint">Try: list files, write hello to notes.txt, delete notes.txt, what happened</p>
        )}
        {messages.map(message => (
          <article key={message.id} className={message.role} aria-label={message.role === 'user' ? 'You' : 'Model'}>
            {message.parts.map((part, place) => (
              <Part key={place} part={part} busy={busy} onDecide={answer => decide(message, answer)} />
            ))}
          </article>
        ))}
      </div>
      {busy && <p className="hint" role="status">The model is at work …</p>}
      {error && <p role="alert">{sentence(error)}</p>}
      {!busy && (error || isUnanswered(messages.at(-1))) && (
        // Without a message: the server continues the conversation as it is stored.
        <button onClick={() => sendMessage()}>Go on</button>
      )}
      <form onSubmit={ask}>
        <input name="text" aria-label="Message" placeholder="Ask the model" autoComplete="off" autoFocus />
        <button disabled={busy}>Send</button>
        {busy && <button type="button" onClick={() => stop(id)}>Stop</button>}
      </form>
    </main>
  );
}

function Part({ part, busy, onDecide }) {
  if (isTextUIPart(part)) return <p className="text">{part.text}</p>;
  if (isReasoningUIPart(part)) {
    return (
      <details>
        <summary>What the model thought</summary>
        <p className="text">{part.text}</p>
      </details>
    );
  }
  if (part.type === 'source-url') {
    return <a href={part.url} target="_blank" rel="noreferrer">{part.title ?? part.url}</a>;
  }
  if (isToolUIPart(part)) return <Call part={part} busy={busy} onDecide={onDecide} />;
  return null;
}

// Whether the model has not said anything to this yet: its calls were decided elsewhere, say.
function isUnanswered(last) {
  if (!last || last.role === 'user') return Boolean(last);
  const step = last.parts.slice(last.parts.findLastIndex(part => part.type === 'step-start') + 1);
  const calls = step.filter(isToolUIPart);
  return calls.length > 0 && calls.every(part => part.state !== 'approval-requested');
}
