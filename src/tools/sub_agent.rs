//! Sub-agents: tools whose calls are executed by a child thread.

use super::{Input, RiskLevel, ToolError, ToolSpec};
use holdpoint_core::tool::assignment::Assignment;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// A tool that delegates its calls. For each call, a model works in a child thread of the call's thread. The
/// final answer of the child is the result of the call.
///
/// ```
/// use holdpoint::tools::SubAgent;
///
/// #[derive(serde::Deserialize, schemars::JsonSchema)]
/// #[serde(deny_unknown_fields)]
/// struct Question {
///     question: String,
/// }
///
/// struct Researcher;
///
/// impl SubAgent for Researcher {
///     const NAME: &'static str = "research";
///     const DESCRIPTION: &'static str = "Finds out what is known about a question.";
///     const HIL: bool = false;
///     const TOOLS: Option<&'static [&'static str]> = Some(&["search", "read_file"]);
///     type Input = Question;
///
///     fn task(&self, input: Question) -> String {
///         format!("Find out, and answer in three sentences: {}", input.question)
///     }
/// }
/// ```
///
/// The child acts on behalf of the same user, with the same roles, in the same session. Its held calls are in
/// the session's inbox, and the session's grants apply. No task waits in memory meanwhile. A sub-agent gets
/// no permit, because it starts nothing: the owner of the call's permit starts the child.
///
/// ```compile_fail
/// # use holdpoint::tools::SubAgent;
/// // The author of a sub-agent has to decide whether a person approves its calls.
/// struct Forgetful;
/// impl SubAgent for Forgetful {
///     const NAME: &'static str = "forgetful";
///     const DESCRIPTION: &'static str = "Has something done, but does it ask?";
///     type Input = ();
///     fn task(&self, _: ()) -> String {
///         String::new()
///     }
/// }
/// ```
pub trait SubAgent: Send + Sync + 'static {
    /// The name of the tool, which is also the title of its threads.
    const NAME: &'static str;
    /// The description, for the model and for the approver.
    const DESCRIPTION: &'static str;
    /// Human in the loop: whether a person has to approve each call. The sub-agent's own tools require their
    /// approvals in either case.
    const HIL: bool;
    /// The risk of the sub-agent, shown to the approver.
    const RISK: RiskLevel = if Self::HIL { RiskLevel::High } else { RiskLevel::Low };
    /// The question to the approver of a call, as for a [`Tool`](super::Tool::HEADLINE).
    const HEADLINE: Option<&'static str> = None;
    /// The names of the tools that the sub-agent may use, a subset of the tools that the calling model has.
    /// `None`: all tools of that model. Each tool has to be registered.
    const TOOLS: Option<&'static [&'static str]> = None;
    /// The instructions for the sub-agent's model, in place of `model.system_prompt`.
    const INSTRUCTIONS: Option<&'static str> = None;
    /// The inputs, as for a [`Tool`](super::Tool).
    type Input: DeserializeOwned + JsonSchema + Send;

    /// Returns the task in words: the user message of the child thread.
    fn task(&self, input: Self::Input) -> String;
}

/// A sub-agent without its types.
pub(super) trait DynSubAgent: Send + Sync {
    /// Returns the names of the tools that the sub-agent may use, if not all.
    fn tools(&self) -> Option<&'static [&'static str]>;

    /// Returns the assignment for a call with these inputs.
    fn assignment(&self, input: &Input) -> Result<Assignment, ToolError>;
}

pub(super) struct TypedSubAgent<T>(pub(super) T);

impl<T: SubAgent> DynSubAgent for TypedSubAgent<T> {
    fn tools(&self) -> Option<&'static [&'static str]> {
        T::TOOLS
    }

    fn assignment(&self, input: &Input) -> Result<Assignment, ToolError> {
        let input = serde_json::from_value(Value::Object(input.clone()))
            .map_err(|error| ToolError::new(format!("the inputs do not fit: {error}")))?;
        Ok(Assignment {
            title: T::NAME.to_owned(),
            task: self.0.task(input),
            instructions: T::INSTRUCTIONS.map(str::to_owned),
            tools: T::TOOLS.map(|names| names.iter().map(|name| (*name).to_owned()).collect()),
        })
    }
}

/// Returns the spec of a sub-agent. A repeated attempt does no harm: an attempt that was cut off before the
/// commit of its child started nothing, and after that commit the child executes the call.
pub(super) fn spec<T: SubAgent>() -> ToolSpec {
    ToolSpec {
        name: T::NAME.to_owned(),
        description: T::DESCRIPTION.to_owned(),
        hil: T::HIL,
        idempotent: true,
        risk: T::RISK,
        headline: T::HEADLINE.map(str::to_owned),
        preview: false,
        input_schema: super::schema::schema_of::<T::Input>(),
        constants: Input::new(),
    }
}
