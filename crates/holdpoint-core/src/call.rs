//! The states of a tool call.
//!
//! ```text
//!  model ─► pending ─┬─► approved ─► executing ─┬─► succeeded
//!                    ├─► rejected               ├─► failed
//!                    ├─► expired                └─► interrupted ─► succeeded | failed
//!                    └─► cancelled
//!  model ─► executing (allowed by the policy)       model ─► rejected (forbidden by the policy)
//!  model ─► cancelled (the same call is pending)    model ─► invalid (the call cannot run)
//!  model ─► approved (allowed by the policy, and a worker executes the call)
//! ```
//!
//! A lost execution leaves its call `interrupted`, or `approved` again if the tool is idempotent.
//!
//! This module defines the facts of each state. The transitions are in `legal_transitions` of the store, because
//! a transition is one guarded statement.

use super::clock::Timestamp;
use super::decision::{Decision, Verdict};
use super::id::{ExecId, MessageId, RunId, ThreadId, ToolCallId};
use super::output::Output;
use super::text::{cut, without_nul};
use crate::card::preview::Preview;
use crate::json::canonical::canonical_hash;
use crate::text::model_texts;
use crate::tool::input::Input;
use crate::tool::secrets::{Edit, SecretPaths};
use crate::vocabulary;
use serde_json::{Value, json};
use std::borrow::Cow;

/// Maximum number of attempts at a call of an idempotent tool.
pub const ATTEMPTS_MAX: i32 = 3;

/// A call as stored.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolCall {
    /// The id of the call, minted by the server.
    pub id: ToolCallId,
    /// The thread of the call.
    pub thread_id: ThreadId,
    /// The assistant message with the call.
    pub message_id: MessageId,
    /// The run of the call.
    pub run_id: RunId,
    /// The step of the message.
    pub step: i32,
    /// The id that the model uses for the call, unique in the thread.
    pub wire_call_id: String,
    /// The name of the tool.
    pub name: String,
    /// The inputs that the model proposed; empty if they were not a JSON object.
    pub input: Input,
    /// The inputs as the model wrote them, if the server repaired them before it judged them.
    pub model_input: Option<Input>,
    /// The places of the secrets in the inputs, by the tool's schema when the model made the call.
    pub secrets: SecretPaths,
    /// The hash of the tool's schema when the model made the call.
    pub schema_hash: String,
    /// Whether the call was held for an approval.
    pub held: bool,
    /// The risk level of the call.
    pub risk: RiskLevel,
    /// The reason why the call is held.
    pub reason: Option<String>,
    /// The preview of the proposed inputs, if the call is held and its tool had previews then.
    pub preview: Option<Preview>,
    /// The state.
    pub state: State,
    /// The decision in force.
    pub decision: Option<Decision>,
    /// The time at which the model made the call.
    pub created_at: Timestamp,
    /// The deadline for a decision.
    pub expires_at: Option<Timestamp>,
    /// When people are reminded of the deadline, if they were not and are to be.
    pub remind_at: Option<Timestamp>,
    /// The escalation of the hold, if it has one.
    pub escalation: Option<Escalation>,
    /// Where the call is or was executed. A process before its start, unless the call is for a worker.
    pub executed_by: ExecutedBy,
    /// The last stored report of progress of the last execution.
    pub progress: Option<crate::card::progress::ReportedProgress>,
    /// Whether the stored inputs cannot be read. Such a call is shown without inputs, and never approved.
    pub unreadable: bool,
}

/// The further roles that may decide a call after a time without a decision, as configured when the call was held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Escalation {
    /// The roles.
    pub to: Vec<String>,
    /// The time from which the roles may decide.
    pub due: Timestamp,
    /// When the call was escalated. Until then the roles may not decide.
    pub at: Option<Timestamp>,
}

impl ToolCall {
    /// Returns the roles to which the call was escalated. They may decide besides the roles of its tool.
    pub fn escalated_to(&self) -> &[String] {
        self.escalation.as_ref().filter(|it| it.at.is_some()).map_or(&[], |it| &it.to)
    }
}

vocabulary! {
    /// The state of a tool call. `pending` waits for a decision; `approved` and `executing` continue by themselves; the
    /// others are final.
    pub enum StateKind as "ToolCallState" {
        /// See [`State::Pending`].
        Pending = "pending",
        /// See [`State::Approved`].
        Approved = "approved",
        /// See [`State::Executing`].
        Executing = "executing",
        /// See [`State::Succeeded`].
        Succeeded = "succeeded",
        /// See [`State::Failed`].
        Failed = "failed",
        /// See [`State::Interrupted`].
        Interrupted = "interrupted",
        /// See [`State::Rejected`].
        Rejected = "rejected",
        /// See [`State::Expired`].
        Expired = "expired",
        /// See [`State::Cancelled`].
        Cancelled = "cancelled",
        /// See [`State::Invalid`].
        Invalid = "invalid",
    }

    /// The harm that a tool can do.
    pub enum RiskLevel {
        /// The tool reads, or its effect is easily undone.
        Low = "low",
        /// The tool changes something that matters.
        Medium = "medium",
        /// The effect of the tool cannot be undone.
        High = "high",
    }
}

impl StateKind {
    /// Returns the label that a page shows for a held call. The states after an approval share the label
    /// `approved`.
    pub const fn label(self) -> Self {
        match self {
            Self::Executing | Self::Succeeded | Self::Failed => Self::Approved,
            other => other,
        }
    }
}

/// The words of all states.
pub const CALL_STATES: [&str; 10] = StateKind::WORDS;

/// The states that need a person: a decision about a pending call, or the outcome of an interrupted call.
pub const WAITING_STATES: [&str; 2] = [StateKind::Pending.word(), StateKind::Interrupted.word()];

/// The state of a call, with the facts of that state. Each variant names what moves the call on.
#[derive(Debug, Clone, PartialEq)]
pub enum State {
    /// The call waits for a decision. A decision or the deadline moves the call.
    Pending,
    /// The call may run and nothing runs it. A claim moves the call, until the start deadline.
    Approved(Approval),
    /// The call runs. The one that [executes](ExecutedBy) the call settles it, or the sweeper after the lease or
    /// the result deadline.
    Executing(Approval, Execution),
    /// The call ran and returned this output.
    Succeeded(Approval, Execution, Value, CallEnd),
    /// The call ran and failed. Without an execution the call never ran.
    Failed(Approval, Option<Execution>, CallEnd),
    /// The call may have run. A late result of the same execution, the tool's `verify`, or an operator can
    /// still settle the call.
    Interrupted(Approval, Execution, CallEnd),
    /// A decider rejected the call, or the policy forbids it.
    Rejected(CallEnd),
    /// No decision arrived in time.
    Expired(CallEnd),
    /// The call was withdrawn before it ran. It may have been approved before.
    Cancelled(Option<Approval>, CallEnd),
    /// The call cannot run.
    Invalid(CallEnd),
}

/// An approval.
#[derive(Debug, Clone, PartialEq)]
pub struct Approval {
    /// Inputs that run in place of the model's, if the approver edited them.
    pub inputs: Option<Input>,
    /// The preview of these inputs that the approver was shown, if the tool had previews then.
    pub preview: Option<Preview>,
}

/// One execution of a call. The holder of the execution may settle the call, once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Execution {
    /// The id of the execution.
    pub id: ExecId,
    /// The number of the attempt, from 1.
    pub attempt: i32,
    /// The time of the claim.
    pub started_at: Timestamp,
}

/// The party that executes a call, and so ends it. A call has exactly one of these.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExecutedBy {
    /// A process of a server, which has a lease on the call.
    Process,
    /// A worker outside of the servers, which has a lease on the call. No process of a server executes it.
    Worker,
    /// The run of a child thread.
    Child(RunId),
    /// The owner of the call: an external service that accepted it and reports the outcome later.
    Owner {
        /// The time after which the outcome is unknown.
        result_deadline: Timestamp,
    },
}

/// The end of a call, for the model and for the record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallEnd {
    /// The text that the model reads.
    pub result: String,
    /// The time of the end.
    pub at: Timestamp,
}

/// The outcome of an execution.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// The tool returned this output.
    Succeeded(Output),
    /// The tool failed with this message.
    Failed(String),
    /// A repeated attempt failed with this message. An earlier attempt may have had its effect.
    FailedAgain(String),
    /// The outcome is unknown. The tool may have had its effect.
    Interrupted,
    /// The same, with a sentence about what the service of the tool said.
    InterruptedWith(String),
    /// The outcome is unknown because the process that ran the call has died, or because the tool lost track of
    /// its effect. An idempotent call is started again.
    Lost,
}

impl ToolCall {
    /// Returns the inputs that run or ran: the approver's inputs if edited, otherwise the model's.
    pub fn effective_input(&self) -> &Input {
        self.edited_input().unwrap_or(&self.input)
    }

    /// Returns the inputs in the history of the model: what it wrote itself, or the approver's inputs if edited.
    pub fn input_for_model(&self) -> &Input {
        self.edited_input().unwrap_or_else(|| self.written_input())
    }

    /// Returns the inputs as the model wrote them.
    pub fn written_input(&self) -> &Input {
        self.model_input.as_ref().unwrap_or(&self.input)
    }

    /// Returns the run of the child thread that executes the call, or executed it.
    pub const fn child_run_id(&self) -> Option<RunId> {
        match self.executed_by {
            ExecutedBy::Child(run) => Some(run),
            ExecutedBy::Process | ExecutedBy::Worker | ExecutedBy::Owner { .. } => None,
        }
    }

    /// Returns the time until which the owner of the call reports its outcome, if the call has or had an owner.
    pub const fn result_deadline(&self) -> Option<Timestamp> {
        match self.executed_by {
            ExecutedBy::Owner { result_deadline } => Some(result_deadline),
            ExecutedBy::Process | ExecutedBy::Worker | ExecutedBy::Child(_) => None,
        }
    }

    /// Whether a child run or an owner executes the call now. No process waits for it: the child's calls may be
    /// held, and the owner may take days.
    pub fn is_delegated(&self) -> bool {
        matches!(self.executed_by, ExecutedBy::Child(_) | ExecutedBy::Owner { .. }) && self.end().is_none()
    }

    /// Whether the call ends outside of its turn although it is not held: a child run, a worker or an owner
    /// executes it, or executed it.
    pub fn ends_elsewhere(&self) -> bool {
        let elsewhere = match self.executed_by {
            ExecutedBy::Process => false,
            ExecutedBy::Worker => self.validated() == Some(true),
            ExecutedBy::Child(_) | ExecutedBy::Owner { .. } => true,
        };
        !self.held && elsewhere
    }

    /// Whether the turn ends after this call and resumes once the call has ended: the call is held, or a
    /// child run, a worker or an owner executes it.
    pub fn pauses(&self) -> bool {
        self.held || self.ends_elsewhere()
    }

    /// Whether the call was cancelled before it ran. For a call that was open when the database lost commits,
    /// this is unknown.
    pub fn is_withdrawn(&self) -> bool {
        matches!(&self.state, State::Cancelled(_, end) if end.result != model_texts::FENCED)
    }

    /// Returns the inputs that an approver put in place of the model's.
    pub fn edited_input(&self) -> Option<&Input> {
        self.approval()?.inputs.as_ref()
    }

    /// Returns the preview of the inputs that an approver put in place of the model's.
    pub fn edited_preview(&self) -> Option<&Preview> {
        self.approval()?.preview.as_ref()
    }

    /// Returns the preview of the inputs that run or ran.
    pub fn effective_preview(&self) -> Option<&Preview> {
        if self.edited_input().is_some() { self.edited_preview() } else { self.preview.as_ref() }
    }

    /// Returns the hash of the call as the model proposed it, with this schema of the tool.
    pub fn proposed_hash(&self, schema_hash: &str) -> String {
        input_hash(&self.name, &self.input, schema_hash, self.preview.as_ref())
    }

    /// Returns the hash of the call as it runs or ran, with this schema of the tool.
    pub fn effective_hash(&self, schema_hash: &str) -> String {
        input_hash(&self.name, self.effective_input(), schema_hash, self.effective_preview())
    }

    fn approval(&self) -> Option<&Approval> {
        match &self.state {
            State::Approved(approval)
            | State::Executing(approval, _)
            | State::Succeeded(approval, ..)
            | State::Failed(approval, ..)
            | State::Interrupted(approval, ..) => Some(approval),
            State::Cancelled(approval, _) => approval.as_ref(),
            State::Pending | State::Rejected(_) | State::Expired(_) | State::Invalid(_) => None,
        }
    }

    /// Returns the result text of the call for an unknown outcome.
    pub fn unknown_outcome(&self) -> String {
        Outcome::Interrupted.words(self.edit().as_ref(), usize::MAX)
    }

    /// Returns the end of the call, if the call has ended.
    pub fn end(&self) -> Option<&CallEnd> {
        self.state.end()
    }

    /// Returns what the model reads about the end of the call: the result, after the note of the approver.
    pub fn text_for_model(&self) -> Option<Cow<'_, str>> {
        let result = self.end()?.result.as_str();
        let approval = self.decision.as_ref().filter(|decision| decision.verdict == Verdict::Approve);
        Some(match approval.and_then(|decision| decision.reason.as_ref()) {
            Some(note) => format!("{}{note}\n{result}", model_texts::NOTED).into(),
            None => result.into(),
        })
    }

    /// Returns the execution, if the call was claimed.
    pub fn execution(&self) -> Option<Execution> {
        match &self.state {
            State::Executing(_, execution)
            | State::Succeeded(_, execution, ..)
            | State::Failed(_, Some(execution), _)
            | State::Interrupted(_, execution, _) => Some(*execution),
            _ => None,
        }
    }

    /// Whether a decision or the policy let the call run, whatever its outcome. `None` for a pending call; false
    /// if the call does not run.
    pub fn validated(&self) -> Option<bool> {
        match &self.state {
            State::Pending => None,
            State::Approved(_)
            | State::Executing(..)
            | State::Succeeded(..)
            | State::Failed(..)
            | State::Interrupted(..)
            | State::Cancelled(Some(_), _) => Some(true),
            State::Rejected(_) | State::Expired(_) | State::Cancelled(None, _) | State::Invalid(_) => {
                Some(false)
            }
        }
    }

    /// Returns the text that the model reads for a call that has not ended.
    pub fn placeholder(&self) -> &'static str {
        match &self.state {
            State::Pending => model_texts::AWAITING,
            _ if self.held => model_texts::IN_PROGRESS,
            _ => model_texts::RUNNING,
        }
    }
}

/// The end in a state, shared or exclusive like the reference to the state.
macro_rules! end_of {
    ($state:expr) => {
        match $state {
            State::Pending | State::Approved(_) | State::Executing(..) => None,
            State::Succeeded(.., end)
            | State::Failed(.., end)
            | State::Interrupted(.., end)
            | State::Rejected(end)
            | State::Expired(end)
            | State::Cancelled(_, end)
            | State::Invalid(end) => Some(end),
        }
    };
}

impl State {
    /// Returns the end of the call, if the call has ended.
    pub fn end(&self) -> Option<&CallEnd> {
        end_of!(self)
    }

    pub(super) fn end_mut(&mut self) -> Option<&mut CallEnd> {
        end_of!(self)
    }

    /// Returns the state without its facts.
    pub const fn kind(&self) -> StateKind {
        match self {
            Self::Pending => StateKind::Pending,
            Self::Approved(_) => StateKind::Approved,
            Self::Executing(..) => StateKind::Executing,
            Self::Succeeded(..) => StateKind::Succeeded,
            Self::Failed(..) => StateKind::Failed,
            Self::Interrupted(..) => StateKind::Interrupted,
            Self::Rejected(_) => StateKind::Rejected,
            Self::Expired(_) => StateKind::Expired,
            Self::Cancelled(..) => StateKind::Cancelled,
            Self::Invalid(_) => StateKind::Invalid,
        }
    }

    /// Returns the word of the state.
    pub const fn word(&self) -> &'static str {
        self.kind().word()
    }

    /// Returns the label that a page shows for a held call.
    pub const fn label(&self) -> StateKind {
        self.kind().label()
    }
}

impl Outcome {
    /// Returns the outcome of a call that this attempt, the first or a later one, returned.
    pub fn of_attempt(self, attempt: i32) -> Self {
        match self {
            Self::Failed(message) if attempt > 1 => Self::FailedAgain(message),
            other => other,
        }
    }

    /// Returns the result text for the model, at most `bytes_max` bytes, with the edit first if there was
    /// one.
    pub fn words(&self, edit: Option<&Edit>, bytes_max: usize) -> String {
        let result_text = match self {
            Self::Succeeded(output) => match output.as_value() {
                Value::String(text) if !text.is_empty() => text.clone(),
                other => other.to_string(),
            },
            Self::Failed(message) => format!("{} {message}", model_texts::FAILED),
            Self::FailedAgain(message) => {
                format!("{} {} {message}", model_texts::INTERRUPTED, model_texts::FAILED_AGAIN)
            }
            Self::InterruptedWith(said) => format!("{} {said}", model_texts::INTERRUPTED),
            Self::Interrupted | Self::Lost => model_texts::INTERRUPTED.to_owned(),
        };
        with_edit(result_text, edit, bytes_max)
    }
}

/// Returns the result text for the model of a call whose outcome an operator established, with the operator's
/// reason if given.
pub fn established(outcome: &Outcome, call: &ToolCall, reason: Option<&str>, bytes_max: usize) -> String {
    let result_text = match outcome {
        Outcome::Succeeded(output) => match output.as_value() {
            Value::Null => model_texts::ESTABLISHED.to_owned(),
            output => format!("{}{} {output}", model_texts::ESTABLISHED, model_texts::OUTPUT),
        },
        Outcome::Failed(why) => format!("{} {why}", model_texts::ESTABLISHED_FAILED),
        Outcome::FailedAgain(_) | Outcome::Interrupted | Outcome::InterruptedWith(_) | Outcome::Lost => {
            model_texts::INTERRUPTED.to_owned()
        }
    };
    let result_text = match reason {
        Some(reason) => format!("{result_text} {}{reason}", model_texts::REASON),
        None => result_text,
    };
    with_edit(result_text, call.edit().as_ref(), bytes_max)
}

/// Prepends the sentence about the edit, if there was one. The text has at most `bytes_max` bytes.
fn with_edit(result_text: String, edit: Option<&Edit>, bytes_max: usize) -> String {
    let result_text = match edit {
        None => result_text,
        Some(Edit { from, to }) => {
            let (from, to) = (json!(from), json!(to));
            format!("{} {from} to {to}{}{result_text}", model_texts::EDITED, model_texts::EDITED_END)
        }
    };
    cut(without_nul(&result_text), bytes_max)
}

/// Returns the text of a rejection, for the model and the caller.
pub fn rejection(reason: Option<&str>) -> String {
    because(model_texts::REJECTED, reason)
}

/// Returns the text of a call that repeats a rejected one, with the reason of that rejection.
pub fn repeated_rejection(reason: Option<&str>) -> String {
    because(model_texts::REJECTED_BEFORE, reason)
}

/// Returns the result of a call that was withdrawn before it ran, for the model and the caller.
pub fn withdrawal(reason: Option<&str>) -> String {
    because(model_texts::CANCELLED, reason)
}

fn because(what: &str, reason: Option<&str>) -> String {
    match reason {
        Some(reason) => format!("{what} {}{reason}", model_texts::REASON),
        None => what.to_owned(),
    }
}

/// Returns the hash of the facts that a decider sees: the tool, the inputs, the tool's schema, and the preview if
/// there is one.
pub fn input_hash(tool_name: &str, input: &Input, schema_hash: &str, preview: Option<&Preview>) -> String {
    canonical_hash(&match preview {
        None => json!([tool_name, input, schema_hash]),
        Some(Preview::Text(text)) => json!([tool_name, input, schema_hash, { "text": text }]),
        Some(Preview::Failed(why)) => json!([tool_name, input, schema_hash, { "failed": why }]),
    })
}

/// Returns the schema hash of an unknown tool. Its schema is `false`, which accepts nothing.
pub fn unknown_schema_hash() -> String {
    canonical_hash(&Value::Bool(false))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tool::secrets::SecretPaths;

    fn input(value: Value) -> Input {
        value.as_object().unwrap().clone()
    }

    fn succeeded(output: Value) -> Outcome {
        Outcome::Succeeded(Output::new(output, usize::MAX))
    }

    #[test]
    fn an_edit_is_reported_before_the_result() {
        let shown = |value| SecretPaths::default().shown(&input(value));
        let edit = Edit { from: shown(json!({"path": "a.txt"})), to: shown(json!({"path": "b.txt"})) };
        let result_text = succeeded(json!({"deleted": "b.txt"})).words(Some(&edit), 1000);
        let begin =
            r#"A person changed the inputs from {"path":"a.txt"} to {"path":"b.txt"} before approving."#;
        assert_eq!(result_text, format!(r#"{begin} {{"deleted":"b.txt"}}"#));
    }

    #[test]
    fn result_texts_are_never_empty_and_never_longer_than_the_limit() {
        assert!(!succeeded(json!("")).words(None, 1000).is_empty());
        let long = succeeded(json!("é".repeat(100))).words(None, 50);
        assert!(long.len() <= 50 && long.ends_with("[…cut]"), "{long}");
    }
}
