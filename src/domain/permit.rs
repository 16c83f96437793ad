//! The permit: without one no tool can run.

use super::call::{Execution, Input};
use super::id::ToolCallId;
use std::fmt;
use std::marker::PhantomData;
use tokio_util::sync::CancellationToken;

/// The right to run one call of the tool `T` once; of a tool known only at run time where there is no `T`.
///
/// A permit comes into being in one place: the store hands it out after the commit that made the call's row
/// `executing`. That row was either inserted so on the policy's word, or moved so from `approved` by
/// compare-and-set. Running a tool takes the permit by value.
///
/// Nobody else can make one:
///
/// ```compile_fail,E0624
/// let permit = holdpoint::tools::Permit::<()>::committed();
/// ```
///
/// It is used up by running:
///
/// ```compile_fail,E0599
/// fn twice(permit: holdpoint::tools::Permit) {
///     let again = permit.clone();
/// }
/// ```
///
/// A tool cannot be run without one:
///
/// ```compile_fail,E0061
/// use holdpoint::tools::{Tool, ToolError};
/// async fn run<T: Tool>(tool: &T, input: T::Input) -> Result<T::Output, ToolError> {
///     tool.execute(input).await
/// }
/// ```
///
/// And a tool that was permitted cannot run another with it:
///
/// ```compile_fail,E0308
/// use holdpoint::tools::{Permit, Tool, ToolError};
/// async fn run<T: Tool, U: Tool>(tool: &U, input: U::Input, permit: Permit<T>) -> Result<U::Output, ToolError> {
///     tool.execute(input, permit).await
/// }
/// ```
pub struct Permit<T: ?Sized = ()> {
    tool_call_id: ToolCallId,
    key: IdempotencyKey,
    tool_name: String,
    asked: Input,
    input: Input,
    execution: Execution,
    cancellation: CancellationToken,
    tool: PhantomData<fn(&T)>,
}

/// What a call is known by to the services that its tool asks to do something: the same for every attempt of the call,
/// and no other call's.
///
/// A service that takes idempotency keys does with the same one nothing twice. It gets the key as text, in the header
/// `Idempotency-Key` or wherever it wants it:
///
/// ```no_run
/// # use holdpoint::tools::{Permit, ToolError};
/// # struct Charge;
/// # async fn charge(http: reqwest::Client, permit: Permit<Charge>) -> Result<(), ToolError> {
/// http.post("https://payments.example/charges")
///     .header("Idempotency-Key", permit.idempotency_key().as_str())
///     .send()
///     .await
///     .map_err(|error| ToolError::new(error.to_string()))?;
/// # Ok(())
/// # }
/// ```
///
/// And by the same key it is asked later what became of the call: [`Tool::verify`](crate::tools::Tool::verify).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdempotencyKey {
    text: String,
    requester: Requester,
}

impl IdempotencyKey {
    /// Of a call, made on this user's behalf.
    pub(crate) fn of(tool_call_id: ToolCallId, requester: Requester) -> Self {
        Self { text: tool_call_id.to_string(), requester }
    }

    /// The key as a service gets it: the call's id, which is a UUID.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// On whose behalf the call was made, and so with whose rights a service is asked.
    pub fn requester(&self) -> &Requester {
        &self.requester
    }
}

impl fmt::Display for IdempotencyKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// On whose behalf a tool runs: the user of the thread in which the model asked for it, whoever approved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Requester {
    pub(crate) tenant_id: String,
    pub(crate) user_id: String,
}

impl Requester {
    /// Their tenant; `default` on a server without authentication.
    pub fn tenant_id(&self) -> &str {
        &self.tenant_id
    }

    /// The user inside the tenant; `local` on a server without authentication.
    pub fn user_id(&self) -> &str {
        &self.user_id
    }
}

impl Permit {
    /// For the store, once the row is committed as executing.
    pub(crate) fn committed(
        tool_call_id: ToolCallId,
        tool_name: String,
        requester: Requester,
        asked: Input,
        edited: Option<Input>,
        execution: Execution,
    ) -> Self {
        let input = edited.unwrap_or_else(|| asked.clone());
        let key = IdempotencyKey::of(tool_call_id, requester);
        let cancellation = CancellationToken::new();
        Self { tool_call_id, key, tool_name, asked, input, execution, cancellation, tool: PhantomData }
    }

    /// The same right, if it is for the tool of this name.
    pub(crate) fn for_tool<T: ?Sized>(self, name: &str) -> Option<Permit<T>> {
        let Self { tool_call_id, key, tool_name, asked, input, execution, cancellation, tool: _ } = self;
        (tool_name == name).then(|| Permit {
            tool_call_id,
            key,
            tool_name,
            asked,
            input,
            execution,
            cancellation,
            tool: PhantomData,
        })
    }
}

impl<T: ?Sized> Permit<T> {
    /// The call.
    pub fn tool_call_id(&self) -> ToolCallId {
        self.tool_call_id
    }

    /// The key that the services which the tool asks know this call by.
    pub fn idempotency_key(&self) -> &IdempotencyKey {
        &self.key
    }

    /// Which attempt at the call this is, from 1. Only a tool that is `IDEMPOTENT` ever sees another: an earlier one
    /// was cut off, and may have had its effect.
    pub fn attempt(&self) -> u32 {
        self.execution.attempt.unsigned_abs()
    }

    /// The tool that may run.
    pub fn tool_name(&self) -> &str {
        &self.tool_name
    }

    /// On whose behalf it runs. What the tool may reach is theirs to reach, not that of whoever approved: an approver
    /// says that it may happen, and lends no rights.
    pub fn requester(&self) -> &Requester {
        self.key.requester()
    }

    /// The inputs it may run with: the stored ones, as a person saw or changed them.
    pub fn input(&self) -> &Input {
        &self.input
    }

    /// Triggered when the call is to stop: it or its run was cancelled, its thread was deleted, its time is up, the server
    /// leaves, or another process took its execution for lost. What the tool returns within `tools.cancel_grace` after that is
    /// the call's outcome; then the call is `interrupted`, and what the tool returns later still settles it.
    pub fn cancellation(&self) -> &CancellationToken {
        &self.cancellation
    }

    /// The inputs the model asked for.
    pub(crate) fn asked(&self) -> &Input {
        &self.asked
    }

    /// The execution that this permit stands for.
    pub(crate) fn execution(&self) -> Execution {
        self.execution
    }
}

impl<T: ?Sized> fmt::Debug for Permit<T> {
    /// Without the inputs, which are no business of a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit")
            .field("tool_call_id", &self.tool_call_id)
            .field("tool_name", &self.tool_name)
            .finish_non_exhaustive()
    }
}
