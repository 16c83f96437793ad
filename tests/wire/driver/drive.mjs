#!/usr/bin/env node
// A page with the real client of one generation of the AI SDK, without a browser. What its user does comes in on
// stdin, a line of JSON each; each is answered with a line of JSON on stdout: what the page shows then.
import readline from 'node:readline';
import { parseArgs } from 'node:util';
import { makeClient, sleep, VERSIONS } from './lib/client.mjs';

const HELP = `node drive.mjs --version 4|5|6|7 --url http://127.0.0.1:PORT [flags]

Flags
  --path /qa/chat_streamed  chat endpoint            --chat-id ID
  --header 'NAME: VALUE'    repeatable               --messages '[...]'  what the page begins with
  --posts all|last|nothing  of the conversation: all of it, the last message alone (prepareSendMessagesRequest,
                            experimental_prepareRequestBody), or, in 4, an empty body behind the first message
  --automatically approvals|outputs|any|never
                            when 5 to 7 post by themselves (sendAutomaticallyWhen): once the approvals of the last step
                            are answered, which is the default of 6 and 7, once its calls have outputs, or as long as
                            an answered call of any message shows no outcome
  --max-requests 20         one more than that is refused: a page that posts for ever ends with an error

What a user does: {"do": NAME, ...}
  send {text} · edit {id, text} · sendNothing: sendMessage() without a message · regenerate {id?} · resume · stop
  answer {id, approved, reason?}: addToolApprovalResponse
  give {id, output, tool?}: addToolResult, addToolOutput
  wait: nothing
With "until": "settled" (the default: no request is open, and none follows by itself), "answered" (one more answer has
begun than before), or {"shown": TEXT} (this is somewhere in the last message).`;

const text = { type: 'string' };
const or = fallback => ({ type: 'string', default: fallback });
const OPTIONS = {
  version: text, url: text, path: or('/qa/chat_streamed'), 'chat-id': or('chat-1'), messages: or('[]'), posts: or('all'),
  header: { type: 'string', multiple: true, default: [] }, automatically: text, 'max-requests': or('20'),
};
let o;
try {
  o = parseArgs({ options: OPTIONS }).values;
  if (!VERSIONS.includes(o.version)) throw new Error(`--version must be one of ${VERSIONS}`);
  if (!o.url) throw new Error('--url is needed');
} catch (e) { console.error(`${e.message}\n\n${HELP}`); process.exit(2); }

const requests = [];
let answered = 0;
async function tracedFetch(url, init = {}) {
  if (requests.length >= Number(o['max-requests'])) throw new Error(`more than ${o['max-requests']} requests: the page is looping`);
  const { pathname, search } = new URL(url);
  const request = { method: init.method ?? 'GET', path: pathname + search, body: init.body ?? null };
  requests.push(request);
  const response = await fetch(url, init);
  request.status = response.status;
  answered += 1;
  return response;
}

const client = await makeClient({
  version: o.version, api: o.url + o.path, chatId: o['chat-id'], fetch: tracedFetch, posts: o.posts,
  headers: Object.fromEntries(o.header.map(header => header.split(': ', 2))), initialMessages: JSON.parse(o.messages),
  automatically: o.automatically ?? (o.version < '6' ? 'never' : 'approvals'),
});

const ACTS = {
  send: ({ text }) => client.send(text),
  sendNothing: () => client.sendNothing(),
  edit: ({ id, text }) => client.edit(id, text),
  regenerate: ({ id }) => client.regenerate(id),
  resume: () => client.resume(),
  stop: () => client.stop(),
  answer: ({ id, approved, reason }) => client.answer(id, approved, reason),
  give: ({ id, output, tool }) => client.give(id, output, tool),
  wait: () => undefined,
};

const isSettled = () => client.status === 'ready' || client.status === 'error';
async function until(condition) {
  while (!condition()) await sleep(5);
}
async function settled() {
  // React hands a change on a little later than the hook makes it, and a chat posts again a little later.
  for (let seen = 0; seen < 2; seen = isSettled() ? seen + 1 : 0) await sleep(20);
}

let thrown = null;
for await (const line of readline.createInterface({ input: process.stdin })) {
  const command = JSON.parse(line);
  const before = answered;
  const act = Promise.resolve(ACTS[command.do](command)).catch(e => { thrown = `${e.name}: ${e.message}`; });
  if (command.until === 'answered') await until(() => answered > before || thrown);
  else if (command.until?.shown) await until(() => JSON.stringify(client.messages.at(-1) ?? null).includes(command.until.shown) || thrown);
  else { await act; await settled(); }
  const error = thrown ?? client.error?.message ?? null;
  const page = { status: client.status, error, requests, finishes: client.finishes, messages: client.messages };
  process.stdout.write(JSON.stringify(page) + '\n');
}
process.exit(0);
