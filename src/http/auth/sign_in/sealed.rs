//! The tokens of a sign-in, encrypted for the database with `auth.session_key`.
//!
//! Each text has a key of its own, derived from the configured key and 256 random bits (HKDF with SHA-256), so no key
//! encrypts twice. The text belongs to its sign-in: the row of another one cannot be given it.

use crate::entropy::Entropy;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use holdpoint_core::id::SignInId;
use holdpoint_core::sign_in::SealedTokens;
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use ring::hkdf::{HKDF_SHA256, Salt};
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};
use std::fmt;

/// What the key is derived for.
const PURPOSE: &[u8] = b"holdpoint.sign-in.tokens.v1";

/// The tokens of a sign-in that are of use after it. The access token is none of them: its roles are in the row.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq)]
pub(in crate::http::auth) struct KeptTokens {
    /// With it the issuer gives new tokens. `None` if the issuer gave none.
    pub(in crate::http::auth) refresh: Option<String>,
    /// With it the issuer ends its own session without a question.
    pub(in crate::http::auth) id: Option<String>,
}

impl fmt::Debug for KeptTokens {
    /// Leaves out the tokens, which must not reach a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeptTokens").finish_non_exhaustive()
    }
}

/// Encrypts tokens.
#[derive(Debug)]
pub(in crate::http::auth) struct Seal(SecretString);

impl Seal {
    pub(in crate::http::auth) fn new(key: SecretString) -> Self {
        Self(key)
    }

    /// Encrypts the tokens of a sign-in, or returns `None` if the machine has no randomness to give.
    pub(in crate::http::auth) fn close(
        &self,
        id: SignInId,
        tokens: &KeptTokens,
        entropy: &dyn Entropy,
    ) -> Option<SealedTokens> {
        let salt = entropy.secret()?;
        let mut text = serde_json::to_vec(tokens).ok()?;
        let key = self.key(&salt)?;
        key.seal_in_place_append_tag(nonce(), Aad::from(id.to_string()), &mut text).ok()?;
        Some(SealedTokens(format!("{salt}.{}", URL_SAFE_NO_PAD.encode(text))))
    }

    /// Decrypts the tokens of a sign-in. Returns `None` if they were encrypted with another key or for another sign-in.
    pub(in crate::http::auth) fn open(&self, id: SignInId, sealed: &SealedTokens) -> Option<KeptTokens> {
        let (salt, text) = sealed.0.split_once('.')?;
        let mut text = URL_SAFE_NO_PAD.decode(text).ok()?;
        let text = self.key(salt)?.open_in_place(nonce(), Aad::from(id.to_string()), &mut text).ok()?;
        serde_json::from_slice(text).ok()
    }

    fn key(&self, salt: &str) -> Option<LessSafeKey> {
        let derived = Salt::new(HKDF_SHA256, salt.as_bytes()).extract(self.0.expose_secret().as_bytes());
        let derived = derived.expand(&[PURPOSE], &CHACHA20_POLY1305).ok()?;
        Some(LessSafeKey::new(UnboundKey::from(derived)))
    }
}

/// The same for every text, because every text has a key of its own.
fn nonce() -> Nonce {
    Nonce::assume_unique_for_key([0; 12])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entropy::SystemEntropy;
    use uuid::Uuid;

    fn seal(key: &str) -> Seal {
        Seal::new(key.to_owned().into())
    }

    #[test]
    fn tokens_open_with_their_key_for_their_sign_in_alone() {
        let tokens = KeptTokens { refresh: Some("secret-refresh".to_owned()), id: None };
        let (id, other) = (SignInId::new(Uuid::from_u128(1)), SignInId::new(Uuid::from_u128(2)));
        let own = seal("a key of at least thirty-two bytes");
        let sealed = own.close(id, &tokens, &SystemEntropy).unwrap();
        assert!(!sealed.0.contains("secret-refresh") && !format!("{tokens:?}").contains("secret-refresh"));
        assert_eq!(own.open(id, &sealed), Some(tokens.clone()));
        assert_eq!(own.open(other, &sealed), None);
        assert_eq!(seal("another key of at least thirty-two").open(id, &sealed), None);
        let again = own.close(id, &tokens, &SystemEntropy).unwrap();
        assert_ne!(again, sealed);
        for at in [0, 70, sealed.0.len() - 1] {
            let mut changed = sealed.0.clone().into_bytes();
            changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
            assert_eq!(own.open(id, &SealedTokens(String::from_utf8(changed).unwrap())), None, "{at}");
        }
    }
}
