//! A server of the configuration, and how it is reached.

use crate::config::{Config, ConfigError, McpProtocol, McpServer, McpTransport, mcp_key};
use crate::mcp::client::caller::{Headers, check_program};
use crate::mcp::client::log::log_rate::LogRate;
use crate::mcp::client::log::redaction::Redaction;
use crate::mcp::client::transport::authorization::Authorization;
use holdpoint_egress::Reach;
use holdpoint_store::Store;
use parking_lot::Mutex;
use reqwest::Url;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// What every connection to a server needs.
pub(in crate::mcp) struct Entry {
    pub(in crate::mcp) config: McpServer,
    /// The key of the entry, for errors.
    key: String,
    pub(in crate::mcp) route: Route,
    /// What is known of the handshake of the server.
    pub(in crate::mcp) known: FoundHandshake,
    pub(in crate::mcp) redaction: Redaction,
    pub(in crate::mcp) log: Arc<LogRate>,
    pub(in crate::mcp) store: Store,
    /// How long the server has to answer.
    pub(in crate::mcp) timeout: Duration,
}

/// The handshake of a server, if it took long to find, until it fails.
#[derive(Default)]
pub(in crate::mcp) struct FoundHandshake(Mutex<Option<McpProtocol>>);

impl FoundHandshake {
    pub(in crate::mcp) fn get(&self) -> Option<McpProtocol> {
        *self.0.lock()
    }

    pub(in crate::mcp) fn set(&self, protocol: Option<McpProtocol>) {
        *self.0.lock() = protocol;
    }
}

/// How a server is reached.
pub(in crate::mcp) enum Route {
    Process { command: PathBuf, args: Vec<String>, env: BTreeMap<String, OsString> },
    Http(Endpoint),
}

/// A server over HTTP.
pub(in crate::mcp) struct Endpoint {
    pub(in crate::mcp) url: Url,
    pub(in crate::mcp) client: reqwest::Client,
    /// The headers, with the values of the files as they were read last.
    headers: Mutex<Headers>,
    pub(in crate::mcp) authorization: Option<Arc<Authorization>>,
}

impl Entry {
    /// Reads the entry at this place of the configuration. Starts and sends nothing.
    pub(in crate::mcp) fn new(
        config: &Config,
        place: usize,
        server: &McpServer,
        reach: &Reach,
        store: Store,
    ) -> Result<Self, ConfigError> {
        let key = mcp_key(place);
        let log = Arc::new(LogRate::new(&server.name, "its messages and definitions"));
        let (route, redaction) = match server.transport(&key)? {
            McpTransport::Process { command, args, env, secrets } => {
                check_program(server, &key)?;
                (Route::Process { command, args, env }, Redaction::new(secrets))
            }
            McpTransport::Http { url: text } => {
                let wrong = |why: String| ConfigError::Value { key: format!("{key}.url"), why };
                let url = Url::parse(&text).map_err(|_| wrong("it is not a valid URL".to_owned()))?;
                let client = reach.client(&url).map_err(wrong)?;
                let headers = Headers::of(server, &key)?;
                let redaction = Redaction::new(headers.secrets().chain([text, url.to_string()]));
                let authorization = match &server.oauth {
                    Some(oauth) => {
                        let secrets = redaction.clone();
                        Some(Arc::new(Authorization::new(server, &key, oauth, &url, reach, secrets)?))
                    }
                    None => None,
                };
                let headers = Mutex::new(headers);
                (Route::Http(Endpoint { url, client, headers, authorization }), redaction)
            }
        };
        let timeout = server.timeout(&config.tools);
        let config = server.clone();
        Ok(Self { config, key, route, known: FoundHandshake::default(), redaction, log, store, timeout })
    }

    /// Returns the headers as they were read last. A program has none.
    pub(in crate::mcp) fn headers(&self) -> Option<Headers> {
        match &self.route {
            Route::Process { .. } => None,
            Route::Http(endpoint) => Some(endpoint.headers.lock().clone()),
        }
    }

    /// Reads the files of the headers again: their values may have changed since the last connection. Values that cannot be
    /// read stay as they are.
    pub(in crate::mcp) fn read_header_files(&self) {
        let Route::Http(endpoint) = &self.route else { return };
        if self.config.header_files.is_empty() {
            return;
        }
        match Headers::of(&self.config, &self.key) {
            Ok(headers) => {
                headers.secrets().for_each(|secret| self.redaction.learn(secret));
                *endpoint.headers.lock() = headers;
            }
            Err(error) => {
                let server = &self.config.name;
                tracing::warn!(server, %error, "the headers of an MCP server could not be read again");
            }
        }
    }
}
