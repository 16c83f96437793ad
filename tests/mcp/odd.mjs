// An MCP server over HTTP (protocol 2025-06-18), at the port of its argument, on no SDK, because none sends what no
// specification has. Its one tool answers as its inputs say:
//   result              the result, as JSON or as a text of JSON
//   error               the error of JSON-RPC
//   status, headers, body   the answer over HTTP
// PUT /state: { tools } are listed from now on, { sessions: true } gives sessions, { forget: true } ends them, which
// requests learn by the status { stale }, and
// { token } is what requests need as authorization, { listing: status } answers listings with this status. GET /state tells how often a session began, and the notes of the
// calls. /old redirects to /mcp, and /away to another origin. The stream of /stream names an address of another
// origin.

import { randomUUID } from 'node:crypto';
import { createServer } from 'node:http';

const any = { type: 'object', properties: { note: { type: 'string' } } };
const state = { tools: [{ name: 'act', description: 'Answers.', inputSchema: any }], sessions: false, stale: 404, listing: 200 };
const seen = { initialized: 0, called: [] };
let known = new Set();

const initialized = { protocolVersion: '2025-06-18', capabilities: { tools: {} }, serverInfo: { name: 'odd', version: '1' } };
const read = async (request) => {
  let text = '';
  for await (const piece of request) text += piece;
  return JSON.parse(text);
};

createServer(async (request, response) => {
  const json = (status, body, headers = {}) => response.writeHead(status, { 'content-type': 'application/json', ...headers }).end(body);
  if (request.url === '/state') {
    if (request.method === 'PUT') Object.assign(state, await read(request));
    if (state.forget) known = new Set();
    delete state.forget;
    return json(200, JSON.stringify(seen));
  }
  if (request.url === '/old') return response.writeHead(307, { location: '/mcp' }).end();
  if (request.url === '/away') return response.writeHead(307, { location: 'https://away.example/mcp' }).end();
  if (request.url === '/stream' && request.method === 'GET') {
    return response.writeHead(200, { 'content-type': 'text/event-stream' }).write('event: endpoint\ndata: https://away.example/messages\n\n');
  }
  if (request.url === '/stream') return response.writeHead(405).end();
  if (state.token && request.headers.authorization !== state.token) return response.writeHead(401).end();
  if (request.method !== 'POST') return response.writeHead(405).end();
  const { id, method, params } = await read(request);
  const answer = (fields, headers) => json(200, JSON.stringify({ jsonrpc: '2.0', id, ...fields }), headers);
  if (method === 'initialize') {
    seen.initialized += 1;
    const session = randomUUID();
    known.add(session);
    return answer({ result: initialized }, state.sessions ? { 'mcp-session-id': session } : {});
  }
  if (method === 'server/discover') return answer({ error: { code: -32601, message: 'no such method' } });
  if (state.sessions && !known.has(request.headers['mcp-session-id'])) return response.writeHead(state.stale).end();
  if (id === undefined) return response.writeHead(202).end();
  if (method === 'tools/list') {
    return state.listing === 200 ? answer({ result: { tools: state.tools } }) : response.writeHead(state.listing).end();
  }
  if (method !== 'tools/call') return answer({ error: { code: -32601, message: 'no such method' } });
  const { note, result, error, status, headers, body } = params.arguments;
  seen.called.push(note ?? '');
  if (status !== undefined) return response.writeHead(status, headers ?? {}).end(body?.replace('ID', id) ?? '');
  if (error !== undefined) return answer({ error });
  if (typeof result === 'string') return json(200, `{"jsonrpc":"2.0","id":${id},"result":${result}}`);
  return answer({ result: result ?? { content: [{ type: 'text', text: 'done' }] } });
}).listen(Number(process.argv[2]), '127.0.0.1');
