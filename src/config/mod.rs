//! Configuration: `holdpoint.toml`, then the environment, then flags. The only reader of the environment.
//!
//! A key `[section] key` is `HOLDPOINT_SECTION__KEY` in the environment. A wrong value is an error that names
//! its key, and so is a key that nobody knows: a limit that is misspelt would not be one.

mod approval;
mod auth;
mod database;
mod limits;
mod log;
mod model;
mod rules;
mod server;
mod shown;
mod sources;
mod stream;
mod tools;

#[cfg(test)]
pub(crate) mod fuzz;

pub use approval::{Approval, ApprovalMode, ExactNumbers, RememberIn, RememberInputs, WhilePending};
pub use auth::{Auth, AuthMode};
pub use database::Database;
pub(crate) use limits::Caps;
pub use limits::Limits;
pub use log::{Log, LogFormat};
pub use model::{Model, Provider};
pub use rules::{ApprovalRule, RuleCondition, RuleEffect};
pub use server::Server;
pub use stream::{Stream, UiDialect};
pub use tools::{ToolRules, Tools};

use config::{Environment, File, FileFormat};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Longer than anybody means; the clock of the system ends somewhere behind it.
const DURATION_MAX: Duration = Duration::from_secs(3650 * 24 * 60 * 60);

/// Everything that can be set.
#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// How the server faces the world.
    pub server: Server,
    /// Where the rows are.
    pub database: Database,
    /// Who answers.
    pub model: Model,
    /// What the model may ask for.
    pub tools: Tools,
    /// Who may call.
    pub auth: Auth,
    /// How people are asked.
    pub approval: Approval,
    /// How turns are told.
    pub stream: Stream,
    /// How long and how many things may be.
    pub limits: Limits,
    /// What is logged.
    pub log: Log,
}

/// What flags set, above all else.
#[derive(Debug, Clone, Default)]
pub struct Flags {
    /// The configuration file; if absent, `holdpoint.toml` where there is one.
    pub file: Option<PathBuf>,
    /// `server.bind`.
    pub bind: Option<String>,
    /// `database.url`.
    pub database_url: Option<String>,
}

/// A value that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A file, a variable or a flag that cannot be read as what its key wants.
    #[error(transparent)]
    Read(#[from] config::ConfigError),
    /// A value that can be read and not be used.
    #[error("{key}: {why}")]
    Value {
        /// Its key.
        key: String,
        /// What was expected.
        why: String,
    },
}

impl Config {
    /// Reads everything, in order, and checks it.
    ///
    /// # Errors
    /// The first value that cannot be used, by its key.
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
        self.auth.check()?;
        self.check_people()?;
        self.approval.check()?;
        self.stream.check()?;
        self.limits.check()?;
        self.log.check()
    }

    /// Without authentication everybody is one person.
    fn check_people(&self) -> Result<(), ConfigError> {
        let wants_several = |rules: &ToolRules| rules.approvals > 1;
        match self.tools.rules.iter().find(|(_, rules)| wants_several(rules)) {
            Some((name, _)) if self.auth.mode == AuthMode::None => wrong(
                format!("tools.{name}.approvals"),
                "expected 1, or auth.mode = \"jwt\": without authentication there is one person",
            ),
            _ => Ok(()),
        }
    }

    /// Whether `/docs` is served.
    pub(crate) fn serves_docs(&self) -> bool {
        self.server.docs.unwrap_or(self.server.bind.ip().is_loopback())
    }

    /// Whether nobody but this machine may call: everybody who does is the one user.
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

/// The error with the whole name of its key, which is below this one: also of a key that nobody knows.
fn named(within: &str, error: config::ConfigError) -> ConfigError {
    let (inside, origin, said) = match &error {
        config::ConfigError::At { error, key: Some(key), origin } => {
            (key.as_str(), origin.as_deref(), error.to_string())
        }
        config::ConfigError::Type { key, unexpected, expected, origin } => {
            let said = format!("invalid type: {unexpected}, expected {expected}");
            (key.as_deref().unwrap_or_default(), origin.as_deref(), said)
        }
        config::ConfigError::NotFound(key) => {
            (key.as_str(), None, "expected a value; it is missing".to_owned())
        }
        other => ("", None, other.to_string()),
    };
    // As it is written in the file; the library leaves out the dot behind an index.
    let inside = inside.replace(']', "].").replace("].[", "][").replace("]..", "].");
    let inside = inside.trim_end_matches('.');
    // What was named before it came here.
    if let Some((key, why)) = said.split_once(": ").filter(|(key, _)| is_below(inside, key)) {
        return ConfigError::Value { key: key.to_owned(), why: why.to_owned() };
    }
    let unknown = said.strip_prefix("unknown field `").and_then(|rest| rest.split_once('`'));
    let (field, why) = match (unknown, origin) {
        (Some((field, expected)), _) => (field, format!("there is no such key{expected}")),
        (None, Some(origin)) => ("", format!("{said}, in {origin}")),
        (None, None) => ("", said.clone()),
    };
    let parts: Vec<&str> = [within, inside, field].into_iter().filter(|part| !part.is_empty()).collect();
    if parts.is_empty() { error.into() } else { ConfigError::Value { key: parts.join("."), why } }
}

/// Whether a key is inside of a section.
fn is_below(section: &str, key: &str) -> bool {
    !section.is_empty() && key.strip_prefix(section).is_some_and(|rest| rest.starts_with('.'))
}

/// The error without the lines of the file that it shows: there may be a secret in them.
fn without_excerpt(error: config::ConfigError) -> config::ConfigError {
    let config::ConfigError::FileParse { uri, cause } = error else { return error };
    let told = cause.to_string();
    let told: Vec<&str> = told.lines().filter(|line| !line.contains('|')).collect();
    config::ConfigError::FileParse { uri, cause: told.join(": ").into() }
}
