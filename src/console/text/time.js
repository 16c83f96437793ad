// Times and deadlines, by the clock of the server.
import { el } from './text.js';

const moment = new Intl.DateTimeFormat(undefined, { dateStyle: 'medium', timeStyle: 'medium' });

let skew = 0;
/** Sets the clock of the server from the header `date` of a response. */
export function setClock(date) {
  const server = Date.parse(date ?? '');
  if (Number.isFinite(server)) skew = Math.abs(server - Date.now()) > 2000 ? server - Date.now() : 0;
}

/** The time of the server. */
export const serverNow = () => Date.now() + skew;

const UNITS = [[86400, 'day'], [3600, 'hour'], [60, 'minute'], [1, 'second']];

/** `2 hours 5 minutes`, for seconds. */
export function span(seconds) {
  const at = UNITS.findIndex(([size]) => seconds >= size);
  if (at === -1) return '0 seconds';
  const count = (n, unit) => `${n} ${unit}${n === 1 ? '' : 's'}`;
  const [size, unit] = UNITS[at];
  const first = count(Math.floor(seconds / size), unit);
  const [next, nextUnit] = UNITS[at + 1] ?? [];
  const rest = next === undefined ? 0 : Math.floor((seconds % size) / next);
  return rest === 0 ? first : `${first} ${count(rest, nextUnit)}`;
}

const since = new Set();

/** A time, as a distance from now that is updated: `5 minutes ago`, or for a deadline `5 minutes`. */
export function clock(at, ended) {
  const element = el('time', { dateTime: at, title: moment.format(new Date(at)) });
  const update = () => {
    const seconds = Math.floor((Date.parse(at) - Date.now() - skew) / 1000);
    const next = ended === undefined ? `${span(Math.max(0, -seconds - 1))} ago` : seconds <= 0 ? ended : span(seconds);
    if (element.textContent !== next) element.textContent = next;
  };
  update();
  since.add([new WeakRef(element), update]);
  return element;
}

/** A time as a date. */
export const date = at => el('time', { dateTime: at }, moment.format(new Date(at)));

setInterval(() => {
  for (const entry of since) {
    const [element, update] = entry;
    if (element.deref()?.isConnected) update();
    else since.delete(entry);
  }
}, 1000);
