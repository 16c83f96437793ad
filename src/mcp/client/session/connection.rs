//! One connection to a server, from its handshake to its loss.

use crate::agent::Tasks;
use crate::mcp::client::caller::Caller;
use crate::mcp::client::entry::Entry;
use crate::mcp::client::failure::{self, Failure};
use crate::mcp::client::log::log_rate::LogRate;
use crate::mcp::client::log::redaction::Redaction;
use crate::mcp::client::message::output;
use crate::mcp::client::message::readable::{self, Unread};
use crate::mcp::client::session::elicitation::{answer_all, round};
use crate::mcp::client::session::handler::Handler;
use crate::mcp::client::session::handshake::{Opening, begin, has_no_handshake};
use crate::mcp::client::transport::calls::{Calls, Flight};
use crate::mcp::client::transport::process::Process;
use crate::tools::{SERVER_TOOLS_MAX, ToolError};
use holdpoint_core::owner::{NextAction, STATE_BYTES_MAX, TaskId};
use holdpoint_store::request_sender::RequestSender;
use reqwest::header::HeaderMap;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CancelTaskParams, DetailedTask, GetTaskParams, InputResponses,
    PaginatedRequestParams, SubscriptionFilter, Tool, UpdateTaskParams,
};
use rmcp::service::RunningService;
use rmcp::{ClientCacheConfig, Peer, RoleClient, ServiceError};
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};

/// Maximum size of all definitions of a server.
const LISTING_BYTES_MAX: usize = 2 * 1024 * 1024;
/// Maximum number of pages of a listing.
const PAGES_MAX: usize = 50;
/// Maximum number of answers to one call that want it again at once, or with input for which its process waits.
const ANSWERS_MAX: usize = 10;
/// The pause before a call is sent again to a server that wants it again without input.
const SENT_AGAIN_AFTER: Duration = Duration::from_millis(500);
/// How long the last messages of a process that has ended may take to arrive.
const LAST_MESSAGES: Duration = Duration::from_secs(1);
/// The pause before the next subscription, once one has ended.
const SUBSCRIBED_EVERY: Duration = Duration::from_secs(30);

/// A connection. It closes when the last holder drops it.
pub(in crate::mcp) struct Connection {
    peer: Peer<RoleClient>,
    /// Cancelled when the connection is over, or has to be made again.
    over: CancellationToken,
    /// Whether the tools are listed on this connection.
    lists: bool,
    changed: Arc<Notify>,
    calls: Arc<Calls>,
    log: Arc<LogRate>,
    redaction: Redaction,
    _closing: DropGuard,
}

/// The tools that a server lists.
pub(in crate::mcp) struct Listing {
    pub(in crate::mcp) tools: Vec<Tool>,
    /// The definitions that cannot be read.
    pub(in crate::mcp) unread: Vec<Unread>,
    /// The hash of the listed definitions. It is kept in their place.
    pub(in crate::mcp) hash: [u8; 32],
}

/// Why there is no listing. The text is for the log.
pub(in crate::mcp) enum NoListing {
    Lost(String),
    /// The server answered with something else. The connection is as good as before.
    Refused(String),
}

/// What a server answered to a call.
pub(in crate::mcp) enum Called {
    Result(Value),
    /// The call continues in this way.
    Next(NextAction),
}

impl Connection {
    /// Connects to a server: as the session that lists the tools, or as that of a caller. The error is for the log.
    pub(in crate::mcp) async fn open(
        entry: &Entry,
        tasks: &Tasks,
        caller: Option<&Caller>,
    ) -> Result<Self, String> {
        entry.read_header_files();
        let headers = entry.headers().map_or_else(HeaderMap::new, |headers| headers.for_session(caller));
        let lists = caller.is_none();
        let opening = Opening { entry, headers: &headers, tasks };
        let changed = Arc::new(Notify::new());
        let calls = Arc::new(Calls::new(entry.timeout));
        let handler = Handler::new(changed.clone(), entry.log.clone());
        let (running, process) = Box::pin(begin(opening, &handler, &calls)).await?;
        let (peer, over, closing) =
            (running.peer().clone(), CancellationToken::new(), CancellationToken::new());
        // What a server lists is read again, whatever it says about its freshness.
        peer.set_response_cache_config(ClientCacheConfig::disabled()).await;
        tasks.spawn_background(keep(running, process, over.clone(), closing.clone()));
        if lists && has_no_handshake(&peer) {
            tasks.spawn_background(subscribe(peer.clone(), changed.clone(), over.clone()));
        }
        let (log, redaction) = (entry.log.clone(), entry.redaction.clone());
        Ok(Self { peer, over, lists, changed, calls, log, redaction, _closing: closing.drop_guard() })
    }

    pub(in crate::mcp) fn is_lost(&self) -> bool {
        self.over.is_cancelled()
    }

    /// Completes when the connection is lost.
    pub(in crate::mcp) async fn lost(&self) {
        self.over.cancelled().await;
    }

    /// Completes when the server has said that its tools have changed, since this completed last.
    pub(in crate::mcp) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Returns the listed tools, up to the limits.
    pub(in crate::mcp) async fn list(&self) -> Result<Listing, NoListing> {
        let (mut tools, mut unread, mut cursor, mut bytes) = (Vec::new(), Vec::new(), None, 0_usize);
        let mut hash = Sha256::new();
        for _page in 0..PAGES_MAX {
            let page = PaginatedRequestParams::default().with_cursor(cursor);
            let mut page = self.peer.list_tools(Some(page)).await.map_err(|error| self.no_listing(&error))?;
            for odd in readable::unread(&mut page) {
                hash.update(format!("{odd:?}"));
                unread.push(odd);
            }
            for tool in page.tools {
                let json = serde_json::to_vec(&tool)
                    .map_err(|error| NoListing::Refused(self.redaction.text(error)))?;
                bytes = bytes.saturating_add(json.len());
                hash.update(json);
                if bytes > LISTING_BYTES_MAX {
                    let why = format!("its definitions are longer than {LISTING_BYTES_MAX} bytes");
                    return Err(NoListing::Refused(why));
                }
                tools.push(tool);
            }
            match page.next_cursor {
                Some(next) if tools.len() <= SERVER_TOOLS_MAX => cursor = Some(next),
                _ => return Ok(Listing { tools, unread, hash: hash.finalize().into() }),
            }
        }
        Err(NoListing::Refused(format!("its listing has more than {PAGES_MAX} pages")))
    }

    fn no_listing(&self, error: &ServiceError) -> NoListing {
        match error {
            ServiceError::McpError(error) if failure::may_end_session(error) => {
                NoListing::Lost(self.redaction.text(failure::message(error)))
            }
            ServiceError::McpError(error) => NoListing::Refused(self.redaction.text(failure::message(error))),
            ServiceError::UnexpectedResponse => NoListing::Refused("its answer is no listing".to_owned()),
            error if failure::is_lost(error) => NoListing::Lost(self.redaction.text(error)),
            error => NoListing::Refused(self.redaction.text(error)),
        }
    }

    /// Whether the protocol of the server has rounds of answers.
    pub(in crate::mcp) fn has_rounds(&self) -> bool {
        has_no_handshake(&self.peer)
    }

    /// Calls a tool once. Input that the server requires without a state is asked for here.
    pub(in crate::mcp) async fn call(
        &self,
        params: CallToolRequestParams,
        sender: RequestSender,
    ) -> Result<Called, Failure> {
        let flight = self.calls.begin(sender.clone());
        let answered = self.call_until_answered(params, Some((&flight, &sender)), 0).await;
        flight.landed();
        answered
    }

    /// Sends a call again after this number of rounds.
    pub(in crate::mcp) async fn call_again(
        &self,
        params: CallToolRequestParams,
        rounds: u32,
    ) -> Result<Called, Failure> {
        self.call_until_answered(params, None, rounds).await
    }

    async fn call_until_answered(
        &self,
        mut params: CallToolRequestParams,
        first: Option<(&Flight, &RequestSender)>,
        rounds: u32,
    ) -> Result<Called, Failure> {
        for _answer in 0..ANSWERS_MAX {
            let mut sent = params.clone();
            if let Some((flight, _)) = first {
                flight.mark(&mut sent);
            }
            match self.peer.call_tool_once(sent).await {
                Ok(CallToolResponse::Complete(result)) => {
                    let outcome = output::outcome(result).map(Called::Result);
                    return outcome.map_err(|why| Failure::Error(ToolError::new(why)));
                }
                Ok(CallToolResponse::Task(created)) => {
                    let Some(id) = TaskId::new(created.task.task_id) else { break };
                    return Ok(Called::Next(NextAction::Task(id)));
                }
                Ok(CallToolResponse::InputRequired(asked)) => {
                    let asks = asked.input_requests.as_ref().is_some_and(|requests| !requests.is_empty());
                    match (&asked.request_state, first) {
                        // The server wants the call again as it is.
                        (Some(state), _) if !asks && state.len() <= STATE_BYTES_MAX => {
                            params.input_responses = None;
                            params.request_state = Some(state.clone());
                            sleep(SENT_AGAIN_AFTER).await;
                        }
                        (None, Some((_, sender))) => {
                            let Some(responses) = answer_all(asked, sender, &self.log).await else { break };
                            params.input_responses = Some(responses);
                            params.request_state = None;
                        }
                        _ => {
                            let Some(round) = round(asked, rounds, &params.name) else { break };
                            return Ok(Called::Next(NextAction::Round(round)));
                        }
                    }
                }
                Ok(_) => break,
                Err(error) => {
                    let is_first = params.input_responses.is_none() && params.request_state.is_none();
                    match &error {
                        ServiceError::McpError(error) if failure::may_end_session(error) => {
                            self.may_have_ended();
                        }
                        error if failure::is_lost(error) => self.over.cancel(),
                        _ => {}
                    }
                    return Err(failure::of(error, is_first, &self.redaction));
                }
            }
        }
        tracing::warn!("an MCP server answered a call in a way that holdpoint does not support");
        Err(Failure::Error(ToolError::outcome_unknown()))
    }

    /// The session may have ended. A listing shows whether it has; a session without listings is not used again, which does
    /// no harm to one that has not ended.
    fn may_have_ended(&self) {
        match self.lists {
            true => self.changed.notify_one(),
            false => self.over.cancel(),
        }
    }

    pub(in crate::mcp) async fn task(&self, id: &TaskId) -> Result<DetailedTask, ServiceError> {
        let found = self.peer.get_task(GetTaskParams::new(id.as_str())).await;
        Ok(self.checked(found)?.task)
    }

    /// Sends the answer to an input request of a task.
    pub(in crate::mcp) async fn update_task(
        &self,
        id: &TaskId,
        responses: InputResponses,
    ) -> Result<(), ServiceError> {
        self.checked(self.peer.update_task(UpdateTaskParams::new(id.as_str(), responses)).await)
    }

    /// Asks the server to end a task.
    pub(in crate::mcp) async fn cancel_task(&self, id: &TaskId) -> Result<(), ServiceError> {
        self.checked(self.peer.cancel_task(CancelTaskParams::new(id.as_str())).await)
    }

    /// Has the connection made again if this answer shows that it is lost.
    fn checked<T>(&self, answer: Result<T, ServiceError>) -> Result<T, ServiceError> {
        match &answer {
            Err(ServiceError::McpError(error)) if failure::may_end_session(error) => self.may_have_ended(),
            Err(error) if failure::is_lost(error) => self.over.cancel(),
            _ => {}
        }
        answer
    }
}

/// Passes on what a server without sessions says about its tools. Only a subscription gets such messages, and not every
/// server has them.
async fn subscribe(peer: Peer<RoleClient>, changed: Arc<Notify>, over: CancellationToken) {
    let forwarded = async {
        loop {
            let filter = SubscriptionFilter::builder().tools_list_changed().build();
            if let Ok(mut subscription) = peer.listen(filter).await {
                // The tools may have changed after they were listed and before the subscription began.
                changed.notify_one();
                while let Ok(Some(_changed)) = subscription.next().await {
                    changed.notify_one();
                }
            }
            sleep(SUBSCRIBED_EVERY).await;
        }
    };
    tokio::select! {
        () = forwarded => {}
        () = over.cancelled() => {}
    }
}

/// Keeps a connection until its transport or its process ends, or its last holder drops it.
async fn keep(
    running: RunningService<RoleClient, Handler>,
    mut process: Option<Process>,
    over: CancellationToken,
    closing: CancellationToken,
) {
    let mut ended = Box::pin(running.waiting());
    let process_ended = async {
        match &mut process {
            Some(process) => process.ended().await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        _ended = &mut ended => {}
        () = process_ended => {
            let _last = timeout(LAST_MESSAGES, &mut ended).await;
        }
        () = closing.cancelled() => {}
    }
    over.cancel();
    // This closes the input of the process.
    drop(ended);
    if let Some(process) = process {
        process.end().await;
    }
}
