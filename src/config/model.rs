//! `[model]`: who answers.

use super::auth::is_safe;
use super::{ConfigError, duration, shown, wrong};
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::fmt;
use std::time::Duration;

/// A person waits meanwhile.
const RETRIES_MAX: u32 = 10;
/// Fields of a request to a model that are written from the conversation.
const OWN_FIELDS: [&str; 10] = [
    "model",
    "stream",
    "messages",
    "system",
    "input",
    "instructions",
    "contents",
    "systemInstruction",
    "tools",
    "tool_choice",
];

/// `[model]`
#[derive(Clone, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Model {
    /// `provider`: who answers.
    #[serde(deserialize_with = "super::sources::word")]
    pub provider: Provider,
    /// `name`: the model's name at its provider.
    pub name: Option<String>,
    /// `base_url`: where the provider is, with its `/v1`; if absent, the provider's own address, except for `openai`,
    /// which is anybody's server.
    #[serde(serialize_with = "shown::url")]
    pub base_url: Option<String>,
    /// `api_key`: the key for the provider.
    #[serde(serialize_with = "shown::secret")]
    pub api_key: Option<SecretString>,
    /// `allow_insecure`: whether the key may be sent in clear to another machine, to a `base_url` with `http`.
    pub allow_insecure: bool,
    /// `system_prompt`: the operator's instructions to the model.
    pub system_prompt: Option<String>,
    /// `max_steps`: model calls of one answer; then one last without tools.
    pub max_steps: usize,
    /// `first_byte_timeout`: how long a model may take to begin its answer.
    #[serde(with = "super::sources::duration")]
    pub first_byte_timeout: Duration,
    /// `idle_timeout`: how long a model may be silent in mid-answer.
    #[serde(with = "super::sources::duration")]
    pub idle_timeout: Duration,
    /// `retries`: how often a model that cannot be had is asked again, while nothing of its answer was told.
    pub retries: u32,
    /// `options`: fields to put into the body of each request, beside ours or in place of them: what turns reasoning
    /// on, a temperature. A table, or JSON in one text.
    #[serde(deserialize_with = "super::sources::table_or_json", serialize_with = "shown::table_or_json")]
    pub options: Map<String, Value>,
}

impl Default for Model {
    fn default() -> Self {
        Self {
            provider: Provider::Scripted,
            name: None,
            base_url: None,
            api_key: None,
            allow_insecure: false,
            system_prompt: None,
            max_steps: 10,
            first_byte_timeout: Duration::from_secs(60),
            idle_timeout: Duration::from_secs(60),
            retries: 3,
            options: Map::new(),
        }
    }
}

/// Who answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Provider {
    /// The deterministic demo model.
    Scripted,
    /// Any server with `{base_url}/chat/completions`.
    #[serde(rename = "openai")]
    OpenAi,
    /// OpenAI, with `{base_url}/responses`.
    #[serde(rename = "openai-responses")]
    OpenAiResponses,
    /// Anthropic.
    Anthropic,
    /// Google.
    Gemini,
    /// Ollama.
    Ollama,
}

impl fmt::Debug for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        shown::debug(self, f)
    }
}

impl Model {
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        duration("model.first_byte_timeout", self.first_byte_timeout)?;
        duration("model.idle_timeout", self.idle_timeout)?;
        if self.provider != Provider::Scripted && self.name.as_deref().unwrap_or_default().is_empty() {
            return wrong(
                "model.name",
                "expected the model's name, which every provider but \"scripted\" needs",
            );
        }
        if self.provider == Provider::OpenAi && self.base_url.is_none() {
            return wrong("model.base_url", "expected the server's URL, which provider \"openai\" needs");
        }
        let has_key = self.api_key.as_ref().is_some_and(|key| !key.expose_secret().is_empty());
        let in_clear = self.base_url.as_deref().is_some_and(|url| !is_safe(url));
        if has_key && in_clear && !self.allow_insecure {
            let why = "the key would be sent in clear; expected an https:// URL, http:// on this machine, or \
                       model.allow_insecure = true";
            return wrong("model.base_url", why);
        }
        if let Some(field) = OWN_FIELDS.iter().find(|field| self.options.contains_key(**field)) {
            return wrong("model.options", format!("{field:?} is holdpoint's own; expected other fields"));
        }
        if self.retries > RETRIES_MAX {
            return wrong("model.retries", "expected at most 10");
        }
        Ok(())
    }
}
