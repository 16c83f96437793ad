//! The values of `model.provider`.

use serde::{Serialize, Serializer};

/// The protocol of the model's server, or the demo model. Each protocol is a wire of `remote`, which has the constant of its
/// provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Provider {
    pub(crate) name: &'static str,
    /// The address of the provider's own servers. `None` for a protocol that many servers offer.
    pub(crate) default_base_url: Option<&'static str>,
}

impl Provider {
    /// The deterministic demo model, which has no server.
    pub const SCRIPTED: Self = Self { name: "scripted", default_base_url: None };

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

impl Serialize for Provider {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.name)
    }
}
