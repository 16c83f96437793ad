//! Signatures of requests by Standard Webhooks 1.0.0, with HMAC-SHA256.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use std::fmt;

/// The header with the id of a message. A repeated message has the same id.
pub const ID: &str = "webhook-id";
/// The header with the time of the request, in seconds since 1970.
pub const TIMESTAMP: &str = "webhook-timestamp";
/// The header with the signatures, with a space between two.
pub const SIGNATURE: &str = "webhook-signature";

/// How far the time of a received message may be from the time here, in seconds: as the libraries of the
/// specification have it.
const TOLERANCE: u64 = 300;
/// The word of the kind of signature, before each signature.
const VERSION: &str = "v1,";

/// The beginning of a secret; the key follows in base64.
const PREFIX: &str = "whsec_";
/// Maximum number of signatures that are compared for one message.
const MACS_MAX: usize = 8;
/// The shortest and the longest key, in bytes.
const KEY_BYTES: std::ops::RangeInclusive<usize> = 24..=64;

/// The headers of a received message.
#[derive(Debug, Clone, Copy)]
pub struct SignedHeaders<'a> {
    /// The value of [`ID`].
    pub id: &'a str,
    /// The value of [`TIMESTAMP`].
    pub timestamp: &'a str,
    /// The value of [`SIGNATURE`].
    pub signature: &'a str,
}

/// Why a received message is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefusedMessage {
    /// The message is too old, or from the future, or its time cannot be read.
    Time,
    /// None of its signatures is made with one of the keys.
    Signature,
}

/// The keys that the server shares with one service. Each side may know any of them, so a key can be replaced
/// without a pause.
#[derive(Clone)]
pub struct Signer(Vec<Hmac<Sha256>>);

impl fmt::Debug for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Signer").field("keys", &self.0.len()).finish()
    }
}

impl Signer {
    /// Parses secrets, one per line. The error is the expectation, without the text.
    pub fn parse(secrets: &str) -> Result<Self, &'static str> {
        let lines = secrets.lines().map(str::trim).filter(|line| !line.is_empty());
        let keys = lines.map(key).collect::<Option<Vec<_>>>();
        match keys {
            Some(keys) if !keys.is_empty() => Ok(Self(keys)),
            Some(_) | None => Err("expected secrets, one per line: whsec_ and 24 to 64 bytes in base64"),
        }
    }

    /// Returns the value of the header [`SIGNATURE`] for a message: one signature per key.
    pub fn sign(&self, id: &str, timestamp: &str, body: &[u8]) -> String {
        let signatures = self.0.iter().map(|key| {
            let mac = over(key, &[id.as_bytes(), b".", timestamp.as_bytes(), b".", body]);
            format!("{VERSION}{}", STANDARD.encode(mac.finalize().into_bytes()))
        });
        signatures.collect::<Vec<_>>().join(" ")
    }

    /// Verifies a received message at this time, in seconds since 1970. One valid signature of one key is enough.
    pub fn verify(&self, signed: SignedHeaders<'_>, body: &[u8], now: i64) -> Result<(), RefusedMessage> {
        let SignedHeaders { id, timestamp, signature } = signed;
        let at = timestamp.parse::<i64>().map_err(|_| RefusedMessage::Time)?;
        if now.abs_diff(at) > TOLERANCE {
            return Err(RefusedMessage::Time);
        }
        let signatures =
            signature.split(' ').filter_map(|one| STANDARD.decode(one.strip_prefix(VERSION)?).ok());
        let pieces = [id.as_bytes(), b".", timestamp.as_bytes(), b".", body];
        if self.made_one_of(&pieces, signatures) { Ok(()) } else { Err(RefusedMessage::Signature) }
    }

    /// Returns the HMACs by which the server recognizes a text that it gave away: one for each key. The text must not
    /// begin like a message, so that no signature is such an HMAC.
    pub fn macs(&self, text: &str) -> String {
        let mac = |key| URL_SAFE_NO_PAD.encode(over(key, &[text.as_bytes()]).finalize().into_bytes());
        self.0.iter().map(mac).collect::<Vec<_>>().join(".")
    }

    /// Whether one of these HMACs is one of the text with one of the keys.
    pub fn recognizes(&self, text: &str, macs: &str) -> bool {
        let macs = macs.split('.').filter_map(|mac| URL_SAFE_NO_PAD.decode(mac).ok());
        self.made_one_of(&[text.as_bytes()], macs)
    }

    /// Compares in constant time.
    fn made_one_of(&self, pieces: &[&[u8]], macs: impl Iterator<Item = Vec<u8>>) -> bool {
        let mut macs = macs.take(MACS_MAX);
        macs.any(|mac| self.0.iter().any(|key| over(key, pieces).verify_slice(&mac).is_ok()))
    }
}

fn over(key: &Hmac<Sha256>, pieces: &[&[u8]]) -> Hmac<Sha256> {
    let mut mac = key.clone();
    pieces.iter().for_each(|piece| mac.update(piece));
    mac
}

fn key(secret: &str) -> Option<Hmac<Sha256>> {
    let key = STANDARD.decode(secret.strip_prefix(PREFIX)?).ok()?;
    KEY_BYTES.contains(&key.len()).then(|| Hmac::new_from_slice(&key).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_the_specification_has_its_signature() {
        let signer = Signer::parse("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n").unwrap();
        let signed = signer.sign("msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", br#"{"test": 2432232314}"#);
        assert_eq!(signed, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn each_key_signs() {
        let keys = ["MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "C2FVsBQIhrscChlQIMV+b5sSYspob7oD"];
        let both = Signer::parse(&format!("whsec_{}\n\nwhsec_{}\n", keys[0], keys[1])).unwrap();
        let each = keys.map(|key| Signer::parse(&format!("whsec_{key}")).unwrap().sign("a", "1", b"{}"));
        assert_eq!(both.sign("a", "1", b"{}"), each.join(" "));
        assert_ne!(each[0], each[1]);
    }

    #[test]
    fn a_received_message_needs_one_signature_of_one_key_and_a_time_near_now() {
        let keys = ["MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "C2FVsBQIhrscChlQIMV+b5sSYspob7oD"];
        let [old, new] = keys.map(|key| Signer::parse(&format!("whsec_{key}")).unwrap());
        let both = Signer::parse(&format!("whsec_{}\nwhsec_{}", keys[0], keys[1])).unwrap();
        let verify = |by: &Signer, timestamp: &str, signature: &str, body: &[u8]| {
            by.verify(SignedHeaders { id: "a", timestamp, signature }, body, 1000)
        };
        for signs in [&old, &new, &both] {
            for verifies in [&old, &new, &both] {
                let known = std::ptr::eq(signs, verifies)
                    || std::ptr::eq(signs, &both)
                    || std::ptr::eq(verifies, &both);
                let signature = signs.sign("a", "1000", b"{}");
                assert_eq!(verify(verifies, "1000", &signature, b"{}").is_ok(), known);
                assert_eq!(verifies.recognizes("text", &signs.macs("text")), known);
                assert!(!verifies.recognizes("texts", &signs.macs("text")));
            }
        }
        let signature = old.sign("a", "1000", b"{}");
        assert_eq!(verify(&old, "1000", &signature, b"{ }"), Err(RefusedMessage::Signature));
        assert_eq!(verify(&old, "1001", &signature, b"{}"), Err(RefusedMessage::Signature));
        assert_eq!(
            verify(&old, "1000", &signature.replace("v1,", "v1a,"), b"{}"),
            Err(RefusedMessage::Signature)
        );
        for (timestamp, near) in
            [("700", true), ("699", false), ("1300", true), ("1301", false), ("x", false), ("", false)]
        {
            let signature = old.sign("a", timestamp, b"{}");
            assert_eq!(verify(&old, timestamp, &signature, b"{}").is_ok(), near, "{timestamp}");
        }
        for macs in ["", ".", "x", "AAAA.BBBB"] {
            assert!(!old.recognizes("text", macs), "{macs}");
        }
        let ninth = format!("{}{}", "AAAA.".repeat(8), old.macs("text"));
        assert!(!old.recognizes("text", &ninth));
    }

    #[test]
    fn a_secret_of_another_form_is_refused() {
        for secrets in [
            "",
            "\n",
            "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
            "whsec_short",
            "whsec_MfKQ9r8GKYqrTwjU",
            "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\nhunter2",
        ] {
            assert!(Signer::parse(secrets).is_err(), "{secrets}");
        }
        assert!(Signer::parse(&format!("whsec_{}", STANDARD.encode([7; 65]))).is_err());
        assert_eq!(
            format!("{:?}", Signer::parse("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap()),
            "Signer { keys: 1 }"
        );
    }
}
