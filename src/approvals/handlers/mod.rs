//! Approval handlers: the server asks them first, in this process, about a held call.
//!
//! An app takes its handler when it is built. After a hold, the calls are stored as pending and the client is
//! notified. Then the handler is asked about each of them, for at most `approval.handler_timeout`. Meanwhile
//! the stream stays open, and the routes accept decisions as usual. The first decision wins. A call that the
//! handler leaves to the routes can only be decided there.
//!
//! - [`Deferred`] leaves every call to the routes. The server uses it.
//! - [`Closure`] calls an async closure.
//! - [`Terminal`] asks the user of a terminal.

mod closure;
mod input;
mod reply;
#[cfg(feature = "cli")]
mod terminal;

pub use closure::Closure;
pub use futures::future::BoxFuture;
pub use holdpoint_core::call::RiskLevel;
pub use holdpoint_core::card::preview::Preview;
pub use holdpoint_core::decision::Remember;
pub use holdpoint_core::id::{RequestId, RunId, ThreadId, ToolCallId};
pub use holdpoint_core::tool::input::Input;
pub use holdpoint_core::tool::tool_request::RequestKind;
pub use holdpoint_store::permit::Requester;
pub use input::{InputAnswer, InputRequest};
#[cfg(feature = "cli")]
pub use terminal::Terminal;

use crate::tools::gate::Gate;
use futures::FutureExt;
use holdpoint_core::call::ToolCall;
use holdpoint_core::clock::Timestamp;
use holdpoint_core::run::Run;
use holdpoint_store::Thread;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// The maximum length of a handler's name.
const NAME_MAX: usize = 64;

/// A handler that is asked about held calls.
///
/// An answer is treated as any other decision: the policy is checked again, edited inputs have to fit the
/// tool, and a call is decided once. If a tool needs several approvals, the handler's approval counts as one.
/// A handler is part of the program, so no role restricts it. Decisions record the handler as
/// `handler:<name>`.
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
    /// Returns the name of the handler in decisions and events: 1 to 64 of `a-z A-Z 0-9 _ -`. A handler with
    /// another name is another actor: grants under the old name no longer count.
    fn name(&self) -> &str;

    /// Whether the handler may answer anything but [`HandlerAnswer::Deferred`]. If false, the handler is
    /// never asked.
    fn asks(&self) -> bool {
        true
    }

    /// Asks about one held call. Several calls may be asked about at once. The future must not block its
    /// thread. It is dropped when its time is over, another decider decides, the run is cancelled, or the
    /// process is about to stop. An error or a panic leaves the call to the routes.
    fn ask(&self, request: ApprovalRequest) -> BoxFuture<'_, Result<HandlerAnswer, HandlerError>>;

    /// Asks for the answer to a request of a tool that runs. The process that runs the tool asks, once, and only if
    /// [`asks`](Self::asks). People may answer at the routes meanwhile, and the first answer counts. The future is
    /// dropped when the request has ended, after `approval.handler_timeout`, or when the process is about to stop.
    /// The default, an error, a panic and content that does not fit the schema leave the request to the routes.
    fn answer(&self, _request: InputRequest) -> BoxFuture<'_, Result<InputAnswer, HandlerError>> {
        futures::future::ready(Ok(InputAnswer::Deferred)).boxed()
    }
}

impl fmt::Debug for dyn ApprovalHandler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ApprovalHandler").field(&self.name()).finish()
    }
}

/// An error of a handler. Only the log of the server contains it.
pub type HandlerError = Box<dyn std::error::Error + Send + Sync>;

/// A held call, as its handler receives it.
#[derive(Clone, PartialEq)]
#[non_exhaustive]
pub struct ApprovalRequest {
    /// The call.
    pub tool_call_id: ToolCallId,
    /// The thread in which the model made the call.
    pub thread_id: ThreadId,
    /// The root thread of the session.
    pub session_id: ThreadId,
    /// The run of the call.
    pub run_id: RunId,
    /// The name of the tool.
    pub tool_name: String,
    /// The inputs that the call would run with, with `•••` in place of each secret.
    pub input: Input,
    /// The JSON Pointers of the secrets in `input`: values that the tool's schema marks with `writeOnly` or
    /// `format: password`.
    pub secret_inputs: Vec<String>,
    /// Inputs that the operator sets, and that the tool adds to these.
    pub constants: Input,
    /// What the tool says that the call would do, if it has previews.
    pub preview: Option<Preview>,
    /// Whether the tool is an MCP server's that has changed or added its definition, and no operator has accepted that.
    /// An approval of such a call cannot be remembered.
    pub definition_unaccepted: bool,
    /// How much harm the tool can do.
    pub risk: RiskLevel,
    /// Why the call is held.
    pub reason: Option<String>,
    /// The user on whose behalf the call would run.
    pub requester: Requester,
    /// When the time for a decision is over, by the clock of the database.
    pub expires_at: Option<SystemTime>,
    /// How the handler gets the inputs as they are.
    opener: Opener,
}

/// Reads the inputs of a call without masks, on the record.
#[derive(Clone)]
pub(super) struct Opener(pub(super) Arc<Opens>);

/// What an [`Opener`] does.
pub(super) type Opens = dyn Fn() -> BoxFuture<'static, Result<Input, HandlerError>> + Send + Sync;

impl PartialEq for Opener {
    /// The call of the request says which inputs it reads.
    fn eq(&self, _other: &Self) -> bool {
        true
    }
}

impl fmt::Debug for ApprovalRequest {
    /// Omits the inputs, which do not belong in a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApprovalRequest")
            .field("tool_call_id", &self.tool_call_id)
            .field("tool_name", &self.tool_name)
            .finish_non_exhaustive()
    }
}

impl ApprovalRequest {
    pub(super) fn of(call: &ToolCall, gate: &Gate, thread: &Thread, run: &Run, opener: Opener) -> Self {
        let constants = gate.registry().get(&call.name).and_then(|tool| tool.spec.constants());
        Self {
            tool_call_id: call.id,
            thread_id: thread.id,
            session_id: thread.session_id,
            run_id: run.id,
            tool_name: call.name.clone(),
            input: call.shown_proposal().into_input(),
            secret_inputs: call.secret_pointers(),
            constants: constants.unwrap_or_default(),
            preview: call.preview.clone(),
            definition_unaccepted: gate.unaccepted(call).is_some(),
            risk: call.risk,
            reason: call.reason.clone(),
            requester: thread.requester(),
            expires_at: call.expires_at.and_then(time_of),
            opener,
        }
    }

    /// Returns the inputs with the secrets in them. For a call with secrets each use is the event
    /// `tool.inputs_revealed` of the handler.
    ///
    /// # Errors
    /// The call is not there any more, or the database failed.
    pub async fn reveal(&self) -> Result<Input, HandlerError> {
        (self.opener.0)().await
    }
}

/// Returns a time of the database as the time of a system.
fn time_of(at: Timestamp) -> Option<SystemTime> {
    let since_1970 = Duration::from_micros(u64::try_from(at.as_micros()).unwrap_or_default());
    SystemTime::UNIX_EPOCH.checked_add(since_1970)
}

/// The answer of a handler about a held call.
#[derive(Debug, Clone, PartialEq)]
pub enum HandlerAnswer {
    /// The call runs.
    Approved {
        /// Inputs that replace the model's, if edited. For a tool with previews an edit is not accepted, and the
        /// call is left to the routes: only an approver that saw a preview of the edit may approve it.
        inputs: Option<Input>,
        /// How far the approval extends beyond the call, if it is remembered.
        remember: Option<Remember>,
    },
    /// The call does not run.
    Denied {
        /// The reason, for the model and the record.
        reason: Option<String>,
    },
    /// The call is withdrawn without a rejection.
    Cancelled {
        /// The reason, for the model and the record.
        reason: Option<String>,
    },
    /// The call is left to the routes.
    Deferred,
}

impl HandlerAnswer {
    /// Returns an approval of this one call, as it was proposed.
    pub const fn approved() -> Self {
        Self::Approved { inputs: None, remember: None }
    }

    /// Returns a rejection for this reason.
    pub fn denied(reason: impl Into<String>) -> Self {
        Self::Denied { reason: Some(reason.into()) }
    }
}

/// Leaves every call to the routes, where a person decides at any time. Meanwhile nothing waits in the
/// process.
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

/// Returns the actor of a handler, for decisions and events.
pub(crate) fn actor(handler: &dyn ApprovalHandler) -> String {
    format!("handler:{}", handler.name())
}

/// Whether a handler may have this name.
pub(crate) fn is_name(name: &str) -> bool {
    let usable = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    (1..=NAME_MAX).contains(&name.len()) && name.chars().all(usable)
}
