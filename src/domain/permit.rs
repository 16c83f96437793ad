//! The permit: without one no tool can run.

use super::call::{Execution, Input};
use super::id::ToolCallId;

/// The right to run one call once.
///
/// A permit comes into being in one place: the store hands it out after the commit that made the call's row
/// `executing`. That row was either inserted so on the policy's word, or moved so from `approved` by
/// compare-and-set. Running a tool takes the permit by value.
///
/// Nobody else can make one:
///
/// ```compile_fail
/// use holdpoint::tools::Permit;
/// let permit = Permit { };
/// ```
///
/// ```compile_fail,E0624
/// let permit = holdpoint::tools::Permit::committed();
/// ```
///
/// It is used up by running:
///
/// ```compile_fail
/// fn twice(permit: holdpoint::tools::Permit) {
///     let again = permit.clone();
/// }
/// ```
///
/// And so a tool cannot be run past it:
///
/// ```compile_fail
/// use holdpoint::tools::{Tool, ToolError};
/// async fn run<T: Tool>(tool: &T, input: T::Input) -> Result<T::Output, ToolError> {
///     tool.execute(input).await
/// }
/// ```
#[derive(Debug)]
pub struct Permit {
    tool_call_id: ToolCallId,
    tool_name: String,
    asked: Input,
    input: Input,
    execution: Execution,
}

impl Permit {
    /// For the store, once the row is committed as executing.
    pub(crate) fn committed(
        tool_call_id: ToolCallId,
        tool_name: String,
        asked: Input,
        edited: Option<Input>,
        execution: Execution,
    ) -> Self {
        let input = edited.unwrap_or_else(|| asked.clone());
        Self { tool_call_id, tool_name, asked, input, execution }
    }

    /// The call. It is also the key to give to a downstream service that knows idempotency keys.
    pub fn tool_call_id(&self) -> ToolCallId {
        self.tool_call_id
    }

    /// The tool that may run.
    pub fn tool_name(&self) -> &str {
        &self.tool_name
    }

    /// The inputs it may run with: the stored ones, as a person saw or changed them.
    pub fn input(&self) -> &Input {
        &self.input
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
