//! The gate between a model that makes a call and the tool that runs it.
//!
//! The gate judges every call of a model: whether the call may run, whether it needs an approval, and whether
//! it can run at all. [`run`](super::run) then runs the permitted call.

use super::card_facts::CardFacts;
use super::registry::Registered;
use super::remote_work::RemoteServer;
use super::request_answer::TimeLimit;
use super::rules;
use super::{CurrentTools, InputError, ToolRegistry};
use crate::config::{self, Config, ExactNumbers, Limits, RememberIn, RememberInputs};
use holdpoint_core::call::{Outcome, RiskLevel, State, ToolCall, input_hash, unknown_schema_hash};
use holdpoint_core::card::CardPart;
use holdpoint_core::grant::{CoveredInputs, Grant, Remembering};
use holdpoint_core::id::GrantId;
use holdpoint_core::json::strict_json;
use holdpoint_core::output::Output;
use holdpoint_core::policy::{
    ApprovalMode, InForce, Judgement, LoosenedPolicy, Policy, PolicyRequest, Requirement, Ruling,
    SessionPolicy, Source,
};
use holdpoint_core::text::cut;
use holdpoint_core::tool::definition::{Accepted, Unaccepted};
use holdpoint_core::tool::input::Input;
use holdpoint_core::tool::remote::Remote;
use holdpoint_core::tool::secrets::{Edit, SecretPaths};
use serde_json::Value;
use std::fmt::Write;
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
    pub(super) registry: Arc<ToolRegistry>,
    pub(super) settings: Arc<Settings>,
}

#[derive(Debug)]
pub(super) struct Settings {
    limits: Limits,
    /// Maximum run time of a tool.
    pub(super) timeout: Duration,
    /// Maximum run time of a tool that reports progress.
    timeout_max: Duration,
    /// Maximum time from the cancellation of a call until its tool returns.
    cancel_grace: Duration,
    /// Whether arguments that do not fit are repaired.
    repair: bool,
    /// Maximum time of a preview.
    pub(super) preview_timeout: Duration,
    policy: Policy,
    remembering: Remembering,
    /// The setting for tools without a setting of their own.
    exact_numbers: ExactNumbers,
}

/// The user and the session of a call.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PolicyContext<'a> {
    pub(crate) roles: &'a [String],
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
        why: String,
        /// The part of the policy that forbids the call.
        source: Source,
    },
}

/// A call with its judgement.
#[derive(Debug)]
pub(crate) struct Judged {
    pub(crate) input: Input,
    /// The inputs as the model wrote them, if they were repaired.
    pub(crate) model_input: Option<Input>,
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
        let config::Tools { timeout, cancel_grace, preview_timeout, repair, .. } = config.tools;
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
            repair,
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

    /// Judges one call. For a call that needs a person it returns the HIL marker, [`Judgement::Held`], and nothing is
    /// executed. `offered` holds for the tools that the model was shown; a call of any other tool is invalid.
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
                model_input: None,
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
        let mut model_input = None;
        let judged = |input, model_input, judgement| Judged {
            input,
            model_input,
            secrets: secrets.clone(),
            schema_hash: tool.schema_hash.clone(),
            idempotent: tool.spec.idempotent,
            by_worker: tool.worker_timeout().is_some(),
            risk: tool.spec.risk,
            judgement,
        };
        let mut input = match self.parse(arguments) {
            Ok(input) => input,
            Err(why) => {
                let why = format!("The arguments cannot be read: {why}. The tool did not run.");
                return judged(Input::new(), None, Judgement::Invalid(why));
            }
        };
        let errors = tool.errors(&input, &secrets);
        let repaired = if errors.is_empty() { None } else { self.repaired(tool, &input) };
        if let Some(repaired) = repaired {
            model_input = Some(std::mem::replace(&mut input, repaired));
        } else if !errors.is_empty() {
            return judged(
                input,
                None,
                Judgement::Invalid(unfit("The arguments do not fit the tool:", &errors)),
            );
        }
        let mut judgement = self.ruling(tool, &input, context).into();
        if matches!(judgement, Judgement::Held { .. }) {
            let errors = self.inexact_numbers(tool, &input, &secrets, None);
            if !errors.is_empty() {
                judgement =
                    Judgement::Invalid(unfit("A person has to approve the call and cannot:", &errors));
            }
        }
        judged(input, model_input, judgement)
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
    ) -> Option<LoosenedPolicy<'a>> {
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
        input: &Input,
        of_call: &SecretPaths,
        edited: Option<&Input>,
    ) -> Vec<InputError> {
        let errors = self.unfit(tool, input, of_call);
        match edited {
            Some(proposed) if errors.is_empty() => self.inexact_numbers(tool, input, of_call, Some(proposed)),
            _ => errors,
        }
    }

    fn unfit(&self, tool: &Registered, input: &Input, of_call: &SecretPaths) -> Vec<InputError> {
        match self.parse(&Value::Object(input.clone()).to_string()) {
            Ok(_) => tool.errors(input, of_call),
            Err(message) => vec![InputError { pointer: String::new(), message }],
        }
    }

    /// Returns the inputs with the repairs that make them fit, if the operator lets the server repair.
    fn repaired(&self, tool: &Registered, input: &Input) -> Option<Input> {
        if !self.settings.repair {
            return None;
        }
        let repaired = tool.repaired(input, self.settings.limits.json_depth)?;
        // What was in a text is as long and as deep as any arguments.
        self.parse(&Value::Object(repaired).to_string()).ok()
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

    /// Whether inputs of the tool of this name may be secret.
    pub(crate) fn has_secrets(&self, tool_name: &str) -> bool {
        self.registry.get(tool_name).is_some_and(|tool| !tool.secrets.is_empty())
    }

    /// Whether the tool of this name says what a call would do.
    pub(crate) fn has_preview(&self, tool_name: &str) -> bool {
        self.registry.get(tool_name).is_some_and(|tool| tool.spec.preview)
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
