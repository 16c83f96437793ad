//! Tools: the trait, the registry, and the gate.
//!
//! To add a tool: copy one of `files.rs`, give it a name, and register it in `app::demo_tools`.
//!
//! # Permits
//!
//! A tool runs only with a [`Permit`], which the store returns after the commit that lets the call run.
//!
//! Other code cannot create one:
//!
//! ```compile_fail,E0624
//! let permit = holdpoint::tools::Permit::<()>::committed();
//! ```
//!
//! Running a tool uses the permit up:
//!
//! ```compile_fail,E0599
//! fn twice(permit: holdpoint::tools::Permit) {
//!     let again = permit.clone();
//! }
//! ```
//!
//! A tool cannot run without a permit:
//!
//! ```compile_fail,E0061
//! use holdpoint::tools::{Tool, ToolError};
//! async fn run<T: Tool>(tool: &T, input: T::Input) -> Result<T::Output, ToolError> {
//!     tool.execute(input).await
//! }
//! ```
//!
//! A tool with a permit cannot use it to run another tool:
//!
//! ```compile_fail,E0308
//! use holdpoint::tools::{Permit, Tool, ToolError};
//! async fn run<T: Tool, U: Tool>(tool: &U, input: U::Input, permit: Permit<T>) -> Result<U::Output, ToolError> {
//!     tool.execute(input, permit).await
//! }
//! ```
//!
//! The [key](IdempotencyKey) of a permit goes to the services that the tool uses:
//!
//! ```no_run
//! # use holdpoint::tools::{Permit, ToolError};
//! # struct Charge;
//! # async fn charge(http: reqwest::Client, permit: Permit<Charge>) -> Result<(), ToolError> {
//! http.post("https://payments.example/charges")
//!     .header("Idempotency-Key", permit.idempotency_key().as_str())
//!     .send()
//!     .await
//!     .map_err(|error| ToolError::new(error.to_string()))?;
//! # Ok(())
//! # }
//! ```

mod access;
mod card_facts;
mod configured;
mod current;
mod exact_numbers;
#[cfg(feature = "demo")]
pub mod files;
pub(crate) mod gate;
mod headline;
mod output;
mod registry;
pub(crate) mod remote_work;
mod repair;
pub(crate) mod request_answer;
mod rules;
pub(crate) mod run;
mod schema;
mod sub_agent;
mod unmatched;

pub(crate) use current::{CurrentTools, SEPARATOR, SERVER_TOOLS_MAX, ServerTools};
use holdpoint_core::call::Outcome;
pub use holdpoint_core::call::RiskLevel;
pub(crate) use holdpoint_core::card::preview::Preview;
pub use holdpoint_core::id::ToolCallId;
use holdpoint_core::owner::Owner;
pub use holdpoint_core::tool::input::Input;
pub use holdpoint_core::tool::tool_request::Answer;
pub use holdpoint_store::permit::{IdempotencyKey, Permit, Requester};
pub use registry::{DynTool, RegistryError, ToolRegistry, ToolSpec};
pub(crate) use registry::{InputError, OfServer, Registered, is_tool_name};
pub use sub_agent::SubAgent;
pub use tokio_util::sync::CancellationToken;
pub(crate) use unmatched::Unmatched;

use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// An action that a model may call.
///
/// ```
/// use holdpoint::tools::{Permit, RiskLevel, Tool, ToolError};
///
/// #[derive(serde::Deserialize, schemars::JsonSchema)]
/// #[serde(deny_unknown_fields)]
/// struct Add {
///     a: i64,
///     b: i64,
/// }
///
/// struct Adder;
///
/// impl Tool for Adder {
///     const NAME: &'static str = "add";
///     const DESCRIPTION: &'static str = "Adds two numbers.";
///     const HIL: bool = false;
///     const IDEMPOTENT: bool = true;
///     const RISK: RiskLevel = RiskLevel::Low;
///     type Input = Add;
///     type Output = i64;
///
///     async fn execute(&self, input: Add, _permit: Permit<Self>) -> Result<i64, ToolError> {
///         input.a.checked_add(input.b).ok_or_else(|| ToolError::new("the sum is too large"))
///     }
/// }
/// ```
///
/// A call can be cancelled while its tool runs ([`Permit::cancellation`]). A tool with a long run time
/// listens, and returns soon with the truth of that moment: an output if the effect has happened, an error if
/// the effect has not happened and will not. An error becomes `failed`, which means to the model and the user
/// that the effect did not happen. A tool that does not know returns [`ToolError::outcome_unknown`].
///
/// ```
/// # use holdpoint::tools::{Permit, Tool, ToolError};
/// # #[derive(serde::Deserialize, schemars::JsonSchema)]
/// # struct Report {}
/// # async fn build_report() -> String { String::new() }
/// struct Reporter;
///
/// impl Tool for Reporter {
///     const NAME: &'static str = "report";
///     const DESCRIPTION: &'static str = "Builds a report, which takes a while.";
///     const HIL: bool = false;
///     type Input = Report;
///     type Output = String;
///
///     async fn execute(&self, _: Report, permit: Permit<Self>) -> Result<String, ToolError> {
///         tokio::select! {
///             report = build_report() => Ok(report),
///             () = permit.cancellation().cancelled() => Err(ToolError::new("cancelled; there is no report")),
///         }
///     }
/// }
/// ```
///
/// `HIL` has no default: the author of a tool has to decide whether its calls need an approval.
///
/// ```compile_fail
/// # use holdpoint::tools::{Permit, Tool, ToolError};
/// struct Forgetful;
/// impl Tool for Forgetful {
///     const NAME: &'static str = "forgetful";
///     const DESCRIPTION: &'static str = "Does something, but does it ask?";
///     type Input = ();
///     type Output = ();
///     async fn execute(&self, _: (), _: Permit<Self>) -> Result<(), ToolError> {
///         Ok(())
///     }
/// }
/// ```
pub trait Tool: Send + Sync + 'static {
    /// The name: 1 to 64 of `a-z A-Z 0-9 _ -`, which every provider accepts.
    const NAME: &'static str;
    /// The description, for the model and for the approver.
    const DESCRIPTION: &'static str;
    /// Human in the loop: whether a person has to approve each call. If so, the gate returns a marker instead of
    /// executing the call, unless the policy of the operator or a grant lets it run.
    const HIL: bool;
    /// Whether running a call twice has the same effect as running it once. The value is stored with each
    /// call. Only idempotent calls run again: a call that was cut off is started at most three times in all,
    /// each time with the same [key](Permit::idempotency_key). An earlier attempt may still run then, in a
    /// process that was wrongly taken for dead. So if a later attempt fails, the outcome of the call is
    /// unknown: the call is `interrupted`, not `failed`.
    const IDEMPOTENT: bool = false;
    /// The risk of a call, shown to the approver.
    const RISK: RiskLevel = if Self::HIL { RiskLevel::High } else { RiskLevel::Low };
    /// The question to the approver of a call, such as `Delete {path}?`. A placeholder in braces is the name of
    /// a property of the inputs; two braces stand for one. A text fills its placeholder as it is, any other
    /// value as JSON, an absent one as `…`. Values are cut after 120 characters. Pages show the inputs beside
    /// the headline.
    const HEADLINE: Option<&'static str> = None;
    /// Whether the tool has previews: [`preview`](Self::preview). The server never asks a tool without them.
    const PREVIEW: bool = false;
    /// The inputs. The model sees their JSON Schema, and edited inputs are checked against it. Put
    /// `#[serde(deny_unknown_fields)]` on this type.
    type Input: DeserializeOwned + JsonSchema + Send;
    /// The output.
    type Output: Serialize + Send;

    /// Runs the tool. The permit is the right to run; no tool runs without one. The permit names the user on
    /// whose behalf the tool runs ([`Permit::requester`]). The tool should stay within the rights of this
    /// user. The approver may be another user, whose rights do not apply. The future is dropped only when the
    /// server stops, not when a client disconnects, the call is cancelled, or its time is up.
    ///
    /// # Errors
    /// Returns the cause of the failure, in words for the model and the user. A tool that does not know whether
    /// its effect happened returns [`ToolError::outcome_unknown`].
    fn execute(
        &self,
        input: Self::Input,
        permit: Permit<Self>,
    ) -> impl Future<Output = Result<Self::Output, ToolError>> + Send;

    /// Returns the effect that a call with these inputs would have, before the decision: such as the rows that a
    /// delete would hit, or the mail that would leave. Set [`PREVIEW`](Self::PREVIEW) with it.
    ///
    /// The method must change nothing: it is called for calls that have no approval and may never run. It gets no
    /// permit, and acts with the rights of the requester. The result is plain text, of which the
    /// approver reads the first 8 KiB. It is stored with the held call, and an approval is about this text.
    /// The method is called again when an approver edits the inputs, and at the approval of the edit: the same
    /// inputs in the same state of the world have to give the same text.
    ///
    /// The call is held only after the preview, so the time limit is short: `tools.preview_timeout`. The future
    /// is dropped then, and when the turn stops.
    ///
    /// # Errors
    /// There is no preview, for this reason. The approver reads the reason, and can decide even so.
    fn preview(
        &self,
        _input: Self::Input,
        _requester: &Requester,
    ) -> impl Future<Output = Result<String, ToolError>> + Send {
        async { Err(ToolError::new("the tool says nothing before it runs")) }
    }

    /// Reports the outcome of a call that was cut off: the process that ran the call is gone, gave the call
    /// up, or exceeded the time limit, and the end of the call is unknown. The tool finds the outcome by the
    /// [key](Permit::idempotency_key) of the call, on behalf of the same user
    /// ([`IdempotencyKey::requester`]).
    ///
    /// The server calls this repeatedly, up to `approval.start_deadline` after the call was given up, until
    /// the tool knows the outcome. Several processes may call it, also while the call still runs in a process
    /// that was wrongly taken for dead. The method must change nothing, and its time limit is that of a call:
    /// `tools.timeout`. A tool that cannot find the outcome keeps the default. Its call stays `interrupted`
    /// until its own late outcome or an operator settles it.
    ///
    /// # Errors
    /// The outcome cannot be found now. The server asks again.
    fn verify(
        &self,
        _key: &IdempotencyKey,
    ) -> impl Future<Output = Result<Verified<Self::Output>, ToolError>> + Send {
        async { Ok(Verified::Unknown) }
    }
}

/// The outcome of a call that was cut off, as its tool reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verified<Output> {
    /// The effect happened, with this output: the call succeeded.
    Happened(Output),
    /// The effect did not happen and never will: the call failed. A missing effect alone is not enough,
    /// because the process that ran the call may only be paused and may resume. Return this only if the
    /// service has promised to refuse this key from now on. The server ignores this answer from a tool whose
    /// schema differs from the schema at the time of the call.
    NeverHappened,
    /// The outcome is unknown. The server asks again.
    Unknown,
}

/// The reason why a tool has no output.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(transparent)]
pub struct ToolError(Why);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
enum Why {
    #[error("{0}")]
    Failed(String),
    #[error("the outcome is unknown")]
    OutcomeUnknown,
    #[error("the outcome is unknown. {0}")]
    OutcomeUnknownWith(String),
    #[error("the outcome comes later")]
    Accepted(Owner),
}

impl ToolError {
    /// Creates a failure with this message, which the model and the user may read. The effect did not happen,
    /// and will not: the call is `failed`.
    pub fn new(message: impl Into<String>) -> Self {
        Self(Why::Failed(message.into()))
    }

    /// Creates the error of a tool that does not know whether its effect happened, such as after a lost
    /// connection. The call begins again if the tool is [idempotent](Tool::IDEMPOTENT) and the server did not
    /// ask it to stop. Otherwise the call is `interrupted`, and [`Tool::verify`] can settle it.
    #[must_use]
    pub const fn outcome_unknown() -> Self {
        Self(Why::OutcomeUnknown)
    }

    /// Creates the error of a tool that does not know whether its effect happened, with a sentence about what its service
    /// said. The call does not begin again: the service has answered.
    pub(crate) const fn outcome_unknown_with(said: String) -> Self {
        Self(Why::OutcomeUnknownWith(said))
    }

    /// Returns the outcome of a call that ended with this error, `None` if it has not ended.
    pub(crate) fn outcome(self) -> Option<Outcome> {
        match self.0 {
            Why::Failed(message) => Some(Outcome::Failed(message)),
            Why::OutcomeUnknown => Some(Outcome::Lost),
            Why::OutcomeUnknownWith(said) => Some(Outcome::InterruptedWith(said)),
            Why::Accepted(_) => None,
        }
    }

    /// Creates the reason of a tool whose service accepted the call: there is no output yet. The service owns the
    /// call from now on.
    pub(crate) const fn accepted(owner: Owner) -> Self {
        Self(Why::Accepted(owner))
    }
}
