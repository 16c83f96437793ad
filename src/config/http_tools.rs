//! `[[http_tools]]`: tools that other services run.

use super::{ConfigError, Egress, Tools, duration, shown, wrong};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// The longest time that a service has to answer, unless the tool has a `timeout` of its own.
const TIMEOUT: Duration = Duration::from_secs(30);

/// `[[http_tools]]`
#[derive(Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct HttpTool {
    /// `name`: the name by which the model calls the tool.
    pub name: String,
    /// `description`: what the tool does, for the model and the approver.
    pub description: String,
    /// `url`: the address that gets a POST for each execution.
    #[serde(serialize_with = "shown::plain_url")]
    pub url: String,
    /// `secret_file`: the file with the secrets that sign the requests, one per line.
    pub secret_file: PathBuf,
    /// `input_schema`: the JSON Schema of the inputs that the model chooses. A table, or JSON in one string.
    #[serde(
        default,
        deserialize_with = "in_order",
        serialize_with = "shown::table_or_json",
        skip_serializing_if = "Map::is_empty"
    )]
    pub input_schema: Map<String, Value>,
    /// `input_schema_file`: the file with this schema, as JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_schema_file: Option<PathBuf>,
    /// `constants`: inputs that the operator sets. The model neither sees nor chooses them.
    #[serde(
        default,
        deserialize_with = "in_order",
        serialize_with = "shown::table_or_json",
        skip_serializing_if = "Map::is_empty"
    )]
    pub constants: Map<String, Value>,
    /// `hil`: whether a person has to approve each call.
    #[serde(default = "yes")]
    pub hil: bool,
    /// `risk`: the risk of a call, shown to the approver. Defaults to high if a person has to approve, else low.
    #[serde(
        default,
        deserialize_with = "super::sources::some_word",
        skip_serializing_if = "Option::is_none"
    )]
    pub risk: Option<ToolRisk>,
    /// `headline`: the question to the approver, as `Delete {path}?`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub headline: Option<String>,
    /// `idempotent`: whether a repeated request has no further effect. Only such a tool gets a request again.
    #[serde(default)]
    pub idempotent: bool,
    /// `timeout`: how long the service has to answer. At most `tools.timeout`.
    #[serde(default, with = "super::sources::some_duration", skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Duration>,
    /// `verify_url`: the address that knows the outcome of an interrupted call.
    #[serde(default, serialize_with = "shown::url", skip_serializing_if = "Option::is_none")]
    pub verify_url: Option<String>,
}

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

const fn yes() -> bool {
    true
}

/// Reads a table, or a JSON object in a text. A table has no order of its own, so its fields are sorted: the model
/// reads the same schema after each start.
fn in_order<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Map<String, Value>, D::Error> {
    let mut fields = super::sources::table_or_json(deserializer)?;
    fields.sort_keys();
    fields.values_mut().for_each(Value::sort_all_objects);
    Ok(fields)
}

impl fmt::Debug for HttpTool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        shown::debug(self, f)
    }
}

impl HttpTool {
    /// Returns how long the service has to answer.
    pub(crate) fn timeout(&self, tools: &Tools) -> Duration {
        self.timeout.unwrap_or_else(|| TIMEOUT.min(tools.timeout))
    }

    /// Returns the text of the file with the secrets.
    pub(crate) fn read_secrets(&self, key: &str) -> Result<String, ConfigError> {
        read(&format!("{key}.secret_file"), &self.secret_file)
    }

    /// Returns the schema of the inputs that the model chooses.
    pub(crate) fn read_schema(&self, key: &str) -> Result<Map<String, Value>, ConfigError> {
        let Some(path) = &self.input_schema_file else { return Ok(self.input_schema.clone()) };
        let key = format!("{key}.input_schema_file");
        let read = serde_json::from_str(&read(&key, path)?);
        read.map_err(|error| ConfigError::Value { key, why: format!("{}: {error}", path.display()) })
    }

    fn check(&self, key: &str, tools: &Tools, egress: &Egress) -> Result<(), ConfigError> {
        let key = |field: &str| format!("{key}.{field}");
        let usable = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        if !(1..=64).contains(&self.name.len()) || !self.name.chars().all(usable) {
            return wrong(key("name"), "expected 1 to 64 of a-z, A-Z, 0-9, _ and -");
        }
        if self.description.trim().is_empty() {
            return wrong(key("description"), "expected what the tool does, for the model and the approver");
        }
        egress.check_url(&key("url"), &self.url)?;
        if let Some(url) = &self.verify_url {
            egress.check_url(&key("verify_url"), url)?;
        }
        match (self.input_schema.is_empty(), &self.input_schema_file) {
            (true, None) => return wrong(key("input_schema"), "expected this or input_schema_file"),
            (false, Some(_)) => {
                return wrong(key("input_schema"), "expected either this or input_schema_file, not both");
            }
            (true, Some(_)) | (false, None) => {}
        }
        match self.timeout {
            Some(timeout) if timeout.is_zero() => wrong(key("timeout"), "expected more than 0s"),
            Some(timeout) if timeout > tools.timeout => {
                wrong(key("timeout"), "expected at most tools.timeout, the longest execution of a tool")
            }
            Some(timeout) => duration(&key("timeout"), timeout),
            None => Ok(()),
        }
    }
}

/// Returns the key of a tool, for errors.
pub(crate) fn key(place: usize) -> String {
    format!("http_tools[{place}]")
}

pub(super) fn check(all: &[HttpTool], tools: &Tools, egress: &Egress) -> Result<(), ConfigError> {
    let mut seen = BTreeSet::new();
    for (place, tool) in all.iter().enumerate() {
        tool.check(&key(place), tools, egress)?;
        if !seen.insert(&tool.name) {
            let why = format!("expected another name than {:?}, which another tool has", tool.name);
            return wrong(format!("{}.name", key(place)), why);
        }
    }
    Ok(())
}

fn read(key: &str, path: &std::path::Path) -> Result<String, ConfigError> {
    std::fs::read_to_string(path).map_err(|error| ConfigError::Value {
        key: key.to_owned(),
        why: format!("{}: {error}", path.display()),
    })
}
