//! The configuration: `holdpoint.toml`, then the environment, then flags. Only this module reads the
//! environment.
//!
//! The key `[section] key` is `HOLDPOINT_SECTION__KEY` in the environment. An invalid value is an error that
//! names its key. An unknown key is an error too, because a misspelt limit would have no effect.

mod approval;
mod auth;
// In the folders of the channels: what belongs to one is in one place.
#[path = "../delivery/channels/config.rs"]
pub(crate) mod channels;
mod client;
mod database;
mod egress;
mod headers;
mod http_tools;
mod limits;
mod log;
mod mcp;
mod mcp_oauth;
mod model;
mod rules;
mod server;
mod shown;
mod sources;
mod stream;
mod tool_entry;
mod tools;
mod worker_tools;

pub use approval::{
    Approval, ApprovalMode, ExactNumbers, RememberIn, RememberInputs, ShareContext, WhilePending,
};
pub(crate) use auth::is_safe;
pub use auth::{Auth, AuthMode, SessionFrom};
pub use channels::{Mail, MailTls, Notify, Slack, Webhook, WebhookBody};
pub use client::{Client, ClientFlags};
pub use database::Database;
pub use egress::Egress;
pub use holdpoint_models::provider::Provider;
pub use holdpoint_stream::UiDialect;
pub use http_tools::HttpTool;
pub(crate) use http_tools::key as http_tool_key;
pub(crate) use limits::Caps;
pub use limits::Limits;
pub use log::{Log, LogFormat};
pub use mcp::{McpProtocol, McpServer};
pub(crate) use mcp::{Reached, key as mcp_key};
pub use mcp_oauth::McpOauth;
pub use model::Model;
pub use rules::{ApprovalRule, RuleCondition, RuleEffect};
pub use server::Server;
pub use stream::Stream;
pub(crate) use tool_entry::ToolEntry;
pub use tool_entry::ToolRisk;
pub use tools::{Answers, ToolRules, Tools};
pub use worker_tools::WorkerTool;
pub(crate) use worker_tools::key as worker_tool_key;

use config::{Environment, File, FileFormat};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The longest duration. No operator needs a longer one, and the system clock ends at some later point.
const DURATION_MAX: Duration = Duration::from_secs(3650 * 24 * 60 * 60);

/// All settings.
#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// How the server faces the network.
    pub server: Server,
    /// Where the server stores its rows.
    pub database: Database,
    /// The model that answers.
    pub model: Model,
    /// The tools that the model may call.
    pub tools: Tools,
    /// The addresses that the server may send requests to.
    pub egress: Egress,
    /// How callers authenticate.
    pub auth: Auth,
    /// How held calls are decided.
    pub approval: Approval,
    /// How turns are streamed.
    pub stream: Stream,
    /// Limits of sizes and counts.
    pub limits: Limits,
    /// Logs and traces.
    pub log: Log,
    /// Tools that other services run.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub http_tools: Vec<HttpTool>,
    /// Tools whose calls workers execute.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub worker_tools: Vec<WorkerTool>,
    /// MCP servers, whose tools the model may call.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub mcp: Vec<McpServer>,
    /// Addresses that get the events of a tenant.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub webhooks: Vec<Webhook>,
    /// The mail server by which messages are sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mail: Option<Mail>,
    /// The Slack application by which messages are sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slack: Option<Slack>,
    /// People that get messages about held calls that they may decide.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notify: Vec<Notify>,
}

/// The values of command line flags, which override all other sources.
#[derive(Debug, Clone, Default)]
pub struct Flags {
    /// The configuration file. Default: `holdpoint.toml`, if it exists.
    pub file: Option<PathBuf>,
    /// `server.bind`.
    pub bind: Option<String>,
    /// `database.url`.
    pub database_url: Option<String>,
}

/// The error of an invalid configuration.
#[derive(thiserror::Error)]
pub enum ConfigError {
    /// A file, a variable or a flag that cannot be parsed as the type of its key.
    #[error(transparent)]
    Read(#[from] config::ConfigError),
    /// A value that parses but is not allowed.
    #[error("{key}: {why}")]
    Value {
        /// The key.
        key: String,
        /// The expected value.
        why: String,
    },
}

/// Prints the text for the operator: an error that `main` returns is printed with `Debug`.
impl fmt::Debug for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Config {
    /// Reads all sources in order, and checks the values.
    ///
    /// # Errors
    /// The first invalid value, with its key.
    pub fn load(flags: &Flags) -> Result<Self, ConfigError> {
        let file = match &flags.file {
            Some(path) => File::from(path.as_path()).format(FileFormat::Toml).required(true),
            None => File::from(Path::new("holdpoint.toml")).format(FileFormat::Toml).required(false),
        };
        let plain = Environment::default().keep_prefix(true).source(Some(sources::usual_variables()));
        let own = Environment::with_prefix("HOLDPOINT").prefix_separator("_").separator("__");
        let own = own.source(Some(sources::own_variables()?));
        let read = config::Config::builder()
            .add_source(file)
            .add_source(plain.separator("__"))
            .add_source(own)
            .set_override_option("server.bind", flags.bind.clone())?
            .set_override_option("database.url", flags.database_url.clone())?
            .build()
            .map_err(without_excerpt)?;
        sources::check_kinds(&read.cache, "")?;
        let read: Self = sources::read_secrets(read)?.try_deserialize().map_err(|error| named("", error))?;
        read.check()?;
        Ok(read)
    }

    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        if !self.server.bind.ip().is_loopback() && self.faces_only_this_machine() {
            return wrong(
                "server.bind",
                "without authentication the server may only face this machine; \
                 expected a loopback address, auth.mode = \"jwt\", or auth.allow_insecure = true",
            );
        }
        self.server.check()?;
        self.database.check()?;
        self.model.check()?;
        self.tools.check()?;
        self.egress.check()?;
        http_tools::check(&self.http_tools, &self.tools, &self.egress, &self.server)?;
        worker_tools::check(&self.worker_tools)?;
        mcp::check(&self.mcp, &self.tools, &self.egress)?;
        channels::check(self)?;
        self.auth.check(&self.server)?;
        self.check_people()?;
        self.check_workers()?;
        self.approval.check()?;
        self.stream.check()?;
        self.limits.check()?;
        self.log.check()
    }

    /// Refuses tools that need several people in mode `none`. Without authentication there is only one user.
    fn check_people(&self) -> Result<(), ConfigError> {
        let needs_several = |rules: &ToolRules| rules.approvals > 1;
        match self.tools.rules.iter().find(|(_, rules)| needs_several(rules)) {
            Some((name, _)) if self.auth.mode == AuthMode::None => wrong(
                format!("tools.{name}.approvals"),
                "expected 1, or auth.mode = \"jwt\": without authentication there is one person",
            ),
            _ => Ok(()),
        }
    }

    /// Refuses worker tools without a role of workers in mode `jwt`: no token could claim their calls.
    fn check_workers(&self) -> Result<(), ConfigError> {
        let no_worker = self.auth.mode == AuthMode::Jwt && self.auth.worker_roles.is_empty();
        if no_worker && !self.worker_tools.is_empty() {
            return wrong(
                "auth.worker_roles",
                "expected a role: without one no token claims calls of worker_tools",
            );
        }
        Ok(())
    }

    /// Returns whether the server serves `/docs`.
    pub(crate) fn serves_docs(&self) -> bool {
        self.server.docs.unwrap_or(self.server.bind.ip().is_loopback())
    }

    /// Returns whether the server serves the console.
    pub(crate) fn serves_console(&self) -> bool {
        self.server.console.unwrap_or(self.auth.mode == AuthMode::Jwt || self.faces_only_this_machine())
    }

    /// Returns the address of the console, if other services can link to it.
    pub(crate) fn console_url(&self) -> Option<&str> {
        self.server.public_url.as_deref().filter(|_| self.serves_console())
    }

    /// Returns whether only this machine may call. Every caller is then the one user.
    pub(crate) fn faces_only_this_machine(&self) -> bool {
        self.auth.mode == AuthMode::None && !self.auth.allow_insecure
    }
}

fn wrong(key: impl Into<String>, why: impl Into<String>) -> Result<(), ConfigError> {
    Err(ConfigError::Value { key: key.into(), why: why.into() })
}

fn duration(key: &str, duration: Duration) -> Result<(), ConfigError> {
    if duration > DURATION_MAX { wrong(key, "expected at most 3650 days") } else { Ok(()) }
}

/// Returns the error with the full name of its key inside the section `within`, also for an unknown key.
fn named(within: &str, error: config::ConfigError) -> ConfigError {
    let (inside, origin, message) = match &error {
        config::ConfigError::At { error, key: Some(key), origin } => {
            (key.as_str(), origin.as_deref(), error.to_string())
        }
        config::ConfigError::Type { key, unexpected, expected, origin } => {
            let message = format!("invalid type: {unexpected}, expected {expected}");
            (key.as_deref().unwrap_or_default(), origin.as_deref(), message)
        }
        config::ConfigError::NotFound(key) => {
            (key.as_str(), None, "expected a value; it is missing".to_owned())
        }
        other => ("", None, other.to_string()),
    };
    // Writes the key as in the file. The library omits the dot after an index.
    let inside = inside.replace(']', "].").replace("].[", "][").replace("]..", "].");
    let inside = inside.trim_end_matches('.');
    // The inner error may have a named key already.
    if let Some((key, why)) = message.split_once(": ").filter(|(key, _)| is_below(inside, key)) {
        return ConfigError::Value { key: key.to_owned(), why: why.to_owned() };
    }
    let unknown = message.strip_prefix("unknown field `").and_then(|rest| rest.split_once('`'));
    let (field, why) = match (unknown, origin) {
        (Some((field, expected)), _) => (field, format!("there is no such key{expected}")),
        (None, Some(origin)) => ("", format!("{message}, in {origin}")),
        (None, None) => ("", message.clone()),
    };
    let parts: Vec<&str> = [within, inside, field].into_iter().filter(|part| !part.is_empty()).collect();
    if parts.is_empty() { error.into() } else { ConfigError::Value { key: parts.join("."), why } }
}

/// Returns whether a key is inside of a section.
fn is_below(section: &str, key: &str) -> bool {
    !section.is_empty() && key.strip_prefix(section).is_some_and(|rest| rest.starts_with('.'))
}

/// Removes the excerpt of the file from the error. The excerpt may contain a secret.
fn without_excerpt(error: config::ConfigError) -> config::ConfigError {
    let config::ConfigError::FileParse { uri, cause } = error else { return error };
    let kept_lines = cause.to_string();
    let kept_lines: Vec<&str> = kept_lines.lines().filter(|line| !line.contains('|')).collect();
    config::ConfigError::FileParse { uri, cause: kept_lines.join(": ").into() }
}
