import { useEffect, useRef } from 'react';
import { withStored } from '@holdpoint/page';
import { holdpoint } from './holdpoint.js';

// Keeps an idle page up to date: reads along with a turn that runs elsewhere, and loads what has changed.
export function useFollow({ id, status, setMessages, resumeStream }) {
  const idle = useRef(true);
  idle.current = status === 'ready' || status === 'error';
  useEffect(
    () =>
      holdpoint.subscribe(id, {
        onError: console.warn,
        onEvents: async events => {
          if (!idle.current) return;
          if (events.length === 0 || events.some(({ type }) => type === 'run.started' || type === 'run.resumed')) {
            await resumeStream();
          }
          const { results } = await holdpoint.messages(id);
          if (idle.current) setMessages(now => withStored(now, results));
        },
      }),
    [id],
  );
}
