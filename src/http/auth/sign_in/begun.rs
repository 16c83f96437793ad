//! Sign-ins in progress: what the browser keeps until it comes back from the issuer.
//!
//! Another browser that comes back has no such cookie, so no page can sign a person in with the code of another
//! person. The cookie is signed with its time, so that only a server of the database makes one. A process remembers the
//! sign-ins that came back, so that each of them reaches the issuer once.

use crate::http::auth::session::cookie;
use crate::http::auth::signing::{Purpose, SigningKey};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use holdpoint_core::clock::Timestamp;
use parking_lot::Mutex;
use poem::http::{HeaderMap, HeaderValue};
use std::collections::{HashSet, VecDeque};
use std::time::Duration;

/// The name of the cookie that a sign-in needs until the browser comes back.
const NAME: &str = "__Host-holdpoint-sign-in";
/// How long a person has to sign in.
const LASTS: Duration = Duration::from_secs(10 * 60);
/// Maximum number of sign-ins that a process remembers as ended. Beyond it the process forgets the oldest, whose code
/// the issuer then refuses.
const ENDED_MAX: usize = 16_384;

/// A sign-in that this server began.
#[derive(Debug)]
pub(in crate::http::auth) struct BegunSignIn {
    /// The value that the issuer returns with the code (RFC 6749, 10.12). Never empty.
    pub(in crate::http::auth) state: String,
    /// The proof that this browser began the sign-in (RFC 7636, 4.1).
    pub(in crate::http::auth) verifier: String,
    /// When the sign-in began, by the clock of the process.
    pub(in crate::http::auth) at: Timestamp,
}

impl BegunSignIn {
    /// Returns the cookie. It is `Lax`, because the browser comes back from the site of the issuer.
    pub(in crate::http::auth) fn cookie(&self, key: &SigningKey) -> Option<HeaderValue> {
        let text = format!("{}.{}.{}", self.state, self.verifier, self.at.as_micros());
        let signature = URL_SAFE_NO_PAD.encode(key.sign(Purpose::SignIn, &text)?);
        let seconds = LASTS.as_secs();
        let cookie =
            format!("{NAME}={text}.{signature}; Path=/; Secure; HttpOnly; SameSite=Lax; Max-Age={seconds}");
        HeaderValue::try_from(cookie).ok()
    }

    /// Returns the sign-in that the cookie of the browser names, if a server of this database began it, and not too
    /// long ago.
    pub(in crate::http::auth) fn of(headers: &HeaderMap, key: &SigningKey, now: Timestamp) -> Option<Self> {
        let (text, signature) = cookie(headers, NAME)?.rsplit_once('.')?;
        if !key.has_signed(Purpose::SignIn, text, &URL_SAFE_NO_PAD.decode(signature).ok()?) {
            return None;
        }
        let (secrets, at) = text.rsplit_once('.')?;
        let (state, verifier) = secrets.split_once('.')?;
        let at = Timestamp::from_micros(at.parse().ok()?);
        // The clocks of two processes differ, so a sign-in may begin in the future.
        let is_open = now < at.plus(LASTS) && !state.is_empty();
        is_open.then(|| Self { state: state.to_owned(), verifier: verifier.to_owned(), at })
    }

    /// The cookie that forgets it.
    pub(in crate::http::auth) const END: HeaderValue = HeaderValue::from_static(
        "__Host-holdpoint-sign-in=; Path=/; Secure; HttpOnly; SameSite=Lax; Max-Age=0",
    );
}

/// The sign-ins that came back to this process.
#[derive(Debug, Default)]
pub(in crate::http::auth) struct EndedSignIns(Mutex<EndedStates>);

#[derive(Debug, Default)]
struct EndedStates {
    states: HashSet<String>,
    /// The same, the oldest first, each with the moment after which its cookie is refused.
    order: VecDeque<(Timestamp, String)>,
}

impl EndedSignIns {
    /// Ends a sign-in. Returns false if this process has ended it before.
    pub(in crate::http::auth) fn end(&self, begun: &BegunSignIn, now: Timestamp) -> bool {
        let mut ended = self.0.lock();
        while ended.order.front().is_some_and(|(until, _)| *until <= now) || ended.order.len() >= ENDED_MAX {
            if let Some((_, oldest)) = ended.order.pop_front() {
                ended.states.remove(&oldest);
            }
        }
        let is_first = ended.states.insert(begun.state.clone());
        if is_first {
            ended.order.push_back((begun.at.plus(LASTS), begun.state.clone()));
        }
        is_first
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begun(state: usize, at: Timestamp) -> BegunSignIn {
        BegunSignIn { state: state.to_string(), verifier: String::new(), at }
    }

    #[test]
    fn a_process_remembers_an_ended_sign_in_while_its_cookie_counts_and_no_more_than_its_bound() {
        let (ended, start) = (EndedSignIns::default(), Timestamp::from_micros(0));
        assert!(ended.end(&begun(0, start), start));
        assert!(!ended.end(&begun(0, start), start));
        let over = start.plus(LASTS);
        assert!(ended.end(&begun(1, over), over));
        assert_eq!(ended.0.lock().order.len(), 1, "the first one is over");
        for state in 2..ENDED_MAX + 2 {
            assert!(ended.end(&begun(state, over), over));
        }
        let remembered = ended.0.lock();
        assert_eq!((remembered.order.len(), remembered.states.len()), (ENDED_MAX, ENDED_MAX));
    }
}
