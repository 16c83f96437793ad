//! Why there is no whole answer: what rig and the server say, as a [`ModelError`].
//!
//! Its text is for one line of a log: short, and without the key, which some servers repeat.

use crate::domain::call::cut;
use crate::llm::ModelError;
use rig_core::error::ProviderError;
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;

/// Enough of a server's words to know what is wrong.
const WORDS_BYTES_MAX: usize = 500;

/// What rig says, in our two kinds.
pub(super) fn failure(error: ProviderError, api_key: Option<&SecretString>) -> ModelError {
    match error {
        ProviderError::ProviderResponse(response) => {
            let said = harmless(&words(&response.body), api_key);
            ModelError::Upstream(match response.status {
                Some(status) => format!("status {}: {said}", status.as_u16()),
                None => format!("error in the stream: {said}"),
            })
        }
        ProviderError::Truncated => ModelError::Malformed("it broke off before its end".to_owned()),
        ProviderError::Json(error) => ModelError::Malformed(harmless(&error.to_string(), api_key)),
        ProviderError::Response(said) => ModelError::Malformed(harmless(&said, api_key)),
        ProviderError::Provider(said) => ModelError::Upstream(harmless(&said, api_key)),
        other => ModelError::Upstream(harmless(&other.to_string(), api_key)),
    }
}

/// The sentence in an error's body, or the body.
pub(super) fn words(body: &str) -> String {
    let parsed: Value = serde_json::from_str(body).unwrap_or_default();
    let mut places = ["/error/message", "/error", "/message", "/detail"].iter();
    places.find_map(|place| parsed.pointer(place)?.as_str()).unwrap_or(body).to_owned()
}

/// A server's words for one line of a log: short, and without the key, which some servers repeat.
fn harmless(said: &str, api_key: Option<&SecretString>) -> String {
    let key = api_key.map(|key| key.expose_secret()).filter(|key| !key.is_empty());
    let said = key.map_or_else(|| said.to_owned(), |key| said.replace(key, "[key]"));
    cut(said.replace(char::is_control, " "), WORDS_BYTES_MAX)
}
