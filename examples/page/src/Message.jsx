import { isReasoningUIPart, isTextUIPart, isToolUIPart } from 'ai';
import { Call, HeldCall } from './Call.jsx';
import { Link, Markdown } from './Markdown.jsx';

export function Message({ message, ...calls }) {
  return (
    <article id={`message-${message.id}`} className={message.role} aria-label={message.role === 'user' ? 'You' : 'Model'}>
      {message.parts.map((part, index) => <Part key={index} part={part} role={message.role} {...calls} />)}
    </article>
  );
}

function Part({ part, role, held, answers, readOf, onRead, onDecide }) {
  if (isTextUIPart(part)) {
    return role === 'user' ? <p className="text" dir="auto">{part.text}</p> : <Markdown text={part.text} />;
  }
  if (isReasoningUIPart(part)) {
    return (
      <details>
        <summary>What the model thought</summary>
        <p className="text" dir="auto">{part.text}</p>
      </details>
    );
  }
  if (part.type === 'source-url') return <Link href={part.url}>{part.title ?? part.url}</Link>;
  if (part.type === 'file') return <p>A file: {part.filename ?? part.mediaType}</p>;
  if (!isToolUIPart(part)) return null;
  const call = held.get(part.toolCallId);
  if (!call) return <Call part={part} />;
  const read = readOf(call.hold);
  return <HeldCall part={part} {...call} answer={answers[part.toolCallId]} read={read} onRead={onRead} onDecide={onDecide} />;
}
