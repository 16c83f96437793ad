//! What the entries of tools in the configuration have in common.

use holdpoint_settings::{ConfigError, is_plain_name, text_of_file, wrong};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::path::PathBuf;

/// The harm that a tool can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ToolRisk {
    /// The tool reads, or its effect is easily undone.
    Low,
    /// The tool changes something that matters.
    Medium,
    /// The effect of the tool cannot be undone.
    High,
}

/// The keys by which an entry describes its tool. serde cannot read them from a part of an entry that also refuses
/// unknown keys, so each entry has them and lends them here.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ToolEntry<'a> {
    pub(crate) name: &'a str,
    pub(crate) description: &'a str,
    pub(crate) input_schema: &'a Map<String, Value>,
    pub(crate) input_schema_file: Option<&'a PathBuf>,
    pub(crate) hil: bool,
    pub(crate) risk: Option<ToolRisk>,
    pub(crate) headline: Option<&'a String>,
    pub(crate) idempotent: bool,
}

impl ToolEntry<'_> {
    /// Returns the schema of the inputs that the model chooses. `key` is the key of the entry.
    pub(crate) fn read_schema(&self, key: &str) -> Result<Map<String, Value>, ConfigError> {
        let Some(path) = self.input_schema_file else { return Ok(self.input_schema.clone()) };
        let key = format!("{key}.input_schema_file");
        let read = serde_json::from_str(&text_of_file(&key, path)?);
        read.map_err(|error| ConfigError::Value { key, why: format!("{}: {error}", path.display()) })
    }

    pub(crate) fn check(&self, key: &str) -> Result<(), ConfigError> {
        let key = |field: &str| format!("{key}.{field}");
        if !is_plain_name(self.name, 64) {
            return wrong(key("name"), "expected 1 to 64 of a-z, A-Z, 0-9, _ and -");
        }
        if self.description.trim().is_empty() {
            return wrong(key("description"), "expected what the tool does, for the model and the approver");
        }
        match (self.input_schema.is_empty(), self.input_schema_file) {
            (true, None) => wrong(key("input_schema"), "expected this or input_schema_file"),
            (false, Some(_)) => {
                wrong(key("input_schema"), "expected either this or input_schema_file, not both")
            }
            (true, Some(_)) | (false, None) => Ok(()),
        }
    }
}

/// Refuses a name that an earlier tool of the list has.
pub(crate) fn check_names<'a>(
    list: &str,
    names: impl Iterator<Item = &'a String>,
) -> Result<(), ConfigError> {
    let mut seen = std::collections::BTreeSet::new();
    for (index, name) in names.enumerate() {
        if !seen.insert(name) {
            let why = format!("expected another name than {name:?}, which another tool has");
            return wrong(format!("{list}[{index}].name"), why);
        }
    }
    Ok(())
}

pub(crate) const fn yes() -> bool {
    true
}
