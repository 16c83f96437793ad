// What of a part was in view: a person has read a text only if it was on the screen from its start to its end.

// The height of a line, in pixels.
const LINE = 22;
const TEXTS = '.value, .line, dt, p, h4';
/** How far each text was in view without a gap, as a fraction of its height. */
const reached = new WeakMap();
const declared = new WeakSet();

/** `seen` when something was in view for the first time, or is said to be read. */
export const view = new EventTarget();

// The stored JSON repeats the inputs.
const without = (part, what) => [...part.querySelectorAll(what)].filter(found => !found.closest('.stored'));
const textsOf = part => without(part, TEXTS).filter(text => !text.matches('.cut'));
/** The notes of what is cut in a part. */
export const cutsOf = part => without(part, '.cut');
const isSeen = text => reached.get(text) === 1;

/** Whether all texts of a part were in view, or the person says that they have read it. */
export const isRead = part => declared.has(part) || textsOf(part).every(isSeen);

/** The person says that they have read a part, with a screen reader for example. */
export function read(part) {
  declared.add(part);
  view.dispatchEvent(new Event('seen'));
}

/** What was not in view: how many values, how many characters, and the first text. */
export function unread(part) {
  if (declared.has(part)) return { texts: 0, characters: 0, first: undefined };
  const texts = textsOf(part).filter(text => !isSeen(text));
  const ofValues = texts.filter(text => text.matches('.value'));
  return { texts: ofValues.length, characters: texts.reduce((sum, text) => sum + text.textContent.length, 0), first: texts[0] };
}

/** Scrolls to a text that is left to read, where the reading ended, and puts the focus there. */
export function goTo(text) {
  text.scrollIntoView({ block: 'start' });
  const body = text.closest('.body');
  // In a very low window the page scrolls as a whole.
  const scroller = body.scrollHeight > body.clientHeight ? body : document.scrollingElement;
  scroller.scrollTop += Math.max(0, (reached.get(text) ?? 0) * text.getBoundingClientRect().height - LINE);
  (text.querySelector('.link') ?? text.closest('.part')).focus({ preventScroll: true });
}

let isPlanned = false;
function plan() {
  if (isPlanned) return;
  isPlanned = true;
  requestAnimationFrame(() => {
    isPlanned = false;
    look();
  });
}

function look() {
  if (document.hidden) return;
  const dialog = document.querySelector('dialog[open]');
  const { offsetTop = 0, height = innerHeight } = window.visualViewport ?? {};
  let isNew = false;
  for (const part of (dialog ?? document).querySelectorAll('.part')) {
    if (declared.has(part)) continue;
    const box = part.closest('.body').getBoundingClientRect();
    const [top, bottom] = [Math.max(box.top, offsetTop), Math.min(box.bottom, offsetTop + height)];
    for (const text of textsOf(part)) {
      if (isSeen(text)) continue;
      const { top: start, height: size } = text.getBoundingClientRect();
      if (size === 0) continue;
      const [from, to] = [(top - start) / size, (bottom - start) / size];
      const so = reached.get(text) ?? 0;
      // A pixel more or less is none of a line. A line counts only if all of it was in view at once.
      const slack = 2 / size;
      if (from > Math.max(slack, so - LINE / size + slack) || to <= so) continue;
      const now = to >= 1 - slack ? 1 : to;
      isNew ||= now === 1;
      reached.set(text, now);
    }
  }
  if (isNew) view.dispatchEvent(new Event('seen'));
}

/** Watches the part for changes of its size. */
export const watch = part => { sizes.observe(part); };

const sizes = new ResizeObserver(plan);
document.addEventListener('scroll', plan, { capture: true, passive: true });
for (const type of ['resize', 'scroll']) window.visualViewport?.addEventListener(type, plan);
addEventListener('resize', plan);
document.addEventListener('visibilitychange', plan);
// What was cut is new on the screen, also for a person who has read the rest of the part.
document.addEventListener('opened', ({ target }) => {
  const part = target.closest('.part');
  if (part === null) return;
  declared.delete(part);
  const text = target.closest(TEXTS);
  if (text) reached.delete(text);
  view.dispatchEvent(new Event('seen'));
  plan();
});
