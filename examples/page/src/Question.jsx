import { useEffect, useId, useRef, useState } from 'react';
import { errorText, missingParts, visible } from '@holdpoint/page';
import { Approve } from './Approve.jsx';
import { EditForm } from './EditForm.jsx';

// Approve, deny with a reason, or edit. Nothing here has the focus by itself, and Enter in a field never approves. `isAsked` and
// `isEditable` are whether this user may approve what the card has, as it is or edited, and `shown` are the parts that the person has seen.
export function Question({ hold, answer, isAsked, isEditable, isMasked, shown, onDecide }) {
  const [open, setOpen] = useState('');
  const [remember, setRemember] = useState(false);
  const [note, setNote] = useState('');
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

  function approve() {
    decide({ approved: true, ...(note.trim() && { reason: note.trim() }), ...(remember && { remember: { inputs: 'any' } }) });
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
    // The form shows the inputs, and their preview.
    const shownByForm = [...shown, 'inputs', 'preview'];
    return (
      <EditForm hold={hold} answer={answer} unread={missingParts(hold, shownByForm)} onEdit={onDecide} onBack={() => setOpen('')} />
    );
  }
  return (
    <>
      {isAsked && hold.canRemember && (
        <label className="check">
          <input type="checkbox" checked={remember} onChange={event => setRemember(event.target.checked)} />
          Also approve every later call of {visible(hold.title)} in this conversation, with any inputs, until it is revoked. Calls that
          wait now keep waiting.
        </label>
      )}
      {isAsked && <Note value={note} onChange={setNote} />}
      {hold.cannotApprove && <p className="warning">{visible(hold.cannotApprove.message)}</p>}
      {!isAsked && hold.canEdit && !hold.cannotApprove && (
        <p className="warning">
          {isMasked ? 'Reveal the secret inputs before an approval.' : 'This page does not show all of this call. Another page has to approve it.'}
        </p>
      )}
      <div className="buttons" ref={buttons} aria-busy={busy}>
        {isAsked && (
          <Approve hold={hold} unread={missingParts(hold, shown)} disabled={busy || answer?.counted} onApprove={approve}>
            {remember ? 'Approve, and later calls too' : 'Approve'}
          </Approve>
        )}
        <button type="button" name="deny" className="no" disabled={busy} onClick={() => setOpen('deny')}>Deny</button>
        {isEditable && (
          <button type="button" name="edit" disabled={busy || answer?.counted} onClick={() => setOpen('edit')}>Edit</button>
        )}
      </div>
      {error}
    </>
  );
}

function Note({ value, onChange }) {
  const id = useId();
  return (
    <details>
      <summary>Add a note</summary>
      <div className="field">
        <label htmlFor={id}>Note (kept with the approval)</label>
        <input id={id} autoComplete="off" maxLength={2000} value={value} onChange={event => onChange(event.target.value)} />
      </div>
    </details>
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
