import { memo } from 'react';
import ReactMarkdown from 'react-markdown';
import remarkGfm from 'remark-gfm';

// The text of a model. HTML in it stays text. An image would be loaded from wherever the model says, with whatever the
// model puts into its address, so it is a link. The page has its own `h1`.
export const Markdown = memo(({ text }) => (
  <div className="markdown" dir="auto">
    <ReactMarkdown remarkPlugins={[remarkGfm]} components={COMPONENTS}>{text}</ReactMarkdown>
  </div>
));

const heading = Tag => ({ children }) => <Tag>{children}</Tag>;

const COMPONENTS = {
  a: ({ href, children }) => <Link href={href}>{children}</Link>,
  img: ({ src, alt }) => <Link href={src}>{alt || 'An image'}</Link>,
  input: ({ checked }) => (checked ? '☑ ' : '☐ '),
  h1: heading('h2'),
  pre: ({ children }) => <pre tabIndex={0}>{children}</pre>,
  table: ({ children }) => (
    <div className="table" role="region" aria-label="Table" tabIndex={0}>
      <table>{children}</table>
    </div>
  ),
};

// A link of a model or a source: to another site, or none at all.
export function Link({ href, children }) {
  if (!/^(https?|mailto):/i.test(href ?? '')) return <span>{children}</span>;
  return <a href={href} target="_blank" rel="noreferrer">{children}</a>;
}
