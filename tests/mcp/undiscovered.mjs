// An MCP server of an earlier version that answers each request that it does not know with an empty result or, with an
// argument, not at all, except for the method that the argument names. With
// `ends` it ends at such a request.

import { createInterface } from 'node:readline';

const tool = { name: 'say', description: 'Says it.', inputSchema: { type: 'object', properties: { note: { type: 'string' } } } };
const results = {
  initialize: ({ protocolVersion }) => ({ protocolVersion, capabilities: { tools: {} }, serverInfo: { name: 'old', version: '1.0.0' } }),
  'tools/list': () => ({ tools: [tool] }),
  'tools/call': ({ arguments: { note } }) => ({ content: [{ type: 'text', text: `said ${note}` }] }),
};

createInterface({ input: process.stdin }).on('line', (line) => {
  const { id, method, params } = JSON.parse(line);
  if (id === undefined) return;
  if (process.argv[2] === 'ends' && !results[method]) process.exit(1);
  if (process.argv[2] && !results[method] && method !== process.argv[2]) return;
  const result = (results[method] ?? (() => ({})))(params);
  process.stdout.write(`${JSON.stringify({ jsonrpc: '2.0', id, result })}\n`);
});
