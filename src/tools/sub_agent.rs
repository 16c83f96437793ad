//! Sub-agents: tools whose calls a child thread does.

use super::{Input, RiskLevel, ToolError, ToolSpec};
use crate::domain::assignment::Assignment;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// A tool that does nothing itself: a model in a thread of its own does what a call of it asks for, below the thread of
/// the call, and what it says last is the call's result.
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
/// The child acts in the name of the same user, with the same roles, in the same session: what is asked there of a person
/// is in the session's inbox, and what was remembered there holds. Nothing waits in memory meanwhile. There is no permit
/// in it, because it begins nothing: whoever holds the permit of its call begins the child.
///
/// ```compile_fail
/// # use holdpoint::tools::SubAgent;
/// // Whoever writes one says whether a person is asked before it begins.
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
    /// Its name, as a tool's; and the title of its threads.
    const NAME: &'static str;
    /// What it does, for the model and for the person who is asked.
    const DESCRIPTION: &'static str;
    /// Human in the loop: whether a person has to say yes before it begins. What its tools want of a person they want in
    /// any case.
    const HIL: bool;
    /// How much harm it can do, shown to the person.
    const RISK: RiskLevel = if Self::HIL { RiskLevel::High } else { RiskLevel::Low };
    /// The names of the tools that it may use, of those that the model has which calls it; `None` is all of these. Each
    /// has to be registered.
    const TOOLS: Option<&'static [&'static str]> = None;
    /// What its model is told of itself, in place of `model.system_prompt`.
    const INSTRUCTIONS: Option<&'static str> = None;
    /// What it takes, as of a [`Tool`](super::Tool).
    type Input: DeserializeOwned + JsonSchema + Send;

    /// What it is asked to do, in words: the user message of its thread.
    fn task(&self, input: Self::Input) -> String;
}

/// A sub-agent without its types.
pub(super) trait DynSubAgent: Send + Sync {
    /// The tools that it may use, if not all.
    fn tools(&self) -> Option<&'static [&'static str]>;

    /// What a call with these inputs gives it to do.
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

/// What is known of a sub-agent. That it is begun again does no harm: who was cut off before its child was there has
/// begun nothing, and behind that the child does the call.
pub(super) fn spec<T: SubAgent>() -> ToolSpec {
    ToolSpec {
        name: T::NAME.to_owned(),
        description: T::DESCRIPTION.to_owned(),
        hil: T::HIL,
        idempotent: true,
        risk: T::RISK,
        input_schema: super::registry::schema_of::<T::Input>(),
    }
}
