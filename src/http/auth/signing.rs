//! What this server gives to browsers, and recognizes by its signature when it comes back, without the database.

use hmac::{Hmac, KeyInit, Mac};
use secrecy::{ExposeSecret, SecretString};
use sha2::Sha256;

/// The key of the signatures, the same for all servers of a database.
#[derive(Debug, Clone)]
pub(super) struct SigningKey(SecretString);

/// What a signed text is for. A text that was signed for one purpose counts for no other one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// A ticket. The texts of the other purposes contain a character that no ticket has.
    Ticket,
    /// A sign-in in progress.
    SignIn,
    /// The session of a sign-in that the server keeps.
    Session,
}

impl Purpose {
    fn prefix(self) -> &'static str {
        match self {
            Self::Ticket => "",
            Self::SignIn => "holdpoint.sign-in.v1\0",
            Self::Session => "holdpoint.session.v1\0",
        }
    }
}

impl SigningKey {
    pub(super) fn new(key: SecretString) -> Self {
        Self(key)
    }

    /// Returns the signature of a text, or `None` if the key cannot be used.
    pub(super) fn sign(&self, purpose: Purpose, text: &str) -> Option<[u8; 32]> {
        Some(self.mac(purpose, text)?.finalize().into_bytes().into())
    }

    /// Whether this is the signature of the text. The comparison takes the same time for every signature.
    pub(super) fn has_signed(&self, purpose: Purpose, text: &str, signature: &[u8]) -> bool {
        self.mac(purpose, text).is_some_and(|mac| mac.verify_slice(signature).is_ok())
    }

    fn mac(&self, purpose: Purpose, text: &str) -> Option<Hmac<Sha256>> {
        let mut mac = Hmac::<Sha256>::new_from_slice(self.0.expose_secret().as_bytes()).ok()?;
        mac.update(purpose.prefix().as_bytes());
        mac.update(text.as_bytes());
        Some(mac)
    }
}
