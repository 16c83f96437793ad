// What a page does with `@holdpoint/page`, as it is installed in a folder.
import { createRequire } from 'node:module';
import path from 'node:path';
import { pathToFileURL } from 'node:url';

export async function loadPackage(folder, { url, dialect, fetch }) {
  const { resolve } = createRequire(path.join(folder, 'package.json'));
  const it = await import(pathToFileURL(resolve('@holdpoint/page')));
  // The open streams of events, which a test may break.
  const streams = new Set();
  let calls = 0;
  const client = it.createClient({
    url, dialect,
    // Each request has headers of its own.
    headers: async () => ({ 'x-request-id': `page-${++calls}` }),
    fetch: async (input, init) => {
      const response = await fetch(input, init);
      if (!response.ok || !input.includes('/events/')) return response;
      const decoder = new TextDecoder();
      const through = new TransformStream({
        transform(piece, controller) {
          received += decoder.decode(piece, { stream: true });
          controller.enqueue(piece);
        },
      });
      const broken = new AbortController();
      streams.add(broken);
      const read = response.body.pipeTo(through.writable, { signal: broken.signal });
      read.catch(() => {}).finally(() => streams.delete(broken));
      return new Response(through.readable, response);
    },
  });
  const [batches, errors] = [[], []];
  // What the bytes of the streams have said, before the page is given it.
  let received = '';
  let letGo = () => {};
  let end = () => {};
  let result = null;
  return {
    transport: client.transport,
    // A method of the client. What it gives or throws is shown as `result`.
    async call(method, args) {
      result = await client[method](...args).then(
        ok => ({ ok: ok ?? null }),
        error => ({ error: { ...it.errorOf(error), status: error.status, decision: error.decision } }),
      );
    },
    // A function of the package, `error` for an error with this text.
    apply(name, args) {
      result = { ok: it[name](...args.map(arg => (arg?.error ? new Error(arg.error) : arg))) };
    },
    async load(id, shown, options) {
      const { results } = await client.messages(id, options);
      return it.withStored(shown, results);
    },
    // `held`: the first list of events is handled until `letGo`.
    subscribe(id, { after, held }) {
      const first = held && new Promise(resolve => { letGo = resolve; });
      end = client.subscribe(id, {
        ...(after !== undefined && { after }),
        onEvents: async events => {
          batches.push(events);
          await first;
        },
        onError: error => errors.push(it.errorText(error)),
      });
    },
    letGo: () => letGo(),
    has: wanted =>
      batches.length >= (wanted.batches ?? 0) &&
      errors.length >= (wanted.errors ?? 0) &&
      received.includes(wanted.received ? `event: ${wanted.received}` : '') &&
      (!wanted.event || batches.flat().some(event => event.type === wanted.event)),
    breakStreams: () => streams.forEach(stream => stream.abort()),
    close: () => end(),
    show: (messages, error) => ({
      held: Object.fromEntries(it.heldCalls(messages)),
      pending: it.pendingCalls(messages).map(hold => hold.toolCallId),
      late: it.lateAnswers(messages).map(decision => decision.toolCallId),
      needsReload: it.needsReload(messages),
      errorText: error ? it.errorText(error) : null,
      batches, errors, result,
    }),
  };
}
