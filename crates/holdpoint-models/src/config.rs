//! `[model]`: the model that answers.

use crate::OWN_FIELDS;
use crate::provider::Provider;
use holdpoint_settings::{ConfigError, check_duration, is_safe, shown, wrong};
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::fmt;
use std::time::Duration;

/// The most retries. A person waits meanwhile.
const RETRIES_MAX: u32 = 10;
/// The smallest limit of tokens. A model that reads less cannot work with tools.
const CONTEXT_TOKENS_MIN: u64 = 1024;

/// `[model]`
#[derive(Clone, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Model {
    /// `provider`: the protocol of the model's server, or the demo model.
    pub provider: Provider,
    /// `name`: the name of the model at its provider.
    pub name: Option<String>,
    /// `base_url`: the address of the model's server, with its `/v1`. Defaults to the provider's own address.
    /// `openai` has no default, because many servers use this protocol.
    #[serde(serialize_with = "shown::url")]
    pub base_url: Option<String>,
    /// `api_key`: the key for the provider.
    #[serde(serialize_with = "shown::secret")]
    pub api_key: Option<SecretString>,
    /// `allow_insecure`: whether the server may send the key unencrypted to another machine, to a `base_url`
    /// with `http`.
    pub allow_insecure: bool,
    /// `system_prompt`: the instructions of the operator to the model.
    pub system_prompt: Option<String>,
    /// `max_steps`: model calls in one answer that may call tools. One more follows, which may not.
    pub max_steps: usize,
    /// `context_tokens`: the most tokens of a request. A longer conversation is shortened. By default only the refusals of
    /// the model's server set a limit.
    pub context_tokens: Option<u64>,
    /// `first_byte_timeout`: the longest wait for the start of an answer.
    #[serde(with = "holdpoint_settings::forms::duration")]
    pub first_byte_timeout: Duration,
    /// `idle_timeout`: the longest pause within an answer.
    #[serde(with = "holdpoint_settings::forms::duration")]
    pub idle_timeout: Duration,
    /// `retries`: further attempts while the model is unavailable. The server retries only before it emits a
    /// part of the answer.
    pub retries: u32,
    /// `options`: fields that are added to the body of each request, or that replace fields of holdpoint,
    /// such as the settings of reasoning or a temperature. A table, or JSON in one string.
    #[serde(deserialize_with = "holdpoint_settings::forms::table_or_json", serialize_with = "shown::table_or_json")]
    pub options: Map<String, Value>,
}

impl Default for Model {
    fn default() -> Self {
        Self {
            provider: Provider::SCRIPTED,
            name: None,
            base_url: None,
            api_key: None,
            allow_insecure: false,
            system_prompt: None,
            max_steps: 10,
            context_tokens: None,
            // A reasoning model can think for minutes before its first event.
            first_byte_timeout: Duration::from_secs(600),
            idle_timeout: Duration::from_secs(60),
            retries: 3,
            options: Map::new(),
        }
    }
}

impl fmt::Debug for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        shown::debug(self, f)
    }
}

impl Model {
    /// Checks the values.
    ///
    /// # Errors
    /// The first value that is not allowed.
    pub fn check(&self) -> Result<(), ConfigError> {
        check_duration("model.first_byte_timeout", self.first_byte_timeout)?;
        check_duration("model.idle_timeout", self.idle_timeout)?;
        if self.provider != Provider::SCRIPTED && self.name.as_deref().unwrap_or_default().is_empty() {
            return wrong(
                "model.name",
                "expected the model's name, which every provider but \"scripted\" needs",
            );
        }
        if self.provider.needs_base_url() && self.base_url.is_none() {
            let provider = self.provider.as_str();
            let why = format!("expected the server's URL, which provider {provider:?} needs");
            return wrong("model.base_url", why);
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
        if self.context_tokens.is_some_and(|tokens| tokens < CONTEXT_TOKENS_MIN) {
            return wrong("model.context_tokens", "expected at least 1024");
        }
        if self.retries > RETRIES_MAX {
            return wrong("model.retries", "expected at most 10");
        }
        Ok(())
    }
}
