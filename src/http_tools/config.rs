//! `[[http_tools]]`: tools that other services run.

use crate::config::tool_entry::{self, ToolEntry, ToolRisk, yes};
use crate::config::{ConfigError, Egress, Server, Tools};
use holdpoint_settings::{check_some_duration, shown, text_of_file, wrong};
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
    /// Name by which the model calls the tool, and of its settings in `[tools.<name>]`.
    ///
    /// Value: 1 to 64 of `a-z A-Z 0-9 _ -`, unique. Default: required.
    pub name: String,
    /// What the tool does. The model and the approver read it.
    ///
    /// Value: text. Default: required.
    pub description: String,
    /// Address of the service: `https://`, or `http://` to a host that `egress.allow` names. No user name, no
    /// password, no fragment.
    ///
    /// Value: URL. Default: required.
    #[serde(serialize_with = "shown::plain_url")]
    pub url: String,
    /// File with the secrets that sign the requests, one per line: `whsec_` and 24 to 64 bytes in base64.
    ///
    /// Value: path. Default: required.
    pub secret_file: PathBuf,
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
    /// File with the schema, as JSON. The model reads the fields in the order of the file; those of a table are
    /// sorted.
    ///
    /// Value: path. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_schema_file: Option<PathBuf>,
    /// Inputs that the model cannot choose ([Constants](tools.md#constants)).
    ///
    /// Value: table. Default: none.
    #[serde(
        default,
        deserialize_with = "holdpoint_settings::forms::sorted_table",
        serialize_with = "shown::table_or_json",
        skip_serializing_if = "Map::is_empty"
    )]
    pub constants: Map<String, Value>,
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
    /// Whether a repeated request has no further effect. Only then is a request sent again.
    ///
    /// Value: switch. Default: `false`.
    #[serde(default)]
    pub idempotent: bool,
    /// Time that the service has to answer. After it the outcome is unknown.
    ///
    /// Value: duration, more than 0, at most `tools.timeout`. Default: `30s`, or `tools.timeout` if that is shorter.
    #[serde(
        default,
        with = "holdpoint_settings::forms::some_duration",
        skip_serializing_if = "Option::is_none"
    )]
    pub timeout: Option<Duration>,
    /// Time that the service has to report the outcome of a call that it accepted with 202. After it the outcome is
    /// unknown, until the service reports it. Setting it needs `server.public_url`.
    ///
    /// Value: duration, more than 0. Default: `24h`.
    #[serde(
        default,
        with = "holdpoint_settings::forms::some_duration",
        skip_serializing_if = "Option::is_none"
    )]
    pub result_deadline: Option<Duration>,
    /// Address that knows the outcome of an interrupted call.
    ///
    /// Value: URL. Default: none.
    #[serde(default, serialize_with = "shown::url", skip_serializing_if = "Option::is_none")]
    pub verify_url: Option<String>,
    /// Address that says what a call would do, before it is decided ([The preview](tools.md#the-preview)).
    ///
    /// Value: URL. Default: none.
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
        if self.result_deadline.is_some() && server.public_url.is_none() {
            let why = "expected server.public_url, which is the address for outcomes that come later";
            return wrong(key("result_deadline"), why);
        }
        check_some_duration(&key("result_deadline"), self.result_deadline)?;
        tools.check_answer_time(&key("timeout"), self.timeout)
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
