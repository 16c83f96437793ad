//! The beginning of a connection: which transport and which handshake a server has.

use crate::agent::Tasks;
use crate::config::McpProtocol;
use crate::mcp::client::entry::{Endpoint, Entry, Route};
use crate::mcp::client::log::redaction::Redaction;
use crate::mcp::client::message::greeting::{Greeted, greet};
use crate::mcp::client::message::lines::messages;
use crate::mcp::client::message::raw::MESSAGE_BYTES_MAX;
use crate::mcp::client::session::handler::Handler;
use crate::mcp::client::transport::calls::Calls;
use crate::mcp::client::transport::http::HttpClient;
use crate::mcp::client::transport::process::Process;
use crate::mcp::client::transport::sse;
use crate::mcp::client::transport::watched::{Watched, Work};
use reqwest::header::HeaderMap;
use rmcp::model::ProtocolVersion;
use rmcp::service::{ClientInitializeError, RunningService};
use rmcp::transport::Transport;
use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::transport::streamable_http_client::{
    StreamableHttpClientTransport, StreamableHttpClientTransportConfig,
};
use rmcp::{ClientHandler, ClientLifecycleMode, ClientServiceExt, Peer, RoleClient};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::BufReader;
use tokio::time::timeout;

/// Maximum number of POSTs at once. A call that a server answers late has one until then.
const POSTS_MAX: usize = 256;
/// How long a handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(60);
/// After this time without an answer to `server/discover`, the library takes a server for an older one. A server that is
/// slow may be neither older nor ready.
const DISCOVERY: Duration = Duration::from_secs(10);
/// How long a server that may be slow is given for its second `server/discover`.
const DISCOVERY_AGAIN: Duration = Duration::from_secs(30);

/// What a connection needs to begin.
#[derive(Clone, Copy)]
pub(in crate::mcp) struct Opening<'a> {
    pub(in crate::mcp) entry: &'a Entry,
    /// The headers of each request over HTTP.
    pub(in crate::mcp) headers: &'a HeaderMap,
    pub(in crate::mcp) tasks: &'a Tasks,
}

/// A session with a server, and the process of the server if holdpoint started it.
pub(in crate::mcp) type Session = (RunningService<RoleClient, Handler>, Option<Process>);

/// Starts or reaches a server, and begins a session or discovers what it supports. The error is for the log.
pub(in crate::mcp) async fn begin(
    opening: Opening<'_>,
    handler: &Handler,
    calls: &Arc<Calls>,
) -> Result<Session, String> {
    let before = opening.entry.known.get();
    let begun = match &opening.entry.route {
        Route::Process { .. } => begin_process(opening, handler, calls).await,
        Route::Http(endpoint) => {
            let at = Http { opening, handler, calls, endpoint };
            Box::pin(at.begin()).await.map_err(NoHandshake::why)
        }
    };
    if begun.is_err() && before.is_some() {
        opening.entry.known.set(None);
    }
    begun
}

/// The reason why a handshake failed, for the log.
enum NoHandshake {
    /// The server answered `server/discover`, but not with what it supports: an earlier server that answers all that it
    /// does not know. The library sends no `initialize` after such an answer.
    Undiscovered(String),
    Failed(String),
    /// The server did not answer in time.
    Late,
}

impl NoHandshake {
    fn is_undiscovered(&self) -> bool {
        matches!(self, Self::Undiscovered(_))
    }

    fn has_answered(&self) -> bool {
        !matches!(self, Self::Late)
    }

    /// Whether the server refused the request, as one that has only the transport of earlier servers does: with a status, or
    /// with an error of the protocol.
    fn is_refusal(&self) -> bool {
        let Self::Failed(why) = self else { return false };
        ["HTTP 400", "HTTP 404", "HTTP 405", "JSON-RPC error"].iter().any(|words| why.contains(words))
    }

    fn why(self) -> String {
        match self {
            Self::Undiscovered(why) | Self::Failed(why) => why,
            Self::Late => "it did not answer in time".to_owned(),
        }
    }
}

/// Whether a session has the protocol of an earlier server.
fn is_older(running: &RunningService<RoleClient, Handler>) -> bool {
    !has_no_handshake(running.peer())
}

/// Whether the protocol of a server begins without `initialize`, as from 2026-07-28 on.
pub(in crate::mcp) fn has_no_handshake(peer: &Peer<RoleClient>) -> bool {
    peer.peer_info().is_some_and(|info| !info.protocol_version.has_initialize())
}

fn discover() -> ClientLifecycleMode {
    ClientLifecycleMode::Discover { preferred_versions: vec![ProtocolVersion::V_2026_07_28] }
}

/// Starts the program of a server, once. What it answers decides on the handshake.
async fn begin_process(
    opening: Opening<'_>,
    handler: &Handler,
    calls: &Arc<Calls>,
) -> Result<Session, String> {
    let (Entry { config, route, known, redaction, log, store, .. }, tasks) = (opening.entry, opening.tasks);
    let (server, start_timeout) = (config.name.as_str(), config.start_timeout());
    let Route::Process { command, args, env } = route else { return Err("it has no program".to_owned()) };
    let (process, stdout, mut stdin) =
        Process::start(server, Path::new(command), args, env, tasks, redaction)?;
    let mut stdout = BufReader::new(messages(stdout, tasks, log.clone()));
    let began = async {
        let greeted = match config.protocol.or_else(|| known.get()) {
            Some(McpProtocol::Legacy) => Greeted::Initialize,
            Some(McpProtocol::Newest) => Greeted::Discover,
            None => greet(&mut stdout, &mut stdin, &handler.get_info(), start_timeout).await?,
        };
        let transport = AsyncRwTransport::new_client(stdout, stdin).with_max_line_length(MESSAGE_BYTES_MAX);
        let mut transport =
            Watched::new(transport, calls.clone(), Work::of(server, store, tasks), log.clone());
        let lifecycle = match greeted {
            Greeted::Discover => discover(),
            Greeted::Initialize => ClientLifecycleMode::Initialize,
            Greeted::Initialized { result, was_silent } => {
                known.set(was_silent.then_some(McpProtocol::Legacy));
                transport = transport.after_initialize(result);
                ClientLifecycleMode::Initialize
            }
            Greeted::Ended => {
                known.set(Some(McpProtocol::Legacy));
                return Err("its program has ended before it answered".to_owned());
            }
            Greeted::TooLate => {
                known.set(Some(McpProtocol::Newest));
                return Err("it started slowly; it is started again with its handshake".to_owned());
            }
        };
        let limit = HANDSHAKE.max(start_timeout);
        serve(handler.clone(), transport, lifecycle, limit, redaction).await.map_err(NoHandshake::why)
    };
    match began.await {
        Ok(running) => Ok((running, Some(process))),
        Err(why) => {
            tasks.spawn_background(process.end());
            Err(why)
        }
    }
}

async fn serve<T: Transport<RoleClient> + 'static>(
    handler: Handler,
    transport: Watched<T>,
    lifecycle: ClientLifecycleMode,
    limit: Duration,
    redaction: &Redaction,
) -> Result<RunningService<RoleClient, Handler>, NoHandshake> {
    match timeout(limit, handler.serve_with_lifecycle(transport, lifecycle)).await {
        Ok(Ok(running)) => Ok(running),
        Ok(Err(error @ ClientInitializeError::ExpectedInitResult(_))) => {
            Err(NoHandshake::Undiscovered(redaction.text(error)))
        }
        Ok(Err(ClientInitializeError::LegacyFallbackFailed { discover, fallback })) => {
            let why = format!("server/discover: {discover}; initialize: {fallback}");
            Err(NoHandshake::Failed(redaction.text(why)))
        }
        Ok(Err(error)) => Err(NoHandshake::Failed(redaction.text(error))),
        Err(_elapsed) => Err(NoHandshake::Late),
    }
}

/// A server that is reached over HTTP.
#[derive(Clone, Copy)]
struct Http<'a> {
    opening: Opening<'a>,
    handler: &'a Handler,
    calls: &'a Arc<Calls>,
    endpoint: &'a Endpoint,
}

impl Http<'_> {
    async fn begin(&self) -> Result<Session, NoHandshake> {
        let Entry { config, known, .. } = self.opening.entry;
        let lifecycle = config.protocol.or_else(|| known.get()).map(|protocol| match protocol {
            McpProtocol::Legacy => ClientLifecycleMode::Initialize,
            McpProtocol::Newest => discover(),
        });
        if let Some(lifecycle) = lifecycle {
            let made = self.connect(lifecycle, HANDSHAKE).await;
            return Ok((self.or_earlier(made).await?, None));
        }
        let began = Instant::now();
        let automatic = ClientLifecycleMode::Auto {
            preferred_versions: vec![ProtocolVersion::V_2026_07_28],
            legacy_version: Some(ProtocolVersion::LATEST_WITH_INITIALIZE),
        };
        let mut made = self.connect(automatic, HANDSHAKE).await;
        // A server that answers the first request after the second one has failed, for the library.
        if began.elapsed() >= DISCOVERY && made.as_ref().map_or_else(NoHandshake::has_answered, is_older) {
            drop(made);
            made = self.connect(discover(), DISCOVERY_AGAIN).await;
            if let Err(why) = &made {
                let is_silent = !why.has_answered();
                made = self.connect(ClientLifecycleMode::Initialize, HANDSHAKE).await;
                known.set((is_silent && made.is_ok()).then_some(McpProtocol::Legacy));
            }
        } else if made.as_ref().is_err_and(NoHandshake::is_undiscovered) {
            made = self.connect(ClientLifecycleMode::Initialize, HANDSHAKE).await;
        }
        Ok((self.or_earlier(made).await?, None))
    }

    /// Connects over the transport of earlier servers, if the server refused the present one.
    async fn or_earlier(
        &self,
        made: Result<RunningService<RoleClient, Handler>, NoHandshake>,
    ) -> Result<RunningService<RoleClient, Handler>, NoHandshake> {
        match made {
            Err(why)
                if why.is_refusal() && self.opening.entry.config.protocol != Some(McpProtocol::Newest) =>
            {
                self.connect_earlier(why).await
            }
            made => made,
        }
    }

    async fn connect(
        &self,
        lifecycle: ClientLifecycleMode,
        limit: Duration,
    ) -> Result<RunningService<RoleClient, Handler>, NoHandshake> {
        let mut config = StreamableHttpClientTransportConfig::with_uri(self.endpoint.url.as_str())
            .max_sse_event_size(MESSAGE_BYTES_MAX)
            .max_json_response_size(MESSAGE_BYTES_MAX)
            // A request that met the end of its session would be sent again.
            .reinit_on_expired_session(false);
        let headers = self.opening.headers;
        config.custom_headers = headers.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
        // Each of them may hold a long message.
        config.channel_buffer_capacity = 1;
        config.max_concurrent_requests = POSTS_MAX;
        let client = HttpClient::new(self.endpoint, self.opening.entry.log.clone());
        let transport = StreamableHttpClientTransport::with_client(client, config);
        self.serve(transport, lifecycle, limit).await
    }

    /// Connects over the transport of earlier servers. `why` is the reason against the present one.
    async fn connect_earlier(
        &self,
        why: NoHandshake,
    ) -> Result<RunningService<RoleClient, Handler>, NoHandshake> {
        let Opening { entry, headers, tasks, .. } = self.opening;
        let lines = sse::open(self.endpoint, headers, tasks, entry.log.clone()).await;
        match lines {
            Ok((messages, sent)) => {
                let transport =
                    AsyncRwTransport::new_client(messages, sent).with_max_line_length(MESSAGE_BYTES_MAX);
                self.serve(transport, ClientLifecycleMode::Initialize, HANDSHAKE).await
            }
            Err(other) => {
                let why = format!("{}; as an earlier server: {}", why.why(), entry.redaction.text(other));
                Err(NoHandshake::Failed(why))
            }
        }
    }

    async fn serve<T: Transport<RoleClient> + 'static>(
        &self,
        transport: T,
        lifecycle: ClientLifecycleMode,
        limit: Duration,
    ) -> Result<RunningService<RoleClient, Handler>, NoHandshake> {
        let Opening { entry, tasks, .. } = self.opening;
        let work = Work::of(&entry.config.name, &entry.store, tasks);
        let transport = Watched::new(transport, self.calls.clone(), work, entry.log.clone());
        serve(self.handler.clone(), transport, lifecycle, limit, &entry.redaction).await
    }
}
