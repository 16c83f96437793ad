// The sign-in at the issuer. The server redirects the browser to the inbox, or to a fragment that names the failure.

// The part of the address after `#` does not reach the server, so it is kept here.
const KEPT = 'holdpoint.at';
const FAILURES = {
  'not-started': 'The sign-in took too long, or did not start in this browser. Try again.',
  refused: 'The issuer refused the sign-in. The log of the server says why.',
  unavailable: 'The issuer cannot be reached. Try again later.',
  'not-accepted': 'You are signed in at the issuer, but this server does not accept its token. The log of the server says why.',
  'too-long': 'The token of the issuer is too long for a cookie. Use the field for a token.',
};

/** Remembers where the person is. */
export function begin() {
  if (!location.hash.startsWith('#/sign-in/')) sessionStorage.setItem(KEPT, location.hash);
}

/** Returns what went wrong with the sign-in that ended on this page, if it did. */
export function failure() {
  const word = location.hash.match(/^#\/sign-in\/(.*)$/)?.[1];
  return word && (FAILURES[word] ?? FAILURES.refused);
}

/** Returns to where the sign-in began. */
export function resume() {
  const kept = sessionStorage.getItem(KEPT);
  sessionStorage.removeItem(KEPT);
  if (kept && (location.hash === '' || failure())) history.replaceState(null, '', kept);
}
