//! Signatures of requests from Slack, version 0: HMAC-SHA256 over `v0:{timestamp}:{body}`.

use hmac::{Hmac, Mac};
use sha2::Sha256;
use std::fmt;

/// The header with the time of the request, in seconds since 1970.
pub(super) const TIMESTAMP: &str = "x-slack-request-timestamp";
/// The header with the signature.
pub(super) const SIGNATURE: &str = "x-slack-signature";

/// How far the time of a request may be from the time here, in seconds.
const TOLERANCE: u64 = 300;
const VERSION: &str = "v0";

/// The headers of a request from Slack.
#[derive(Debug, Clone, Copy)]
pub(super) struct SignatureHeaders<'a> {
    pub(super) timestamp: &'a str,
    pub(super) signature: &'a str,
}

/// The secret that Slack shares with one application.
#[derive(Clone)]
pub(super) struct SigningSecret(Hmac<Sha256>);

impl fmt::Debug for SigningSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SigningSecret")
    }
}

/// Why a request is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SignatureRefusal {
    /// The request is too old, or from the future, or its time cannot be read.
    Time,
    /// The signature is not one of this secret.
    Signature,
}

impl SigningSecret {
    /// Reads the secret as Slack shows it. `None` if it is empty.
    pub(super) fn new(secret: &str) -> Option<Self> {
        let key = (!secret.is_empty()).then_some(secret)?;
        Hmac::new_from_slice(key.as_bytes()).ok().map(Self)
    }

    /// Verifies a request at this time, in seconds since 1970. The signature is compared in constant time.
    pub(super) fn verify(
        &self,
        signed: SignatureHeaders<'_>,
        body: &[u8],
        now: i64,
    ) -> Result<(), SignatureRefusal> {
        signed.check_time(now)?;
        let given =
            signed.signature.strip_prefix("v0=").and_then(bytes).ok_or(SignatureRefusal::Signature)?;
        let mut mac = self.0.clone();
        for piece in [VERSION.as_bytes(), b":", signed.timestamp.as_bytes(), b":", body] {
            mac.update(piece);
        }
        mac.verify_slice(&given).map_err(|_| SignatureRefusal::Signature)
    }
}

impl SignatureHeaders<'_> {
    /// Checks the time of the request, which needs no body.
    pub(super) fn check_time(&self, now: i64) -> Result<(), SignatureRefusal> {
        let is_number = self.timestamp.bytes().all(|byte| byte.is_ascii_digit());
        let at: i64 = self.timestamp.parse().ok().filter(|_| is_number).ok_or(SignatureRefusal::Time)?;
        if now.abs_diff(at) > TOLERANCE { Err(SignatureRefusal::Time) } else { Ok(()) }
    }
}

/// Returns the bytes of hexadecimal digits.
fn bytes(digits: &str) -> Option<Vec<u8>> {
    let is_hex = digits.len() == 64 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    let digits = is_hex.then_some(digits)?;
    let pairs = (0..digits.len()).step_by(2).map(|at| digits.get(at..at + 2));
    pairs.map(|pair| u8::from_str_radix(pair?, 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    // The example of Slack's documentation ("Verifying requests from Slack").
    const SECRET: &str = "8f742231b10e8888abcd99yyyzzz85a5";
    const AT: &str = "1531420618";
    const BODY: &str = "token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow\
        &channel_id=G8PSS9T3V&channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect\
        &text=&response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN\
        &trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c";
    const SIGNED: &str = "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503";

    fn verify(timestamp: &str, signature: &str, body: &str, now: i64) -> Result<(), SignatureRefusal> {
        SigningSecret::new(SECRET).unwrap().verify(
            SignatureHeaders { timestamp, signature },
            body.as_bytes(),
            now,
        )
    }

    #[test]
    fn the_example_of_slack_is_valid_for_five_minutes() {
        let now = 1_531_420_618;
        for (later, verified) in [
            (0, Ok(())),
            (300, Ok(())),
            (-300, Ok(())),
            (301, Err(SignatureRefusal::Time)),
            (-301, Err(SignatureRefusal::Time)),
        ] {
            assert_eq!(verify(AT, SIGNED, BODY, now + later), verified, "{later}");
        }
    }

    #[test]
    fn another_body_time_version_or_form_of_a_signature_is_refused() {
        let now = 1_531_420_618;
        for (at, signature, body, why) in [
            (AT, SIGNED, "token=xyzz", SignatureRefusal::Signature),
            ("1531420619", SIGNED, BODY, SignatureRefusal::Signature),
            ("+1531420618", SIGNED, BODY, SignatureRefusal::Time),
            ("", SIGNED, BODY, SignatureRefusal::Time),
            (AT, "", BODY, SignatureRefusal::Signature),
            (AT, "v0=", BODY, SignatureRefusal::Signature),
            (AT, &SIGNED.replace("v0=", "v1="), BODY, SignatureRefusal::Signature),
            (AT, &SIGNED[..SIGNED.len() - 2], BODY, SignatureRefusal::Signature),
            (AT, &SIGNED.replace("a2", "+2"), BODY, SignatureRefusal::Signature),
        ] {
            assert_eq!(verify(at, signature, body, now), Err(why), "{at} {signature}");
        }
        assert!(SigningSecret::new("").is_none());
    }
}
