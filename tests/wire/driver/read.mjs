// Reads streams with the client code of the AI SDK, for the fuzz targets beside the encoders. The arguments are the
// packages whose code reads them. A line of JSON in is one message: {turns, pieces: [how long the pieces are in which
// the bytes arrive, over and over]}; a turn is {bytes: in hex, answers: [what the page says to the calls that it shows,
// before it asks], loadedAnew: whether the page was loaded anew and takes the turn up}. A line out is, for each package,
// {client, message: what it holds then, ends: how each turn ended}.
import readline from 'node:readline';

const clients = await Promise.all(process.argv.slice(2).map(async name => ({ name, sdk: await import(name) })));

function arriving({ bytes }, pieces) {
  const all = Buffer.from(bytes, 'hex');
  let at = 0, n = 0;
  return new Response(new ReadableStream({
    pull(controller) {
      if (at >= all.length) return controller.close();
      const length = pieces[n++ % pieces.length];
      controller.enqueue(all.subarray(at, at += length));
    },
  }));
}

// AI SDK 4.
async function readLines({ callChatApi }, turns, pieces) {
  let message;
  const [ends, data] = [[], []];
  for (const turn of turns) {
    let end = { unfinished: true };
    let told = [];
    try {
      await callChatApi({
        api: '/', body: {}, generateId: () => 'client',
        fetch: async () => arriving(turn, pieces),
        restoreMessagesOnFailure() {},
        onUpdate: update => { message = update.message; told = update.data ?? told; },
        onFinish: (_message, { usage, finishReason }) => { end = { finishReason, usage }; },
        // A page continues in the message it shows.
        lastMessage: message ?? { role: 'user' },
      });
    } catch (error) {
      end = { error: error.message };
    }
    ends.push(end);
    data.push(...told);
  }
  // A page has these beside its messages, and in the message after a reload.
  if (message && data.length > 0) message = { ...message, data };
  return { message, ends };
}

// What `Chat` of `@ai-sdk/react` keeps, without React.
class Kept {
  status = 'ready';
  messages = [{ id: 'asks', role: 'user', parts: [{ type: 'text', text: 'go' }] }];
  pushMessage = message => { this.messages = [...this.messages, message]; };
  popMessage = () => { this.messages = this.messages.slice(0, -1); };
  replaceMessage = (index, message) => {
    this.messages = this.messages.with(index, this.snapshot(message));
  };
  snapshot = value => structuredClone(value);
}

// AI SDK 5 to 7.
async function readEvents({ AbstractChat, DefaultChatTransport }, turns, pieces) {
  let reading, finished;
  const fetch = async () => arriving(reading, pieces);
  class Page extends AbstractChat {}
  const load = () => new Page({
    id: 'chat', state: new Kept(), transport: new DefaultChatTransport({ fetch }),
    onFinish: ({ finishReason }) => { finished = { finishReason }; },
  });
  let page = load();
  const ends = [];
  for (reading of turns) {
    finished = { unfinished: true };
    for (const { reason, ...answer } of reading.answers) {
      await page.addToolApprovalResponse?.({ ...answer, reason: reason ?? undefined });
    }
    if (reading.loadedAnew) {
      page = load();
      await page.resumeStream();
    } else {
      await page.sendMessage();
    }
    ends.push(page.status === 'error' ? { error: page.error.message } : finished);
  }
  const [, message, ...more] = page.messages;
  if (more.length > 0) ends.push({ more });
  return { message, ends };
}

// While arguments arrive a client completes half of an escape as it can, so that a call that breaks off there has half
// of a character. No JSON of Rust's has that.
const wellFormed = (_key, value) => (typeof value === 'string' ? value.toWellFormed() : value);

for await (const line of readline.createInterface({ input: process.stdin, crlfDelay: Infinity })) {
  const { turns, pieces } = JSON.parse(line);
  const reads = [];
  for (const { name, sdk } of clients) {
    const read = sdk.callChatApi ? readLines : readEvents;
    reads.push({ client: name, ...await read(sdk, turns, pieces) });
  }
  process.stdout.write(JSON.stringify(reads, wellFormed) + '\n');
}
