import { useEffect, useRef, useState } from 'react';
import { Chat, useChat } from '@ai-sdk/react';
import { DefaultChatTransport, isToolUIPart } from 'ai';
import { withStored } from '@holdpoint/page';
import { holdpoint } from './holdpoint.js';

const transport = new DefaultChatTransport(holdpoint.transport);

// The messages of a thread, kept true: by the streams of this page, and by the events of the thread, which tell what
// other tabs, approvers and deadlines do.
export function useConversation({ id, messages: stored, older, onChange }) {
  const [error, setError] = useState();
  const [live, setLive] = useState(true);
  const [cursor, setCursor] = useState(older);
  const [chat] = useState(() => new Chat({ id: id ?? 'new', messages: stored, transport, onError: setError }));
  const { messages, setMessages, status } = useChat({ chat });
  const loads = useRef(Promise.resolve());
  const missed = useRef(false);
  const idle = () => chat.status === 'ready' || chat.status === 'error';
  const busy = status === 'submitted' || status === 'streaming';

  // One after the other: an older answer must not replace a newer one.
  const load = () => (loads.current = loads.current.catch(() => {}).then(loadNow));

  async function loadNow() {
    let { results } = await holdpoint.messages(id);
    const last = chat.lastMessage;
    if (idle() && last?.role === 'assistant' && !results.some(message => message.id === last.id)) {
      // The list leaves a message out while a turn writes it.
      await chat.resumeStream();
      ({ results } = await holdpoint.messages(id));
    }
    onChange();
    if (idle()) setMessages(now => withStored(now, results));
    else missed.current = true;
  }

  // Shows what is stored, and with `attach` reads the turn that is in progress.
  async function sync({ attach = false } = {}) {
    // The stream of this page comes first. What happens beside it is looked up after it.
    if (!idle()) missed.current = true;
    else {
      if (attach) await chat.resumeStream();
      await load();
    }
  }

  useEffect(() => {
    if (!id || !idle() || !missed.current) return;
    missed.current = false;
    sync().catch(setError);
  }, [status]);

  useEffect(() => {
    if (!id) return;
    return holdpoint.subscribe(id, {
      onError(error) {
        console.warn(error);
        setLive(false);
        sync({ attach: chat.status === 'ready' }).catch(setError);
      },
      async onEvents(events) {
        setLive(true);
        const began = events.some(({ type }) => type === 'run.started' || type === 'run.resumed');
        // A request of the chat would clear the error that the page shows.
        await sync({ attach: chat.status === 'ready' && (events.length === 0 || began) });
      },
    });
  }, [id]);

  // Without a text, the server continues the conversation as it is stored.
  async function send(text) {
    setError();
    await chat.sendMessage(text === undefined ? undefined : { text });
  }

  async function stop() {
    try {
      await holdpoint.cancel(id);
      await sync();
    } catch (error) {
      setError(error);
    }
  }

  async function showOlder() {
    try {
      const { results, next_cursor } = await holdpoint.messages(id, { cursor });
      setCursor(next_cursor);
      setMessages(now => [...results, ...now]);
    } catch (error) {
      setError(error);
    }
  }

  // After a decision: continues the run if its last call is decided.
  async function resume() {
    try {
      await sync();
      if (idle() && isUnanswered(chat.messages)) await send();
    } catch (error) {
      setError(error);
    }
  }

  return { messages, busy, error, live, send, stop, resume, older: cursor && showOlder };
}

// Whether the model has yet to answer: a message of the user, or calls of which none waits.
export function isUnanswered(messages) {
  const last = messages.at(-1);
  if (!last || last.role === 'user') return Boolean(last);
  const step = last.parts.slice(last.parts.findLastIndex(part => part.type === 'step-start') + 1);
  const calls = step.filter(isToolUIPart);
  return calls.length > 0 && calls.every(part => part.state !== 'approval-requested');
}
