//! `[[worker_tools]]`: tools whose calls workers execute.

use crate::config::Tools;
use crate::config::tool_entry::{self, ToolEntry, ToolRisk, yes};
use holdpoint_settings::{ConfigError, check_duration, shown, wrong};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::path::PathBuf;
use std::time::Duration;

/// `[[worker_tools]]`
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct WorkerTool {
    /// `name`: the name by which the model calls the tool, and by which workers claim its calls.
    pub name: String,
    /// `description`: what the tool does, for the model and the approver.
    pub description: String,
    /// `input_schema`: the JSON Schema of the inputs. A table, or JSON in one string.
    #[serde(
        default,
        deserialize_with = "holdpoint_settings::forms::sorted_table",
        serialize_with = "shown::table_or_json",
        skip_serializing_if = "Map::is_empty"
    )]
    pub input_schema: Map<String, Value>,
    /// `input_schema_file`: the file with this schema, as JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_schema_file: Option<PathBuf>,
    /// `hil`: whether a person has to approve each call.
    #[serde(default = "yes")]
    pub hil: bool,
    /// `risk`: the risk of a call, shown to the approver. Defaults to high if a person has to approve, else low.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub risk: Option<ToolRisk>,
    /// `headline`: the question to the approver, as `Delete {path}?`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub headline: Option<String>,
    /// `idempotent`: whether a repeated execution has no further effect. Only such a call is handed out again.
    #[serde(default)]
    pub idempotent: bool,
    /// `timeout`: the longest execution of a call, if it is not `tools.timeout`.
    #[serde(default, with = "holdpoint_settings::forms::some_duration", skip_serializing_if = "Option::is_none")]
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
        let key = format!("{}.timeout", key(index));
        match tool.timeout {
            Some(timeout) if timeout.is_zero() => wrong(key, "expected more than 0s")?,
            Some(timeout) => check_duration(&key, timeout)?,
            None => {}
        }
    }
    tool_entry::check_names("worker_tools", all.iter().map(|tool| &tool.name))
}
