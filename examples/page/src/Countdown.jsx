import { useEffect, useState } from 'react';
import { timeOf } from './words.js';

// A timer is no live region: it is read when the reader comes to it.
export function Countdown({ until }) {
  const [now, setNow] = useState(Date.now);
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), 1000);
    return () => clearInterval(timer);
  }, []);
  return (
    <time role="timer" dateTime={until} title={timeOf(until)}>
      {remaining(Date.parse(until) - now)}
    </time>
  );
}

function remaining(time) {
  // The clock of this machine may be wrong. The server decides what is too late.
  if (time <= 0) return 'the time to decide is over';
  const seconds = Math.floor(time / 1000);
  const [h, min, s] = [Math.floor(seconds / 3600), Math.floor(seconds / 60) % 60, seconds % 60];
  if (h > 0) return `in ${h} h ${min} min`;
  return min > 0 ? `in ${min} min ${s} s` : `in ${s} s`;
}
