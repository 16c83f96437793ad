// An MCP server with a session (protocol 2025-06-18) that behaves until the file go is in the folder STATE, and then floods
// its client in the way that its argument says, as fast as the client reads, for five seconds or MESSAGES messages. It
// writes what it did to the file done. With a second argument it is a server over HTTP, at this port.

import { existsSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { join } from 'node:path';
import { createInterface } from 'node:readline';

const [mode, port] = process.argv.slice(2);
const folder = process.env.STATE;
const MESSAGES = 400_000;
const message = (fields) => JSON.stringify({ jsonrpc: '2.0', ...fields });
const schema = { type: 'object', properties: {} };
const patterns = (tool) => Object.fromEntries(Array.from({ length: 1000 }, (_, n) => [`p${n}`, { type: 'string', pattern: `\\w{60}${tool}x${n}` }]));
const long = 'x'.repeat(1_000_000);

let flooding = false;
let listed = 0;
let streams = 0;

const tools = () => {
  const act = { name: 'act', description: 'Is there.', inputSchema: schema };
  if (!flooding) return [act];
  if (mode === 'patterns') {
    return [act, ...Array.from({ length: 40 }, (_, n) => ({ name: `t${n}`, inputSchema: { type: 'object', properties: patterns(n) } }))];
  }
  return Array.from({ length: 200 }, (_, n) => ({ name: `t${n}`, description: `Version ${listed}.`, inputSchema: schema }));
};

const answers = {
  initialize: () => ({ result: { protocolVersion: '2025-06-18', capabilities: { tools: { listChanged: true } }, serverInfo: { name: 'flood', version: '1' } } }),
  'tools/list': () => {
    if (flooding) listed += 1;
    return { result: { tools: tools() } };
  },
};
const answer = ({ id, method }) => message({ id, ...(answers[method]?.() ?? { error: { code: -32601, message: 'no such method' } }) });

const form = { message: 'Which code?', requestedSchema: schema };
const question = { messages: [{ role: 'user', content: { type: 'text', text: 'hi' } }], maxTokens: 9 };
const floods = {
  ping: (n) => message({ id: n, method: 'ping' }),
  'ping-read': (n) => message({ id: n, method: 'ping' }),
  sampling: (n) => message({ id: n, method: 'sampling/createMessage', params: question }),
  elicitation: (n) => message({ id: n, method: 'elicitation/create', params: form }),
  'long-elicitation': (n) => message({ id: n, method: 'elicitation/create', params: { ...form, message: long } }),
  cancelled: (n) => (n % 2 ? message({ id: n, method: 'ping' }) : message({ method: 'notifications/cancelled', params: { requestId: n - 1 } })),
  ids: (n) => message({ id: 1_000_000 + n, result: { tools: [] } }),
  'long-ids': (n) => message({ id: 1_000_000 + n, result: { structuredContent: { long }, content: [] } }),
  notifications: () => message({ method: 'notifications/message', params: { level: 'info', data: 'hi' } }),
  stderr: () => 'x'.repeat(1000),
};

const done = (facts) => writeFileSync(join(folder, 'done'), JSON.stringify(facts));

// Writes what the mode says to this stream, with this frame around each message.
const flood = async (to, frame) => {
  const end = Date.now() + 5000;
  let n = 0;
  while (n < MESSAGES && Date.now() < end) {
    n += 1;
    if (!to.write(frame(floods[mode](n)))) {
      const left = Math.max(end - Date.now(), 1);
      await new Promise((resolve) => {
        const late = setTimeout(resolve, left);
        to.once('drain', () => { clearTimeout(late); resolve(); });
      });
    }
  }
  done({ sent: n });
};

const begun = new Promise((resolve) => {
  const looking = setInterval(() => {
    if (!existsSync(join(folder, 'go'))) return;
    clearInterval(looking);
    flooding = true;
    resolve();
  }, 20);
});

// Says that the tools have changed as often as they were listed, for five listings.
const relist = async (to, frame) => {
  for (let seen = 0; seen < 5; seen += 1) {
    to.write(frame(message({ method: 'notifications/tools/list_changed' })));
    while (listed <= seen) await new Promise((resolve) => setTimeout(resolve, 20));
  }
  done({ listed });
};

const begin = async (to, frame) => {
  await begun;
  if (mode === 'flip' || mode === 'patterns') return relist(to, frame);
  return mode === 'stderr' ? flood(process.stderr, (text) => `${text}\n`) : flood(to, frame);
};

if (port === undefined) {
  createInterface({ input: process.stdin }).on('line', (line) => {
    const asked = JSON.parse(line);
    if (asked.id !== undefined && asked.method !== undefined) process.stdout.write(`${answer(asked)}\n`);
  });
  process.stdin.on('end', () => process.exit());
  begin(process.stdout, (text) => `${text}\n`);
  // From then on nothing is read.
  if (mode === 'ping' || mode === 'cancelled') begun.then(() => process.stdin.pause());
} else {
  const json = { 'content-type': 'application/json', 'mcp-session-id': 'one' };
  const body = async (request) => {
    let text = '';
    for await (const piece of request) text += piece;
    return JSON.parse(text);
  };
  createServer(async (request, response) => {
    if (request.method === 'GET') {
      streams += 1;
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      if (mode === 'retry' && flooding) return response.end('retry: 0\n\n');
      response.flushHeaders();
      if (mode === 'retry') {
        await begun;
        setTimeout(() => done({ streams }), 5000);
        return response.end('retry: 0\n\n');
      }
      return begin(response, (text) => `data: ${text}\n\n`);
    }
    if (request.method !== 'POST') return response.writeHead(200).end();
    const asked = await body(request);
    if (asked.method === undefined) {
      // An answer to a flood never gets an answer.
      if (mode === 'ping') return;
      return response.writeHead(202).end();
    }
    if (asked.id === undefined) return response.writeHead(202).end();
    return response.writeHead(200, json).end(answer(asked));
  }).listen(Number(port), '127.0.0.1');
}
