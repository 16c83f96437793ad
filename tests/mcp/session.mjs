// An MCP server with a session (protocol 2025-06-18), on no SDK, because none lets a test choose the order of messages. It
// answers no call by itself: it writes each to calls.log in the folder STATE, and does what the lines of the file
// commands say. Each line is JSON, and its messages are written at once, in this order:
//   { "ask": text }       a form, whose answer goes to answers.log. `schema` is its schema
//   { "finish": note }    the result of the call with this note
//   { "fail": note }      its error
//   { "report": note }    its progress, ten times a second until the end of the process
//   { "say": note, "words": [text], "total": n }   a report of its progress for each text
//   { "task": note }      its result is a task
//   { "end": note }       the task has ended
//   { "raw": note, "result": text }   its result, as this text

import { appendFileSync, existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';

const folder = process.env.STATE;
const append = (file, line) => appendFileSync(join(folder, file), `${line}\n`);
const write = (text) => process.stdout.write(`${text}\n`);
const message = (fields) => JSON.stringify({ jsonrpc: '2.0', ...fields });
const text = (words) => ({ content: [{ type: 'text', text: words }] });

append('starts.log', 'start');
const calls = new Map();
const tokens = new Map();
const asked = new Map();
const tasks = new Map();

const named = { type: 'object', properties: { note: { type: 'string' } } };
const tools = [{ name: 'act', description: 'Waits for the test.', inputSchema: named }];
const initialized = { protocolVersion: '2025-06-18', capabilities: { tools: {} }, serverInfo: { name: 'session', version: '1' } };
const now = () => new Date().toISOString();
const working = (taskId) => ({ taskId, status: 'working', statusMessage: `working on ${taskId}`, createdAt: now(), lastUpdatedAt: now(), ttlMs: null, pollIntervalMs: 500 });

const methods = {
  initialize: () => ({ result: initialized }),
  'tools/list': () => ({ result: { tools } }),
  'tasks/get': ({ taskId }) => ({ result: tasks.has(taskId) ? { ...working(taskId), status: 'completed', result: tasks.get(taskId) } : working(taskId) }),
  'tools/call': ({ arguments: { note }, _meta }, id) => {
    calls.set(note, id);
    tokens.set(note, _meta?.progressToken);
    append('calls.log', note);
  },
};

const commands = {
  ask: ({ ask, schema }) => {
    const id = asked.size + 1;
    asked.set(id, ask);
    const requestedSchema = schema ?? { type: 'object', properties: { code: { type: 'string' } } };
    return message({ id, method: 'elicitation/create', params: { message: ask, requestedSchema } });
  },
  finish: ({ finish }) => message({ id: calls.get(finish), result: text('done') }),
  fail: ({ fail }) => message({ id: calls.get(fail), error: { code: -32000, message: 'it is closed today' } }),
  task: ({ task }) => message({ id: calls.get(task), result: { resultType: 'task', ...working(task) } }),
  report: ({ report }) => {
    const params = { progressToken: tokens.get(report), progress: 1 };
    setInterval(() => write(message({ method: 'notifications/progress', params })), 100);
  },
  say: ({ say, words, total }) => words.map((text, n) => {
    const params = { progressToken: tokens.get(say), progress: n + 1, total, message: text };
    return message({ method: 'notifications/progress', params });
  }).join('\n'),
  end: ({ end }) => void tasks.set(end, text('done')),
  raw: ({ raw, result }) => `{"jsonrpc":"2.0","id":${calls.get(raw)},"result":${result}}`,
};

createInterface({ input: process.stdin }).on('line', (line) => {
  const { id, method, params, result } = JSON.parse(line);
  if (method === undefined) return append('answers.log', JSON.stringify({ ask: asked.get(id), ...result }));
  if (id === undefined) return;
  const answer = methods[method] ? methods[method](params, id) : { error: { code: -32601, message: 'no such method' } };
  if (answer) write(message({ id, ...answer }));
});
process.stdin.on('end', () => process.exit());

let done = 0;
setInterval(() => {
  const file = join(folder, 'commands');
  const lines = existsSync(file) ? readFileSync(file, 'utf8').split('\n').slice(0, -1) : [];
  const next = lines.slice(done).flatMap((line) => JSON.parse(line));
  done = lines.length;
  const messages = next.map((command) => commands[Object.keys(command)[0]](command)).filter(Boolean);
  if (messages.length > 0) write(messages.join('\n'));
}, 10);
