//! `[[http_tools]]`: tools that other services run.

use crate::config::tool_entry::{self, ToolEntry, ToolRisk, yes};
use crate::config::{ConfigError, Egress, Server, Tools};
use holdpoint_settings::{check_duration, shown, text_of_file, wrong};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// The longest time that a service has to answer, unless the tool has a `timeout` of its own.
const TIMEOUT: Duration = Duration::from_secs(30);

/// How long the outcome of a call that a service accepted may take, unless the tool or the MCP server has a
/// `result_deadline` of its own.
pub(crate) const RESULT_DEADLINE: Duration = Duration::from_secs(24 * 60 * 60);

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
        deserialize_with = "holdpoint_settings::forms::sorted_table",
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
        deserialize_with = "holdpoint_settings::forms::sorted_table",
        serialize_with = "shown::table_or_json",
        skip_serializing_if = "Map::is_empty"
    )]
    pub constants: Map<String, Value>,
    /// `hil`: whether a person has to approve each call.
    #[serde(default = "yes")]
    pub hil: bool,
    /// `risk`: the risk of a call, shown to the approver. Defaults to high if a person has to approve, else low.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub risk: Option<ToolRisk>,
    /// `headline`: the question to the approver, as `Delete {path}?`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub headline: Option<String>,
    /// `idempotent`: whether a repeated request has no further effect. Only such a tool gets a request again.
    #[serde(default)]
    pub idempotent: bool,
    /// `timeout`: how long the service has to answer. At most `tools.timeout`.
    #[serde(default, with = "holdpoint_settings::forms::some_duration", skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Duration>,
    /// `result_deadline`: how long the service has to report the outcome of a call that it accepted with 202. After
    /// it the outcome is unknown. Needs `server.public_url`.
    #[serde(default, with = "holdpoint_settings::forms::some_duration", skip_serializing_if = "Option::is_none")]
    pub result_deadline: Option<Duration>,
    /// `verify_url`: the address that knows the outcome of an interrupted call.
    #[serde(default, serialize_with = "shown::url", skip_serializing_if = "Option::is_none")]
    pub verify_url: Option<String>,
    /// `preview_url`: the address that says what a call would do, before it is decided.
    #[serde(default, serialize_with = "shown::url", skip_serializing_if = "Option::is_none")]
    pub preview_url: Option<String>,
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

    /// Returns how long the service has to report the outcome of a call that it accepted.
    pub(crate) fn result_deadline(&self) -> Duration {
        self.result_deadline.unwrap_or(RESULT_DEADLINE)
    }

    /// Returns the text of the file with the secrets.
    pub(crate) fn read_secrets(&self, key: &str) -> Result<String, ConfigError> {
        text_of_file(&format!("{key}.secret_file"), &self.secret_file)
    }

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

    fn check(&self, key: &str, tools: &Tools, egress: &Egress, server: &Server) -> Result<(), ConfigError> {
        self.entry().check(key)?;
        let key = |field: &str| format!("{key}.{field}");
        egress.check_url(&key("url"), &self.url)?;
        if let Some(url) = &self.verify_url {
            egress.check_url(&key("verify_url"), url)?;
        }
        if let Some(url) = &self.preview_url {
            egress.check_url(&key("preview_url"), url)?;
        }
        match self.result_deadline {
            Some(_) if server.public_url.is_none() => {
                let why = "expected server.public_url, which is the address for outcomes that come later";
                return wrong(key("result_deadline"), why);
            }
            Some(deadline) if deadline.is_zero() => {
                return wrong(key("result_deadline"), "expected more than 0s");
            }
            Some(deadline) => check_duration(&key("result_deadline"), deadline)?,
            None => {}
        }
        match self.timeout {
            Some(timeout) if timeout.is_zero() => wrong(key("timeout"), "expected more than 0s"),
            Some(timeout) if timeout > tools.timeout => {
                wrong(key("timeout"), "expected at most tools.timeout, the longest execution of a tool")
            }
            Some(timeout) => check_duration(&key("timeout"), timeout),
            None => Ok(()),
        }
    }
}

/// Returns the key of a tool, for errors.
pub(crate) fn key(index: usize) -> String {
    format!("http_tools[{index}]")
}

pub(crate) fn check(
    all: &[HttpTool],
    tools: &Tools,
    egress: &Egress,
    server: &Server,
) -> Result<(), ConfigError> {
    for (index, tool) in all.iter().enumerate() {
        tool.check(&key(index), tools, egress, server)?;
    }
    tool_entry::check_names("http_tools", all.iter().map(|tool| &tool.name))
}
