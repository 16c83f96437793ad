//! A handler from an async closure.

use super::{ApprovalHandler, ApprovalRequest, BoxFuture, HandlerAnswer, HandlerError};
use futures::FutureExt;
use std::fmt;
use std::future::Future;

/// A handler that calls an async closure.
///
/// ```
/// use holdpoint::handlers::{Closure, HandlerAnswer};
///
/// let on_weekdays = Closure::new("office", async |request| {
///     Ok(if request.tool_name == "send_mail" { HandlerAnswer::approved() } else { HandlerAnswer::Deferred })
/// });
/// # use holdpoint::handlers::ApprovalHandler;
/// # assert_eq!(on_weekdays.name(), "office");
/// ```
pub struct Closure<F> {
    name: String,
    ask: F,
}

impl<F> Closure<F> {
    /// Creates a handler with this name.
    pub fn new<Answering>(name: impl Into<String>, ask: F) -> Self
    where
        F: Fn(ApprovalRequest) -> Answering,
        Answering: Future<Output = Result<HandlerAnswer, HandlerError>> + Send + 'static,
    {
        Self { name: name.into(), ask }
    }
}

impl<F> fmt::Debug for Closure<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Closure").field("name", &self.name).finish_non_exhaustive()
    }
}

impl<F, Answering> ApprovalHandler for Closure<F>
where
    F: Fn(ApprovalRequest) -> Answering + Send + Sync + 'static,
    Answering: Future<Output = Result<HandlerAnswer, HandlerError>> + Send + 'static,
{
    fn name(&self) -> &str {
        &self.name
    }

    fn ask(&self, request: ApprovalRequest) -> BoxFuture<'_, Result<HandlerAnswer, HandlerError>> {
        (self.ask)(request).boxed()
    }
}
