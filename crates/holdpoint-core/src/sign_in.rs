//! Sign-ins: the sessions of people at the console that the server keeps.

use super::Principal;
use super::clock::Timestamp;
use super::id::SignInId;
use crate::json::hex::hex;
use sha2::{Digest, Sha256};

/// The longest name of a browser that is kept, in characters.
const BROWSER_CHARS_MAX: usize = 200;

/// The hash of the secret in the cookie of a sign-in. It reveals nothing of the secret, which has 256 random bits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretHash(String);

impl SecretHash {
    /// Returns the form of a secret that is stored.
    pub fn of(secret: &str) -> Self {
        Self(hex(&Sha256::digest(secret)))
    }

    /// Returns the text in its row.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A sign-in in force. A row exists as long as the sign-in does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignIn {
    /// The id, which is no secret.
    pub id: SignInId,
    /// The person, with the roles of the last access token.
    pub person: Principal,
    /// When the server stops accepting the last access token. Later the person is not known without a new token.
    pub known_until: Timestamp,
    /// No process asks the issuer for new tokens before this time, besides the one that asks now.
    pub rests_until: Option<Timestamp>,
    /// Whether a process asks the issuer for new tokens, or did when it died.
    pub is_asked: bool,
    /// What the browser calls itself. Any text.
    pub browser: String,
    /// When the person signed in.
    pub begun_at: Timestamp,
    /// When the sign-in ends whatever the issuer says.
    pub ends_at: Timestamp,
}

/// What the issuer gave at a sign-in or at its last renewal, encrypted. The text of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SealedTokens(pub String);

/// Returns what is kept of the name that a browser gives itself.
pub fn browser(named: &str) -> String {
    named.chars().filter(|c| !c.is_control()).take(BROWSER_CHARS_MAX).collect()
}
