//! The configuration: `holdpoint.toml`, then the environment, then flags.
//!
//! The key `[section] key` is `HOLDPOINT_SECTION__KEY` in the environment. An invalid value is an error that
//! names its key. An unknown key is an error too, because a misspelt limit would have no effect.
//!
//! A section is in the crate or in the folder of the module that uses it. This module composes the sections, and checks
//! what depends on several of them. `docs/configuration.md` takes its tables from the comments of the fields.

#[path = "../approvals/config.rs"]
mod approval;
#[path = "../http/auth/config.rs"]
mod auth;
// In the folders of the channels: what belongs to one is in one place.
#[cfg(feature = "notify")]
#[path = "../delivery/channels/config.rs"]
pub(crate) mod channels;
#[path = "../http_tools/config.rs"]
mod http_tools;
mod limits;
mod log;
#[path = "../mcp/config.rs"]
mod mcp;
#[path = "../mcp/oauth_config.rs"]
mod mcp_oauth;
#[path = "../approvals/config/rules.rs"]
mod rules;
mod server;
mod sources;
#[path = "../tools/entry_config.rs"]
mod tool_entry;
#[path = "../tools/config.rs"]
mod tools;
#[path = "../tools/worker_config.rs"]
mod worker_tools;

pub use approval::{
    Approval, ApprovalMode, ExactNumbers, RememberIn, RememberInputs, ShareContext, WhilePending,
};
pub use auth::{Auth, AuthMode, SessionFrom};
#[cfg(feature = "notify")]
pub use channels::{Mail, MailTls, Notify, Slack, Webhook, WebhookBody};
pub use holdpoint_egress::config::Egress;
pub use holdpoint_models::config::Model;
pub use holdpoint_models::provider::Provider;
pub use holdpoint_settings::ConfigError;
pub(crate) use holdpoint_settings::{is_safe, wrong};
pub use holdpoint_store::config::Database;
pub use holdpoint_stream::UiDialect;
pub use holdpoint_stream::config::Stream;
#[cfg(feature = "cli")]
pub use holdpoint_terminal::config::{Client, ClientFlags};
pub use http_tools::HttpTool;
pub(crate) use http_tools::key as http_tool_key;
pub(crate) use limits::Caps;
pub use limits::Limits;
pub use log::{Log, LogFormat};
pub use mcp::{McpProtocol, McpServer};
pub(crate) use mcp::{McpTransport, key as mcp_key};
pub use mcp_oauth::McpOauth;
pub use rules::{ApprovalRule, RuleCondition, RuleEffect};
pub use server::Server;
pub(crate) use tool_entry::ToolEntry;
pub use tool_entry::ToolRisk;
pub use tools::{Answers, ToolRules, Tools};
pub use worker_tools::WorkerTool;
pub(crate) use worker_tools::key as worker_tool_key;

use holdpoint_core::endpoint::ChannelKind;
#[cfg(not(feature = "notify"))]
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

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
    #[cfg(feature = "notify")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub webhooks: Vec<Webhook>,
    /// The mail server by which messages are sent.
    #[cfg(feature = "notify")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mail: Option<Mail>,
    /// The Slack application by which messages are sent.
    #[cfg(feature = "notify")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slack: Option<Slack>,
    /// People that get messages about held calls that they may decide.
    #[cfg(feature = "notify")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notify: Vec<Notify>,
    // A build without the channels refuses their sections by name.
    #[cfg(not(feature = "notify"))]
    #[serde(skip_serializing)]
    pub(crate) webhooks: Option<IgnoredAny>,
    #[cfg(not(feature = "notify"))]
    #[serde(skip_serializing)]
    pub(crate) mail: Option<IgnoredAny>,
    #[cfg(not(feature = "notify"))]
    #[serde(skip_serializing)]
    pub(crate) slack: Option<IgnoredAny>,
    #[cfg(not(feature = "notify"))]
    #[serde(skip_serializing)]
    pub(crate) notify: Option<IgnoredAny>,
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

impl Config {
    /// Reads all sources in order, and checks the values.
    ///
    /// # Errors
    /// The first invalid value, with its key.
    pub fn load(flags: &Flags) -> Result<Self, ConfigError> {
        let read = sources::read(flags)?;
        read.check()?;
        Ok(read)
    }

    /// Returns the configuration in force as TOML. Secrets are masked, and absent values are left out.
    ///
    /// # Errors
    /// A value that TOML cannot represent.
    pub fn in_force(&self) -> Result<String, ConfigError> {
        let mut shown = self.clone();
        shown.server.docs = Some(self.serves_docs());
        shown.server.console = Some(self.serves_console());
        shown.limits = self.limits.in_force(self.auth.mode);
        toml::to_string(&shown).map_err(|error| ConfigError::value("configuration", error.to_string()))
    }

    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        if !self.server.bind.ip().is_loopback() && self.faces_only_this_machine() {
            return wrong(
                "server.bind",
                "without authentication the server may only face this machine; \
                 expected a loopback address, auth.mode = \"jwt\", or auth.allow_insecure = true",
            );
        }
        self.check_features()?;
        self.server.check()?;
        self.database.check()?;
        self.model.check()?;
        self.tools.check()?;
        self.egress.check()?;
        http_tools::check(&self.http_tools, &self.tools, &self.egress, &self.server)?;
        worker_tools::check(&self.worker_tools)?;
        mcp::check(&self.mcp, &self.tools, &self.egress)?;
        #[cfg(feature = "notify")]
        channels::check(self)?;
        self.auth.check(&self.server)?;
        self.check_people()?;
        self.check_workers()?;
        self.approval.check()?;
        self.stream.check()?;
        self.limits.check()?;
        self.log.check()
    }

    /// Refuses what this program is built without. A key that does nothing would be a promise that no one keeps.
    fn check_features(&self) -> Result<(), ConfigError> {
        let absent = [
            ("mcp", "mcp", cfg!(feature = "mcp") || self.mcp.is_empty()),
            ("server.console", "console", cfg!(feature = "console") || self.server.console != Some(true)),
            ("auth.client_id", "console", cfg!(feature = "console") || self.auth.client_id.is_none()),
        ];
        #[cfg(not(feature = "notify"))]
        let absent = absent.into_iter().chain([
            ("webhooks", "notify", self.webhooks.is_none()),
            ("mail", "notify", self.mail.is_none()),
            ("slack", "notify", self.slack.is_none()),
            ("notify", "notify", self.notify.is_none()),
        ]);
        match absent.into_iter().find(|(_, _, is_served)| !is_served) {
            Some((key, feature, _)) => {
                wrong(key, format!("expected none: this program is built without the feature `{feature}`"))
            }
            None => Ok(()),
        }
    }

    /// Returns the channels and names of all endpoints.
    pub(crate) fn endpoints(&self) -> Vec<(ChannelKind, &str)> {
        #[cfg(feature = "notify")]
        return channels::endpoints(self);
        #[cfg(not(feature = "notify"))]
        Vec::new()
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
        let by_default = self.auth.mode == AuthMode::Jwt || self.faces_only_this_machine();
        cfg!(feature = "console") && self.server.console.unwrap_or(by_default)
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
