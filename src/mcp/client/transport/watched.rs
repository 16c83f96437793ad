//! What passes between a connection and its server, in the order in which it passes, and no faster than it is answered.

use crate::agent::Tasks;
use crate::mcp::client::log::log_rate::LogRate;
use crate::mcp::client::log::pace::Pace;
use crate::mcp::client::message::greeting::is_greeting;
use crate::mcp::client::message::readable::{self, Expected};
use crate::mcp::client::transport::calls::Calls;
use futures::FutureExt;
use futures::future::BoxFuture;
use holdpoint_store::Store;
use holdpoint_store::request_sender::RequestSender;
use rmcp::RoleClient;
use rmcp::model::{
    ClientJsonRpcMessage, ClientNotification, ClientRequest, GetExtensions, GetMeta, JsonRpcMessage,
    RequestId, ServerJsonRpcMessage, ServerNotification, ServerRequest,
};
use rmcp::transport::Transport;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout};

/// Maximum number of requests of a server that are not answered. Nothing is read from a server that has as many.
const UNANSWERED_MAX: usize = 64;
/// How many messages that holdpoint did not ask for are read at once, and then each second: requests, notifications and
/// answers to nothing.
const UNASKED_AT_ONCE: u32 = 5000;
const UNASKED_PER_SECOND: u32 = 1000;
/// How long the look for the work of a server may take, before a form that waits for it is cancelled.
const LOOK: Duration = Duration::from_secs(5);

/// The call of a form, if it is certain.
#[derive(Clone)]
pub(in crate::mcp) struct CallOfForm(pub(in crate::mcp) Option<RequestSender>);

/// The place of a request that is not answered. A request has it until it is handled and its answer is written.
type RequestSlot = Arc<OwnedSemaphorePermit>;

/// The place of the request that is being handled.
#[derive(Clone)]
struct Handled(#[expect(dead_code, reason = "it is there to be dropped")] RequestSlot);

/// A transport that bounds what its server may leave unread, and sees to which call a form belongs.
pub(in crate::mcp) struct Watched<T> {
    inner: T,
    calls: Arc<Calls>,
    work: Work,
    log: Arc<LogRate>,
    places: Arc<Semaphore>,
    /// The place of the next request.
    next: Option<OwnedSemaphorePermit>,
    /// The places of the requests whose answers are not being written yet.
    unanswered: HashMap<RequestId, RequestSlot>,
    /// The own requests that the server has not answered.
    own: HashMap<RequestId, Expected>,
    /// The result of `initialize`, if the server has answered it already, and then that answer.
    initialized: Option<Value>,
    answer: Option<ServerJsonRpcMessage>,
    unasked: Pace,
    /// Whether the last message was one that holdpoint did not ask for.
    was_unasked: bool,
    /// A form that has arrived, and the look that it waits for. Nothing is received before its end, so that what the
    /// server sends after the form does not count.
    form: Option<(ServerJsonRpcMessage, BoxFuture<'static, Option<RequestSender>>)>,
}

/// The tasks and the rounds of a server, of all processes.
#[derive(Clone)]
pub(in crate::mcp) struct Work {
    store: Store,
    tasks: Tasks,
    server: String,
}

impl Work {
    pub(in crate::mcp) fn of(server: &str, store: &Store, tasks: &Tasks) -> Self {
        Self { store: store.clone(), tasks: tasks.clone(), server: server.to_owned() }
    }

    /// Returns the call if the server works on no other one as a task or in rounds. It may ask about that one in any
    /// session.
    async fn only(self, sender: RequestSender) -> Option<RequestSender> {
        let (store, server) = (self.store, self.server.clone());
        // In a task of its own: the connection may be dropped at any time, and a read of the database may not.
        let look = self.tasks.spawn(async move { store.read_once().await?.has_work_at(&server).await });
        match timeout(LOOK, look).await {
            Ok(Ok(Ok(false))) => Some(sender),
            Ok(Ok(Ok(true))) => None,
            Ok(Ok(Err(error))) => {
                tracing::warn!(server = self.server, %error, "could not look for the call of a form");
                None
            }
            Ok(Err(_)) | Err(_) => None,
        }
    }
}

impl<T> Watched<T> {
    pub(in crate::mcp) fn new(inner: T, calls: Arc<Calls>, work: Work, log: Arc<LogRate>) -> Self {
        Self {
            inner,
            calls,
            work,
            log,
            places: Arc::new(Semaphore::new(UNANSWERED_MAX)),
            next: None,
            unanswered: HashMap::new(),
            own: HashMap::new(),
            initialized: None,
            answer: None,
            unasked: Pace::new(UNASKED_AT_ONCE, UNASKED_PER_SECOND),
            was_unasked: false,
            form: None,
        }
    }

    /// The server has answered `initialize` with this result. It does not get the request again.
    pub(in crate::mcp) fn after_initialize(self, result: Value) -> Self {
        Self { initialized: Some(result), ..self }
    }

    /// Waits until the server may send something. Dropped before its end, it loses nothing.
    async fn ready(&mut self) {
        if self.next.is_none() {
            self.next = self.places.clone().acquire_owned().await.ok();
        }
        if self.was_unasked {
            self.unasked.one().await;
            self.was_unasked = false;
        }
    }

    /// Gives a request its place. Returns false if the server uses the id of a request that is not answered: only one of
    /// the two would get an answer.
    fn begin(&mut self, request: &mut ServerRequest, id: &RequestId) -> bool {
        if self.unanswered.contains_key(id) {
            self.log.repeated_id();
            return false;
        }
        if let Some(place) = self.next.take().map(Arc::new) {
            self.unanswered.insert(id.clone(), place.clone());
            request.extensions_mut().insert(Handled(place));
        }
        true
    }

    /// Returns the look for the call of a form that has arrived now.
    fn call_of_form(&self) -> BoxFuture<'static, Option<RequestSender>> {
        let only = self.calls.only(Instant::now()).filter(RequestSender::may_ask);
        let work = self.work.clone();
        async move { work.only(only?).await }.boxed()
    }

    /// The server has answered this request. Returns what was expected.
    fn answered(&mut self, id: &RequestId) -> Expected {
        // Some servers return the number of a request as a text.
        let id = match id {
            RequestId::String(text) => text.parse().map_or_else(|_| id.clone(), RequestId::Number),
            RequestId::Number(_) => id.clone(),
        };
        let expected = self.own.remove(&id);
        self.was_unasked = expected.is_none();
        self.calls.answered(&id);
        expected.unwrap_or(Expected::Other)
    }
}

impl<T: Transport<RoleClient>> Transport<RoleClient> for Watched<T> {
    type Error = T::Error;

    fn send(
        &mut self,
        mut message: ClientJsonRpcMessage,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        let mut answered = None;
        match &mut message {
            JsonRpcMessage::Request(sent) => {
                self.own.insert(sent.id.clone(), Expected::by(&sent.request));
                let progress = sent.request.get_meta().get_progress_token();
                if let ClientRequest::CallToolRequest(call) = &mut sent.request {
                    self.calls.sent(&sent.id, &mut call.params, progress);
                }
                if matches!(sent.request, ClientRequest::InitializeRequest(_))
                    && let Some(result) = self.initialized.take()
                {
                    let answer = json!({ "jsonrpc": "2.0", "id": sent.id, "result": result });
                    self.answer = serde_json::from_value(answer).ok();
                }
            }
            JsonRpcMessage::Notification(sent) => {
                if let ClientNotification::CancelledNotification(cancelled) = &sent.notification
                    && let Some(id) = &cancelled.params.request_id
                {
                    self.own.remove(id);
                }
            }
            JsonRpcMessage::Response(response) => answered = Some(&response.id),
            JsonRpcMessage::Error(error) => answered = error.id.as_ref(),
        }
        let place = answered.map(|id| self.unanswered.remove(id));
        // The server has cancelled a request without a place, and expects no answer to it.
        let is_sent = matches!(place, Some(None)) || self.answer.is_some();
        let sending = (!is_sent).then(|| self.inner.send(message));
        async move {
            let sent = match sending {
                Some(sending) => sending.await,
                None => Ok(()),
            };
            drop(place);
            sent
        }
    }

    /// Dropped before its end, it loses nothing.
    async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        if let Some(answer) = self.answer.take() {
            return Some(answer);
        }
        while self.form.is_none() {
            self.ready().await;
            let mut message = self.inner.receive().await?;
            if is_greeting(&message) {
                continue;
            }
            if let JsonRpcMessage::Response(mut response) = message {
                let expected = self.answered(&response.id);
                response.result = readable::answer(expected, response.result);
                return Some(JsonRpcMessage::Response(response));
            }
            match &mut message {
                JsonRpcMessage::Request(asked) => {
                    self.was_unasked = true;
                    readable::request(&mut asked.request);
                    if !self.begin(&mut asked.request, &asked.id) {
                        continue;
                    }
                    if matches!(asked.request, ServerRequest::ElicitRequest(_)) {
                        self.form = Some((message, self.call_of_form()));
                        continue;
                    }
                }
                JsonRpcMessage::Notification(notification) => {
                    self.was_unasked = true;
                    match &notification.notification {
                        ServerNotification::CancelledNotification(cancelled) => {
                            if let Some(id) = &cancelled.params.request_id {
                                self.unanswered.remove(id);
                            }
                        }
                        ServerNotification::ProgressNotification(progress) => {
                            self.calls.progressed(&progress.params);
                        }
                        _ => {}
                    }
                }
                JsonRpcMessage::Response(_) => {}
                JsonRpcMessage::Error(error) => match &error.id {
                    Some(id) => {
                        self.answered(id);
                    }
                    None => self.was_unasked = true,
                },
            }
            return Some(message);
        }
        let (_, look) = self.form.as_mut()?;
        let call = look.await;
        let (mut message, _) = self.form.take()?;
        if let JsonRpcMessage::Request(asked) = &mut message {
            asked.request.extensions_mut().insert(CallOfForm(call));
        }
        Some(message)
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.inner.close().await
    }
}
