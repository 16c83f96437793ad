//! Tools: the trait, the registry, and the gate in front of them.
//!
//! To add a tool: copy one of `files.rs`, give it a name, and register it in `app::demo_tools`.

mod access;
mod exact_numbers;
pub mod files;
pub(crate) mod gate;
mod output;
mod registry;
mod rules;
mod sub_agent;
mod unmatched;

pub use crate::domain::call::{Input, RiskLevel};
pub use crate::domain::id::ToolCallId;
pub use crate::domain::permit::{IdempotencyKey, Permit, Requester};
pub use registry::{DynTool, RegistryError, ToolRegistry, ToolSpec};
pub(crate) use registry::{InputError, Registered};
pub use sub_agent::SubAgent;
pub use tokio_util::sync::CancellationToken;
pub(crate) use unmatched::Unmatched;

use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Something a model may ask to have done.
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
/// A call can be cancelled while its tool runs ([`Permit::cancellation`]). A tool that takes its time listens, and returns
/// soon with what is true then: an output if the effect has happened, an error if it has not and will not. An error
/// means `failed`, "it did not happen", to the model and the person; a tool that does not know lets the grace pass.
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
/// `HIL` has no default: whoever writes a tool says whether a person is asked.
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
    /// Its name: 1 to 64 of `a-z A-Z 0-9 _ -`, which is what every provider takes.
    const NAME: &'static str;
    /// What it does, for the model and for the person who is asked.
    const DESCRIPTION: &'static str;
    /// Human in the loop: whether a person has to say yes to each call.
    const HIL: bool;
    /// Whether running a call twice does no more than running it once. Stored with each call. Only such a call is ever
    /// run again: one that was cut off, at most three times in all, and each time with the same
    /// [key](Permit::idempotency_key). An earlier attempt may still be under way then, in a process that was only taken
    /// for dead. So if a later attempt fails nobody knows the call's outcome: it is `interrupted`, not `failed`.
    const IDEMPOTENT: bool = false;
    /// How much harm it can do, shown to the person.
    const RISK: RiskLevel = if Self::HIL { RiskLevel::High } else { RiskLevel::Low };
    /// What it takes. Its JSON Schema is what the model sees and what edited inputs are checked against; put
    /// `#[serde(deny_unknown_fields)]` on it.
    type Input: DeserializeOwned + JsonSchema + Send;
    /// What it gives.
    type Output: Serialize + Send;

    /// Does it. The permit is the right to; nobody runs a tool without one. It says on whose behalf the tool runs
    /// ([`Permit::requester`]), and what that user may not reach the tool should not: who approved may be somebody
    /// else, and their rights are none of the tool's. The future is not dropped when a
    /// client goes away, nor when the call is cancelled or its time is up, only when the server leaves.
    ///
    /// # Errors
    /// What went wrong, in words for the model and the person.
    fn execute(
        &self,
        input: Self::Input,
        permit: Permit<Self>,
    ) -> impl Future<Output = Result<Self::Output, ToolError>> + Send;

    /// Says what became of a call that was cut off: whoever ran it went away, gave it up, or took too long, and nobody
    /// saw its end. It finds that out by the [key](Permit::idempotency_key) that the call had, and on behalf of the
    /// same user ([`IdempotencyKey::requester`]).
    ///
    /// It is asked again and again, for as long as `approval.start_deadline` after the call was given up, until it
    /// knows; by several processes perhaps, and perhaps while the call is still under way in a process that was only
    /// taken for dead. It must change nothing, and has the time of a call: `tools.timeout`. A tool that has no way to
    /// find out leaves it as it is, and the call stays `interrupted` until its own late outcome or an operator settles
    /// it.
    ///
    /// # Errors
    /// It cannot be found out now. It is asked again.
    fn verify(
        &self,
        _key: &IdempotencyKey,
    ) -> impl Future<Output = Result<Verified<Self::Output>, ToolError>> + Send {
        async { Ok(Verified::Unknown) }
    }
}

/// What a tool knows of a call that was cut off.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verified<Output> {
    /// It happened, and this is what it gave: the call succeeded.
    Happened(Output),
    /// It did not happen and never will: the call failed. Not merely that nothing is to be seen of it yet: the process
    /// that ran it may only have been paused, and come back. So only where whoever would have to do it has promised to
    /// refuse this key from now on. Not believed of a tool whose schema is another than when the call was asked for.
    NeverHappened,
    /// Neither is known: it is asked again.
    Unknown,
}

/// A tool's failure, in words that the model and the person may read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ToolError {
    message: String,
}

impl ToolError {
    /// A failure in these words.
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into() }
    }
}
