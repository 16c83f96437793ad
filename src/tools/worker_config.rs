//! `[[worker_tools]]`: tools whose calls workers execute.

use crate::config::Tools;
use crate::config::tool_entry::{self, ToolEntry, ToolRisk, yes};
use holdpoint_settings::{ConfigError, check_some_duration, shown};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::path::PathBuf;
use std::time::Duration;

/// `[[worker_tools]]`
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct WorkerTool {
    /// Name by which the model calls the tool and workers claim its calls, and of its settings in `[tools.<name>]`.
    ///
    /// Value: 1 to 64 of `a-z A-Z 0-9 _ -`, unique. Default: required.
    pub name: String,
    /// What the tool does. The model and the approver read it.
    ///
    /// Value: text. Default: required.
    pub description: String,
    /// JSON Schema of the inputs, of an object. If it says nothing about further inputs, it allows none.
    ///
    /// Value: table. Default: required, or `input_schema_file`.
    #[serde(
        default,
        deserialize_with = "holdpoint_settings::forms::sorted_table",
        serialize_with = "shown::table_or_json",
        skip_serializing_if = "Map::is_empty"
    )]
    pub input_schema: Map<String, Value>,
    /// File with the schema, as JSON.
    ///
    /// Value: path. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_schema_file: Option<PathBuf>,
    /// Whether each call needs an approval. The policy can change the answer ([policy.md](policy.md)).
    ///
    /// Value: switch. Default: `true`.
    #[serde(default = "yes")]
    pub hil: bool,
    /// Risk of a call, for the approver.
    ///
    /// Value: `low`, `medium`, `high`. Default: `high` if `hil`, else `low`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub risk: Option<ToolRisk>,
    /// Question to the approver, with inputs in it ([Headlines](tools.md#headlines)).
    ///
    /// Value: text. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub headline: Option<String>,
    /// Whether a repeated execution has no further effect. Only then is a call handed out again.
    ///
    /// Value: switch. Default: `false`.
    #[serde(default)]
    pub idempotent: bool,
    /// Longest execution of a call. No renewal of its lease goes beyond it.
    ///
    /// Value: duration, more than 0. Default: `tools.timeout`.
    #[serde(
        default,
        with = "holdpoint_settings::forms::some_duration",
        skip_serializing_if = "Option::is_none"
    )]
    pub timeout: Option<Duration>,
}

impl WorkerTool {
    pub(crate) fn entry(&self) -> ToolEntry<'_> {
        ToolEntry {
            name: &self.name,
            description: &self.description,
            input_schema: &self.input_schema,
            input_schema_file: self.input_schema_file.as_ref(),
            hil: self.hil,
            risk: self.risk,
            headline: self.headline.as_ref(),
            idempotent: self.idempotent,
        }
    }

    /// Returns the longest execution of a call.
    pub(crate) fn timeout(&self, tools: &Tools) -> Duration {
        self.timeout.unwrap_or(tools.timeout)
    }
}

/// Returns the key of a tool, for errors.
pub(crate) fn key(index: usize) -> String {
    format!("worker_tools[{index}]")
}

pub(crate) fn check(all: &[WorkerTool]) -> Result<(), ConfigError> {
    for (index, tool) in all.iter().enumerate() {
        tool.entry().check(&key(index))?;
        check_some_duration(&format!("{}.timeout", key(index)), tool.timeout)?;
    }
    tool_entry::check_names("worker_tools", all.iter().map(|tool| &tool.name))
}
