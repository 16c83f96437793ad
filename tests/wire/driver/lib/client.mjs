// One small interface over the real client code of AI SDK 4 to 7, usable from Node.
//   4       the `useChat` hook of `@ai-sdk/react` 1.2, rendered with react-test-renderer
//   5 to 7  the `Chat` of `@ai-sdk/react` 2 to 4, with the `DefaultChatTransport` of the `ai` that belongs to it
//
// What a user does is a promise that is there once the request is over; a client may post again by itself, before or
// behind that.
import fs from 'node:fs';

const dialects = JSON.parse(fs.readFileSync(new URL('../../dialects.json', import.meta.url), 'utf8'));
export const VERSIONS = dialects.flatMap(dialect => dialect.sdks);

export const sleep = ms => new Promise(resolve => setTimeout(resolve, ms));

// `posts` says what of a conversation is posted: `all`, `last` (the last message alone), or `nothing` behind the first.
// `automatically` says when 5 to 7 post by themselves: `approvals`, `outputs`, `any` or `never`.
export function loadClient(version) {
  return version === '4' ? loadHook() : loadChat(version);
}

async function loadHook() {
  const React = (await import('react')).default;
  const renderer = (await import('react-test-renderer')).default;
  const { useChat } = await import('react4');
  const { SWRConfig } = await import('swr');
  const warn = console.error;
  console.error = (...a) => (/react-test-renderer is deprecated|act\(/.test(String(a[0])) ? undefined : warn(...a));
  return options => hook({ React, renderer, useChat, SWRConfig }, options);
}

async function hook({ React, renderer, useChat, SWRConfig }, { api, headers, chatId, fetch, initialMessages, posts }) {
  let posted = 0;
  const prepare = {
    // The first message has to say something.
    nothing: () => (posted++ ? {} : undefined),
    last: ({ id, messages }) => ({ id, message: messages.at(-1) }),
  };
  const finishes = [];
  const cell = {};
  function Probe() {
    cell.chat = useChat({
      api, id: chatId, headers, fetch, initialMessages,
      experimental_prepareRequestBody: prepare[posts],
      onFinish: (_message, { usage, finishReason }) => finishes.push({ usage, finishReason }),
    });
    return null;
  }
  let root;
  // What the hook remembers of a chat goes with the page.
  const page = React.createElement(SWRConfig, { value: { provider: () => new Map() } }, React.createElement(Probe));
  renderer.act(() => { root = renderer.create(page); });
  globalThis.IS_REACT_ACT_ENVIRONMENT = false;
  await sleep(5);
  return {
    finishes,
    get messages() { return cell.chat.messages; },
    get status() { return cell.chat.status; },
    get error() { return cell.chat.error; },
    get data() { return cell.chat.data ?? []; },
    invalid: async () => null,
    send: text => cell.chat.append({ role: 'user', content: text }),
    regenerate: () => cell.chat.reload(),
    resume: () => cell.chat.experimental_resume(),
    stop: async () => cell.chat.stop(),
    give: async (toolCallId, output) => cell.chat.addToolResult({ toolCallId, result: output }),
    close: () => root.unmount(),
  };
}

async function loadChat(version) {
  const { Chat } = await import(`react${version}`);
  const sdk = await import(`ai${version}`);
  return options => chat(Chat, sdk, options);
}

function chat(Chat, sdk, { api, headers, chatId, fetch, initialMessages, posts, automatically }) {
  const prepare = {
    last: ({ id, messages, trigger, messageId }) => ({ body: { id, message: messages.at(-1), trigger, messageId } }),
  };
  const transport = new sdk.DefaultChatTransport({ api, headers, fetch, prepareSendMessagesRequest: prepare[posts] });
  const when = {
    approvals: sdk.lastAssistantMessageIsCompleteWithApprovalResponses,
    outputs: sdk.lastAssistantMessageIsCompleteWithToolCalls,
    any: ({ messages }) => messages.some(m => m.parts.some(part => part.state === 'approval-responded')),
  };
  const finishes = [];
  const chat = new Chat({
    id: chatId, transport, messages: initialMessages,
    sendAutomaticallyWhen: when[automatically],
    onFinish: ({ isAbort, isDisconnect, isError, finishReason }) => finishes.push({ isAbort, isDisconnect, isError, finishReason }),
  });
  return {
    finishes,
    get messages() { return chat.messages; },
    set messages(messages) { chat.messages = messages; },
    get status() { return chat.status; },
    get error() { return chat.error; },
    data: [],
    async invalid() {
      if (chat.messages.length === 0) return null;
      const checked = await sdk.safeValidateUIMessages({ messages: chat.messages });
      return checked.success ? null : checked.error.message;
    },
    send: text => chat.sendMessage({ text }),
    sendNothing: () => chat.sendMessage(),
    edit: (messageId, text) => chat.sendMessage({ text, messageId }),
    regenerate: messageId => chat.regenerate({ messageId }),
    resume: () => chat.resumeStream(),
    stop: () => chat.stop(),
    give: (toolCallId, output, tool) => chat.addToolOutput({ tool, toolCallId, output }),
    answer: (id, approved, reason) => chat.addToolApprovalResponse({ id, approved, reason }),
    close: () => {},
  };
}
