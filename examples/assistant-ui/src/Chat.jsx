import { useState } from 'react';
import { useChat } from '@ai-sdk/react';
import { AssistantRuntimeProvider, ComposerPrimitive, MessagePrimitive, ThreadPrimitive } from '@assistant-ui/react';
import { useAISDKRuntime } from '@assistant-ui/react-ai-sdk';
import { DefaultChatTransport, lastAssistantMessageIsCompleteWithApprovalResponses } from 'ai';
import { Call } from './Call.jsx';

export function Chat({ id, messages }) {
  const [transport] = useState(() => new DefaultChatTransport({ api: '/qa/chat_streamed' }));
  const chat = useChat({
    id,
    messages,
    transport,
    // Reads the turn that was running when the page was loaded.
    resume: true,
    // Posts the answers to the cards of the last message once all of them are answered.
    sendAutomaticallyWhen: lastAssistantMessageIsCompleteWithApprovalResponses,
  });
  const runtime = useAISDKRuntime(chat);
  const busy = chat.status === 'submitted' || chat.status === 'streaming';
  return (
    <AssistantRuntimeProvider runtime={runtime}>
      <ThreadPrimitive.Root>
        <h1>holdpoint with assistant-ui</h1>
        <ThreadPrimitive.Viewport role="log" aria-label="Conversation" aria-busy={busy}>
          <ThreadPrimitive.Messages components={{ UserMessage, AssistantMessage }} />
        </ThreadPrimitive.Viewport>
        {chat.error && <p role="alert">{chat.error.message}</p>}
        <ComposerPrimitive.Root>
          <ComposerPrimitive.Input aria-label="Message" placeholder="Ask the model" autoFocus />
          <ComposerPrimitive.Send>Send</ComposerPrimitive.Send>
        </ComposerPrimitive.Root>
      </ThreadPrimitive.Root>
    </AssistantRuntimeProvider>
  );
}

const Text = ({ text }) => <p>{text}</p>;

function UserMessage() {
  return (
    <MessagePrimitive.Root>
      <MessagePrimitive.Parts components={{ Text }} />
    </MessagePrimitive.Root>
  );
}

function AssistantMessage() {
  return (
    <MessagePrimitive.Root>
      <MessagePrimitive.Parts components={{ Text, tools: { Fallback: Call } }} />
    </MessagePrimitive.Root>
  );
}
