//! The gate: between a model that asks for a call and a tool that runs it.
//!
//! It judges every call a model makes (may it run, must a person be asked, can it be run at all), and it is
//! the one place that runs a tool, which it does only for a [`Permit`].

use super::registry::{Does, Registered};
use super::rules;
use super::{IdempotencyKey, InputError, Permit, ToolRegistry, Verified};
use crate::config::{Config, ExactNumbers, Limits, RememberIn, RememberInputs};
use crate::domain::assignment::Assignment;
use crate::domain::call::{Input, Outcome, RiskLevel, cut, input_hash, model_texts, unknown_schema_hash};
use crate::domain::grant::{Grant, Remembering};
use crate::domain::id::GrantId;
use crate::domain::output::Output;
use crate::domain::policy::{
    Judgement, Loosened, Policy, PolicyRequest, Requirement, Ruling, SessionPolicy, Source,
};
use crate::domain::strict_json;
#[cfg(feature = "torture")]
use crate::faults::Point;
use futures::FutureExt;
use serde_json::Value;
use std::fmt::Write;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

/// Longest account of what does not fit, in bytes.
const WHY_BYTES_MAX: usize = 4096;

/// The gate of one server.
#[derive(Debug, Clone)]
pub(crate) struct Gate {
    registry: Arc<ToolRegistry>,
    limits: Limits,
    /// Longest time a tool may take.
    timeout: Duration,
    /// Longest time that a tool may take to return once its call is cancelled.
    cancel_grace: Duration,
    policy: Arc<Policy>,
    remembering: Remembering,
    /// Of tools of which the operator says nothing else.
    pub(super) exact_numbers: ExactNumbers,
}

/// For whom a call would run, and where.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PolicyContext<'a> {
    /// The roles of the user.
    pub(crate) roles: &'a [String],
    /// What holds in the session.
    pub(crate) session: &'a SessionPolicy,
    /// The user, as an actor.
    pub(crate) requester: &'a str,
    /// What was to be remembered in the session, about this tool and maybe others.
    pub(crate) grants: &'a [Grant],
}

/// Whether a call may still run that was let through before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Recheck {
    /// As it was said.
    Yes,
    /// Nobody was asked, and somebody would be now.
    NotUnasked,
    /// Never, whatever a person said; why.
    Never(String),
}

/// A call, judged.
#[derive(Debug)]
pub(crate) struct Judged {
    pub(crate) input: Input,
    pub(crate) schema_hash: String,
    pub(crate) idempotent: bool,
    pub(crate) risk: RiskLevel,
    pub(crate) judgement: Judgement,
}

impl Gate {
    pub(crate) fn new(registry: Arc<ToolRegistry>, config: &Config, process: &str, handler: String) -> Self {
        let limits = config.limits.clone();
        let (timeout, cancel_grace) = (config.tools.timeout, config.tools.cancel_grace);
        let policy = Arc::new(rules::policy(&config.approval));
        let remembering = Remembering {
            process: (config.approval.remember == RememberIn::Memory).then(|| process.to_owned()),
            equal_inputs: config.approval.remember_inputs == RememberInputs::Equal,
            handler,
        };
        let exact_numbers = config.approval.exact_numbers;
        Self { registry, limits, timeout, cancel_grace, policy, remembering, exact_numbers }
    }

    pub(crate) fn registry(&self) -> &ToolRegistry {
        &self.registry
    }

    /// How this server remembers.
    pub(crate) fn remembering(&self) -> &Remembering {
        &self.remembering
    }

    /// Longest time a tool may take.
    pub(crate) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Longest time that a tool may take to return once its call is cancelled.
    pub(crate) fn cancel_grace(&self) -> Duration {
        self.cancel_grace
    }

    /// Longest time until a call that runs has ended.
    pub(crate) fn longest(&self) -> Duration {
        self.timeout.saturating_add(self.cancel_grace)
    }

    /// Judges one call. `offered` are the tools the model was shown; another is unknown to it.
    pub(crate) fn judge(
        &self,
        tool_name: &str,
        arguments: &str,
        context: PolicyContext<'_>,
        offered: impl Fn(&str) -> bool,
    ) -> Judged {
        let registered = self.registry.get(tool_name).filter(|_| offered(tool_name));
        let Some(tool) = registered else {
            let input = self.parse(arguments).unwrap_or_default();
            return Judged {
                input,
                schema_hash: unknown_schema_hash(),
                idempotent: false,
                risk: RiskLevel::High,
                judgement: Judgement::Invalid(format!(
                    "There is no tool named {tool_name:?}. It did not run."
                )),
            };
        };
        let judged = |input, judgement| Judged {
            input,
            schema_hash: tool.schema_hash.clone(),
            idempotent: tool.spec.idempotent,
            risk: tool.spec.risk,
            judgement,
        };
        let input = match self.parse(arguments) {
            Ok(input) => input,
            Err(why) => {
                let why = format!("The arguments cannot be read: {why}. The tool did not run.");
                return judged(Input::new(), Judgement::Invalid(why));
            }
        };
        let errors = tool.errors(&input);
        if !errors.is_empty() {
            return judged(input, Judgement::Invalid(unfit("The arguments do not fit the tool:", &errors)));
        }
        let mut judgement = self.ruling(tool, &input, context).into();
        if matches!(judgement, Judgement::Held { .. }) {
            let errors = self.inexact_numbers(tool, &input, None);
            if !errors.is_empty() {
                judgement =
                    Judgement::Invalid(unfit("A person has to approve the call and cannot:", &errors));
            }
        }
        judged(input, judgement)
    }

    pub(super) fn ruling(&self, tool: &Registered, input: &Input, context: PolicyContext<'_>) -> Ruling {
        let PolicyContext { roles, session, requester, .. } = context;
        let may_run = tool.runs_for(roles);
        let remembered = self.remembered(tool, input, requester, context.grants);
        let (tool, hil) = (tool.spec.name.as_str(), tool.spec.hil);
        self.policy.evaluate(&PolicyRequest { tool, hil, input, roles, may_run, session, remembered })
    }

    /// The grant that is about a call, of somebody whose yes it would take now.
    fn remembered(
        &self,
        tool: &Registered,
        input: &Input,
        requester: &str,
        grants: &[Grant],
    ) -> Option<GrantId> {
        if grants.is_empty() {
            return None;
        }
        let (name, schema) = (tool.spec.name.as_str(), tool.schema_hash.as_str());
        let hash = input_hash(name, input, schema);
        let mut about =
            grants.iter().filter(|grant| grant.is_about(name, schema, &hash, self.remembering.equal_inputs));
        let handler = self.remembering.handler.as_str();
        about.find(|grant| tool.honours(grant, requester, handler)).map(|grant| grant.id)
    }

    /// The grant by which nobody is asked about a call.
    pub(crate) fn covering_grant(
        &self,
        tool: &Registered,
        input: &Input,
        context: PolicyContext<'_>,
    ) -> Option<GrantId> {
        match self.ruling(tool, input, context).source {
            Source::Remembered(grant) => Some(grant),
            _ => None,
        }
    }

    /// What would go further under `to` than under `from`.
    pub(crate) fn loosened<'a>(
        &'a self,
        from: &'a SessionPolicy,
        to: &'a SessionPolicy,
    ) -> Option<Loosened<'a>> {
        let tools = self.registry.specs().map(|spec| (spec.name.as_str(), spec.hil));
        self.policy.loosened(from, to, tools)
    }

    /// What the policy says now of a call that it judged before. Only what is tighter than that counts.
    pub(crate) fn recheck(
        &self,
        tool: &Registered,
        input: &Input,
        held: bool,
        context: PolicyContext<'_>,
    ) -> Recheck {
        let Ruling { requirement, reason, .. } = self.ruling(tool, input, context);
        match requirement {
            Requirement::Forbidden => Recheck::Never(reason),
            Requirement::NeedsApproval if !held => Recheck::NotUnasked,
            Requirement::NeedsApproval | Requirement::Skip(_) => Recheck::Yes,
        }
    }

    /// What does not fit in the inputs of a call that is to be approved: the tool's schema, and the limits that a
    /// model's arguments have. Of an edit, also the numbers that a page cannot show; `edited` is what it changes.
    pub(crate) fn errors(&self, tool: &Registered, input: &Input, edited: Option<&Input>) -> Vec<InputError> {
        let errors = self.unfit(tool, input);
        match edited {
            Some(proposed) if errors.is_empty() => self.inexact_numbers(tool, input, Some(proposed)),
            _ => errors,
        }
    }

    fn unfit(&self, tool: &Registered, input: &Input) -> Vec<InputError> {
        match self.parse(&Value::Object(input.clone()).to_string()) {
            Ok(_) => tool.errors(input),
            Err(message) => vec![InputError { pointer: String::new(), message }],
        }
    }

    fn parse(&self, arguments: &str) -> Result<Input, String> {
        if arguments.len() > self.limits.args_bytes {
            return Err(format!("they are longer than {} bytes", self.limits.args_bytes));
        }
        // Providers send nothing at all for a tool that takes nothing.
        if arguments.trim().is_empty() {
            return Ok(Input::new());
        }
        match strict_json::parse(arguments, self.limits.json_depth) {
            Ok(Value::Object(input)) => Ok(input),
            Ok(_) => Err("expected a JSON object".to_owned()),
            Err(error) => Err(error.to_string()),
        }
    }

    /// What a child is given to do in place of the permitted call, or why it cannot be; `None` if the tool does the call
    /// itself.
    pub(crate) fn assignment(&self, permit: &Permit) -> Option<Result<Assignment, String>> {
        let Does::Delegate(agent) = &self.registry.get(permit.tool_name())?.does else { return None };
        let made = std::panic::catch_unwind(AssertUnwindSafe(|| agent.assignment(permit.input())));
        Some(match made {
            Ok(made) => made.map_err(|error| error.to_string()),
            Err(_panic) => {
                tracing::error!("a sub-agent's task broke");
                Err("the tool broke".to_owned())
            }
        })
    }

    /// Runs the permitted call, for as long as the tool takes. A tool that panics may have had its effect: the outcome is
    /// unknown. The panic takes nothing else with it.
    pub(crate) async fn run(&self, permit: Permit) -> Outcome {
        let tool = match self.registry.get(permit.tool_name()).map(|registered| registered.does.clone()) {
            Some(Does::Execute(tool)) => tool,
            Some(Does::Delegate(_)) => {
                return Outcome::Failed("a sub-agent does what it is asked; the tool did not run".to_owned());
            }
            None => return Outcome::Failed("this server does not have the tool; it did not run".to_owned()),
        };
        #[cfg(feature = "torture")]
        let point = Point::of("tool.run", Some(&permit.tool_call_id()));
        #[cfg(feature = "torture")]
        point.before().await;
        let ran = AssertUnwindSafe(async move { tool.execute(permit).await }).catch_unwind().await;
        #[cfg(feature = "torture")]
        point.after().await;
        match ran {
            Ok(Ok(output)) => self.succeeded(output),
            Ok(Err(error)) => Outcome::Failed(error.to_string()),
            Err(_panic) => {
                tracing::error!("a tool panicked");
                Outcome::Interrupted
            }
        }
    }

    /// Asks a tool what became of a call that was cut off. `None` if it does not know, or cannot say now. That it never
    /// happened only the tool of that schema is believed: another of its name may ask somebody else.
    pub(crate) async fn verify(
        &self,
        tool_name: &str,
        schema_hash: &str,
        key: &IdempotencyKey,
    ) -> Option<Outcome> {
        let registered = self.registry.get(tool_name)?;
        let Does::Execute(tool) = registered.does.clone() else { return None };
        let same = registered.schema_hash == schema_hash;
        let asked = AssertUnwindSafe(async { tool.verify(key).await }).catch_unwind();
        match tokio::time::timeout(self.timeout, asked).await {
            Ok(Ok(Ok(Verified::Happened(output)))) => Some(self.succeeded(output)),
            Ok(Ok(Ok(Verified::NeverHappened))) => {
                same.then(|| Outcome::Failed(model_texts::NEVER_HAPPENED.to_owned()))
            }
            Ok(Ok(Ok(Verified::Unknown))) => None,
            // In which words is no business of a log.
            Ok(Ok(Err(_))) => {
                tracing::debug!(tool_call_id = %key, "a tool could not say what became of a call");
                None
            }
            Ok(Err(_panic)) => {
                tracing::error!(tool_call_id = %key, "a tool broke when it was asked what became of a call");
                None
            }
            Err(_elapsed) => {
                tracing::warn!(tool_call_id = %key, "a tool took too long to say what became of a call");
                None
            }
        }
    }

    /// The outcome of a call that gave this.
    pub(crate) fn succeeded(&self, output: Value) -> Outcome {
        Outcome::Succeeded(Output::new(output, self.limits.result_bytes))
    }

    /// The words the model reads of this outcome.
    pub(crate) fn result_text(&self, outcome: &Outcome, asked: &Input, ran: &Input) -> String {
        outcome.words(asked, ran, self.limits.result_bytes)
    }
}

/// Why a call is invalid, for the model: what is wrong, and where.
fn unfit(why: &str, errors: &[InputError]) -> String {
    let mut why = why.to_owned();
    for error in errors {
        let place = if error.pointer.is_empty() { "/" } else { &error.pointer };
        let _infallible = write!(why, " {place}: {};", error.message);
    }
    // Each error quotes what was wrong.
    let mut why = cut(why, WHY_BYTES_MAX);
    why.push_str(" the tool did not run.");
    why
}
