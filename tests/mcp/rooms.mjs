// MCP servers over HTTP (protocol 2025-06-18), at the port of its argument, on no SDK: one for each first part of a path,
// the room, each with its own issuer of tokens.
//   /{room}/mcp       the server, with sessions. Its tool `delete_file` answers "done"; with the note "task" as a task, which is
//                     completed once the state has { completed: true }; with the note "wait" after { go: true }; with the
//                     note "echo" by an error that repeats the token
//   /{room}/sse       the same with the transport of earlier servers; its stream names { endpoint }, and messages are taken
//                     at { messages }
//   /{room}/issuer    the issuer of the room
// PUT /{room}/state changes the state of a room; { forget: true } ends its sessions, which requests learn by the status
// { stale }, { unwanted } gets no session, and { refuse: true } refuses the tokens so far. GET tells the requests so far: { method, session, note, user,
// token }, and those of the issuer.

import { randomUUID } from 'node:crypto';
import { createServer } from 'node:http';

const named = { type: 'object', properties: { note: { type: 'string' } } };
const tools = [{ name: 'delete_file', description: 'Deletes it.', inputSchema: named }];
const initialized = { protocolVersion: '2025-06-18', capabilities: { tools: {} }, serverInfo: { name: 'rooms', version: '1' } };
const rooms = new Map();
const port = Number(process.argv[2]);

const roomOf = (name) => {
  const base = `http://127.0.0.1:${port}/${name}`;
  const state = { stale: 404, guarded: false, challenge: true, issuer: `${base}/issuer`, methods: undefined, expires: 3600, resource: `${base}/mcp`, document: true };
  const room = { base, state, known: new Map(), requests: [], issued: [], valid: new Set(), tokens: 0, waiting: [], streams: [] };
  if (!rooms.has(name)) rooms.set(name, room);
  return rooms.get(name);
};

const read = async (request) => {
  let text = '';
  for await (const piece of request) text += piece;
  return text;
};

/** The answer of a room to a message. */
const answerOf = async (room, { method, params }) => {
  const { state } = room;
  const task = { taskId: 'task-1', createdAt: new Date().toISOString(), lastUpdatedAt: new Date().toISOString(), ttlMs: null, pollIntervalMs: 500 };
  const done = { content: [{ type: 'text', text: 'done' }] };
  if (method === 'initialize') return { result: initialized };
  if (method === 'tools/list') return { result: { tools } };
  if (method === 'tasks/get') return { result: state.completed ? { ...task, status: 'completed', result: done } : { ...task, status: 'working' } };
  if (method !== 'tools/call') return { error: { code: -32601, message: 'no such method' } };
  if (params.arguments.note === 'task') return { result: { resultType: 'task', ...task, status: 'working' } };
  if (params.arguments.note === 'wait' && !state.go) await new Promise((resolve) => room.waiting.push(resolve));
  return { result: done };
};

const issuer = async (room, path, request, response) => {
  const { state } = room;
  const json = (status, body) => response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body));
  if (path === 'token') {
    const form = Object.fromEntries(new URLSearchParams(await read(request)));
    room.issued.push({ ...form, authorization: request.headers.authorization });
    if (state.error) return json(400, state.error);
    room.tokens += 1;
    const token = `token-${room.tokens}-of-a-room`;
    if (!state.useless) room.valid.add(token);
    return json(200, { access_token: token, token_type: 'Bearer', expires_in: state.expires });
  }
  return json(200, {
    issuer: state.named ?? state.issuer,
    token_endpoint: `${room.base}/issuer/token`,
    token_endpoint_auth_methods_supported: state.methods,
  });
};

createServer(async (request, response) => {
  const url = new URL(request.url, 'http://127.0.0.1');
  const json = (status, body, headers = {}) => response.writeHead(status, { 'content-type': 'application/json', ...headers }).end(JSON.stringify(body));
  const wellKnown = /^\/\.well-known\/([a-z-]+)\/([a-z]+)\/(mcp|issuer)$/.exec(url.pathname);
  if (wellKnown) {
    const [, kind, name] = wellKnown;
    const room = roomOf(name);
    room.requests.push({ method: `GET ${kind}` });
    if (kind === 'oauth-protected-resource' && room.state.document) {
      return json(200, { resource: room.state.resource, authorization_servers: [room.state.issuer], scopes_supported: ['use'] });
    }
    return kind === 'oauth-authorization-server' ? issuer(room, 'metadata', request, response) : json(404, {});
  }
  const [, name, ...rest] = url.pathname.split('/');
  if (!/^[a-z]+$/.test(name) || rest.length === 0) {
    rooms.forEach((room) => room.requests.push({ method: `${request.method} ${url.pathname}` }));
    return response.writeHead(404).end();
  }
  const room = roomOf(name);
  const { state } = room;
  const path = rest.join('/');
  if (path === 'state') {
    if (request.method === 'PUT') Object.assign(state, JSON.parse(await read(request)));
    if (state.forget) room.known.clear();
    if (state.refuse) room.valid.clear();
    if (state.go) room.waiting.splice(0).forEach((resolve) => resolve());
    delete state.forget;
    delete state.refuse;
    return json(200, { requests: room.requests, issued: room.issued });
  }
  if (path.startsWith('issuer/')) return issuer(room, path.slice('issuer/'.length), request, response);
  if (path === 'sse' && request.method === 'GET') {
    const token = request.headers.authorization?.replace('Bearer ', '');
    if (state.guarded && !room.valid.has(token)) return response.writeHead(401).end();
    const stream = room.streams.push(response) - 1;
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    return response.write(`event: endpoint\ndata: ${state.endpoint}?stream=${stream}\n\n`);
  }
  if (path === 'sse') return response.writeHead(405).end();
  const isEarlier = url.pathname === state.messages;
  if (path !== 'mcp' && !isEarlier) {
    room.requests.push({ method: `${request.method} ${url.pathname}` });
    return response.writeHead(404).end();
  }
  const session = request.headers['mcp-session-id'];
  const token = request.headers.authorization?.replace('Bearer ', '');
  const seen = { session, user: request.headers['x-user'], key: request.headers['x-key'], token };
  if (request.method === 'DELETE') {
    room.requests.push({ method: 'DELETE', ...seen });
    room.known.delete(session);
    return response.writeHead(204).end();
  }
  if (request.method !== 'POST') return response.writeHead(405).end();
  const message = JSON.parse(await read(request));
  const { id, method, params } = message;
  if (state.guarded && !room.valid.has(token)) {
    room.requests.push({ method: '401', of: method, ...seen });
    const challenge = state.challenge ? `Bearer error="invalid_token", resource_metadata="${room.base.replace(`/${name}`, '')}/.well-known/oauth-protected-resource/${name}/mcp"` : 'Bearer';
    return response.writeHead(401, { 'www-authenticate': challenge }).end();
  }
  if (state.unwanted && state.unwanted === seen.user) return response.writeHead(403).end(`not you: ${seen.key}`);
  if (method === 'server/discover') return json(200, { jsonrpc: '2.0', id, error: { code: -32601, message: 'no such method' } });
  if (method !== 'initialize' && !isEarlier && !room.known.has(session)) {
    room.requests.push({ method: 'stale', ...seen });
    return response.writeHead(state.stale).end();
  }
  room.requests.push({ method, note: params?.arguments?.note, ...seen });
  const begun = method === 'initialize' ? randomUUID() : undefined;
  if (begun) room.known.set(begun, true);
  if (id === undefined) return response.writeHead(202).end();
  if (params?.arguments?.note === 'echo') return response.writeHead(500).end(`bad token: ${token}`);
  const answer = { jsonrpc: '2.0', id, ...(await answerOf(room, message)) };
  if (!isEarlier) return json(200, answer, begun ? { 'mcp-session-id': begun } : {});
  response.writeHead(202).end();
  return room.streams[url.searchParams.get('stream')].write(`event: message\ndata: ${JSON.stringify(answer)}\n\n`);
}).listen(port, '127.0.0.1');
