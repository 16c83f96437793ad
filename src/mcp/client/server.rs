//! One MCP server: it is connected for as long as the process works, and its tools are published.

use crate::agent::Tasks;
use crate::config::{self, Config, ConfigError};
use crate::mcp::client::caller::Headers;
use crate::mcp::client::definitions::pins::{Look, Pinned, Pins};
use crate::mcp::client::definitions::usable::{Definer, Usable};
use crate::mcp::client::entry::Entry;
use crate::mcp::client::link::{Connected, Link};
use crate::mcp::client::session::connection::{Connection, Listing, NoListing};
use crate::mcp::client::session::sessions::Sessions;
use crate::tools::request_answer::TimeLimit;
use crate::tools::{CurrentTools, Registered};
use holdpoint_core::tool::definition::{Acceptance, ListedDefinition, UnusableTool};
use holdpoint_egress::Reach;
use holdpoint_store::Store;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep, sleep_until, timeout};

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

pub(crate) struct Server {
    entry: Arc<Entry>,
    definer: Arc<Definer>,
    tools: CurrentTools,
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
        let entry = Arc::new(Entry::new(config, place, server, reach, store)?);
        let link = Arc::new(Link {
            server: server.name.clone(),
            connection: watch::Sender::new(None),
            timeout: entry.timeout,
            limit: TimeLimit { quiet: entry.timeout, whole: config.tools.timeout_max() },
            identity: server.identity,
            has_header_files: !server.header_files.is_empty(),
            result_deadline: server.result_deadline(),
        });
        let (redaction, log) = (entry.redaction.clone(), entry.log.clone());
        let definer = Arc::new(Definer { config: server.clone(), link, redaction, log });
        Ok(Self { entry, definer, tools })
    }

    /// Connects, and connects again after a loss, until the work of this process has ended.
    pub(crate) async fn run(self, tasks: Tasks) {
        let Definer { config, link, .. } = &*self.definer;
        let (server, mut pause) = (config.name.as_str(), PAUSE_MIN);
        let pins = Pins::new(self.entry.store.clone(), tasks.clone(), server);
        loop {
            let began = Instant::now();
            let opened = tokio::select! {
                opened = Box::pin(Connection::open(&self.entry, &tasks, None)) => opened,
                () = tasks.over() => return,
            };
            match opened {
                Ok(connection) => {
                    let lost = tokio::select! {
                        why = self.serve(Arc::new(connection), &tasks, &pins) => Some(why),
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

    /// Keeps the tools of a connection up to date, until the connection is lost. Returns why it is given up.
    async fn serve(&self, connection: Arc<Connection>, tasks: &Tasks, pins: &Pins) -> String {
        let Definer { config, link, log, .. } = &*self.definer;
        let name_callers = self.entry.headers().is_some_and(|headers: Headers| headers.name_callers());
        let sessions = name_callers.then(|| Arc::new(Sessions::new(self.entry.clone(), tasks.clone())));
        let (mut before, mut refusals): (Option<[u8; 32]>, u32) = (None, 0);
        let (mut usable, mut left_out): (Arc<[Arc<Usable>]>, Vec<UnusableTool>) =
            (Arc::default(), Vec::new());
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
                let sessions = sessions.clone();
                let connected = Connected { connection: connection.clone(), definitions, sessions };
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
            let definitions: Arc<[ListedDefinition]> =
                usable.iter().map(|tool| tool.listed.clone()).collect();
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
    fn publish(&self, usable: &[Arc<Usable>], left_out: &[UnusableTool], pinned: &Pinned) {
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
                    cause = unaccepted.cause.word(),
                    hash = unaccepted.hash,
                    "the definition of a tool of an MCP server is not accepted; each call of the tool asks"
                );
            }
        }
        self.tools.replace(server, tools, left_out.to_vec());
    }
}
