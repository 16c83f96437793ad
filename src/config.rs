//! Configuration: `holdpoint.toml`, then the environment, then flags. The only reader of the environment.
//!
//! A key `[section] key` is `HOLDPOINT_SECTION__KEY` in the environment. A wrong value is an error that names
//! its key, and so is a key that nobody knows: a limit that is misspelt would not be one.

#[cfg(test)]
pub(crate) mod fuzz;

use config::{Environment, File, FileFormat};
use secrecy::SecretString;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Longer than anybody means; the clock of the system ends somewhere behind it.
const DURATION_MAX: Duration = Duration::from_secs(3650 * 24 * 60 * 60);

/// A person waits meanwhile.
const RETRIES_MAX: u32 = 10;
/// Fields of a request to a model that are written from the conversation.
const OWN_FIELDS: [&str; 10] = [
    "model",
    "stream",
    "messages",
    "system",
    "input",
    "instructions",
    "contents",
    "systemInstruction",
    "tools",
    "tool_choice",
];

/// Everything that can be set.
#[derive(Debug, Clone, Default, Deserialize)]
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
    /// How long and how many things may be.
    pub limits: Limits,
    /// What is logged.
    pub log: Log,
}

/// `[server]`
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Server {
    /// `bind`: the address to listen on; port 0 takes any, which is printed.
    pub bind: SocketAddr,
    /// `docs`: whether `/docs` is served; if absent, only on loopback.
    pub docs: Option<bool>,
    /// `grace`: how long a stopping server lets what is under way finish; then it is given up.
    #[serde(with = "humantime_serde")]
    pub grace: Duration,
}

impl Default for Server {
    fn default() -> Self {
        // Who ends processes from outside gives most of them 30 s; what is given up has to be written before.
        Self { bind: SocketAddr::from(([127, 0, 0, 1], 8080)), docs: None, grace: Duration::from_secs(20) }
    }
}

/// `[database]`
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Database {
    /// `url`: `sqlite://` and a file, which is made if it is not there, or `postgres://`.
    pub url: SecretString,
    /// `max_connections`: connections of this process. On Postgres a quarter, at most 4, is kept for decisions and
    /// for saying that work is alive.
    pub max_connections: u32,
}

impl Default for Database {
    fn default() -> Self {
        Self { url: SecretString::from("sqlite://holdpoint.db"), max_connections: 10 }
    }
}

/// `[model]`
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Model {
    /// `provider`: who answers.
    pub provider: Provider,
    /// `name`: the model's name at its provider.
    pub name: Option<String>,
    /// `base_url`: where the provider is, with its `/v1`; if absent, the provider's own address, except for `openai`,
    /// which is anybody's server.
    pub base_url: Option<String>,
    /// `api_key`: the key for the provider.
    pub api_key: Option<SecretString>,
    /// `system_prompt`: the operator's instructions to the model.
    pub system_prompt: Option<String>,
    /// `max_steps`: model calls of one answer; then one last without tools.
    pub max_steps: usize,
    /// `first_byte_timeout`: how long a model may take to begin its answer.
    #[serde(with = "humantime_serde")]
    pub first_byte_timeout: Duration,
    /// `idle_timeout`: how long a model may be silent in mid-answer.
    #[serde(with = "humantime_serde")]
    pub idle_timeout: Duration,
    /// `retries`: how often a model that cannot be had is asked again, while nothing of its answer was told.
    pub retries: u32,
    /// `options`: fields to put into the body of each request, beside ours or in place of them: what turns reasoning
    /// on, a temperature. A table, or JSON in one text.
    #[serde(deserialize_with = "table_or_json")]
    pub options: Map<String, Value>,
}

impl Default for Model {
    fn default() -> Self {
        Self {
            provider: Provider::Scripted,
            name: None,
            base_url: None,
            api_key: None,
            system_prompt: None,
            max_steps: 10,
            first_byte_timeout: Duration::from_secs(60),
            idle_timeout: Duration::from_secs(60),
            retries: 3,
            options: Map::new(),
        }
    }
}

/// Who answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Provider {
    /// The deterministic demo model.
    Scripted,
    /// Any server with `{base_url}/chat/completions`.
    #[serde(rename = "openai")]
    OpenAi,
    /// OpenAI, with `{base_url}/responses`.
    #[serde(rename = "openai-responses")]
    OpenAiResponses,
    /// Anthropic.
    Anthropic,
    /// Google.
    Gemini,
    /// Ollama.
    Ollama,
}

/// `[tools]`
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Tools {
    /// `files_dir`: the folder of the demo tools, made if it is not there.
    pub files_dir: PathBuf,
    /// `timeout`: how long a tool may take; then its outcome is unknown.
    #[serde(with = "humantime_serde")]
    pub timeout: Duration,
}

impl Default for Tools {
    fn default() -> Self {
        Self { files_dir: PathBuf::from("holdpoint-files"), timeout: Duration::from_secs(60) }
    }
}

/// `[auth]`
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Auth {
    /// `mode`: how callers are known.
    pub mode: AuthMode,
    /// `allow_insecure`: whether mode `none` may face more than this machine.
    pub allow_insecure: bool,
}

/// How callers are known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AuthMode {
    /// Everybody is the one user `local`, so only this machine may call.
    #[default]
    None,
}

/// `[approval]`
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Approval {
    /// `pending_ttl`: how long a person may take to answer.
    #[serde(with = "humantime_serde")]
    pub pending_ttl: Duration,
    /// `start_deadline`: how long after a yes a call may be begun.
    #[serde(with = "humantime_serde")]
    pub start_deadline: Duration,
    /// `lease`: how long whoever runs a turn or a tool may be silent before it is taken for dead, and how long the
    /// outcome of a call is tried to be written.
    #[serde(with = "humantime_serde")]
    pub lease: Duration,
    /// `sweep`: how often to look for what time or a crash left behind.
    #[serde(with = "humantime_serde")]
    pub sweep: Duration,
    /// `wait`: how long a decider waits for the outcome.
    #[serde(with = "humantime_serde")]
    pub wait: Duration,
    /// `while_pending`: what a new message does while calls wait for a person.
    pub while_pending: WhilePending,
}

impl Default for Approval {
    fn default() -> Self {
        Self {
            pending_ttl: Duration::from_secs(24 * 60 * 60),
            start_deadline: Duration::from_secs(5 * 60),
            lease: Duration::from_secs(30),
            sweep: Duration::from_secs(5),
            wait: Duration::from_secs(30),
            while_pending: WhilePending::Defer,
        }
    }
}

/// What a new message does while calls wait for a person.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WhilePending {
    /// The conversation goes on; the model is told that they wait.
    Defer,
    /// The message is refused with 409 `awaiting_approval`.
    Reject,
    /// The calls are cancelled.
    Cancel,
}

/// `[limits]`
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// `body_bytes`: longest body.
    pub body_bytes: usize,
    /// `chat_body_bytes`: longest body of a chat, in which pages post their whole conversation.
    pub chat_body_bytes: usize,
    /// `args_bytes`: longest arguments of one call.
    pub args_bytes: usize,
    /// `result_bytes`: longest answer of a call for the model; a longer one is cut and marked.
    pub result_bytes: usize,
    /// `json_depth`: deepest nesting of arguments.
    pub json_depth: usize,
    /// `calls_per_step`: most calls of one model answer.
    pub calls_per_step: usize,
    /// `pending_per_thread`: most calls of a thread that wait for a person.
    pub pending_per_thread: u64,
}

impl Default for Limits {
    fn default() -> Self {
        const KIB: usize = 1024;
        Self {
            body_bytes: 256 * KIB,
            chat_body_bytes: 16 * KIB * KIB,
            args_bytes: 256 * KIB,
            result_bytes: KIB * KIB,
            json_depth: 32,
            calls_per_step: 16,
            pending_per_thread: 50,
        }
    }
}

/// `[log]`
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Log {
    /// `format`: how lines look; if absent, text on a terminal and JSON elsewhere.
    pub format: Option<LogFormat>,
    /// `level`: what is logged, as `tracing`'s filters are written; if absent, `info`.
    pub level: Option<String>,
}

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LogFormat {
    /// For people.
    Text,
    /// For programs, one object a line.
    Json,
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
        key: &'static str,
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
        let plain = Environment::default().keep_prefix(true).source(Some(database_url()));
        let own = Environment::with_prefix("HOLDPOINT").prefix_separator("_").separator("__");
        let own = own.source(Some(own_variables()));
        let read = config::Config::builder()
            .add_source(file)
            .add_source(plain.separator("__"))
            .add_source(own)
            .set_override_option("server.bind", flags.bind.clone())?
            .set_override_option("database.url", flags.database_url.clone())?
            .build()
            .map_err(without_excerpt)?;
        if let Some(key) = fraction(&read.cache, "") {
            return Err(config::ConfigError::Message(format!("{key}: fractions are not allowed here")).into());
        }
        let read: Self = read.try_deserialize()?;
        read.check()?;
        Ok(read)
    }

    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let wrong = |key, why: &str| Err(ConfigError::Value { key, why: why.to_owned() });
        if !self.server.bind.ip().is_loopback() && !self.auth.allow_insecure {
            return wrong(
                "server.bind",
                "without authentication the server may only face this machine; \
                 expected a loopback address, or auth.allow_insecure = true",
            );
        }
        if self.database.max_connections == 0 {
            return wrong("database.max_connections", "expected at least 1");
        }
        for (key, duration) in
            [("approval.lease", self.approval.lease), ("approval.sweep", self.approval.sweep)]
        {
            if duration.is_zero() {
                return wrong(key, "expected more than 0s");
            }
        }
        let durations = [
            ("server.grace", self.server.grace),
            ("model.first_byte_timeout", self.model.first_byte_timeout),
            ("model.idle_timeout", self.model.idle_timeout),
            ("tools.timeout", self.tools.timeout),
            ("approval.pending_ttl", self.approval.pending_ttl),
            ("approval.start_deadline", self.approval.start_deadline),
            ("approval.lease", self.approval.lease),
            ("approval.sweep", self.approval.sweep),
            ("approval.wait", self.approval.wait),
        ];
        for (key, duration) in durations {
            if duration > DURATION_MAX {
                return wrong(key, "expected at most 3650 days");
            }
        }
        if self.model.provider != Provider::Scripted
            && self.model.name.as_deref().unwrap_or_default().is_empty()
        {
            return wrong(
                "model.name",
                "expected the model's name, which every provider but \"scripted\" needs",
            );
        }
        if self.model.provider == Provider::OpenAi && self.model.base_url.is_none() {
            return wrong("model.base_url", "expected the server's URL, which provider \"openai\" needs");
        }
        if let Some(field) = OWN_FIELDS.iter().find(|field| self.model.options.contains_key(**field)) {
            return wrong("model.options", &format!("{field:?} is holdpoint's own; expected other fields"));
        }
        if self.model.retries > RETRIES_MAX {
            return wrong("model.retries", "expected at most 10");
        }
        Ok(())
    }
}

/// The error without the lines of the file that it shows: there may be a secret in them.
fn without_excerpt(error: config::ConfigError) -> config::ConfigError {
    let config::ConfigError::FileParse { uri, cause } = error else { return error };
    let told = cause.to_string();
    let told: Vec<&str> = told.lines().filter(|line| !line.contains('|')).collect();
    config::ConfigError::FileParse { uri, cause: told.join(": ").into() }
}

/// The first key with a fraction: no key takes one, and it would be rounded without a word. What is passed on to
/// the model is its server's to read.
fn fraction(value: &config::Value, key: &str) -> Option<String> {
    match &value.kind {
        config::ValueKind::Float(_) if !key.starts_with("model.options.") => Some(key.to_owned()),
        config::ValueKind::Table(fields) => fields.iter().find_map(|(name, value)| {
            let key = if key.is_empty() { name.clone() } else { format!("{key}.{name}") };
            fraction(value, &key)
        }),
        _ => None,
    }
}

fn table_or_json<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Map<String, Value>, D::Error> {
    let read = match Value::deserialize(deserializer)? {
        Value::String(text) => serde_json::from_str(&text).unwrap_or_default(),
        other => other,
    };
    match read {
        Value::Object(fields) => Ok(fields),
        _ => Err(D::Error::custom("expected a table, or a JSON object in a text")),
    }
}

/// The variables that are keys. Kubernetes sets others with our prefix for a service of our name.
#[expect(clippy::disallowed_methods, reason = "this is the one reader of the environment")]
fn own_variables() -> config::Map<String, String> {
    let is_key = |name: &str| name.strip_prefix("HOLDPOINT_").is_some_and(|key| key.contains("__"));
    let text =
        |(name, value): (OsString, OsString)| Some((name.into_string().ok()?, value.into_string().ok()?));
    std::env::vars_os().filter_map(text).filter(|(name, _)| is_key(name)).collect()
}

/// The name that most hosts give the database's URL, as the key it stands for.
#[expect(clippy::disallowed_methods, reason = "this is the one reader of the environment")]
fn database_url() -> config::Map<String, String> {
    let mut found = config::Map::new();
    if let Ok(url) = std::env::var("DATABASE_URL") {
        found.insert("DATABASE__URL".to_owned(), url);
    }
    found
}
