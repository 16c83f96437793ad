import { useState } from 'react';
import { useChat } from '@ai-sdk/react';
import { AssistantRuntimeProvider, ComposerPrimitive, MessagePrimitive, ThreadPrimitive } from '@assistant-ui/react';
import { useAISDKRuntime } from '@assistant-ui/react-ai-sdk';
import { DefaultChatTransport, lastAssistantMessageIsCompleteWithApprovalResponses } from 'ai';
import { errorText, heldCalls, visible } from '@holdpoint/page';
import { Call, HeldCalls } from './Call.jsx';
import { holdpoint } from './holdpoint.js';
import { useFollow } from './useFollow.js';

export function Chat({ id, messages: stored }) {
  const [transport] = useState(() => new DefaultChatTransport(holdpoint.transport));
  const chat = useChat({ id, messages: stored, transport, sendAutomaticallyWhen: isAnswered });
  useFollow(chat);
  // A call waits for its decision, also while later messages come.
  const runtime = useAISDKRuntime(chat, { cancelPendingToolCallsOnSend: false });
  const busy = chat.status === 'submitted' || chat.status === 'streaming';
  return (
    <AssistantRuntimeProvider runtime={runtime}>
      <HeldCalls.Provider value={heldCalls(chat.messages)}>
        <ThreadPrimitive.Root asChild>
          <main>
            <h1>holdpoint with assistant-ui</h1>
            <ThreadPrimitive.Viewport role="log" aria-label="Conversation" aria-busy={busy}>
              <ThreadPrimitive.Messages components={{ UserMessage, AssistantMessage }} />
            </ThreadPrimitive.Viewport>
            {chat.error && <p role="alert">{errorText(chat.error)}</p>}
            <ComposerPrimitive.Root>
              <ComposerPrimitive.Input aria-label="Message" placeholder="Ask the model" autoFocus />
              <ComposerPrimitive.Send>Send</ComposerPrimitive.Send>
            </ComposerPrimitive.Root>
          </main>
        </ThreadPrimitive.Root>
      </HeldCalls.Provider>
    </AssistantRuntimeProvider>
  );
}

// When the page posts its answers: once all cards of the last message are answered, and at once for an older card.
function isAnswered({ messages }) {
  const calls = heldCalls(messages);
  const hasAnswer = ({ parts }) => parts.some(({ toolCallId }) => calls.get(toolCallId)?.answered);
  return lastAssistantMessageIsCompleteWithApprovalResponses({ messages }) || messages.slice(0, -1).some(hasAnswer);
}

const Text = ({ text }) => <p dir="auto">{visible(text)}</p>;

function UserMessage() {
  return (
    <MessagePrimitive.Root className="message user">
      <MessagePrimitive.Parts components={{ Text }} />
    </MessagePrimitive.Root>
  );
}

function AssistantMessage() {
  return (
    <MessagePrimitive.Root className="message">
      <MessagePrimitive.Parts components={{ Text, tools: { Fallback: Call } }} />
    </MessagePrimitive.Root>
  );
}
