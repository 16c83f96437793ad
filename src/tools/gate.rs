//! The gate between a model that makes a call and the tool that runs it.
//!
//! The gate judges every call of a model: whether the call may run, whether it needs an approval, and whether
//! it can run at all. The gate is also the one place that runs a tool, and it requires a [`Permit`].

use super::card_facts::CardFacts;
use super::registry::{Does, Registered};
use super::remote_work::RemoteServer;
use super::request_answer::TimeLimit;
use super::rules;
use super::{
    CurrentTools, IdempotencyKey, InputError, Permit, Preview, Requester, ToolError, ToolRegistry, Verified,
    Why,
};
use crate::config::{self, Config, ExactNumbers, Limits, RememberIn, RememberInputs};
use crate::domain::assignment::Assignment;
use crate::domain::call::{Outcome, RiskLevel, State, ToolCall, input_hash, unknown_schema_hash};
use crate::domain::card::CardPart;
use crate::domain::definition::{Accepted, Unaccepted};
use crate::domain::grant::{CoveredInputs, Grant, Remembering};
use crate::domain::id::GrantId;
use crate::domain::input::Input;
use crate::domain::model_texts;
use crate::domain::output::Output;
use crate::domain::owner::Owner;
use crate::domain::policy::{
    ApprovalMode, InForce, Judgement, Loosened, Policy, PolicyRequest, Requirement, Ruling, SessionPolicy,
    Source,
};
use crate::domain::remote::Remote;
use crate::domain::secrets::{Edit, SecretPaths};
use crate::domain::strict_json;
use crate::domain::text::cut;
use futures::FutureExt;
use serde_json::Value;
use std::fmt::Write;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

/// Maximum length of the list of errors in an invalid call, in bytes.
const WHY_BYTES_MAX: usize = 4096;

/// The gates of one server. The tools come and go, so each piece of work takes a gate of its own.
#[derive(Debug, Clone)]
pub(crate) struct Gates {
    tools: CurrentTools,
    settings: Arc<Settings>,
}

/// The gate with the tools of one moment.
#[derive(Debug, Clone)]
pub(crate) struct Gate {
    registry: Arc<ToolRegistry>,
    settings: Arc<Settings>,
}

/// The settings of a gate.
#[derive(Debug)]
pub(super) struct Settings {
    limits: Limits,
    /// Maximum run time of a tool.
    timeout: Duration,
    /// Maximum run time of a tool that reports progress.
    timeout_max: Duration,
    /// Maximum time from the cancellation of a call until its tool returns.
    cancel_grace: Duration,
    /// Maximum time of a preview.
    preview_timeout: Duration,
    policy: Policy,
    remembering: Remembering,
    /// The setting for tools without a setting of their own.
    exact_numbers: ExactNumbers,
}

/// The user and the session of a call.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PolicyContext<'a> {
    /// The roles of the user.
    pub(crate) roles: &'a [String],
    /// The policy of the session.
    pub(crate) session: &'a SessionPolicy,
    /// The user, as an actor.
    pub(crate) requester: &'a str,
    /// The grants of the session, for this tool and possibly for others.
    pub(crate) grants: &'a [Grant],
}

/// The result of judging a call again before it runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Recheck {
    /// The call may run as decided.
    Yes,
    /// The call was not held, and would be held now.
    NotUnasked,
    /// The policy forbids the call now, despite any approval.
    Never {
        /// The reason.
        why: String,
        /// The part of the policy that forbids the call.
        source: Source,
    },
}

/// What a tool returned.
#[derive(Debug)]
pub(crate) enum Returned {
    /// The outcome of the call.
    Outcome(Outcome),
    /// A service owns the call now, and the outcome comes later.
    Accepted(Owner),
}

impl From<Outcome> for Returned {
    fn from(outcome: Outcome) -> Self {
        Self::Outcome(outcome)
    }
}

/// A call with its judgement.
#[derive(Debug)]
pub(crate) struct Judged {
    pub(crate) input: Input,
    pub(crate) secrets: SecretPaths,
    pub(crate) schema_hash: String,
    pub(crate) idempotent: bool,
    /// Whether a worker executes the calls of the tool.
    pub(crate) by_worker: bool,
    pub(crate) risk: RiskLevel,
    pub(crate) judgement: Judgement,
}

impl Gates {
    pub(crate) fn new(tools: CurrentTools, config: &Config, process: &str, handler: String) -> Self {
        let limits = config.limits.clone();
        let config::Tools { timeout, cancel_grace, preview_timeout, .. } = config.tools;
        let timeout_max = config.tools.timeout_max();
        let policy = rules::policy(&config.approval);
        let remembering = Remembering {
            process: (config.approval.remember == RememberIn::Memory).then(|| process.to_owned()),
            equal_inputs: config.approval.remember_inputs == RememberInputs::Equal,
            handler,
        };
        let exact_numbers = config.approval.exact_numbers;
        let settings = Settings {
            limits,
            timeout,
            timeout_max,
            cancel_grace,
            preview_timeout,
            policy,
            remembering,
            exact_numbers,
        };
        Self { tools, settings: Arc::new(settings) }
    }

    /// Returns the gate with the tools of this moment.
    pub(crate) fn now(&self) -> Gate {
        Gate { registry: self.tools.now(), settings: self.settings.clone() }
    }

    /// Lets the tool run again where the policy lets it, in this process, after the commit of the acceptance.
    pub(crate) fn accept(&self, accepted: &Accepted) {
        self.tools.accept(accepted);
    }
}

impl Gate {
    /// Returns the setting for tools without a setting of their own.
    pub(super) fn exact_numbers(&self) -> ExactNumbers {
        self.settings.exact_numbers
    }

    pub(crate) fn registry(&self) -> &ToolRegistry {
        &self.registry
    }

    /// Returns the hash that a client echoes to prove what it was shown. The hash includes the current schema
    /// of the tool, so that a changed tool is detected, and the preview if there is one.
    pub(crate) fn shown_hash(&self, call: &ToolCall) -> String {
        call.proposed_hash(self.current_schema(call))
    }

    /// Returns the current schema hash of the call's tool, or the stored one if the tool is gone.
    pub(crate) fn current_schema<'a>(&'a self, call: &'a ToolCall) -> &'a str {
        self.registry.get(&call.name).map_or(&call.schema_hash, |tool| &tool.schema_hash)
    }

    /// Returns the definition of the call's tool, if it is not accepted and the call waits for a decision.
    pub(crate) fn unaccepted(&self, call: &ToolCall) -> Option<&Unaccepted> {
        let tool = self.registry.get(&call.name).filter(|_| call.state == State::Pending);
        tool.and_then(|tool| tool.acceptance.unaccepted())
    }

    /// Returns the parts of a complete card of a held call, in their order.
    pub(crate) fn card_parts(&self, hold: CardFacts<'_>) -> Vec<CardPart> {
        let CardFacts { tool_name, has_preview, risk, secrets, input } = hold;
        let tool = self.registry.get(tool_name);
        let has = |part: &CardPart| match part {
            CardPart::Inputs => true,
            CardPart::Secrets => risk != RiskLevel::Low && secrets.are_in(input),
            CardPart::Constants => tool.is_some_and(|tool| !tool.spec.constants.is_empty()),
            CardPart::Preview => has_preview,
            CardPart::Definition => tool.is_some_and(|tool| tool.acceptance.unaccepted().is_some()),
        };
        CardPart::ALL.into_iter().filter(has).collect()
    }

    /// Returns the settings for grants.
    pub(crate) fn remembering(&self) -> &Remembering {
        &self.settings.remembering
    }

    /// Returns the maximum run time of a tool that reports no progress.
    pub(crate) fn timeout(&self) -> Duration {
        self.settings.timeout
    }

    /// Returns the maximum run time of a tool.
    pub(crate) fn time_limit(&self) -> TimeLimit {
        TimeLimit { quiet: self.settings.timeout, whole: self.settings.timeout_max }
    }

    /// Returns the maximum time from the cancellation of a call until its tool returns.
    pub(crate) fn cancel_grace(&self) -> Duration {
        self.settings.cancel_grace
    }

    /// Returns the maximum time from the start of a call to its end.
    pub(crate) fn longest(&self) -> Duration {
        self.settings.timeout.saturating_add(self.settings.cancel_grace)
    }

    /// Judges one call. `offered` holds for the tools that the model was shown; a call of any other tool is
    /// invalid.
    pub(crate) fn judge(
        &self,
        tool_name: &str,
        arguments: &str,
        context: PolicyContext<'_>,
        offered: impl Fn(&str) -> bool,
    ) -> Judged {
        let registered = self.registry.get(tool_name);
        let secrets = registered.map(|tool| tool.secrets.clone()).unwrap_or_default();
        let Some(tool) = registered.filter(|_| offered(tool_name)) else {
            let input = self.parse(arguments).unwrap_or_default();
            return Judged {
                input,
                secrets,
                schema_hash: unknown_schema_hash(),
                idempotent: false,
                by_worker: false,
                risk: RiskLevel::High,
                judgement: Judgement::Invalid(format!(
                    "There is no tool named {tool_name:?}. It did not run."
                )),
            };
        };
        let judged = |input, judgement| Judged {
            input,
            secrets: secrets.clone(),
            schema_hash: tool.schema_hash.clone(),
            idempotent: tool.spec.idempotent,
            by_worker: tool.worker_timeout().is_some(),
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
        let errors = tool.errors(&input, &secrets);
        if !errors.is_empty() {
            return judged(input, Judgement::Invalid(unfit("The arguments do not fit the tool:", &errors)));
        }
        let mut judgement = self.ruling(tool, &input, context).into();
        if matches!(judgement, Judgement::Held { .. }) {
            let errors = self.inexact_numbers(tool, (&input, &secrets), None);
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
        let unaccepted = tool.acceptance.unaccepted();
        let (tool, hil) = (tool.spec.name.as_str(), tool.spec.hil);
        self.settings.policy.evaluate(&PolicyRequest {
            tool,
            hil,
            input,
            roles,
            may_run,
            session,
            remembered,
            unaccepted,
        })
    }

    /// Returns a grant that covers a call and whose granter could approve the call now.
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
        let hash = input_hash(name, input, schema, None);
        let Remembering { handler, .. } = &self.settings.remembering;
        let covers = |grant: &&Grant| {
            grant.is_for(name, schema)
                && grant.has_uses_left()
                && self.settings.remembering.allows(&grant.inputs)
                && grant.covers(input, &hash)
                && tool.honours(grant, requester, handler)
        };
        // A grant without a number of uses first: no use is spent on a call that it covers too.
        let unlimited = grants.iter().filter(|grant| grant.uses.is_none());
        let limited = grants.iter().filter(|grant| grant.uses.is_some());
        unlimited.chain(limited).find(covers).map(|grant| grant.id)
    }

    /// Returns the grant that lets a call run without approval.
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

    /// Returns the mode for tools that ask.
    pub(crate) fn mode(&self, session: &SessionPolicy) -> ApprovalMode {
        session.mode.unwrap_or(self.settings.policy.mode)
    }

    /// Returns the policy in force for calls of this tool, and the grants that cover some of them. Without
    /// the roles of the user, the tool counts as one that runs for the user.
    pub(crate) fn in_force<'g>(
        &self,
        tool: &Registered,
        roles: Option<&[String]>,
        session: &SessionPolicy,
        requester: &str,
        grants: &'g [Grant],
    ) -> (InForce<'_>, Vec<&'g Grant>) {
        let remembering = &self.settings.remembering;
        let counts = |grant: &&Grant| {
            grant.is_for(&tool.spec.name, &tool.schema_hash)
                && grant.has_uses_left()
                && remembering.allows(&grant.inputs)
                && tool.honours(grant, requester, &remembering.handler)
        };
        let grants: Vec<&Grant> = grants.iter().filter(counts).collect();
        let for_any_inputs = grants.iter().find(|grant| grant.inputs == CoveredInputs::Any);
        let call = PolicyRequest {
            tool: &tool.spec.name,
            hil: tool.spec.hil,
            input: &Input::new(),
            roles: roles.unwrap_or_default(),
            may_run: roles.is_none_or(|roles| tool.runs_for(roles)),
            session,
            remembered: for_any_inputs.map(|grant| grant.id),
            unaccepted: tool.acceptance.unaccepted(),
        };
        (self.settings.policy.in_force(&call, roles.is_some()), grants)
    }

    /// Returns what `to` permits and `from` does not, if anything.
    pub(crate) fn loosened<'a>(
        &'a self,
        from: &'a SessionPolicy,
        to: &'a SessionPolicy,
    ) -> Option<Loosened<'a>> {
        let tools = self.registry.specs().map(|spec| (spec.name.as_str(), spec.hil));
        self.settings.policy.loosened(from, to, tools)
    }

    /// Judges a stored call again by the current policy. Only a stricter ruling counts. A grant with a number of uses
    /// does not count here: its uses are counted when a call is first judged.
    pub(crate) fn recheck(
        &self,
        tool: &Registered,
        input: &Input,
        held: bool,
        context: PolicyContext<'_>,
    ) -> Recheck {
        let grants: Vec<Grant> =
            context.grants.iter().filter(|grant| grant.uses.is_none()).cloned().collect();
        let context = PolicyContext { grants: &grants, ..context };
        let Ruling { requirement, reason, source } = self.ruling(tool, input, context);
        match requirement {
            Requirement::Forbidden => Recheck::Never { why: reason, source },
            Requirement::NeedsApproval if !held => Recheck::NotUnasked,
            Requirement::NeedsApproval | Requirement::Skip(_) => Recheck::Yes,
        }
    }

    /// Whether the current policy would let the call run without an approval.
    pub(crate) fn lets_run(&self, tool: &Registered, input: &Input, context: PolicyContext<'_>) -> bool {
        matches!(self.ruling(tool, input, context).requirement, Requirement::Skip(_))
    }

    /// Returns the errors in the inputs of a call that is about to be approved: by the tool's schema, and by
    /// the limits for a model's arguments. With `edited`, the proposed inputs, the result includes the
    /// numbers that a page cannot show. `of_call` are the places of the secrets of the call.
    pub(crate) fn errors(
        &self,
        tool: &Registered,
        (input, of_call): (&Input, &SecretPaths),
        edited: Option<&Input>,
    ) -> Vec<InputError> {
        let errors = self.unfit(tool, input, of_call);
        match edited {
            Some(proposed) if errors.is_empty() => {
                self.inexact_numbers(tool, (input, of_call), Some(proposed))
            }
            _ => errors,
        }
    }

    fn unfit(&self, tool: &Registered, input: &Input, of_call: &SecretPaths) -> Vec<InputError> {
        match self.parse(&Value::Object(input.clone()).to_string()) {
            Ok(_) => tool.errors(input, of_call),
            Err(message) => vec![InputError { pointer: String::new(), message }],
        }
    }

    fn parse(&self, arguments: &str) -> Result<Input, String> {
        if arguments.len() > self.settings.limits.args_bytes {
            return Err(format!("they are longer than {} bytes", self.settings.limits.args_bytes));
        }
        // Some providers send nothing for a tool without inputs.
        if arguments.trim().is_empty() {
            return Ok(Input::new());
        }
        match strict_json::parse(arguments, self.settings.limits.json_depth) {
            Ok(Value::Object(input)) => Ok(input),
            Ok(_) => Err("expected a JSON object".to_owned()),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Returns the assignment of the child that executes the permitted call, or the error of a sub-agent that
    /// cannot create one. `None` if the tool executes its calls itself.
    pub(crate) fn assignment(&self, permit: &Permit) -> Option<Result<Assignment, String>> {
        let Does::Delegate(agent) = &self.registry.get(permit.tool_name())?.does else { return None };
        let made = std::panic::catch_unwind(AssertUnwindSafe(|| agent.assignment(permit.input())));
        Some(match made {
            Ok(made) => made.map_err(|error| error.to_string()),
            Err(_panic) => {
                tracing::error!("the task of a sub-agent panicked");
                Err("the tool broke".to_owned())
            }
        })
    }

    /// Runs the permitted call, without a time limit. A tool that panics may have had its effect, so the
    /// outcome is unknown. The panic ends nothing else.
    pub(crate) async fn run(&self, permit: Permit) -> Returned {
        let tool = match self.registry.get(permit.tool_name()).map(|registered| registered.does.clone()) {
            Some(Does::Execute(tool)) => tool,
            Some(Does::Delegate(_)) => {
                let why = "a sub-agent does what it is asked; the tool did not run";
                return Outcome::Failed(why.to_owned()).into();
            }
            None => {
                return Outcome::Failed("this server does not have the tool; it did not run".to_owned())
                    .into();
            }
            Some(Does::Worker(_)) => {
                let why = "a worker executes the call; the tool did not run";
                return Outcome::Failed(why.to_owned()).into();
            }
        };
        let ran = AssertUnwindSafe(async move { tool.execute(permit).await }).catch_unwind().await;
        let outcome = match ran {
            Ok(Ok(output)) => self.succeeded(output),
            Ok(Err(ToolError(Why::Accepted(owner)))) => return Returned::Accepted(owner),
            Ok(Err(error)) => error.outcome().unwrap_or(Outcome::Lost),
            Err(_panic) => {
                tracing::error!("a tool panicked");
                Outcome::Interrupted
            }
        };
        outcome.into()
    }

    /// Asks a tool about the outcome of a call that was cut off. `None` if the tool does not know the
    /// outcome, or fails to report it now. `NeverHappened` counts only from a tool with the schema of the
    /// call: another tool of the same name may ask another service.
    pub(crate) async fn verify(
        &self,
        tool_name: &str,
        schema_hash: &str,
        key: &IdempotencyKey,
    ) -> Option<Outcome> {
        let registered = self.registry.get(tool_name)?;
        let Does::Execute(tool) = registered.does.clone() else { return None };
        let same = registered.schema_hash == schema_hash;
        let verification = AssertUnwindSafe(async { tool.verify(key).await }).catch_unwind();
        match tokio::time::timeout(self.settings.timeout, verification).await {
            Ok(Ok(Ok(Verified::Happened(output)))) => Some(self.succeeded(output)),
            Ok(Ok(Ok(Verified::NeverHappened))) => {
                same.then(|| Outcome::Failed(model_texts::NEVER_HAPPENED.to_owned()))
            }
            Ok(Ok(Ok(Verified::Unknown))) => None,
            // The text of the error must not reach a log.
            Ok(Ok(Err(_))) => {
                tracing::debug!(tool_call_id = %key, "a tool failed to verify the outcome of a call");
                None
            }
            Ok(Err(_panic)) => {
                tracing::error!(tool_call_id = %key, "a tool panicked while verifying the outcome of a call");
                None
            }
            Err(_elapsed) => {
                tracing::warn!(tool_call_id = %key, "a tool timed out while verifying the outcome of a call");
                None
            }
        }
    }

    /// Whether inputs of the tool of this name may be secret.
    pub(crate) fn has_secrets(&self, tool_name: &str) -> bool {
        self.registry.get(tool_name).is_some_and(|tool| !tool.secrets.is_empty())
    }

    /// Whether the tool of this name says what a call would do.
    pub(crate) fn has_preview(&self, tool_name: &str) -> bool {
        self.registry.get(tool_name).is_some_and(|tool| tool.spec.preview)
    }

    /// Asks a tool what a call with these inputs would do, on behalf of this user. A tool that fails has a
    /// failed preview.
    pub(crate) async fn preview(&self, tool_name: &str, input: &Input, requester: &Requester) -> Preview {
        let tool = self.registry.get(tool_name).filter(|tool| tool.spec.preview);
        let Some(Does::Execute(tool)) = tool.map(|tool| &tool.does) else {
            return Preview::failed("the tool has no previews any more");
        };
        let preview = AssertUnwindSafe(async { tool.preview(input, requester).await }).catch_unwind();
        match tokio::time::timeout(self.settings.preview_timeout, preview).await {
            Ok(Ok(Ok(text))) => Preview::text(&text),
            Ok(Ok(Err(ToolError(Why::OutcomeUnknown)))) => Preview::failed("the tool did not say why"),
            Ok(Ok(Err(error))) => Preview::failed(&error.to_string()),
            Ok(Err(_panic)) => {
                tracing::error!(tool = tool_name, "a tool panicked in its preview");
                Preview::failed("the tool broke")
            }
            Err(_elapsed) => {
                tracing::warn!(tool = tool_name, "a tool timed out in its preview");
                Preview::failed("the tool did not say it in time")
            }
        }
    }

    /// Returns the MCP server of this name, if it is connected and has tools.
    pub(crate) fn remote_server(&self, name: &str) -> Option<Arc<dyn RemoteServer>> {
        self.registry.remote_server(name)
    }

    /// Returns the MCP server of the tool of this name, if it is that tool of that server, and here now.
    pub(crate) fn server_with(&self, name: &str, remote: &Remote) -> Option<Arc<dyn RemoteServer>> {
        self.registry.server_with(name, remote)
    }

    /// Returns the outcome of a call with this output.
    pub(crate) fn succeeded(&self, output: Value) -> Outcome {
        Outcome::Succeeded(Output::new(output, self.settings.limits.result_bytes))
    }

    /// Returns the text that the model reads for this outcome.
    pub(crate) fn result_text(&self, outcome: &Outcome, edit: Option<&Edit>) -> String {
        outcome.words(edit, self.settings.limits.result_bytes)
    }
}

/// Returns the reason why a call is invalid, for the model: each error with its place.
fn unfit(why: &str, errors: &[InputError]) -> String {
    let mut why = why.to_owned();
    for error in errors {
        let pointer = if error.pointer.is_empty() { "/" } else { &error.pointer };
        let _infallible = write!(why, " {pointer}: {};", error.message);
    }
    // Each error quotes the faulty value.
    let mut why = cut(why, WHY_BYTES_MAX);
    why.push_str(" the tool did not run.");
    why
}
