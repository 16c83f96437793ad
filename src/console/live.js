// The events of this server, as they happen.
import { signals, stream } from './api.js';
import { parse } from './text/json.js';

/** `event` with the event as `detail`; `open` when events arrive from now on, `lost` when they do not. */
export const live = new EventTarget();

// A server sends comments into a silent stream. A stream without any is dead, or its server sends none.
const SILENCE = 90_000;
// A stream that lasted so long is opened again at once.
const LASTED = 10_000;
const PAUSE_MIN = 1000;
const PAUSE_MAX = 15_000;

let current = null;
let last = null;

/** Starts to follow the events, or starts again, for example with another token. */
export function follow() {
  stop();
  last = null;
  current = new AbortController();
  run(current.signal);
}

export function stop() {
  current?.abort();
  current = null;
}

async function run(signal) {
  let pause = PAUSE_MIN;
  while (!signal.aborted) {
    const began = performance.now();
    try {
      await read(signal, () => { pause = PAUSE_MIN; });
      // The server ends a stream to look again who the caller is.
      if (performance.now() - began > LASTED) continue;
    } catch (error) {
      if (error.status === 401) return;
      if (error.retryAfter) pause = Math.max(pause, error.retryAfter * 1000);
    }
    if (signal.aborted) return;
    live.dispatchEvent(new Event('lost'));
    await new Promise(resolve => { setTimeout(resolve, pause); });
    pause = Math.min(pause * 2, PAUSE_MAX);
  }
}

async function read(signal, opened) {
  const silent = new AbortController();
  let timer = setTimeout(() => silent.abort(), SILENCE);
  try {
    const response = await stream(last, AbortSignal.any([signal, silent.signal]));
    opened();
    live.dispatchEvent(new Event('open'));
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = '';
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      clearTimeout(timer);
      timer = setTimeout(() => silent.abort(), SILENCE);
      const frames = (rest + value).split('\n\n');
      rest = frames.pop();
      frames.forEach(dispatch);
    }
  } finally {
    clearTimeout(timer);
  }
}

function dispatch(frame) {
  const fields = new Map(frame.split('\n').map(line => [line.split(':', 1)[0], line.slice(line.indexOf(':') + 1).trimStart()]));
  if (!fields.has('data')) return;
  last = fields.get('id') ?? last;
  live.dispatchEvent(new CustomEvent('event', { detail: parse(fields.get('data')) }));
}

signals.addEventListener('unauthenticated', stop);
