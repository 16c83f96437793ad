// The client that the conformance suite of MCP tests: a holdpoint server whose configuration names the server of the
// scenario. A model calls the tools of the scenario one after another, and each call is approved. HOLDPOINT is the
// path of the program.

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';

const url = process.argv.at(-1);
const { toolCalls, client_id, client_secret } = JSON.parse(process.env.MCP_CONFORMANCE_CONTEXT ?? '{}');
const oauth = client_secret
  ? `[mcp.oauth]\nclient_id = ${JSON.stringify(client_id)}\nclient_secret = ${JSON.stringify(client_secret)}\n`
  : '';

/** The call that the model makes next, and the tools of its last request. */
let wanted;
let offered = [];

const model = createServer(async (request, response) => {
  const body = JSON.parse((await request.toArray()).join(''));
  offered = body.tools ?? [];
  const delta = { role: 'assistant', content: 'Done.' };
  if (wanted) {
    const { name, input } = wanted;
    delta.tool_calls = [
      { index: 0, id: 'call_0', type: 'function', function: { name, arguments: JSON.stringify(input) } },
    ];
    wanted = undefined;
  }
  const chunk = (choice) => `data: ${JSON.stringify({ id: 'c', object: 'chat.completion.chunk', choices: [choice] })}\n\n`;
  const reason = delta.tool_calls ? 'tool_calls' : 'stop';
  response.setHeader('content-type', 'text/event-stream');
  response.end(
    chunk({ index: 0, delta, finish_reason: null }) +
      chunk({ index: 0, delta: {}, finish_reason: reason }) +
      'data: [DONE]\n\n',
  );
});

/** Inputs that fit the schema of a tool, with all of its fields. */
function inputs(schema) {
  const values = { string: 'a', number: 1, integer: 1, boolean: true, array: [], object: {} };
  const value = ({ type, enum: words, const: only, default: usual }) => only ?? usual ?? words?.[0] ?? values[type] ?? null;
  return Object.fromEntries(Object.entries(schema.properties ?? {}).map(([name, field]) => [name, value(field)]));
}

/** The calls of a scenario that names none: each tool once. */
function everything(tools) {
  const schemas = new Map(offered.map((tool) => [tool.function.name, tool.function.parameters]));
  return tools.map(({ tool_name, mcp }) => ({ name: mcp.tool, arguments: inputs(schemas.get(tool_name) ?? {}) }));
}

async function drive(base) {
  const send = async (path, body) => {
    const headers = { 'content-type': 'application/json' };
    const response = await fetch(`${base}${path}`, body && { method: 'POST', headers, body: JSON.stringify(body) });
    const text = await response.text();
    return response.headers.get('content-type')?.startsWith('application/json') ? JSON.parse(text) : text;
  };
  const talk = async () => {
    const { thread_id } = await send('/threads', {});
    return send(`/qa/chat_streamed/${thread_id}`, { content: 'Please.' });
  };
  /** Fills in the forms of the server until the promise is kept. */
  const answered = async (promise) => {
    let isKept = false;
    const kept = promise.finally(() => { isKept = true; });
    while (!isKept) {
      for (const { request_id, schema } of (await send('/tool_requests')).results) {
        await send(`/tool_requests/${request_id}/answer`, { action: 'accept', content: inputs(schema) });
      }
      await Promise.race([kept, sleep(50)]);
    }
    return kept;
  };
  let tools = [];
  for (let tries = 0; tries < 50 && tools.length === 0; tries += 1) {
    await sleep(100);
    tools = (await send('/tools')).results.filter((tool) => tool.mcp);
  }
  await talk();
  for (const { name, arguments: input } of toolCalls ?? everything(tools)) {
    const tool = tools.find((one) => one.mcp.tool === name);
    if (!tool) {
      console.log(`there is no tool ${name}`);
      continue;
    }
    wanted = { name: tool.tool_name, input };
    await talk();
    for (const held of (await send('/approvals')).results) {
      const deciding = send('/qa/validate_tool', { toolCallId: held.tool_call_id, isValidated: true });
      const done = await answered(deciding);
      console.log(`${name}: ${done.state ?? JSON.stringify(done)}: ${done.result ?? ''}`);
    }
  }
}

const folder = mkdtempSync(join(tmpdir(), 'conformance-'));
await once(model.listen(0, '127.0.0.1'), 'listening');
writeFileSync(
  join(folder, 'holdpoint.toml'),
  `egress.allow = ["localhost", "127.0.0.1", "::1"]
tools.demo = false
[server]
bind = "127.0.0.1:0"
[log]
level = "error"
[database]
url = "sqlite://holdpoint.db?mode=rwc"
[model]
provider = "openai"
name = "scripted"
base_url = "http://127.0.0.1:${model.address().port}/v1"
[[mcp]]
name = "s"
url = "${url}"
timeout = "10s"
${oauth}`,
);
const server = spawn(process.env.HOLDPOINT, { cwd: folder, stdio: ['ignore', 'pipe', 'inherit'] });
const ended = once(server, 'exit');
try {
  for await (const line of createInterface({ input: server.stdout })) {
    const [, base] = line.split('holdpoint listens on ');
    if (base) {
      await drive(base.trim());
      break;
    }
  }
} finally {
  server.kill('SIGTERM');
  await ended;
  model.close();
  model.closeAllConnections();
  rmSync(folder, { recursive: true });
}
