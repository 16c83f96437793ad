import { Marked } from './Marked.jsx';

// A text of a model or a tool.
export function Text({ label, value }) {
  if (value === undefined) return null;
  return (
    <figure>
      {label && <figcaption>{label}</figcaption>}
      <pre tabIndex={0} dir="auto"><Marked text={value} /></pre>
    </figure>
  );
}

export const Json = ({ label, value }) => <Text label={label} value={JSON.stringify(value, null, 2)} />;

// The preview of a call, or the reason why there is none.
export function Preview({ label, preview }) {
  if (!preview) return null;
  if (preview.text !== undefined) return <Text label={label} value={preview.text} />;
  return <p className="error">The tool could not say what the call would do: <Marked text={preview.failed} /></p>;
}
