//! A tool call's life.
//!
//! ```text
//!  model ─► pending ─┬─► approved ─► executing ─┬─► succeeded
//!                    ├─► rejected               ├─► failed
//!                    ├─► expired                └─► interrupted ─► succeeded | failed
//!                    └─► cancelled
//!  model ─► executing (nobody has to be asked)      model ─► invalid (it cannot be run)
//!  model ─► cancelled (a person is being asked about the same call already)
//! ```
//!
//! An execution that went away leaves a call `interrupted`, or `approved` again where running it twice does no more
//! than running it once.
//!
//! The store moves a call by compare-and-set; here is what each state knows, and the words for the model.

use super::canonical::{canonical_hash, same_object};
use super::clock::Timestamp;
use super::decision::Decision;
use super::id::{ExecId, MessageId, RunId, ThreadId, ToolCallId};
use super::output::Output;
use serde_json::{Map, Value, json};
use std::sync::LazyLock;

/// How often a call may be begun, where running it again does no harm.
pub(crate) const ATTEMPTS_MAX: i32 = 3;

/// The named inputs of a call.
pub type Input = Map<String, Value>;

/// A call as it is stored.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ToolCall {
    /// Its id, minted here.
    pub(crate) id: ToolCallId,
    /// Its thread.
    pub(crate) thread_id: ThreadId,
    /// The assistant's message that made it.
    pub(crate) message_id: MessageId,
    /// The run it belongs to.
    pub(crate) run_id: RunId,
    /// The step of the message.
    pub(crate) step: i32,
    /// The id the model knows it by, unique in the thread.
    pub(crate) wire_call_id: String,
    /// The tool.
    pub(crate) name: String,
    /// What the model asked for; empty if that was not a JSON object.
    pub(crate) input: Input,
    /// The tool's schema when it was asked for.
    pub(crate) schema_hash: String,
    /// Whether a person is asked.
    pub(crate) held: bool,
    /// How much harm it can do.
    pub(crate) risk: RiskLevel,
    /// Why a person is asked.
    pub(crate) reason: Option<String>,
    /// Where it stands.
    pub(crate) state: State,
    /// The decision in force.
    pub(crate) decision: Option<Decision>,
    /// When it was asked for.
    pub(crate) created_at: Timestamp,
    /// When a person's time to answer runs out.
    pub(crate) expires_at: Option<Timestamp>,
    /// The run of a child thread that does it, or did.
    pub(crate) child_run_id: Option<RunId>,
    /// Whether its stored inputs cannot be read: it is shown without them, and never approved or begun.
    pub(crate) unreadable: bool,
}

/// The word of every state.
pub const CALL_STATES: [&str; 10] = [
    "pending",
    "approved",
    "executing",
    "succeeded",
    "failed",
    "interrupted",
    "rejected",
    "expired",
    "cancelled",
    "invalid",
];

/// Where a call stands, with the facts of that state and who moves it on.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum State {
    /// A person is asked; a decision moves it, or the end of their time.
    Pending,
    /// It may run, and nobody runs it; a claim moves it, until the start deadline.
    Approved(Approval),
    /// Somebody runs it; who holds the execution settles it, or the sweeper once their lease is over.
    Executing(Approval, Execution),
    /// It ran and gave this output.
    Succeeded(Approval, Execution, Value, End),
    /// It ran and failed; without an execution it never ran.
    Failed(Approval, Option<Execution>, End),
    /// It may have run. A late result of the same execution, the tool when it is asked, or an operator can still
    /// settle it.
    Interrupted(Approval, Execution, End),
    /// A person or the policy said no.
    Rejected(End),
    /// Nobody answered in time.
    Expired(End),
    /// Withdrawn before it ran, perhaps after a yes.
    Cancelled(Option<Approval>, End),
    /// The model asked for what cannot be run.
    Invalid(End),
}

/// A yes.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Approval {
    /// Inputs to run in place of the model's, if a person changed them.
    pub(crate) inputs: Option<Input>,
}

/// One execution: who holds it may settle the call, once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Execution {
    /// Its id.
    pub(crate) id: ExecId,
    /// Which of its call's it is, from 1.
    pub(crate) attempt: i32,
    /// When it was claimed.
    pub(crate) started_at: Timestamp,
}

/// How a call ended, for the model and for the record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct End {
    /// The words the model reads.
    pub(crate) result: String,
    /// When.
    pub(crate) at: Timestamp,
}

/// How an execution went.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Outcome {
    /// The tool gave this.
    Succeeded(Output),
    /// The tool failed, in these words.
    Failed(String),
    /// It failed in these words when it was begun again, and an earlier attempt may have had its effect.
    FailedAgain(String),
    /// Nobody knows: the tool may have had its effect.
    Interrupted,
    /// The same, because whoever ran it went away: where that does no harm it is begun again.
    Lost,
}

/// How much harm a tool can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RiskLevel {
    /// Reads, or is easily undone.
    Low,
    /// Changes something that matters.
    Medium,
    /// Cannot be undone.
    High,
}

impl RiskLevel {
    /// The level's word.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
        }
    }
}

/// The words the model reads of calls that gave no output of their own.
pub(crate) mod model_texts {
    /// It may have happened.
    pub(crate) const INTERRUPTED: &str = "The outcome is unknown: the tool may have run, wholly or in part. \
                                   Do not repeat it without asking the user.";
    /// Nobody answered.
    pub(crate) const EXPIRED: &str = "Nobody approved this in time, it expired. The tool did not run.";
    /// It was withdrawn.
    pub(crate) const CANCELLED: &str = "Cancelled, the tool did not run.";
    /// Begins what is told of a call that the policy forbids; why follows.
    pub(crate) const BLOCKED: &str = "The policy of this server forbids the call, the tool did not run.";
    /// Begins what is told of a call that was approved and that the policy forbids now; why follows.
    pub(crate) const BLOCKED_LATER: &str =
        "Approved by a person, but the policy of this server forbids the call now. The tool did not run.";
    /// A person said yes, and nobody began in time.
    pub(crate) const NOT_STARTED: &str = "Approved by a person, but not begun in time. The tool did not run.";
    /// Its tool was asked later, and knows that nothing came of it.
    pub(crate) const NEVER_HAPPENED: &str = "it was cut off. Asked about it later, it says that nothing happened and \
                                      nothing will.";
    /// Told while nobody has decided.
    pub(crate) const AWAITING: &str = "Awaiting approval by a person. The tool has not run. Its outcome will be \
                                told later; do not repeat the call.";
    /// Told of a call that repeats one about which a person is being asked.
    pub(crate) const DUPLICATE: &str = "Already awaiting approval: the same call was made before and waits for a \
                                 person. This one was not asked about and did not run. The outcome of the first \
                                 will be told later; do not repeat the call.";
    /// Told while it runs.
    pub(crate) const UNDER_WAY: &str = "Approved by a person and under way. Its outcome will be told later; do not \
                                 repeat the call.";
    /// Stands between that and what the tool said when it was begun again.
    pub(crate) const FAILED_AGAIN: &str = "Begun again, the tool failed:";
    /// Begins what is told of a failure.
    pub(crate) const FAILED: &str = "The tool failed:";
    /// Begins what is told of a call that a person changed.
    pub(crate) const EDITED: &str = "A person changed the inputs from";
    /// Ends what is told of the change; what came of the call follows.
    pub(crate) const EDITED_END: &str = " before approving. ";
    /// Told while a call runs that nobody was asked about.
    pub(crate) const RUNNING: &str = "Under way, or cut off: the outcome is not known yet. It will be told later; \
                                      do not repeat the call.";
    /// A person said no.
    pub(crate) const REJECTED: &str = "Tool execution rejected by user.";
    /// Stands between that and the person's reason, if they gave one.
    pub(crate) const REASON: &str = "Reason: ";
    /// A sub-agent began, and did not come to an answer; why follows.
    pub(crate) const CHILD_FAILED: &str = "the sub-agent broke off, and part of its task may have been done:";
    /// Whoever asked for it wanted it no more before the sub-agent was there.
    pub(crate) const CHILD_UNWANTED: &str = "it was stopped before the sub-agent began; nothing was done";
    /// A sub-agent may not begin another here.
    pub(crate) const TOO_DEEP: &str =
        "sub-agents may not be nested any deeper here (limits.agent_depth); nothing was begun";
    /// A run has had as many sub-agents as it may have.
    pub(crate) const TOO_MANY: &str =
        "this run may begin no more sub-agents (limits.agents_per_run); nothing was begun";
    /// An operator found out that it ran; the output follows where it is known.
    pub(crate) const ESTABLISHED: &str = "An operator established that the tool ran and succeeded.";
    /// Stands between that and the output.
    pub(crate) const OUTPUT: &str = " Its output:";
    /// An operator found out that it failed; why follows.
    pub(crate) const ESTABLISHED_FAILED: &str = "An operator established that the tool failed:";
    /// It was open in a database that lost what was written last.
    pub(crate) const FENCED: &str = "Cancelled, because the server's database was set back to an earlier time. \
                                     Whether the tool ran in the time that was lost is not known. Do not repeat \
                                     it without asking the user.";
    /// Why that was decided, for people.
    pub(crate) const FENCE: &str =
        "The database was set back to an earlier time; what ran since is not known.";
    /// In place of an output that an earlier version stored, or a hand, and that cannot be read.
    pub(crate) const UNREADABLE_OUTPUT: &str = "The stored output cannot be read.";
    /// In place of the words of a step, where they cannot be read.
    pub(crate) const UNREADABLE_PARTS: &str = "[What was said here cannot be read.]";
    /// Begins a user message that is really the server's: how a call went whose outcome came after its answer.
    /// The tool, the call's id and the outcome follow.
    pub(crate) const NOTE: &str = "[tool outcome]";
    /// What is told in its place where somebody else wrote it.
    pub(crate) const QUOTED_NOTE: &str = "[quoted tool outcome]";
}

impl ToolCall {
    /// What runs, or ran: the approver's inputs if they changed them, else the model's.
    pub(crate) fn effective_input(&self) -> &Input {
        self.edited_input().unwrap_or(&self.input)
    }

    /// Whether a child does it now. Nobody here waits for that: a person may be asked within it.
    pub(crate) fn is_delegated(&self) -> bool {
        self.child_run_id.is_some() && self.end().is_none()
    }

    /// Whether its turn ends behind it, and goes on once it has ended: a person is asked, or a child does it.
    pub(crate) fn pauses(&self) -> bool {
        self.held || self.child_run_id.is_some()
    }

    /// Whether it was cancelled before it ran. Of one that was open when the database was set back nobody knows.
    pub(crate) fn is_withdrawn(&self) -> bool {
        matches!(&self.state, State::Cancelled(_, end) if end.result != model_texts::FENCED)
    }

    /// The inputs as a page shows them: of a call that cannot be run, none.
    pub(crate) fn shown_input(&self) -> &Input {
        static NONE: LazyLock<Input> = LazyLock::new(Input::new);
        if matches!(self.state, State::Invalid(_)) { &NONE } else { self.effective_input() }
    }

    /// The inputs a person put in place of the model's.
    pub(crate) fn edited_input(&self) -> Option<&Input> {
        match &self.state {
            State::Approved(approval)
            | State::Executing(approval, _)
            | State::Succeeded(approval, ..)
            | State::Failed(approval, ..)
            | State::Interrupted(approval, ..) => approval.inputs.as_ref(),
            State::Cancelled(approval, _) => approval.as_ref()?.inputs.as_ref(),
            State::Pending | State::Rejected(_) | State::Expired(_) | State::Invalid(_) => None,
        }
    }

    /// The words of its end where nobody knows how it went.
    pub(crate) fn unknown_outcome(&self) -> String {
        Outcome::Interrupted.words(&self.input, self.effective_input(), usize::MAX)
    }

    /// How it ended, if it has.
    pub(crate) fn end(&self) -> Option<&End> {
        match &self.state {
            State::Pending | State::Approved(_) | State::Executing(..) => None,
            State::Succeeded(.., end)
            | State::Failed(.., end)
            | State::Interrupted(.., end)
            | State::Rejected(end)
            | State::Expired(end)
            | State::Cancelled(_, end)
            | State::Invalid(end) => Some(end),
        }
    }

    /// Its execution, if it was claimed.
    pub(crate) fn execution(&self) -> Option<Execution> {
        match &self.state {
            State::Executing(_, execution)
            | State::Succeeded(_, execution, ..)
            | State::Failed(_, Some(execution), _)
            | State::Interrupted(_, execution, _) => Some(*execution),
            _ => None,
        }
    }

    /// The column `validated`: `None` while a person is asked, true once the call may run, by a person's word or
    /// the policy's, false if it will not.
    pub(crate) fn validated(&self) -> Option<bool> {
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

    /// What the model is told while there is no end.
    pub(crate) fn placeholder(&self) -> &'static str {
        match &self.state {
            State::Pending => model_texts::AWAITING,
            _ if self.held => model_texts::UNDER_WAY,
            _ => model_texts::RUNNING,
        }
    }
}

impl State {
    /// The state's word on the wire and in the table.
    pub(crate) const fn as_str(&self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Approved(_) => "approved",
            Self::Executing(..) => "executing",
            Self::Succeeded(..) => "succeeded",
            Self::Failed(..) => "failed",
            Self::Interrupted(..) => "interrupted",
            Self::Rejected(_) => "rejected",
            Self::Expired(_) => "expired",
            Self::Cancelled(..) => "cancelled",
            Self::Invalid(_) => "invalid",
        }
    }

    /// The word of the `8:` line and of the data parts: one word for all that a yes leads to.
    pub(crate) const fn validation_label(&self) -> &'static str {
        match self {
            Self::Approved(_) | Self::Executing(..) | Self::Succeeded(..) | Self::Failed(..) => "approved",
            Self::Pending
            | Self::Interrupted(..)
            | Self::Rejected(_)
            | Self::Expired(_)
            | Self::Cancelled(..)
            | Self::Invalid(_) => self.as_str(),
        }
    }
}

impl Outcome {
    /// The words the model reads, at most `bytes_max` of them, beginning with the edit if there was one.
    pub(crate) fn words(&self, asked: &Input, ran: &Input, bytes_max: usize) -> String {
        let told = match self {
            Self::Succeeded(output) => match output.as_value() {
                Value::String(text) if !text.is_empty() => text.clone(),
                other => other.to_string(),
            },
            Self::Failed(message) => format!("{} {message}", model_texts::FAILED),
            Self::FailedAgain(message) => {
                format!("{} {} {message}", model_texts::INTERRUPTED, model_texts::FAILED_AGAIN)
            }
            Self::Interrupted | Self::Lost => model_texts::INTERRUPTED.to_owned(),
        };
        with_edit(told, asked, ran, bytes_max)
    }
}

/// The words the model reads of a call whose outcome an operator established, and for what reason if they gave one.
pub(crate) fn established(
    outcome: &Outcome,
    call: &ToolCall,
    reason: Option<&str>,
    bytes_max: usize,
) -> String {
    let told = match outcome {
        Outcome::Succeeded(output) => match output.as_value() {
            Value::Null => model_texts::ESTABLISHED.to_owned(),
            output => format!("{}{} {output}", model_texts::ESTABLISHED, model_texts::OUTPUT),
        },
        Outcome::Failed(why) => format!("{} {why}", model_texts::ESTABLISHED_FAILED),
        Outcome::FailedAgain(_) | Outcome::Interrupted | Outcome::Lost => model_texts::INTERRUPTED.to_owned(),
    };
    let told = match reason {
        Some(reason) => format!("{told} {}{reason}", model_texts::REASON),
        None => told,
    };
    with_edit(told, &call.input, call.effective_input(), bytes_max)
}

/// The words behind those that tell of an edit, if there was one; at most `bytes_max` of them.
fn with_edit(told: String, asked: &Input, ran: &Input, bytes_max: usize) -> String {
    let told = if same_object(asked, ran) {
        told
    } else {
        let (asked, ran) = (Value::Object(asked.clone()), Value::Object(ran.clone()));
        format!("{} {asked} to {ran}{}{told}", model_texts::EDITED, model_texts::EDITED_END)
    };
    cut(without_nul(&told), bytes_max)
}

/// The text with U+FFFD for U+0000, which no text column of Postgres takes.
pub(crate) fn without_nul(text: &str) -> String {
    text.replace('\0', "\u{fffd}")
}

/// The rejection as the model and the caller read it.
pub(crate) fn rejection(reason: Option<&str>) -> String {
    because(model_texts::REJECTED, reason)
}

/// The end of a call that was withdrawn before it ran, as the model and the caller read it.
pub(crate) fn withdrawal(reason: Option<&str>) -> String {
    because(model_texts::CANCELLED, reason)
}

fn because(what: &str, reason: Option<&str>) -> String {
    match reason {
        Some(reason) => format!("{what} {}{reason}", model_texts::REASON),
        None => what.to_owned(),
    }
}

/// The text, or as much of it as `bytes_max` holds and a mark that it goes on.
pub(crate) fn cut(mut text: String, bytes_max: usize) -> String {
    const MARK: &str = " […cut]";
    if text.len() > bytes_max {
        text.truncate(text.floor_char_boundary(bytes_max.saturating_sub(MARK.len())));
        text.push_str(MARK);
    }
    text
}

/// What a person saw: the tool, the inputs, and what the tool takes.
pub(crate) fn input_hash(tool_name: &str, input: &Input, schema_hash: &str) -> String {
    canonical_hash(&json!([tool_name, input, schema_hash]))
}

/// The hash of a tool nobody knows: its schema is `false`, which accepts nothing.
pub(crate) fn unknown_schema_hash() -> String {
    canonical_hash(&Value::Bool(false))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn input(value: Value) -> Input {
        value.as_object().unwrap().clone()
    }

    fn succeeded(output: Value) -> Outcome {
        Outcome::Succeeded(Output::new(output, usize::MAX))
    }

    #[test]
    fn an_edit_is_told_before_the_result() {
        let (asked, ran) = (input(json!({"path": "a.txt"})), input(json!({"path": "b.txt"})));
        let told = succeeded(json!({"deleted": "b.txt"})).words(&asked, &ran, 1000);
        let begin =
            r#"A person changed the inputs from {"path":"a.txt"} to {"path":"b.txt"} before approving."#;
        assert_eq!(told, format!(r#"{begin} {{"deleted":"b.txt"}}"#));
    }

    #[test]
    fn no_answer_is_empty_and_none_is_longer_than_allowed() {
        let none = Input::new();
        assert!(!succeeded(json!("")).words(&none, &none, 1000).is_empty());
        let long = succeeded(json!("é".repeat(100))).words(&none, &none, 50);
        assert!(long.len() <= 50 && long.ends_with("[…cut]"), "{long}");
    }
}
