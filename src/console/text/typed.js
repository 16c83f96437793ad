// What a person has typed when their session ends. It stays in this tab over the sign-in, for the same person and the same view.

const KEPT = 'holdpoint.typed';
const pane = document.getElementById('detail');

/** What was typed in the view that is shown, by the ids of its controls. */
let typed = new Map();
/** The person that types. */
let person = null;

pane.addEventListener('input', ({ target }) => {
  // A secret is not stored.
  if (target.id === '' || target.type === 'password' || 'secret' in target.dataset) return;
  const { value, checked } = target;
  typed.set(target.id, ['checkbox', 'radio'].includes(target.type) ? { checked } : { value });
});
addEventListener('hashchange', () => forget());

/** Forgets what was typed. */
export function forget() {
  typed = new Map();
}

/** Keeps what was typed for the time after a sign-in. */
export function keep() {
  if (typed.size > 0) sessionStorage.setItem(KEPT, JSON.stringify({ person, at: location.hash, typed: [...typed] }));
  forget();
}

/** Says who has signed in. What another person has typed is dropped. */
export function begin({ tenant_id: tenant, user_id: user }) {
  person = JSON.stringify([tenant, user]);
  const kept = read();
  if (kept !== null && kept.person !== person) sessionStorage.removeItem(KEPT);
}

/** Puts what was typed before the sign-in into the view that is shown. `prepare` gets the ids, and opens the forms that have them. */
export function restore(prepare = () => {}) {
  const kept = read();
  if (kept === null || kept.person !== person || kept.at !== location.hash) return;
  sessionStorage.removeItem(KEPT);
  const values = new Map(kept.typed);
  prepare(values);
  for (const [id, { value, checked }] of values) {
    const control = pane.querySelector(`#${CSS.escape(id)}`);
    if (control === null) continue;
    control.closest('details')?.setAttribute('open', '');
    if (checked === undefined) control.value = value;
    else control.checked = checked;
    for (const type of ['input', 'change']) control.dispatchEvent(new Event(type, { bubbles: true }));
  }
}

function read() {
  try {
    return JSON.parse(sessionStorage.getItem(KEPT));
  } catch {
    return null;
  }
}
