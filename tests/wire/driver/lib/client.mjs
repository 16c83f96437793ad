// One small interface over the real client code of AI SDK 4, usable from Node: the `useChat` hook of
// `@ai-sdk/react` 1.2, rendered with react-test-renderer.
import React from 'react';
import renderer from 'react-test-renderer';
import { useChat } from 'react4';

const sleep = ms => new Promise(resolve => setTimeout(resolve, ms));

export async function makeClient({ api, headers, body, chatId, fetch, initialMessages, prepareBody }) {
  let n = 0;
  const finishes = [];
  const cell = {};
  function Probe() {
    cell.chat = useChat({
      api, id: chatId, headers, body, fetch, initialMessages,
      generateId: () => `client-${++n}`,
      experimental_prepareRequestBody: prepareBody,
      onFinish: (_message, { usage, finishReason }) => finishes.push({ usage, finishReason }),
    });
    return null;
  }
  const warn = console.error;
  console.error = (...a) => (/react-test-renderer is deprecated|act\(/.test(String(a[0])) ? undefined : warn(...a));
  renderer.act(() => { renderer.create(React.createElement(Probe)); });
  globalThis.IS_REACT_ACT_ENVIRONMENT = false;
  await sleep(5);
  // React hands a change on a little later than the hook makes it.
  const settled = () => cell.chat.status === 'ready' || cell.chat.status === 'error';
  const idle = async () => {
    for (;;) {
      await sleep(10);
      if (settled()) {
        await sleep(25);
        if (settled()) return;
      }
    }
  };
  return {
    finishes,
    get messages() { return cell.chat.messages; },
    get status() { return cell.chat.status; },
    get error() { return cell.chat.error; },
    send: async text => { await cell.chat.append({ role: 'user', content: text }); await idle(); },
    sendAndStopAt: async (text, shown) => {
      const sent = cell.chat.append({ role: 'user', content: text });
      while (!cell.chat.messages.at(-1)?.content.includes(shown)) await sleep(5);
      cell.chat.stop();
      await sent;
      await idle();
    },
    regenerate: async () => { await cell.chat.reload(); await idle(); },
    resume: async () => { await cell.chat.experimental_resume(); await idle(); },
    addToolResult: async (toolCallId, result) => { cell.chat.addToolResult({ toolCallId, result }); await idle(); },
  };
}
