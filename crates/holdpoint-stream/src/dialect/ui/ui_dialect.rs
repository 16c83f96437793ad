//! The names of the dialects of the UI message stream in the configuration.

use crate::Dialect;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::sync::LazyLock;

/// A dialect of the UI message stream, which the configuration names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UiDialect(pub(in crate::dialect) &'static Dialect);

/// The names, in the order of [`Dialect::ALL`].
static NAMES: LazyLock<Vec<&'static str>> = LazyLock::new(|| all().map(|dialect| dialect.name).collect());

fn all() -> impl Iterator<Item = &'static Dialect> {
    Dialect::ALL.iter().copied().filter(|dialect| dialect.is_ui)
}

impl UiDialect {
    /// Returns the entry in the list of the dialects.
    pub const fn dialect(self) -> &'static Dialect {
        self.0
    }
}

impl Default for UiDialect {
    fn default() -> Self {
        Self::V6
    }
}

impl Serialize for UiDialect {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.0.name)
    }
}

impl<'de> Deserialize<'de> for UiDialect {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        let named = all().find(|dialect| dialect.name == name);
        named.map(Self).ok_or_else(|| de::Error::unknown_variant(&name, &NAMES))
    }
}
