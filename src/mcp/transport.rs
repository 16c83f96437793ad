//! What passes between a connection and its server, in the order in which it passes.

use super::calls::Calls;
use crate::agent::Tasks;
use crate::domain::request_sender::RequestSender;
use crate::store::Store;
use futures::FutureExt;
use futures::future::BoxFuture;
use rmcp::RoleClient;
use rmcp::model::{
    ClientJsonRpcMessage, ClientRequest, GetExtensions, JsonRpcMessage, ServerJsonRpcMessage, ServerRequest,
};
use rmcp::transport::Transport;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout};

/// How long the look for the work of a server may take, before a form that waits for it is cancelled.
const LOOK: Duration = Duration::from_secs(5);

/// The call of a form, if it is certain.
#[derive(Clone)]
pub(super) struct CallOfForm(pub(super) Option<RequestSender>);

/// A transport that sees to which call a form belongs.
pub(super) struct Watched<T> {
    inner: T,
    calls: Arc<Calls>,
    work: Work,
    /// A form that has arrived, and the look that it waits for. Nothing is received before its end, so that what the
    /// server sends after the form does not count.
    form: Option<(ServerJsonRpcMessage, BoxFuture<'static, Option<RequestSender>>)>,
}

/// The tasks and the rounds of a server, of all processes.
#[derive(Clone)]
pub(super) struct Work {
    store: Store,
    tasks: Tasks,
    server: String,
}

impl Work {
    pub(super) fn of(server: &str, store: &Store, tasks: &Tasks) -> Self {
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
    pub(super) fn new(inner: T, calls: Arc<Calls>, work: Work) -> Self {
        Self { inner, calls, work, form: None }
    }

    /// Returns the look for the call of a form that has arrived now.
    fn call_of_form(&self) -> BoxFuture<'static, Option<RequestSender>> {
        let only = self.calls.only(Instant::now()).filter(RequestSender::may_ask);
        let work = self.work.clone();
        async move { work.only(only?).await }.boxed()
    }
}

impl<T: Transport<RoleClient>> Transport<RoleClient> for Watched<T> {
    type Error = T::Error;

    fn send(
        &mut self,
        mut message: ClientJsonRpcMessage,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        if let JsonRpcMessage::Request(sent) = &mut message
            && let ClientRequest::CallToolRequest(call) = &mut sent.request
        {
            self.calls.sent(&sent.id, &mut call.params);
        }
        self.inner.send(message)
    }

    /// Dropped before its end, it loses nothing.
    async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        if self.form.is_none() {
            let message = self.inner.receive().await?;
            match &message {
                JsonRpcMessage::Request(asked)
                    if matches!(asked.request, ServerRequest::ElicitRequest(_)) =>
                {
                    self.form = Some((message, self.call_of_form()));
                }
                JsonRpcMessage::Response(response) => {
                    self.calls.answered(&response.id);
                    return Some(message);
                }
                JsonRpcMessage::Error(error) => {
                    if let Some(id) = &error.id {
                        self.calls.answered(id);
                    }
                    return Some(message);
                }
                _ => return Some(message),
            }
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
