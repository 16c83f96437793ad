// Reads data streams with the client code of AI SDK 4, for the fuzz target beside the encoder. A line of JSON in is one
// message: {turns: [the bytes of each, in hex], pieces: [how long the pieces are in which they arrive, over and over]}.
// A line out is what the client holds then, and how each turn ended.
import readline from 'node:readline';
import { callChatApi } from 'ui-utils4';

function arriving(bytes, pieces) {
  let at = 0, n = 0;
  return new ReadableStream({
    pull(controller) {
      if (at >= bytes.length) return controller.close();
      const length = pieces[n++ % pieces.length];
      controller.enqueue(bytes.subarray(at, at += length));
    },
  });
}

// While arguments arrive the client completes half of an escape as it can, so that a call that breaks off there has half
// of a character. No JSON of Rust's has that.
const wellFormed = (_key, value) => (typeof value === 'string' ? value.toWellFormed() : value);

for await (const line of readline.createInterface({ input: process.stdin, crlfDelay: Infinity })) {
  const { turns, pieces } = JSON.parse(line);
  let message;
  const ends = [];
  for (const turn of turns) {
    const stream = arriving(Buffer.from(turn, 'hex'), pieces);
    let end = { unfinished: true };
    try {
      await callChatApi({
        api: '/', body: {}, generateId: () => 'client',
        fetch: async () => new Response(stream),
        restoreMessagesOnFailure() {},
        onUpdate: update => { message = update.message; },
        onFinish: (_message, { usage, finishReason }) => { end = { finishReason, usage }; },
        // A page goes on in the message it shows.
        lastMessage: message ?? { role: 'user' },
      });
    } catch (error) {
      end = { error: error.message };
    }
    ends.push(end);
  }
  process.stdout.write(JSON.stringify({ message: message ?? null, ends }, wellFormed) + '\n');
}
