//! The values of `model.provider`.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The protocol of the model's server, or the demo model. Each protocol is a wire of `remote`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Provider {
    name: &'static str,
    /// The address of the provider's own servers. `None` for a protocol that many servers offer.
    default_base_url: Option<&'static str>,
}

impl Provider {
    /// The deterministic demo model, which has no server.
    pub const SCRIPTED: Self = Self { name: "scripted", default_base_url: None };
    /// Any server with `{base_url}/chat/completions`.
    pub const OPENAI: Self = Self { name: "openai", default_base_url: None };
    /// OpenAI, with `{base_url}/responses`.
    pub const OPENAI_RESPONSES: Self = Self::at("openai-responses", "https://api.openai.com/v1");
    /// Anthropic.
    pub const ANTHROPIC: Self = Self::at("anthropic", "https://api.anthropic.com/v1");
    /// Google.
    pub const GEMINI: Self = Self::at("gemini", "https://generativelanguage.googleapis.com/v1beta");
    /// Ollama.
    pub const OLLAMA: Self = Self::at("ollama", "http://127.0.0.1:11434");

    /// All providers.
    pub const ALL: [Self; 6] =
        [Self::SCRIPTED, Self::OPENAI, Self::OPENAI_RESPONSES, Self::ANTHROPIC, Self::GEMINI, Self::OLLAMA];

    const fn at(name: &'static str, base_url: &'static str) -> Self {
        Self { name, default_base_url: Some(base_url) }
    }

    /// Returns the name in the configuration.
    pub const fn as_str(self) -> &'static str {
        self.name
    }

    /// Returns the address of the provider's own servers.
    pub const fn default_base_url(self) -> Option<&'static str> {
        self.default_base_url
    }

    /// Returns whether `model.base_url` is required.
    pub fn needs_base_url(self) -> bool {
        self != Self::SCRIPTED && self.default_base_url.is_none()
    }
}

impl<'de> Deserialize<'de> for Provider {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        let known = Self::ALL.map(|provider| format!("`{}`", provider.name)).join(", ");
        let unknown = || D::Error::custom(format_args!("expected one of {known}, not {name:?}"));
        Self::ALL.into_iter().find(|provider| provider.name == name).ok_or_else(unknown)
    }
}

impl Serialize for Provider {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.name)
    }
}
