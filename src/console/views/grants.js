// What a remembered approval covers, in words, and its end.
import { revoke } from '../api.js';
import { guard, setBusy } from '../card/inert.js';
import { isNumber, line } from '../text/json.js';
import { count, el, person } from '../text/text.js';
import { date } from '../text/time.js';

const name = argument => el('code', {}, argument.replace(/^\//, ''));
const listed = parts => parts.flatMap((part, n) => [n > 0 && (n === parts.length - 1 ? ' and ' : ', '), part]);
const value = one => el('code', { className: 'chip' }, typeof one === 'string' ? one : line(one));

function condition({ argument, above, below, equal, in: values, under, origin }) {
  const test = above !== undefined ? ['above ', value(above)]
    : below !== undefined ? ['below ', value(below)]
      : values !== undefined ? ['one of ', listed(values.map(value))]
        : under !== undefined ? ['in the folder ', value(under)]
          : origin !== undefined ? ['an address of ', value(origin)]
            : [value(equal)];
  return [name(argument), ' ', test];
}

/** The inputs that a grant covers. */
export function inputsOf({ input_hash: hash, when, free = [] }) {
  if (when) return [' with ', listed([...when.map(condition), ...free.map(argument => ['any ', name(argument)])])];
  return hash ? ' with the same inputs' : ' with any inputs';
}

/** When a grant ends, and how many calls it covers. */
export function endOf({ until, uses, uses_left: usesLeft }) {
  return [until ? [', until ', date(until)] : ', until it is revoked', uses && (usesLeft === uses ? `, for ${count(uses, 'call')}` : `, for ${usesLeft} more of ${count(uses, 'call')}`)];
}

/** The grant that a call left or used, with a button that revokes it. */
export function remembered(grant, settled) {
  const button = guard(el('button', { type: 'button', className: 'deny' }, 'Revoke'), async () => {
    setBusy([button], true);
    try {
      await revoke(grant.session_id, grant.grant_id);
      await settled('The remembered approval is revoked. Later calls are held again.');
    } catch (error) {
      setBusy([button], false);
      await settled(error.status === 404 ? 'The remembered approval was over already.' : error.message);
    }
  });
  return el('div', { className: 'remembered' }, el('p', {}, 'Later calls of ', el('code', {}, grant.tool_name), ' in this session run without a question',
    inputsOf(grant), endOf(grant), ' (', el('b', {}, person(grant.granted_by)), ').'), button);
}

/**
 * The conditions that a person can choose for an argument with this value: `[words, condition]`. No condition means that it is
 * free. A number gets a limit that the person types. A secret has no condition, because people read the conditions.
 */
export function choices(argument, found, isSecret) {
  const same = ['only this value', () => ({ argument, equal: found })];
  const any = ['any value', () => null];
  if (isSecret) return [['any value: it is secret', () => null]];
  if (isNumber(found)) return [same, ['below …', typed => ({ argument, below: typed }), 'number'], any];
  if (typeof found !== 'string') return [found === null ? ['only this value', () => ({ argument, in: [null] })] : same, any];
  const origin = originOf(found);
  if (origin) return [same, [`any address of ${origin}`, () => ({ argument, origin })], any];
  const folder = folderOf(found);
  return folder ? [same, [`anything in the folder ${folder}`, () => ({ argument, under: folder })], any] : [same, any];
}

function originOf(found) {
  try {
    const { origin, protocol } = new URL(found);
    return /^https?:$/.test(protocol) && new RegExp(`^${origin.replace(/[.\\[\]]/g, '\\$&')}(?:[/?#]|$)`).test(found) ? origin : null;
  } catch {
    return null;
  }
}

// The server decides which paths have one reading; this is what is offered.
function folderOf(found) {
  const parts = found.split('/');
  const isPlain = !/[\\%$*?\p{Cc}]/u.test(found) && !found.startsWith('~') && !parts.some(part => part.trim() === '..');
  const folder = found.slice(0, found.lastIndexOf('/'));
  return isPlain && parts.length > 1 && /[^/.]/.test(folder) && !found.endsWith('/') ? folder : null;
}
