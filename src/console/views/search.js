// The search: words in what the list knows of a call.
import { line } from '../text/json.js';

/** Whether the text is the id of a call. */
export const isId = text => /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i.test(text);

/** Whether each word of the query is somewhere in the call: in its texts, its inputs, its people or its ids. */
export function found(query, item) {
  if (!query) return true;
  const { decision } = item;
  const texts = [item.headline, item.tool_name, item.requested_by, item.thread_title, item.reason, item.preview?.text, item.result,
    decision?.by, decision?.reason, item.tool_call_id, item.run_id, item.thread_id, item.session_id,
    ...[item.input, item.validated_inputs].filter(Boolean).flatMap(leaves)];
  const all = texts.filter(Boolean).join('\n').toLowerCase();
  return query.toLowerCase().split(/\s+/).every(word => all.includes(word));
}

// The names and the values of inputs, at every depth. Texts are as people read them, without the escapes of JSON.
function leaves(value) {
  if (typeof value === 'string') return [value];
  if (typeof value !== 'object' || value === null || JSON.isRawJSON(value)) return [line(value)];
  return Object.entries(value).flatMap(([name, inner]) => [name, ...leaves(inner)]);
}
