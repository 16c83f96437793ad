//! The specs of tools that the configuration describes.

use super::{Input, RiskLevel, ToolSpec};
use crate::config::{ConfigError, ToolEntry, ToolRisk};
use serde_json::Value;

impl ToolSpec {
    /// Returns the spec of a tool of the configuration, without constants. `key` is the key of its entry.
    pub(crate) fn configured(entry: &ToolEntry<'_>, key: &str) -> Result<Self, ConfigError> {
        let mut input_schema = entry.read_schema(key)?;
        // As for tools in Rust: a schema that says nothing about other inputs allows none.
        input_schema.entry("additionalProperties").or_insert(Value::Bool(false));
        let risk = match entry.risk {
            Some(ToolRisk::Low) => RiskLevel::Low,
            Some(ToolRisk::Medium) => RiskLevel::Medium,
            Some(ToolRisk::High) => RiskLevel::High,
            None if entry.hil => RiskLevel::High,
            None => RiskLevel::Low,
        };
        Ok(Self {
            name: entry.name.to_owned(),
            description: entry.description.to_owned(),
            hil: entry.hil,
            idempotent: entry.idempotent,
            risk,
            headline: entry.headline.cloned(),
            preview: false,
            input_schema: Value::Object(input_schema),
            constants: Input::new(),
        })
    }
}
