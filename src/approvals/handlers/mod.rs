//! Approval handlers: who is asked first, in this process, about a call that is held.
//!
//! A handler is given when an app is built. Behind a hold, once the calls are stored as pending and that is told, it is
//! asked about each of them, for at most `approval.handler_timeout`; meanwhile the stream stays open, and the routes decide as
//! ever. Whoever decides first wins. A call that the handler leaves to the routes is decided there, and only there.
//!
//! - [`Deferred`] leaves every call to the routes: what the server uses.
//! - [`Closure`] asks an async closure.
//! - [`Terminal`] asks whoever sits at a terminal.

mod closure;
mod reply;
mod terminal;

pub use crate::domain::call::{Input, RiskLevel};
pub use crate::domain::decision::Remember;
pub use crate::domain::id::{RunId, ThreadId, ToolCallId};
pub use crate::domain::permit::Requester;
pub use closure::Closure;
pub use futures::future::BoxFuture;
pub use terminal::Terminal;

use crate::domain::call::ToolCall;
use crate::domain::run::Run;
use crate::store::Thread;
use futures::FutureExt;
use std::fmt;
use std::time::{Duration, SystemTime};

/// The longest name of a handler.
const NAME_MAX: usize = 64;

/// What is asked about held calls.
///
/// Its word goes the way of everybody's: the policy is asked once more, inputs that it changes have to fit the tool, a
/// call is decided once. It is one voice where a tool wants several. It is a part of the program, so no role binds it; who
/// decides is written down as `handler:<name>`.
///
/// ```
/// use holdpoint::handlers::{ApprovalHandler, ApprovalRequest, BoxFuture, HandlerAnswer, HandlerError};
///
/// struct SmallChange;
///
/// impl ApprovalHandler for SmallChange {
///     fn name(&self) -> &str {
///         "small-change"
///     }
///
///     fn ask(&self, request: ApprovalRequest) -> BoxFuture<'_, Result<HandlerAnswer, HandlerError>> {
///         Box::pin(async move {
///             let amount = request.input.get("amount").and_then(|amount| amount.as_u64());
///             Ok(match amount {
///                 Some(..10) => HandlerAnswer::approved(),
///                 _ => HandlerAnswer::Deferred,
///             })
///         })
///     }
/// }
/// ```
pub trait ApprovalHandler: Send + Sync + 'static {
    /// What it is known by in decisions and events: 1 to 64 of `a-z A-Z 0-9 _ -`. Who has another name is somebody else: what
    /// was remembered on its word counts no more.
    fn name(&self) -> &str;

    /// Whether it may answer anything but [`HandlerAnswer::Deferred`]. One that does not is never asked.
    fn asks(&self) -> bool {
        true
    }

    /// Asks about one held call. Several may be asked about at once. It must not block its thread; what it waits for
    /// is dropped when its time is over, somebody else decides, the run is cancelled or the process is about to leave.
    /// An error, or a panic, leaves the call to the routes.
    fn ask(&self, request: ApprovalRequest) -> BoxFuture<'_, Result<HandlerAnswer, HandlerError>>;
}

impl fmt::Debug for dyn ApprovalHandler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ApprovalHandler").field(&self.name()).finish()
    }
}

/// Why a handler could not ask. It goes to the log of the server, and to nobody else.
pub type HandlerError = Box<dyn std::error::Error + Send + Sync>;

/// A held call, as a handler is asked about it.
#[derive(Clone, PartialEq)]
#[non_exhaustive]
pub struct ApprovalRequest {
    /// The call.
    pub tool_call_id: ToolCallId,
    /// The thread in which the model asks for it.
    pub thread_id: ThreadId,
    /// The root thread of its session.
    pub session_id: ThreadId,
    /// Its run.
    pub run_id: RunId,
    /// Its tool.
    pub tool_name: String,
    /// What it would run with.
    pub input: Input,
    /// How much harm the tool can do.
    pub risk: RiskLevel,
    /// Why somebody is asked.
    pub reason: Option<String>,
    /// On whose behalf it would run.
    pub requester: Requester,
    /// When the time to answer is over that people have, by the database's clock.
    pub expires_at: Option<SystemTime>,
}

impl fmt::Debug for ApprovalRequest {
    /// Without the inputs, which are no business of a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApprovalRequest")
            .field("tool_call_id", &self.tool_call_id)
            .field("tool_name", &self.tool_name)
            .finish_non_exhaustive()
    }
}

impl ApprovalRequest {
    pub(super) fn of(call: &ToolCall, thread: &Thread, run: &Run) -> Self {
        let since_1970 = |micros: i64| Duration::from_micros(u64::try_from(micros).unwrap_or_default());
        Self {
            tool_call_id: call.id,
            thread_id: thread.id,
            session_id: thread.session_id,
            run_id: run.id,
            tool_name: call.name.clone(),
            input: call.input.clone(),
            risk: call.risk,
            reason: call.reason.clone(),
            requester: thread.requester(),
            expires_at: call
                .expires_at
                .and_then(|at| SystemTime::UNIX_EPOCH.checked_add(since_1970(at.as_micros()))),
        }
    }
}

/// What a handler says of a held call.
#[derive(Debug, Clone, PartialEq)]
pub enum HandlerAnswer {
    /// It runs.
    Approved {
        /// Inputs in place of the model's, if they are to be others.
        inputs: Option<Input>,
        /// How far the yes reaches beyond the call, if it does.
        remember: Option<Remember>,
    },
    /// It does not run.
    Denied {
        /// Why, for the model and the record.
        reason: Option<String>,
    },
    /// It is withdrawn, and nobody has said no.
    Cancelled {
        /// Why, for the model and the record.
        reason: Option<String>,
    },
    /// It is left to the routes.
    Deferred,
}

impl HandlerAnswer {
    /// A yes to this one call, as it was proposed.
    pub const fn approved() -> Self {
        Self::Approved { inputs: None, remember: None }
    }

    /// A no, for this reason.
    pub fn denied(reason: impl Into<String>) -> Self {
        Self::Denied { reason: Some(reason.into()) }
    }
}

/// Leaves every call to the routes, where a person decides whenever they come: nothing waits in the process meanwhile.
#[derive(Debug, Clone, Copy, Default)]
pub struct Deferred;

impl ApprovalHandler for Deferred {
    fn name(&self) -> &str {
        "deferred"
    }

    fn asks(&self) -> bool {
        false
    }

    fn ask(&self, _request: ApprovalRequest) -> BoxFuture<'_, Result<HandlerAnswer, HandlerError>> {
        futures::future::ready(Ok(HandlerAnswer::Deferred)).boxed()
    }
}

/// A handler, as decisions and events name it.
pub(crate) fn actor(handler: &dyn ApprovalHandler) -> String {
    format!("handler:{}", handler.name())
}

/// Whether a handler may have this name.
pub(crate) fn is_name(name: &str) -> bool {
    let usable = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    (1..=NAME_MAX).contains(&name.len()) && name.chars().all(usable)
}
