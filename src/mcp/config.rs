//! `[[mcp]]`: MCP servers, whose tools the model may call.

use crate::config::http_tools::RESULT_DEADLINE;
use crate::config::{ConfigError, Egress, McpOauth, ToolRisk, Tools};
use holdpoint_settings::{
    check_some_duration, environment, headers, is_plain_name, shown, with_files, wrong,
};
use reqwest::header::HeaderMap;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// The longest time that a server has to answer, unless it has a `timeout` of its own.
const TIMEOUT: Duration = Duration::from_secs(60);
/// How long a program may take to start, unless its entry says otherwise. `npx` may download it first.
const START_TIMEOUT: Duration = Duration::from_secs(120);
/// Maximum length of the name of a server. It leaves room for the names of tools.
const NAME_MAX: usize = 32;
/// Headers that the protocol sets.
const RESERVED: [&str; 7] = [
    "accept",
    "content-type",
    "content-length",
    "host",
    "last-event-id",
    "mcp-protocol-version",
    "mcp-session-id",
];

/// `[[mcp]]`
#[derive(Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct McpServer {
    /// First part of the names of its tools.
    ///
    /// Value: 1 to 32 of `a-z A-Z 0-9 _ -`, without `__` and without `_` at the end, unique. Default: required.
    pub name: String,
    /// Program of the server. A name without `/` is looked for in the program's `PATH`.
    ///
    /// Value: path. Default: required, or `url`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<PathBuf>,
    /// Arguments of the program.
    ///
    /// Value: list of texts. Default: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
    /// Variables of the program. `holdpoint config` masks the values.
    ///
    /// Value: table of texts. Default: none.
    #[serde(default, serialize_with = "shown::secrets", skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Variables of the program, each with the file that has the value.
    ///
    /// Value: table of paths. Default: none.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env_files: BTreeMap<String, PathBuf>,
    /// Variables of holdpoint's own environment that the program gets too. It gets no others.
    ///
    /// Value: list of names. Default: `["PATH"]`.
    #[serde(default = "path", deserialize_with = "holdpoint_settings::forms::list")]
    pub inherit_env: Vec<String>,
    /// Address of the server, as `http_tools.url`.
    ///
    /// Value: URL. Default: required, or `command`.
    #[serde(default, serialize_with = "shown::url", skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Headers of each request. A value may have placeholders of the caller, such as `{user_id}`
    /// ([tools.md](tools.md#who-calls)). `holdpoint config` masks the values.
    ///
    /// Value: table of texts. Default: none.
    #[serde(default, serialize_with = "shown::secrets", skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// Headers of each request, each with the file that has the value.
    ///
    /// Value: table of paths. Default: none.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub header_files: BTreeMap<String, PathBuf>,
    /// How holdpoint gets access tokens for the server, see below.
    ///
    /// Value: section, with `url`. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oauth: Option<McpOauth>,
    /// Tools that the model may call, by their names at the server. A name that is added later is a new tool, which
    /// asks until its [definition](tools.md#pinned-definitions) is accepted.
    ///
    /// Value: list of names. Default: absent: all.
    #[serde(
        default,
        deserialize_with = "holdpoint_settings::forms::some_list",
        skip_serializing_if = "Option::is_none"
    )]
    pub tools: Option<Vec<String>>,
    /// Tools whose calls need an approval. Needs `tools`. The policy can change the answer ([policy.md](policy.md)).
    ///
    /// Value: list of names, all of them in `tools`. Default: absent: all.
    #[serde(
        default,
        deserialize_with = "holdpoint_settings::forms::some_list",
        skip_serializing_if = "Option::is_none"
    )]
    pub require_approval: Option<Vec<String>>,
    /// Time that the server has to answer, or to report progress ([tools.md](tools.md#the-connection)). After it the
    /// outcome is unknown.
    ///
    /// Value: duration, more than 0, at most `tools.timeout`. Default: `60s`, or `tools.timeout` if that is shorter.
    #[serde(
        default,
        with = "holdpoint_settings::forms::some_duration",
        skip_serializing_if = "Option::is_none"
    )]
    pub timeout: Option<Duration>,
    /// Versions of the protocol: those up to 2025-11-25, which have sessions, or 2026-07-28.
    ///
    /// Value: `legacy`, `newest`. Default: the newest that the server has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<McpProtocol>,
    /// Whether each call names its user and its conversation ([tools.md](tools.md#who-calls)).
    ///
    /// Value: switch. Default: `false`.
    #[serde(default)]
    pub identity: bool,
    /// Time that the program has to start. `npx` may download it first.
    ///
    /// Value: duration, more than 0, with `command`. Default: `120s`.
    #[serde(
        default,
        with = "holdpoint_settings::forms::some_duration",
        skip_serializing_if = "Option::is_none"
    )]
    pub start_timeout: Option<Duration>,
    /// Time that a [task](tools.md#tasks) of the server, or a call with [rounds](tools.md#rounds), may take. After it
    /// the outcome is unknown.
    ///
    /// Value: duration, more than 0. Default: `24h`.
    #[serde(
        default,
        with = "holdpoint_settings::forms::some_duration",
        skip_serializing_if = "Option::is_none"
    )]
    pub result_deadline: Option<Duration>,
    /// Risk of a call, for the approver.
    ///
    /// Value: `low`, `medium`, `high`. Default: `high` for tools that ask, else `low`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub risk: Option<ToolRisk>,
}

/// The versions of the protocol that are used with a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum McpProtocol {
    /// Those that begin with `initialize`, up to 2025-11-25.
    Legacy,
    /// Those that begin with `server/discover`, from 2026-07-28 on.
    Newest,
}

/// How a server is reached.
pub(crate) enum McpTransport {
    /// A child process, with its whole environment.
    Process {
        /// The program.
        command: PathBuf,
        /// Its arguments.
        args: Vec<String>,
        /// Its variables.
        env: BTreeMap<String, OsString>,
        /// The values among them that may be secret.
        secrets: Vec<String>,
    },
    Http {
        url: String,
    },
}

fn path() -> Vec<String> {
    vec!["PATH".to_owned()]
}

impl fmt::Debug for McpServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        shown::debug(self, f)
    }
}

impl McpServer {
    /// Returns how long the server has to answer.
    pub(crate) fn timeout(&self, tools: &Tools) -> Duration {
        self.timeout.unwrap_or_else(|| TIMEOUT.min(tools.timeout))
    }

    /// Returns how long the program of the server may take to start.
    pub(crate) fn start_timeout(&self) -> Duration {
        self.start_timeout.unwrap_or(START_TIMEOUT)
    }

    /// Returns how long a task of the server may take.
    pub(crate) fn result_deadline(&self) -> Duration {
        self.result_deadline.unwrap_or(RESULT_DEADLINE)
    }

    /// Whether a person has to approve the calls of a tool, by its name at the server.
    pub(crate) fn requires_approval(&self, tool: &str) -> bool {
        self.require_approval
            .as_ref()
            .is_none_or(|requires_approval| requires_approval.iter().any(|name| name == tool))
    }

    /// Whether the model may call a tool, by its name at the server.
    pub(crate) fn allows(&self, tool: &str) -> bool {
        self.tools.as_ref().is_none_or(|tools| tools.iter().any(|name| name == tool))
    }

    /// Returns how the server is reached, with the values of the files.
    pub(crate) fn transport(&self, key: &str) -> Result<McpTransport, ConfigError> {
        if let Some(command) = self.command.clone() {
            let mut env: BTreeMap<String, OsString> = environment::inherited(&self.inherit_env);
            let own = with_files(&format!("{key}.env_files"), &self.env, &self.env_files)?;
            env.extend(own.iter().map(|(name, value)| (name.clone(), OsString::from(value))));
            let secrets = own.into_values().collect();
            return Ok(McpTransport::Process { command, args: self.args.clone(), env, secrets });
        }
        Ok(McpTransport::Http { url: self.url.clone().unwrap_or_default() })
    }

    /// Returns the headers of each request, with the values of the files as they are now. Placeholders stay as they are.
    pub(crate) fn headers(&self, key: &str) -> Result<HeaderMap, ConfigError> {
        headers(key, &self.headers, &self.header_files)
    }

    fn check(&self, key: &str, tools: &Tools, egress: &Egress) -> Result<(), ConfigError> {
        let key = |field: &str| format!("{key}.{field}");
        if !is_plain_name(&self.name, NAME_MAX) {
            return wrong(key("name"), "expected 1 to 32 of a-z, A-Z, 0-9, _ and -");
        }
        if self.name.contains("__") || self.name.ends_with('_') {
            return wrong(key("name"), "expected a name without __ in it and _ at its end");
        }
        match (&self.command, &self.url) {
            (Some(command), None) if command.as_os_str().is_empty() => {
                return wrong(key("command"), "expected the program of the server");
            }
            (Some(_), None) => {
                let of_url = !(self.headers.is_empty() && self.header_files.is_empty());
                if of_url {
                    return wrong(key("headers"), "expected none: a program gets no headers");
                }
                if self.oauth.is_some() {
                    return wrong(key("oauth"), "expected none: a program gets no tokens");
                }
            }
            (None, Some(url)) => {
                egress.check_url(&key("url"), url)?;
                let of_command = !(self.args.is_empty() && self.env.is_empty() && self.env_files.is_empty());
                if of_command {
                    return wrong(key("command"), "expected this with args, env and env_files");
                }
                if let Some(oauth) = &self.oauth {
                    oauth.check(&key("oauth"), egress)?;
                }
            }
            _ => return wrong(key("command"), "expected either this or url"),
        }
        self.check_names(key)?;
        if self.start_timeout.is_some() && self.command.is_none() {
            return wrong(key("start_timeout"), "expected none: only a program is started");
        }
        check_some_duration(&key("start_timeout"), self.start_timeout)?;
        check_some_duration(&key("result_deadline"), self.result_deadline)?;
        tools.check_answer_time(&key("timeout"), self.timeout)
    }

    fn check_names(&self, key: impl Fn(&str) -> String) -> Result<(), ConfigError> {
        let variables = self.env.keys().chain(self.env_files.keys()).chain(&self.inherit_env);
        for name in variables {
            if name.is_empty() || name.contains(['=', '\0']) {
                return wrong(key("env"), format!("expected the names of variables, not {name:?}"));
            }
        }
        for name in self.headers.keys().chain(self.header_files.keys()) {
            if RESERVED.contains(&name.to_ascii_lowercase().as_str()) {
                return wrong(key("headers"), format!("{name}: the protocol sets this header"));
            }
            if self.oauth.is_some() && name.eq_ignore_ascii_case("authorization") {
                return wrong(key("headers"), format!("{name}: expected either this header or oauth"));
            }
        }
        let Some(requires_approval) = &self.require_approval else { return Ok(()) };
        let Some(tools) = &self.tools else {
            return wrong(
                key("tools"),
                "expected the list of the tools: with require_approval and without this list, a misspelt name \
                 would let a tool run without an approval",
            );
        };
        match requires_approval.iter().find(|name| !tools.contains(name)) {
            Some(name) => {
                let why = format!("{name:?} is not in tools; expected one of [{}]", tools.join(", "));
                wrong(key("require_approval"), why)
            }
            None => Ok(()),
        }
    }
}

/// Returns the key of a server, for errors.
pub(crate) fn key(index: usize) -> String {
    format!("mcp[{index}]")
}

pub(crate) fn check(all: &[McpServer], tools: &Tools, egress: &Egress) -> Result<(), ConfigError> {
    let mut seen = BTreeSet::new();
    for (index, server) in all.iter().enumerate() {
        server.check(&key(index), tools, egress)?;
        if !seen.insert(&server.name) {
            let why = format!("expected another name than {:?}, which another server has", server.name);
            return wrong(format!("{}.name", key(index)), why);
        }
    }
    Ok(())
}
