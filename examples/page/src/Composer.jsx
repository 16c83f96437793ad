import { useState } from 'react';
import { errorText } from '@holdpoint/page';

export function Composer({ busy, stoppable, autoFocus, onSend, onStop }) {
  const [text, setText] = useState('');
  const [error, setError] = useState();

  async function submit(event) {
    event.preventDefault();
    if (busy || !text.trim()) return;
    setText('');
    setError();
    try {
      await onSend(text.trim());
    } catch (error) {
      setText(text);
      setError(error);
    }
  }

  function onKeyDown(event) {
    // Enter also ends the composition of a character, in some writing systems.
    if (event.key !== 'Enter' || event.shiftKey || event.nativeEvent.isComposing) return;
    void submit(event);
  }

  return (
    <form className="composer" onSubmit={submit}>
      {error && <p role="alert">{errorText(error)}</p>}
      <textarea
        rows={1}
        aria-label="Message"
        placeholder="Ask the model"
        value={text}
        autoFocus={autoFocus}
        onChange={event => setText(event.target.value)}
        onKeyDown={onKeyDown}
      />
      <button className="primary" disabled={busy}>Send</button>
      {stoppable && <button type="button" onClick={onStop}>Stop</button>}
    </form>
  );
}
