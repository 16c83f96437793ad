import { useEffect, useId, useRef, useState } from 'react';
import { errorText, visible } from '@holdpoint/page';
import { EditForm } from './EditForm.jsx';

// Approve, deny with a reason, or edit. Nothing here has the focus by itself, and Enter in a field never approves.
export function Question({ hold, answer, onDecide }) {
  const [open, setOpen] = useState('');
  const [remember, setRemember] = useState(false);
  const buttons = useRef();
  const from = useRef('');
  const busy = Boolean(answer?.busy);

  // Back to the button that opened the form.
  useEffect(() => {
    if (!open && from.current) buttons.current?.querySelector(`[name=${from.current}]`)?.focus();
    from.current = open;
  }, [open]);

  function decide(answer) {
    // The buttons go away, and the focus should not be lost with them.
    document.getElementById(`call-${hold.toolCallId}`).focus();
    void onDecide(answer);
  }

  const error = answer?.error && <p role="alert">{errorText(answer.error)}</p>;
  if (open === 'deny') {
    return (
      <>
        <Denial busy={busy} onDeny={decide} onBack={() => setOpen('')} />
        {error}
      </>
    );
  }
  if (open === 'edit') {
    return <EditForm hold={hold} answer={answer} onEdit={onDecide} onBack={() => setOpen('')} />;
  }
  return (
    <>
      {hold.canRemember && (
        <label className="check">
          <input type="checkbox" checked={remember} onChange={event => setRemember(event.target.checked)} />
          For this conversation: approve this and every other call of {visible(hold.title)} without asking
        </label>
      )}
      <div className="buttons" ref={buttons} aria-busy={busy}>
        {hold.canEdit && (
          <button
            type="button"
            className="yes"
            disabled={busy || answer?.counted}
            onClick={() => decide({ approved: true, ...(remember && { remember: 'session' }) })}
          >
            {remember ? 'Approve for this conversation' : 'Approve'}
          </button>
        )}
        <button type="button" name="deny" className="no" disabled={busy} onClick={() => setOpen('deny')}>Deny</button>
        {hold.canEdit && (
          <button type="button" name="edit" disabled={busy || answer?.counted} onClick={() => setOpen('edit')}>Edit</button>
        )}
      </div>
      {error}
    </>
  );
}

function Denial({ busy, onDeny, onBack }) {
  const id = useId();
  function submit(event) {
    event.preventDefault();
    const reason = new FormData(event.currentTarget).get('reason').trim();
    onDeny(reason ? { approved: false, reason } : { approved: false });
  }
  return (
    <form className="denial" onSubmit={submit} onKeyDown={event => event.key === 'Escape' && onBack()}>
      <label htmlFor={id}>Reason for denying (optional, the model is told)</label>
      <input id={id} name="reason" autoComplete="off" maxLength={2000} autoFocus />
      <div className="buttons">
        <button className="no" disabled={busy}>Deny</button>
        <button type="button" onClick={onBack}>Back</button>
      </div>
    </form>
  );
}
