// An MCP server over HTTP, at the port of its argument, whose one tool answers with the text of its input `result`, as a body
// of JSON or, with `events`, as an event.

import { createServer } from 'node:http';

const schema = { type: 'object', properties: { result: { type: 'string' }, events: { type: 'boolean' } } };
const results = {
  initialize: { protocolVersion: '2025-06-18', capabilities: { tools: {} }, serverInfo: { name: 'exact', version: '1' } },
  'tools/list': { tools: [{ name: 'act', description: 'Repeats.', inputSchema: schema }] },
};
const unknown = { error: { code: -32601, message: 'no such method' } };

createServer(async (request, response) => {
  if (request.method !== 'POST') return response.writeHead(405).end();
  let text = '';
  for await (const piece of request) text += piece;
  const { id, method, params } = JSON.parse(text);
  if (id === undefined) return response.writeHead(202).end();
  const answer = (fields) => JSON.stringify({ jsonrpc: '2.0', id, ...fields });
  const json = { 'content-type': 'application/json' };
  if (method !== 'tools/call') {
    return response.writeHead(200, json).end(answer(results[method] ? { result: results[method] } : unknown));
  }
  const { result, events } = params.arguments;
  const called = `{"jsonrpc":"2.0","id":${id},"result":${result}}`;
  if (!events) return response.writeHead(200, json).end(called);
  return response.writeHead(200, { 'content-type': 'text/event-stream' }).end(`data: ${called}\n\n`);
}).listen(Number(process.argv[2]), '127.0.0.1');
