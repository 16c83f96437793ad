#!/usr/bin/env node
// Pages with the real client of one generation of the AI SDK, without a browser, one after the other: loading the client
// takes longer than most of what a page does. What its user does comes in on stdin, a line of JSON each; each is answered
// with a line of JSON on stdout: what the page shows then.
import readline from 'node:readline';
import { parseArgs } from 'node:util';
import { loadClient, sleep, VERSIONS } from './lib/client.mjs';
import { loadPackage } from './lib/package.mjs';

const HELP = `node drive.mjs 4|5|6|7

First, and whenever another page is wanted: {"do": "open", "flags": [...]}
  --url http://127.0.0.1:PORT
  --path /qa/chat_streamed  chat endpoint            --chat-id ID
  --header 'NAME: VALUE'    repeatable               --messages '[...]'  what the page begins with
  --posts all|last|nothing  of the conversation: all of it, the last message alone (prepareSendMessagesRequest,
                            experimental_prepareRequestBody), or, in 4, an empty body behind the first message
  --automatically approvals|outputs|any|never
                            when 5 to 7 post by themselves (sendAutomaticallyWhen): once the approvals of the last step
                            are answered, which is the default of 6 and 7, once its calls have outputs, or as long as
                            an answered call of any message shows no outcome
  --package FOLDER          a page on \`@holdpoint/page\`, as this folder has it installed, with
  --dialect ui-v7           this stream, in 5 to 7
  --max-requests 20         one more than that is refused: a page that posts for ever ends with an error

Then what its user does: {"do": NAME, ...}
  send {text} · edit {id, text} · sendNothing: sendMessage() without a message · regenerate {id?} · resume · stop
  answer {id, approved, reason?}: addToolApprovalResponse
  give {id, output, tool?}: addToolResult, addToolOutput
  wait: nothing
and with --package:
  call {method, args}, apply {name, args}: a method of the client, a function · load {options?}: the stored messages
  subscribe {after?, held?}: to the events of its chat; the first list of them is handled until letGo, if held
  breakStreams: those of the events
With "until": "settled" (the default: no request is open, and none follows by itself), "answered" (one more answer has
begun than before), {"shown": TEXT} (this is somewhere in the last message), or with --package {"batches": N},
{"errors": N} (the page was given so many), {"event": TYPE} (it was given this), {"received": TYPE} (it has arrived).`;

const [version] = process.argv.slice(2);
if (!VERSIONS.includes(version)) { console.error(HELP); process.exit(2); }
const makeClient = await loadClient(version);

const text = { type: 'string' };
const or = fallback => ({ type: 'string', default: fallback });
const OPTIONS = {
  url: text, path: or('/qa/chat_streamed'), 'chat-id': or('chat-1'), messages: or('[]'), posts: or('all'),
  header: { type: 'string', multiple: true, default: [] }, 'max-requests': or('20'),
  automatically: or(Number(version) < 6 ? 'never' : 'approvals'), package: text, dialect: text,
};

let client, onPackage, requests, answered, thrown;
async function open({ flags }) {
  const o = parseArgs({ args: flags, options: OPTIONS }).values;
  client?.close();
  onPackage?.close();
  // Of its own for each page: what an earlier one still asks is not counted here.
  const own = [];
  [requests, answered, thrown] = [own, 0, null];
  async function tracedFetch(url, init = {}) {
    if (own.length >= Number(o['max-requests'])) throw new Error(`more than ${o['max-requests']} requests: the page is looping`);
    const { pathname, search } = new URL(url);
    const headers = new Headers(init.headers);
    const request = {
      method: init.method ?? 'GET', path: pathname + search, body: init.body ?? null,
      dialect: headers.get('x-stream-protocol'), requestId: headers.get('x-request-id'),
    };
    own.push(request);
    const response = await fetch(url, init);
    request.status = response.status;
    if (own === requests) answered += 1;
    return response;
  }
  onPackage = o.package && await loadPackage(o.package, { url: o.url, dialect: o.dialect, fetch: tracedFetch });
  client = await makeClient({
    api: o.url + o.path, chatId: o['chat-id'], fetch: tracedFetch, posts: o.posts, automatically: o.automatically,
    headers: Object.fromEntries(o.header.map(header => header.split(': ', 2))), initialMessages: JSON.parse(o.messages),
    ...onPackage?.transport,
  });
  client.chatId = o['chat-id'];
}

const ACTS = {
  open,
  send: ({ text }) => client.send(text),
  sendNothing: () => client.sendNothing(),
  edit: ({ id, text }) => client.edit(id, text),
  regenerate: ({ id }) => client.regenerate(id),
  resume: () => client.resume(),
  stop: () => client.stop(),
  answer: ({ id, approved, reason }) => client.answer(id, approved, reason),
  give: ({ id, output, tool }) => client.give(id, output, tool),
  wait: () => undefined,
  call: ({ method, args }) => onPackage.call(method, args),
  apply: async ({ name, args }) => onPackage.apply(name, args),
  load: async ({ options }) => { client.messages = await onPackage.load(client.chatId, client.messages, options); },
  subscribe: async options => onPackage.subscribe(client.chatId, options),
  breakStreams: async () => onPackage.breakStreams(),
  letGo: async () => onPackage.letGo(),
};

const isSettled = () => client.status === 'ready' || client.status === 'error';
async function until(condition) {
  while (!condition()) await sleep(5);
}
async function settled() {
  // React hands a change on a little later than the hook makes it, and a chat posts again a little later.
  for (let seen = 0; seen < 2; seen = isSettled() ? seen + 1 : 0) await sleep(20);
}

for await (const line of readline.createInterface({ input: process.stdin })) {
  const command = JSON.parse(line);
  const before = answered;
  const act = Promise.resolve(ACTS[command.do](command)).catch(e => { thrown = `${e.name}: ${e.message}`; });
  if (command.until === 'answered') await until(() => answered > before || thrown);
  else if (command.until?.shown) await until(() => JSON.stringify(client.messages.at(-1) ?? null).includes(command.until.shown) || thrown);
  else if (command.until) await until(() => onPackage.has(command.until) || thrown);
  else { await act; await settled(); }
  const error = thrown ?? client.error?.message ?? null;
  const { status, finishes, messages, data } = client;
  // What the SDK's own check of stored messages says of them.
  const invalid = await client.invalid();
  const read = onPackage?.show(messages, client.error);
  const page = { status, error, requests, finishes, messages, data, invalid, package: read };
  process.stdout.write(JSON.stringify(page) + '\n');
}
process.exit(0);
