import type { HoldpointEvent } from './api.js';
import { HoldpointError } from './errors.js';

/** A subscription to the events of one thread. */
export type Subscription = {
  /**
   * Called with what happened in the thread, oldest first. The first call has no events: it says that the
   * subscription has started, and knows nothing of what happened before. So does a call after a break before the first
   * event. The next call comes after the promise of this one is settled, with all the events of the meantime, so calls
   * never overlap.
   */
  onEvents(events: HoldpointEvent[]): void | Promise<void>;
  /**
   * Called when the events cannot be read, and when `onEvents` fails. The subscription then connects again by itself,
   * unless the server refused it for good (400, 403 or 404): no such thread, for example.
   */
  onError?(error: unknown): void;
  /** Begins after the event with this `seq`, in place of now. The first call has events then. */
  after?: number;
  /** Ends the subscription, as the returned function does. */
  signal?: AbortSignal;
};

/** Opens the stream of events after an event, or from now on. Fails if the response is anything else. */
export type Open = (after: number | undefined, signal: AbortSignal) => Promise<Response>;

// The first wait, the longest one, and the silence after which a connection counts as dead. The server says something
// every 15 seconds (`stream.keep_alive`). If it is set to say less, a new connection costs no event.
const FIRST_WAIT = 1_000;
const LONGEST_WAIT = 30_000;
const SILENCE = 60_000;

/** Reads events until the returned function is called, and connects again whenever the stream ends. */
export function subscribe(open: Open, { onEvents, onError, after, signal }: Subscription): () => void {
  const ended = new AbortController();
  const end = () => ended.abort();
  signal?.addEventListener('abort', end, { once: true });
  if (signal?.aborted) end();

  const deliver = inOrder(onEvents, ended.signal, onError);
  void (async () => {
    let last = after;
    for (let failures = 0; !ended.signal.aborted; ) {
      const connection = new AbortController();
      const leave = () => connection.abort();
      ended.signal.addEventListener('abort', leave, { once: true });
      let wait = FIRST_WAIT * 2 ** failures;
      try {
        const response = await open(last, connection.signal);
        // Without an event to begin after, what happened before this moment is not in the stream.
        if (last === undefined) deliver([]);
        for await (const events of piecesOf(response, leave)) {
          failures = 0;
          wait = FIRST_WAIT;
          last = events.at(-1)?.seq ?? last;
          if (events.length > 0) deliver(events);
        }
      } catch (error) {
        if (ended.signal.aborted) break;
        onError?.(error);
        if (error instanceof HoldpointError) {
          if ([400, 403, 404].includes(error.status)) break;
          wait = Math.max(wait, (error.retryAfter ?? 0) * 1000);
        }
        failures = Math.min(failures + 1, 5);
      } finally {
        ended.signal.removeEventListener('abort', leave);
        connection.abort();
      }
      // Many pages lose a server at the same moment, and should not come back at the same moment.
      await pause(Math.min(wait, LONGEST_WAIT) * (0.5 + Math.random() / 2), ended.signal);
    }
    signal?.removeEventListener('abort', end);
  })();
  return end;
}

/** Delivers lists of events one after the other. Events that arrive during a call are in the next call. */
function inOrder(
  handler: Subscription['onEvents'],
  ended: AbortSignal,
  onError: Subscription['onError'],
): (events: HoldpointEvent[]) => void {
  let waiting: HoldpointEvent[] | undefined;
  let busy = false;
  return async events => {
    waiting = [...(waiting ?? []), ...events];
    if (busy) return;
    busy = true;
    while (waiting && !ended.aborted) {
      const next = waiting;
      waiting = undefined;
      try {
        await handler(next);
      } catch (error) {
        onError?.(error);
      }
    }
    busy = false;
  };
}

/** The events of a response, as they arrive: an empty list for a keep-alive. `leave` is called after a long silence. */
async function* piecesOf(response: Response, leave: () => void): AsyncGenerator<HoldpointEvent[]> {
  // Not `for await`: Safari's streams cannot be iterated.
  const reader = response.body?.getReader();
  if (!reader) return;
  const decoder = new TextDecoder();
  let unread = '';
  for (;;) {
    const timer = setTimeout(leave, SILENCE);
    const { done, value } = await reader.read().finally(() => clearTimeout(timer));
    if (done) return;
    unread += decoder.decode(value, { stream: true });
    const frames = unread.split('\n\n');
    unread = frames.pop() ?? '';
    yield frames.flatMap(eventsIn);
  }
}

/** The event of a frame. The data of the server's events is one line, and has the number and the type too. */
function eventsIn(frame: string): HoldpointEvent[] {
  const data = frame.split('\n').find(line => line.startsWith('data:'));
  return data === undefined ? [] : [JSON.parse(data.slice('data:'.length))];
}

function pause(time: number, signal: AbortSignal): Promise<void> {
  return new Promise(resolve => {
    const timer = setTimeout(over, time);
    signal.addEventListener('abort', over, { once: true });
    if (signal.aborted) over();
    function over() {
      clearTimeout(timer);
      signal.removeEventListener('abort', over);
      resolve();
    }
  });
}
