//! MCP servers, whose tools the model may call (`[[mcp]]`).
//!
//! Each process of a deployment connects for itself. A server is not trusted: its hints change nothing, its
//! definitions are checked before they are used and pinned as they were accepted, and it may ask for nothing but the
//! fields of a form. One execution of a call is one `tools/call`, which is repeated only as the server requires, or after
//! the server refused it with the end of its session. A call whose answer is lost has an unknown outcome. If the answer is
//! a task, or asks for input with a state, the call has an owner, and any process continues the call.

mod calls;
mod connection;
mod definition;
mod elicitation;
mod failure;
mod greeting;
mod handler;
mod handshake;
mod http;
mod input_schema;
mod lines;
mod log_rate;
mod names;
mod output;
mod pace;
mod pins;
mod process;
mod raw;
mod readable;
mod redaction;
mod remote_work;
#[cfg(test)]
mod silent;
mod sse;
mod stderr;
mod tool;
mod transport;
mod usable;

pub(crate) use names::local_name;

use crate::agent::Tasks;
use crate::config::{self, Config, ConfigError, Reached};
use crate::domain::definition::{Acceptance, LeftOut, Listed};
use crate::egress::Reach;
use crate::store::Store;
use crate::tools::request_answer::TimeLimit;
use crate::tools::{CurrentTools, Registered, ServerTools};
use connection::{Connection, Listing, NoListing};
use handshake::{Known, Opening};
use log_rate::LogRate;
use pins::{Look, Pinned, Pins};
use redaction::Redaction;
use reqwest::Url;
use reqwest::header::HeaderMap;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use usable::{Definer, Usable};

/// The pause before the first new attempt to connect, and the longest pause.
const PAUSE_MIN: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// A connection that lasted as long was no failed attempt.
const STABLE: Duration = Duration::from_secs(30);
/// How often the tools of a server are listed again, without a message that they have changed.
const LISTED_EVERY: Duration = Duration::from_secs(30);
/// The least time between two listings. After an answer that is no listing it is twice as long each time, up to
/// [`LISTED_EVERY`].
const LISTED_AT_MOST_EVERY: Duration = Duration::from_secs(1);
/// How often the rows are read while a definition is not accepted. An operator may accept it in another process.
const LOOKED_EVERY: Duration = Duration::from_secs(1);

/// A server of the configuration.
pub(crate) struct Server {
    definer: Arc<Definer>,
    /// The key of its entry, for errors.
    key: String,
    route: Route,
    /// What is known of the handshake of the server.
    known: Known,
    tools: CurrentTools,
    store: Store,
}

/// How a server is reached.
enum Route {
    Process { command: PathBuf, args: Vec<String>, env: BTreeMap<String, OsString> },
    Http { url: Url, client: reqwest::Client, headers: HeaderMap },
}

/// What the tools of a server share.
struct Link {
    /// The name of the server.
    server: String,
    /// The connection, if there is one now.
    connection: watch::Sender<Option<Connected>>,
    /// How long the server has to answer.
    timeout: Duration,
    /// The same for a call of a server that reports progress.
    limit: TimeLimit,
    /// Whether a call names its user and its conversation.
    identity: bool,
    /// Whether the headers may change from one connection to the next.
    has_header_files: bool,
    /// How long a call may continue after an answer of the server without a result.
    result_deadline: Duration,
}

/// A connection whose tools are listed.
#[derive(Clone)]
struct Connected {
    connection: Arc<Connection>,
    /// The hashes of the definitions, by the names of the tools at the server.
    definitions: Arc<BTreeMap<String, String>>,
}

/// Returns the names that the tools of a server of the configuration can have.
pub(crate) fn announced(server: &config::McpServer) -> ServerTools {
    let only = server.tools.as_ref();
    let only = only.map(|tools| tools.iter().map(|tool| local_name(&server.name, tool)).collect());
    ServerTools { server: server.name.clone(), only }
}

impl Server {
    /// Prepares the server of the entry at this place of the configuration. Starts and sends nothing.
    pub(crate) fn new(
        config: &Config,
        place: usize,
        server: &config::McpServer,
        reach: &Reach,
        tools: CurrentTools,
        store: Store,
    ) -> Result<Self, ConfigError> {
        let key = config::mcp_key(place);
        let mut secrets = Vec::new();
        let route = match server.reached(&key)? {
            Reached::Process { command, args, env, secrets: values } => {
                secrets = values;
                Route::Process { command, args, env }
            }
            Reached::Http { url: text, headers } => {
                let wrong = |why: String| ConfigError::Value { key: format!("{key}.url"), why };
                let url = Url::parse(&text).map_err(|_| wrong("it is not a valid URL".to_owned()))?;
                let client = reach.client(&url).map_err(wrong)?;
                secrets.extend(headers.values().filter_map(|value| value.to_str().ok()).map(str::to_owned));
                secrets.extend([text, url.to_string()]);
                Route::Http { url, client, headers }
            }
        };
        let link = Arc::new(Link {
            server: server.name.clone(),
            connection: watch::Sender::new(None),
            timeout: server.timeout(&config.tools),
            limit: TimeLimit { quiet: server.timeout(&config.tools), whole: config.tools.timeout_max() },
            identity: server.identity,
            has_header_files: !server.header_files.is_empty(),
            result_deadline: server.result_deadline(),
        });
        let redaction = Redaction::new(secrets);
        let log = Arc::new(LogRate::new(&server.name, "its messages and definitions"));
        let definer = Arc::new(Definer { config: server.clone(), link, redaction, log });
        Ok(Self { definer, key, route, known: Known::default(), tools, store })
    }

    /// Connects, and connects again after a loss, until the work of this process has ended.
    pub(crate) async fn run(self, tasks: Tasks) {
        let Definer { config, link, log, .. } = &*self.definer;
        let (server, mut pause) = (config.name.as_str(), PAUSE_MIN);
        let mut now = (self.definer.redaction.clone(), None);
        let pins = Pins::new(self.store.clone(), tasks.clone(), server);
        loop {
            let began = Instant::now();
            self.read_headers(&mut now);
            let (redaction, route) = (&now.0, now.1.as_ref().unwrap_or(&self.route));
            let opening = Opening {
                server,
                route,
                known: &self.known,
                protocol: config.protocol,
                start_timeout: config.start_timeout(),
                tasks: &tasks,
                redaction,
                store: &self.store,
                log,
                timeout: link.timeout,
            };
            let opened = Connection::open(opening);
            let opened = tokio::select! {
                opened = Box::pin(opened) => opened,
                () = tasks.over() => return,
            };
            match opened {
                Ok(connection) => {
                    let lost = tokio::select! {
                        why = self.serve(Arc::new(connection), &pins) => Some(why),
                        () = tasks.over() => None,
                    };
                    link.connection.send_replace(None);
                    let Some(why) = lost else { return };
                    if began.elapsed() > STABLE {
                        pause = PAUSE_MIN;
                    }
                    self.tools.replace(server, Vec::new(), Vec::new());
                    tracing::warn!(
                        server,
                        why,
                        "the connection to an MCP server is lost; its tools are away"
                    );
                }
                Err(why) => tracing::warn!(server, why, "could not connect to an MCP server"),
            }
            tokio::select! {
                () = sleep(pause) => {}
                () = tasks.over() => return,
            }
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Reads the files of the headers again: their values may have changed since the last connection. Values that cannot be
    /// read stay as they are.
    fn read_headers(&self, (redaction, now): &mut (Redaction, Option<Route>)) {
        let (Definer { config, .. }, Route::Http { url, client, .. }) = (&*self.definer, &self.route) else {
            return;
        };
        if config.header_files.is_empty() {
            return;
        }
        match config.headers(&self.key) {
            Ok(headers) => {
                let values = headers.values().filter_map(|value| value.to_str().ok()).map(str::to_owned);
                *redaction = self.definer.redaction.with(values);
                *now = Some(Route::Http { url: url.clone(), client: client.clone(), headers });
            }
            Err(error) => {
                tracing::warn!(server = config.name, %error, "the headers of an MCP server could not be read again");
            }
        }
    }

    /// Keeps the tools of a connection up to date, until the connection is lost. Returns why it is given up.
    async fn serve(&self, connection: Arc<Connection>, pins: &Pins) -> String {
        let Definer { config, link, log, .. } = &*self.definer;
        let (mut before, mut refusals): (Option<[u8; 32]>, u32) = (None, 0);
        let (mut usable, mut left_out): (Arc<[Arc<Usable>]>, Vec<LeftOut>) = (Arc::default(), Vec::new());
        let mut pinned = None;
        loop {
            let (listed_at, listed) = (Instant::now(), connection.list());
            let listed = tokio::select! {
                listed = timeout(link.timeout, listed) => listed,
                () = connection.lost() => return "it is closed".to_owned(),
            };
            let Listing { tools, unread, hash } = match listed {
                Ok(Ok(listing)) => listing,
                Ok(Err(NoListing::Lost(why))) => return why,
                Ok(Err(NoListing::Refused(why))) => {
                    if log.admits() {
                        tracing::warn!(server = config.name, why, "an MCP server did not list its tools");
                    }
                    let pause = LISTED_AT_MOST_EVERY.saturating_mul(2_u32.saturating_pow(refusals));
                    refusals = refusals.saturating_add(1);
                    tokio::select! {
                        () = connection.lost() => return "it is closed".to_owned(),
                        () = sleep(pause.min(LISTED_EVERY)) => continue,
                    }
                }
                Err(_elapsed) => return "it did not list its tools in time".to_owned(),
            };
            refusals = 0;
            if before != Some(hash) {
                let is_first = before.is_none();
                let (definer, known) = (self.definer.clone(), usable.clone());
                let defined = spawn_blocking(move || definer.sorted(&tools, &unread, &known)).await;
                let Ok(defined) = defined else { return "its definitions could not be read".to_owned() };
                (usable, left_out) = (defined.usable.into(), defined.left_out);
                let hash_of = |usable: &Arc<Usable>| {
                    Some((usable.tool.remote.as_ref()?.tool.clone(), usable.listed.hash.clone()))
                };
                let definitions = Arc::new(usable.iter().filter_map(hash_of).collect());
                let connected = Connected { connection: connection.clone(), definitions };
                link.connection.send_replace(Some(connected));
                before = Some(hash);
                pinned = None;
                let what = if is_first {
                    "an MCP server is connected"
                } else {
                    "an MCP server has changed its tools"
                };
                if log.admits() {
                    tracing::info!(server = config.name, tools = usable.len(), "{what}");
                }
            }
            let definitions: Arc<[Listed]> = usable.iter().map(|tool| tool.listed.clone()).collect();
            let mut look = Look::AfterListing;
            let (again, changed) = (sleep(LISTED_EVERY), connection.changed());
            tokio::pin!(again, changed);
            loop {
                let now = pins.look(definitions.clone(), look).await;
                if pinned.as_ref() != Some(&now) {
                    self.publish(&usable, &left_out, &now);
                }
                // A listing that could not be recorded is recorded once the database answers.
                look = if now == Pinned::Unknown { Look::AfterListing } else { Look::AtAcceptances };
                let all_accepted = definitions.iter().all(|it| now.acceptance(it) == Acceptance::Accepted);
                pinned = Some(now);
                tokio::select! {
                    () = connection.lost() => return "it is closed".to_owned(),
                    () = &mut changed => break,
                    () = &mut again => break,
                    () = sleep(LOOKED_EVERY), if !all_accepted => {}
                }
            }
            sleep_until(listed_at + LISTED_AT_MOST_EVERY).await;
        }
    }

    /// Replaces the tools of this server.
    fn publish(&self, usable: &[Arc<Usable>], left_out: &[LeftOut], pinned: &Pinned) {
        let server = self.definer.config.name.as_str();
        let tools = usable.iter().map(|it| it.tool.with_acceptance(pinned.acceptance(&it.listed)));
        let tools: Vec<Registered> = tools.collect();
        for tool in &tools {
            if let Some(unaccepted) = tool.acceptance.unaccepted()
                && self.definer.log.admits()
            {
                tracing::warn!(
                    server,
                    tool = tool.spec.name,
                    cause = unaccepted.cause.as_str(),
                    hash = unaccepted.hash,
                    "the definition of a tool of an MCP server is not accepted; each call of the tool asks"
                );
            }
        }
        self.tools.replace(server, tools, left_out.to_vec());
    }
}
