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
    /// Protocol of the model's server; see the next table.
    ///
    /// Value: name of the next table, or `scripted`. Default: `scripted`.
    pub provider: Provider,
    /// Name of the model at the provider. Required except for `scripted`.
    ///
    /// Value: text. Default: none.
    pub name: Option<String>,
    /// Address of the model's server, with its `/v1`. Required without a default in the next table. A query, a fragment, a user name or a
    /// password is an error.
    ///
    /// Value: URL. Default: the provider's.
    #[serde(serialize_with = "shown::url")]
    pub base_url: Option<String>,
    /// Key for the provider.
    ///
    /// Value: text, or a file. Default: none.
    #[serde(serialize_with = "shown::secret")]
    pub api_key: Option<SecretString>,
    /// Whether the server may send `api_key` over `http://` to another machine.
    ///
    /// Value: switch. Default: `false`.
    pub allow_insecure: bool,
    /// Instructions to the model, sent with every request. A sub-agent's `INSTRUCTIONS` replace them.
    ///
    /// Value: text. Default: none.
    pub system_prompt: Option<String>,
    /// Model calls in one answer that may call tools. One more follows, with the same tools and without the
    /// permission to call them. If the model still asks for tools, the run fails with `step_limit`.
    ///
    /// Value: integer. Default: `10`.
    pub max_steps: usize,
    /// Most tokens of a request; a longer conversation is [shortened](protocol.md#long-conversations). Leave room for
    /// the answer: for a model with 128,000 tokens, 110,000. Without it only a refusal of the model's server shortens
    /// a conversation.
    ///
    /// Value: integer, at least 1024. Default: none.
    pub context_tokens: Option<u64>,
    /// Longest wait for the first event of an answer. A reasoning model can think for minutes before it. Pages get
    /// [keep-alives](protocol.md) meanwhile.
    ///
    /// Value: duration. Default: `600s`.
    #[serde(with = "holdpoint_settings::forms::duration")]
    pub first_byte_timeout: Duration,
    /// Longest wait between two events of an answer.
    ///
    /// Value: duration. Default: `60s`.
    #[serde(with = "holdpoint_settings::forms::duration")]
    pub idle_timeout: Duration,
    /// Further attempts while the model is unavailable.
    ///
    /// Value: integer, 0 to 10. Default: `3`.
    pub retries: u32,
    /// Fields added to the body of each request, or put in place of holdpoint's.
    ///
    /// Value: table. Default: empty.
    #[serde(
        deserialize_with = "holdpoint_settings::forms::table_or_json",
        serialize_with = "shown::table_or_json"
    )]
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
