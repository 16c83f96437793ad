import { useCallback, useEffect, useRef, useState } from 'react';
import { holdpoint } from './holdpoint.js';

const STEP = 20;
const MOST = 200;
const EVERY = 10_000;

// The newest threads. `refresh` is called when the open thread changes. Another thread changes without this page, so a
// visible page asks again from time to time, and when it becomes visible.
export function useThreads() {
  const [list, setList] = useState({ threads: [], more: false });
  const size = useRef(STEP);
  const latest = useRef(0);

  const refresh = useCallback(async () => {
    const mine = ++latest.current;
    try {
      const { results, has_more } = await holdpoint.threads({ pageSize: size.current });
      if (mine === latest.current) setList({ threads: results, more: has_more && size.current < MOST });
    } catch (error) {
      // The list stays as it is. Whatever else the page does reports the same error.
      console.warn(error);
    }
  }, []);

  useEffect(() => {
    const whenVisible = () => document.visibilityState === 'visible' && void refresh();
    void refresh();
    const timer = setInterval(whenVisible, EVERY);
    document.addEventListener('visibilitychange', whenVisible);
    return () => {
      clearInterval(timer);
      document.removeEventListener('visibilitychange', whenVisible);
    };
  }, [refresh]);

  function showMore() {
    size.current = Math.min(size.current + STEP, MOST);
    void refresh();
  }

  return { ...list, refresh, showMore };
}
