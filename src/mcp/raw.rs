//! What a server has sent, as a text, before the library reads it.

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use std::borrow::Cow;

/// Maximum size of one message of a server, in bytes. A longer message is dropped while it arrives.
pub(super) const MESSAGE_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Maximum size of a message that is no answer, in bytes. The forms that people are asked are shorter.
const REQUEST_BYTES_MAX: usize = 128 * 1024;

/// The parts of a message that decide whether it is read.
#[derive(Deserialize)]
struct Message<'a> {
    method: Option<IgnoredAny>,
    #[serde(borrow)]
    result: Option<&'a RawValue>,
}

/// Returns what is read of a message. `None`: a request or a notification that is too long, and anything as long that is
/// no message. A server may send many of them at once, and each is kept until it is answered.
pub(super) fn admitted(text: &str) -> Option<Cow<'_, str>> {
    match serde_json::from_str::<Message<'_>>(text) {
        Ok(Message { method: None, result: Some(_) }) => Some(Cow::Borrowed(text)),
        Ok(_) | Err(_) => (text.len() <= REQUEST_BYTES_MAX).then_some(Cow::Borrowed(text)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_answer_may_be_long() {
        let long = "x".repeat(REQUEST_BYTES_MAX);
        assert!(admitted(&format!(r#"{{"id":1,"result":{{"a":"{long}"}}}}"#)).is_some());
        for refused in [
            format!(r#"{{"id":1,"method":"elicitation/create","params":{{"message":"{long}"}}}}"#),
            format!(r#"{{"method":"ping","id":1,"result":{{"a":"{long}"}}}}"#),
            format!(r#"{{"id":1,"error":{{"message":"{long}"}}}}"#),
            format!(r#"{{"id":1,"result":{{"a":"{long}"}}"#),
            format!(r#"["{long}"]"#),
        ] {
            assert!(admitted(&refused).is_none(), "{}", &refused[..60]);
        }
        for short in [r#"{"id":1,"method":"ping"}"#, "[]", "no JSON"] {
            assert_eq!(admitted(short).as_deref(), Some(short));
        }
    }
}
