#!/usr/bin/env node
// Drives a chat server with the real client of AI SDK 4 and prints what the client ended up with: a line of JSON, the
// last. Before it there is a line for each answer that has begun.
import fs from 'node:fs';
import { parseArgs } from 'node:util';
import { makeClient } from './lib/client.mjs';

const HELP = `node drive.mjs --version 4 --url http://127.0.0.1:PORT --scenario NAME [flags]

Scenarios
  send             one user message
  turns            every --message is one turn
  approve          send, then approve every pending tool call
  deny             send, then deny every pending tool call
  mixed            send, approve the first pending call, deny the others
  claim            send, then give every pending tool call the result of --claim and ask nobody
  ignore-approval  send, leave the call pending, send the second --message
  regenerate       send, then regenerate the last answer
  abort            send, stop() once --abort-at is shown
  resume           experimental_resume() (with --initial-messages if given)

A call is pending where the last annotation of its id says {validated: "pending"}. It is answered by a POST to
--validate-path {toolCallId, validatedInputs, isValidated}, and then, by --after:
  next-turn  append() of the next --message (default "continue")
  resume     experimental_resume()
  result     addToolResult() with the answer's result, or with --claim in its place
  empty      the same, and the page posts an empty body (experimental_prepareRequestBody)
  none       nothing

Flags
  --path /qa/chat_streamed  chat endpoint            --validate-path /qa/validate_tool
  --chat-id ID              --message TEXT (repeatable)     --reason TEXT
  --edited-inputs '{...}'   validatedInputs to send instead of the call's own input
  --claim '{...}'           a result that the client makes up
  --abort-at TEXT           --initial-messages '[...]'
  --max-requests 20         --timeout 20000

Exit codes: 0 fine, 1 the SDK raised an error, 2 usage, 3 no pending tool call was found, 4 timeout`;

const text = { type: 'string' };
const texts = { type: 'string', multiple: true, default: [] };
const or = fallback => ({ type: 'string', default: fallback });
const OPTIONS = {
  version: text, url: text, scenario: text, path: or('/qa/chat_streamed'), 'validate-path': or('/qa/validate_tool'),
  'chat-id': or('chat-1'), message: texts, reason: text, after: or('next-turn'), 'edited-inputs': text, claim: text,
  'abort-at': text, 'initial-messages': or('[]'), 'max-requests': or('20'), timeout: or('20000'),
};
let o;
try {
  o = parseArgs({ options: OPTIONS }).values;
  if (o.version !== '4') throw new Error('--version must be 4');
  if (!o.url || !o.scenario) throw new Error('--url and --scenario are needed');
} catch (e) { console.error(`${e.message}\n\n${HELP}`); process.exit(2); }

const requests = [];
async function tracedFetch(url, init = {}) {
  if (requests.length >= Number(o['max-requests'])) throw new Error(`more than ${o['max-requests']} requests: the client is looping`);
  const { pathname, search } = new URL(url);
  const request = { method: init.method ?? 'GET', path: pathname + search, body: init.body ?? null };
  requests.push(request);
  const response = await fetch(url, init);
  request.status = response.status;
  fs.writeSync(1, `answered ${request.method} ${request.path}\n`);
  return response;
}

let posts = 0;
const client = await makeClient({
  api: o.url + o.path, chatId: o['chat-id'], fetch: tracedFetch, initialMessages: JSON.parse(o['initial-messages']),
  // The first message has to say something.
  prepareBody: o.after === 'empty' ? () => (posts++ ? {} : undefined) : undefined,
});
const validated = [];
let code = 0, thrown = null;

function pending() {
  const latest = new Map();
  const inputs = new Map();
  for (const m of client.messages) {
    for (const call of m.toolInvocations ?? []) inputs.set(call.toolCallId, call.args);
    for (const a of m.annotations ?? []) latest.set(a.toolCallId, a.validated);
  }
  return [...latest].filter(([, word]) => word === 'pending').map(([toolCallId]) => ({ toolCallId, input: inputs.get(toolCallId) }));
}

async function answer(decide) {
  const calls = pending();
  if (!calls.length) { code = 3; return; }
  for (const [i, call] of calls.entries()) {
    const isValidated = decide(i);
    const validatedInputs = o['edited-inputs'] ? JSON.parse(o['edited-inputs']) : call.input;
    const response = await tracedFetch(o.url + o['validate-path'], {
      method: 'POST', headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ toolCallId: call.toolCallId, validatedInputs, isValidated, reason: o.reason }),
    });
    const answer = await response.json();
    validated.push({ toolCallId: call.toolCallId, isValidated, status: response.status, answer });
    if (!response.ok) throw new Error(`validate call answered ${response.status}`);
  }
  if (o.after === 'next-turn') await client.send(messages.shift() ?? 'continue');
  else if (o.after === 'resume') await client.resume();
  else if (o.after === 'result' || o.after === 'empty') {
    // The client posts once every call of the step has a result.
    for (const v of validated) await client.addToolResult(v.toolCallId, o.claim ? JSON.parse(o.claim) : v.answer.result);
  }
}

const messages = o.message.length ? [...o.message] : ['hello'];
setTimeout(() => { code = 4; thrown = 'timeout'; finish(); }, Number(o.timeout));
try {
  switch (o.scenario) {
    case 'send': await client.send(messages.shift()); break;
    case 'turns': while (messages.length && !client.error) await client.send(messages.shift()); break;
    case 'approve': case 'deny': case 'mixed':
      await client.send(messages.shift());
      await answer(i => o.scenario === 'approve' || (o.scenario === 'mixed' && i === 0));
      break;
    case 'claim':
      await client.send(messages.shift());
      for (const call of pending()) await client.addToolResult(call.toolCallId, JSON.parse(o.claim));
      break;
    case 'ignore-approval':
      await client.send(messages.shift());
      if (!pending().length) code = 3;
      await client.send(messages.shift() ?? 'never mind');
      break;
    case 'regenerate': await client.send(messages.shift()); await client.regenerate(); break;
    case 'abort': await client.sendAndStopAt(messages.shift(), o['abort-at']); break;
    case 'resume': await client.resume(); break;
    default: console.error(`unknown scenario ${o.scenario}\n\n${HELP}`); process.exit(2);
  }
} catch (e) { thrown = `${e.name}: ${e.message}`; }
finish();

function finish() {
  const error = thrown ?? (client.error ? client.error.message : null);
  const out = { status: client.status, error, requests, validated, onFinish: client.finishes, messages: client.messages };
  fs.writeSync(1, JSON.stringify(out) + '\n');
  process.exit(code || (error ? 1 : 0));
}
