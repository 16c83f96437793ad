//! Sessions of browsers: a cookie of this host with the access token of a sign-in, or with the secret of a sign-in that
//! the server keeps.
//!
//! The browser sends the cookie by itself, also when a page of another site has made the request. So the cookie
//! counts only together with the header [`CSRF_HEADER`], whose value only a page of this origin can read.

use super::signing::{Purpose, SigningKey};
use crate::http::failure::error::ApiError;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use holdpoint_core::clock::{Clock, Timestamp};
use holdpoint_core::id::SignInId;
use holdpoint_core::sign_in::SecretHash;
use poem::Request;
use poem::http::header::COOKIE;
use poem::http::{HeaderMap, HeaderValue};
use sha2::{Digest, Sha256};

/// The name of the cookie. The prefix makes browsers require `Secure` and `Path=/`, and refuse a cookie for a whole
/// domain (RFC 6265bis, 4.1.3.2).
const NAME: &str = "__Host-holdpoint";
/// The longest name and value together that browsers keep, in bytes (RFC 6265bis, 5.6).
const BYTES_MAX: usize = 4096;
/// The header that a request with the cookie carries.
const CSRF_HEADER: &str = "x-csrf-token";
/// The separator of domains between hashes of the cookie.
const CSRF_DOMAIN: &[u8] = b"holdpoint.csrf.v1\0";
/// The route whose response has the value of [`CSRF_HEADER`]. A page of another origin cannot read the response.
const SESSION_PATH: &str = "/auth/session";

/// The session of a request.
#[derive(Debug, Clone)]
pub(in crate::http) struct Session {
    /// The value of [`CSRF_HEADER`] for the session.
    pub(in crate::http) csrf_token: String,
    /// The sign-in, if the server keeps it, and its end.
    pub(in crate::http) kept: Option<(SignInId, Timestamp)>,
}

impl Session {
    fn of(cookie: &str) -> Self {
        let hash = Sha256::new().chain_update(CSRF_DOMAIN).chain_update(cookie).finalize();
        Self { csrf_token: URL_SAFE_NO_PAD.encode(hash), kept: None }
    }

    /// The session of this sign-in, which the server keeps until `ends_at`.
    pub(super) fn kept_as(self, id: SignInId, ends_at: Timestamp) -> Self {
        Self { kept: Some((id, ends_at)), ..self }
    }
}

/// The cookie of a sign-in that the server keeps.
#[derive(Debug)]
pub(super) struct KeptCookie {
    /// 256 random bits, of which the database has the hash.
    pub(super) secret: String,
    /// When the sign-in ends at the latest.
    pub(super) ends_at: Timestamp,
}

impl KeptCookie {
    pub(super) fn signed(&self, key: &SigningKey) -> Option<String> {
        let text = format!("{}.{}", self.secret, self.ends_at.as_micros());
        let signature = URL_SAFE_NO_PAD.encode(key.sign(Purpose::Session, &text)?);
        Some(format!("{text}.{signature}"))
    }

    /// Reads the value of a cookie. Returns `None` if no server of this database has signed it.
    pub(super) fn of(value: &str, key: &SigningKey) -> Option<Self> {
        let (text, signature) = value.rsplit_once('.')?;
        if !key.has_signed(Purpose::Session, text, &URL_SAFE_NO_PAD.decode(signature).ok()?) {
            return None;
        }
        let (secret, ends_at) = text.split_once('.')?;
        let ends_at = Timestamp::from_micros(ends_at.parse().ok()?);
        Some(Self { secret: secret.to_owned(), ends_at })
    }

    pub(super) fn hash(&self) -> SecretHash {
        SecretHash::of(&self.secret)
    }
}

pub(super) fn value(headers: &HeaderMap) -> Option<&str> {
    cookie(headers, NAME)
}

/// Returns the session with this cookie, for a request from a page of this origin.
pub(super) fn check(request: &Request, cookie: &str) -> Result<Session, ApiError> {
    let session = Session::of(cookie);
    let path = request.uri().path();
    let is_session_path = path.strip_prefix("/api").unwrap_or(path) == SESSION_PATH;
    let sent = request.header(CSRF_HEADER).unwrap_or_default();
    // Compares hashes, so the time of the comparison reveals nothing.
    let is_own = Sha256::digest(sent) == Sha256::digest(&session.csrf_token);
    if is_own || is_session_path {
        return Ok(session);
    }
    let expected =
        "x-csrf-token: expected the csrf_token of GET /auth/session, which a request with the cookie needs.";
    Err(ApiError::forbidden(expected))
}

/// Returns the cookie that keeps a value until it ends, or `None` if the value is too long for a cookie.
pub(super) fn cookie_of(value: &str, ends_at: Option<Timestamp>, clock: &dyn Clock) -> Option<HeaderValue> {
    if NAME.len() + value.len() + 1 > BYTES_MAX {
        return None;
    }
    let lasts = ends_at.map(|ends_at| ends_at.since(clock.now()).as_secs());
    let max_age = lasts.map(|seconds| format!("; Max-Age={seconds}")).unwrap_or_default();
    HeaderValue::try_from(format!("{NAME}={value}; Path=/; Secure; HttpOnly; SameSite=Strict{max_age}")).ok()
}

/// The cookie that ends a session.
pub(in crate::http) const END: &str =
    "__Host-holdpoint=; Path=/; Secure; HttpOnly; SameSite=Strict; Max-Age=0";

/// Returns the value of the one cookie with this name (RFC 6265, 5.4).
pub(super) fn cookie<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let pairs = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut values = pairs.flat_map(|value| value.split(';')).filter_map(|pair| {
        let (named, value) = pair.trim().split_once('=')?;
        (named == name).then_some(value)
    });
    let only = values.next().filter(|value| !value.is_empty())?;
    values.next().is_none().then_some(only)
}
