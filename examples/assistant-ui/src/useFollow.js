import { useEffect, useRef } from 'react';
import { errorOf, withStored } from '@holdpoint/page';
import { holdpoint } from './holdpoint.js';

// Keeps an idle page up to date: reads along with a turn that runs elsewhere, and loads what has changed.
export function useFollow({ id, status, error, setMessages, resumeStream }) {
  const idle = useRef(true);
  idle.current = status === 'ready' || status === 'error';

  async function load() {
    const { results } = await holdpoint.messages(id);
    if (idle.current) setMessages(now => withStored(now, results));
  }

  // The card of a call that was approved has changed meanwhile.
  const isStale = error && errorOf(error).code === 'stale';
  useEffect(() => {
    if (isStale) load().catch(console.warn);
  }, [isStale]);
  useEffect(
    () =>
      holdpoint.subscribe(id, {
        onError: console.warn,
        onEvents: async events => {
          if (!idle.current) return;
          if (events.length === 0 || events.some(({ type }) => type === 'run.started' || type === 'run.resumed')) {
            await resumeStream();
          }
          await load();
        },
      }),
    [id],
  );
}
