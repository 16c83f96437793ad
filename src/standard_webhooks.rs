//! Signatures of outgoing requests by Standard Webhooks 1.0.0, with HMAC-SHA256.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, Mac};
use sha2::Sha256;
use std::fmt;

/// The header with the id of a message. A repeated message has the same id.
pub(crate) const ID: &str = "webhook-id";
/// The header with the time of the request, in seconds since 1970.
pub(crate) const TIMESTAMP: &str = "webhook-timestamp";
/// The header with the signatures, with a space between two.
pub(crate) const SIGNATURE: &str = "webhook-signature";

/// The beginning of a secret; the key follows in base64.
const PREFIX: &str = "whsec_";
/// The shortest and the longest key, in bytes.
const KEY_BYTES: std::ops::RangeInclusive<usize> = 24..=64;

/// The keys of one receiver. The receiver may know any of them, so a key can be replaced without a pause.
#[derive(Clone)]
pub(crate) struct Signer(Vec<Hmac<Sha256>>);

impl fmt::Debug for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Signer").field("keys", &self.0.len()).finish()
    }
}

impl Signer {
    /// Parses secrets, one per line. The error is the expectation, without the text.
    pub(crate) fn parse(secrets: &str) -> Result<Self, &'static str> {
        let lines = secrets.lines().map(str::trim).filter(|line| !line.is_empty());
        let keys = lines.map(key).collect::<Option<Vec<_>>>();
        match keys {
            Some(keys) if !keys.is_empty() => Ok(Self(keys)),
            Some(_) | None => Err("expected secrets, one per line: whsec_ and 24 to 64 bytes in base64"),
        }
    }

    /// Returns the value of the header [`SIGNATURE`] for a message: one signature per key.
    pub(crate) fn sign(&self, id: &str, timestamp: &str, body: &[u8]) -> String {
        let signature = |key: &Hmac<Sha256>| {
            let mut mac = key.clone();
            for piece in [id.as_bytes(), b".", timestamp.as_bytes(), b".", body] {
                mac.update(piece);
            }
            format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
        };
        self.0.iter().map(signature).collect::<Vec<_>>().join(" ")
    }
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
