import { useEffect, useId, useRef, useState } from 'react';
import { errorText, visible } from '@holdpoint/page';
import { Approve } from './Approve.jsx';
import { errorsOf, fieldsOf, inputsOf } from './fields.js';
import { holdpoint } from './holdpoint.js';
import { Preview } from './Json.jsx';

// The inputs as a form, built from the schema of the tool. If the tool has previews, the page shows the preview of the
// edited inputs first, and the approval names its hash. `unread` are the parts of the card that are still to be read.
export function EditForm({ hold, answer, unread, onEdit, onBack }) {
  const [fields, setFields] = useState();
  const [previews, setPreviews] = useState(false);
  const [failed, setFailed] = useState();
  const [typed, setTyped] = useState({});
  const form = useRef();
  const busy = Boolean(answer?.busy);

  useEffect(() => {
    holdpoint.tool(hold.toolName).then(
      ({ input_schema, preview }) => {
        setPreviews(preview);
        setFields(fieldsOf(input_schema, hold.input));
      },
      setFailed,
    );
  }, []);
  useEffect(() => form.current?.querySelector('.field input, .field textarea, .field select')?.focus(), [fields !== undefined]);

  // A refusal is shown only for the fields that were sent.
  const [sent, setSent] = useState();
  // The preview of the inputs in `of`: { of, preview, hash }, or { of, error }.
  const [previewed, setPreviewed] = useState();
  const shownPreview = previewed?.of === fields ? previewed : undefined;
  const refusal = shownPreview?.error ?? (fields && sent === fields && !busy ? answer?.error : undefined);
  const errors = { ...errorsOf(refusal, fields ?? []), ...typed };
  // After a refused approval the preview may have changed.
  const mayApprove = !previews || (shownPreview?.hash !== undefined && !refusal);
  useEffect(() => {
    if (Object.keys(errors).length > 0) form.current?.querySelector('[aria-invalid=true]')?.focus();
  }, [answer?.error, previewed, typed]);
  useEffect(() => {
    if (shownPreview?.hash !== undefined) form.current?.querySelector('.preview-result')?.focus();
  }, [previewed]);

  function change(name, changed) {
    setFields(fields.map(field => (field.name === name ? { ...field, ...changed } : field)));
    setTyped({});
  }

  function approve() {
    const { text, errors } = inputsOf(fields);
    if (errors) return setTyped(errors);
    setSent(fields);
    void onEdit({ approved: true, inputText: text, ...(previews && { previewHash: shownPreview.hash }) });
  }

  async function preview() {
    const { text, errors } = inputsOf(fields);
    if (errors) return setTyped(errors);
    setSent();
    setPreviewed();
    try {
      const { preview, preview_hash } = await holdpoint.preview(hold.toolCallId, { inputText: text });
      setPreviewed({ of: fields, preview, hash: preview_hash });
    } catch (error) {
      setPreviewed({ of: fields, error });
    }
  }

  const general = refusal && !refusal.details?.errors ? refusal : failed;
  const formError = errors[''] ?? (general && errorText(general));
  return (
    <form
      ref={form}
      className="edit"
      aria-label={`Inputs of ${visible(hold.title)}`}
      onSubmit={event => event.preventDefault()}
      onKeyDown={event => event.key === 'Escape' && onBack()}
    >
      {!fields && !failed && <p className="hint">Loading the form …</p>}
      {fields?.map(field => (
        <Field key={field.name} field={field} error={field.name && errors[field.name]} onChange={changed => change(field.name, changed)} />
      ))}
      {mayApprove && shownPreview && (
        <div className="preview-result" role="group" aria-label="What the tool says" tabIndex={-1}>
          <Preview label="What the tool says that it would do with these inputs" preview={shownPreview.preview} />
        </div>
      )}
      {formError && <p role="alert">{visible(formError)}</p>}
      <div className="buttons">
        {/* Not the button of the form: Enter in a field would press it. */}
        {mayApprove ? (
          <Approve key="approve" hold={hold} unread={unread} disabled={busy || !fields} onApprove={approve}>Approve edited inputs</Approve>
        ) : (
          <button key="preview" type="button" disabled={busy || !fields} onClick={preview}>Preview edited inputs</button>
        )}
        <button type="button" onClick={onBack}>Back</button>
      </div>
    </form>
  );
}

function Field({ field, error, onChange }) {
  const { kind, label, description, required, value, sent, options } = field;
  const id = useId();
  const hidden = typeof value === 'string' && visible(value) !== value && visible(value);
  const about = [description && `${id}-about`, hidden && `${id}-hidden`, error && `${id}-error`].filter(Boolean).join(' ');
  const control = {
    id,
    disabled: !sent,
    'aria-describedby': about || undefined,
    'aria-invalid': error ? true : undefined,
    'aria-required': required || undefined,
  };
  const text = { ...control, value, autoComplete: 'off', onChange: event => onChange({ value: event.target.value }) };
  return (
    <div className="field">
      <label htmlFor={id}>{visible(label)}</label>
      {kind === 'text' && <input {...text} />}
      {kind === 'number' && <input {...text} inputMode="decimal" />}
      {(kind === 'lines' || kind === 'json') && <textarea {...text} rows={4} spellCheck={kind === 'lines'} className={kind} />}
      {kind === 'boolean' && (
        <input {...control} type="checkbox" checked={value} onChange={event => onChange({ value: event.target.checked })} />
      )}
      {kind === 'choice' && (
        <select {...text}>
          {!options.includes(value) && <option value="">Choose</option>}
          {options.map(option => <option key={option} value={option}>{visible(String(JSON.parse(option)))}</option>)}
        </select>
      )}
      {!required && (
        <label className="check">
          <input type="checkbox" checked={sent} onChange={event => onChange({ sent: event.target.checked })} />
          Include {visible(label)}
        </label>
      )}
      {description && <p id={`${id}-about`} className="hint">{visible(description)}</p>}
      {hidden && <p id={`${id}-hidden`} className="hint">With hidden characters by their numbers: {hidden}</p>}
      {error && <p id={`${id}-error`} className="error">{visible(error)}</p>}
    </div>
  );
}
