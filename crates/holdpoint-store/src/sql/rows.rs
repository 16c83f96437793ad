//! Conversion of rows to domain values. An invalid row is an error, never a guess. Exceptions are the
//! payloads of tools and models, and events: another version, or a manual statement, may have written them. A
//! row with an unreadable payload is shown without the payload, and the error is logged. A list leaves out a
//! row with an error, and continues.

use crate::entity::{decision, grant, tool_call};
use crate::sql::parts::read_parts;
use crate::sql::views::{MessageRow, RunRow, StepRow};
use crate::{StoreError, Thread, decision::input_bounds};
use holdpoint_core::call::{
    Approval, CallEnd, Escalation, ExecutedBy, Execution, Outcome, State, StateKind, ToolCall, rejection,
};
use holdpoint_core::card::preview::Preview;
use holdpoint_core::card::progress::{Progress, ReportedProgress};
use holdpoint_core::clock::Timestamp;
use holdpoint_core::decision::{Choice, Decision};
use holdpoint_core::grant::{CoveredInputs, Grant, GrantUses};
use holdpoint_core::json::hex::hex;
use holdpoint_core::message::{Body, Message, MessageStatus, Part, Role, Step, Usage, Window};
use holdpoint_core::run::{Run, RunOptions, RunStatus, TurnError};
use holdpoint_core::text::model_texts;
use holdpoint_core::tool::input::Input;
use holdpoint_core::tool::secrets::SecretPaths;
use holdpoint_core::vocabulary::Vocabulary;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::borrow::Cow;
use std::str::FromStr;

/// The log message for a row, or a part of a row, that cannot be read.
pub(crate) const UNREADABLE: &str = "a stored row cannot be read";

pub(crate) fn inconsistent(table: &'static str, what: impl std::fmt::Display) -> StoreError {
    StoreError::Inconsistent { table, what: what.to_string() }
}

/// Parses an id from a column.
pub(crate) fn id<T: FromStr>(table: &'static str, text: &str) -> Result<T, StoreError> {
    text.parse().map_err(|_| inconsistent(table, format_args!("{text:?} is not an id")))
}

pub(crate) fn json<T: DeserializeOwned>(table: &'static str, text: &str) -> Result<T, StoreError> {
    serde_json::from_str(text).map_err(|error| inconsistent(table, error))
}

/// Reads the word of a column.
pub(crate) fn word<T: Vocabulary>(table: &'static str, text: &str) -> Result<T, StoreError> {
    T::of_word(text).ok_or_else(|| inconsistent(table, format_args!("{text:?} is not a known word")))
}

/// Returns a row of a list if it can be read. An unreadable row is logged, and does not stop the list.
pub(crate) fn listed<T>(table: &'static str, id: &str, read: Result<T, StoreError>) -> Option<T> {
    read.inspect_err(|error| tracing::error!(table, id, %error, "{UNREADABLE}; it is left out of a list"))
        .ok()
}

fn needed<T>(table: &'static str, column: &'static str, value: Option<T>) -> Result<T, StoreError> {
    value.ok_or_else(|| inconsistent(table, format_args!("{column} is missing")))
}

impl Thread {
    pub(crate) fn of(row: crate::entity::thread::Model) -> Result<Self, StoreError> {
        Ok(Self {
            id: id("threads", &row.thread_id)?,
            session_id: id("threads", &row.session_id)?,
            parent_id: row.parent_id.map(|parent| id("threads", &parent)).transpose()?,
            tenant_id: row.tenant_id,
            user_id: row.user_id,
            client_id: row.client_id,
            title: row.title,
            created_at: Timestamp::from_micros(row.created_at),
            updated_at: Timestamp::from_micros(row.updated_at),
        })
    }
}

/// The facts of a run that are the status of its answer.
#[derive(Clone, Copy)]
pub(crate) struct AnswerState<'r> {
    pub(crate) run_status: &'r str,
    pub(crate) is_cut_short: bool,
}

impl<'r> From<&RunRow<'r>> for AnswerState<'r> {
    fn from(run: &RunRow<'r>) -> Self {
        Self { run_status: run.status, is_cut_short: run.cut_short }
    }
}

/// Returns the status of a message. An answer has the state of its run.
fn message_status(
    row: &MessageRow<'_>,
    role: Role,
    answer: Option<AnswerState<'_>>,
) -> Result<MessageStatus, StoreError> {
    if row.superseded_at.is_some() {
        return Ok(MessageStatus::Superseded);
    }
    if role == Role::User {
        return Ok(MessageStatus::Complete);
    }
    let AnswerState { run_status, is_cut_short } = needed("messages", "the run of an answer", answer)?;
    Ok(match word("runs", run_status)? {
        RunStatus::Running => MessageStatus::Streaming,
        RunStatus::Waiting | RunStatus::Completed => MessageStatus::Complete,
        RunStatus::Cancelled if !is_cut_short => MessageStatus::Complete,
        RunStatus::Failed | RunStatus::Cancelled => MessageStatus::Interrupted,
    })
}

pub(crate) fn message(
    row: MessageRow<'_>,
    answer: Option<AnswerState<'_>>,
    steps: Vec<Step>,
) -> Result<Message, StoreError> {
    const TABLE: &str = "messages";
    let role = word(TABLE, row.role)?;
    let status = message_status(&row, role, answer)?;
    let body = match role {
        Role::User => Body::User(needed(TABLE, "content", row.content)?.to_owned()),
        Role::Assistant => Body::Assistant(steps),
    };
    Ok(Message {
        id: id(TABLE, row.message_id)?,
        client_id: row.client_id.map(str::to_owned),
        thread_id: id(TABLE, row.thread_id)?,
        run_id: id(TABLE, row.run_id)?,
        ordinal: row.ordinal,
        body,
        status,
        created_at: Timestamp::from_micros(row.created_at),
    })
}

pub(crate) fn step(row: StepRow<'_>, calls: Vec<ToolCall>) -> Result<Step, StoreError> {
    const TABLE: &str = "message_steps";
    let usage = match (row.input_tokens, row.output_tokens) {
        (Some(input), Some(output)) => {
            Some(Usage { input_tokens: input.unsigned_abs(), output_tokens: output.unsigned_abs() })
        }
        _ => None,
    };
    let unreadable = |column, error: &StoreError| {
        tracing::error!(table = TABLE, message_id = row.message_id, n = row.n, column, %error, "{UNREADABLE}");
    };
    let provider_state = row.provider_state.map(|state| json(TABLE, state)).transpose();
    let provider_state = provider_state.unwrap_or_else(|error| {
        unreadable("provider_state", &error);
        None
    });
    let parts = read_parts(row.parts).unwrap_or_else(|error| {
        unreadable("parts", &inconsistent(TABLE, error));
        let notice = Part::Text { text: model_texts::UNREADABLE_PARTS.to_owned() };
        let calls = calls.iter().map(|call| Part::ToolCall { tool_call_id: call.id });
        [notice].into_iter().chain(calls).collect()
    });
    Ok(Step {
        n: row.n,
        status: word(TABLE, row.status)?,
        parts,
        calls,
        usage,
        origin: row.origin.map(str::to_owned),
        provider_state,
        window: Window {
            left_out: usize::try_from(row.turns_left_out).unwrap_or_default(),
            shortened: usize::try_from(row.turns_shortened).unwrap_or_default(),
            refused: row.refused_tokens.map(i64::unsigned_abs),
        },
        created_at: Timestamp::from_micros(row.created_at),
    })
}

pub(crate) fn run<'r>(row: impl Into<RunRow<'r>>) -> Result<Run, StoreError> {
    const TABLE: &str = "runs";
    let row: RunRow<'_> = row.into();
    let error = match (row.error_code, row.error_message) {
        (Some(code), Some(message)) => {
            Some(TurnError { code: word(TABLE, code)?, message: message.to_owned() })
        }
        _ => None,
    };
    Ok(Run {
        id: id(TABLE, row.run_id)?,
        thread_id: id(TABLE, row.thread_id)?,
        assistant_message_id: id(TABLE, row.assistant_message_id)?,
        status: word(TABLE, row.status)?,
        resumed_alone: row.resumed_alone,
        error,
        options: RunOptions {
            model: row.model.map(str::to_owned),
            tools: row.tools.map(|tools| json(TABLE, tools)).transpose()?,
            instructions: row.instructions.map(str::to_owned),
            roles: json(TABLE, row.roles)?,
        },
        created_at: Timestamp::from_micros(row.created_at),
        finished_at: row.finished_at.map(Timestamp::from_micros),
    })
}

pub(crate) fn decision(row: decision::Model) -> Result<Decision, StoreError> {
    const TABLE: &str = "decisions";
    Ok(Decision {
        verdict: word(TABLE, &row.verdict)?,
        by: row.actor,
        on_behalf_of: row.on_behalf_of,
        at: Timestamp::from_micros(row.at),
        edited: row.edited,
        reason: row.reason,
        input_hash: row.input_hash,
        source: row.source,
        remember: row.remember.map(|it| word(TABLE, &it)).transpose()?,
        surface: word(TABLE, &row.surface)?,
    })
}

pub(crate) fn grant(row: grant::Model) -> Result<Grant, StoreError> {
    const TABLE: &str = "grants";
    let inputs = match (row.input_hash, row.input_bounds) {
        (None, None) => CoveredInputs::Any,
        (Some(hash), _) => CoveredInputs::Equal(hash),
        (None, Some(text)) => {
            let bounds =
                input_bounds::read(&text).ok_or_else(|| inconsistent(TABLE, "the bounds cannot be read"))?;
            CoveredInputs::Within(bounds)
        }
    };
    let number = |n: i32| u32::try_from(n).map_err(|_| inconsistent(TABLE, "a number of uses is negative"));
    let uses = match (row.uses, row.uses_left) {
        (Some(given), Some(left)) => Some(GrantUses { given: number(given)?, left: number(left)? }),
        _ => None,
    };
    Ok(Grant {
        id: id(TABLE, &row.grant_id)?,
        session_id: id(TABLE, &row.session_id)?,
        roles: json(TABLE, &row.roles)?,
        tool_call_id: id(TABLE, &row.tool_call_id)?,
        tool_name: row.tool_name,
        schema_hash: row.schema_hash,
        inputs,
        until: row.until.map(Timestamp::from_micros),
        uses,
        by: row.granted_by,
        at: Timestamp::from_micros(row.created_at),
    })
}

/// The longest id of a call that is its own key. An index of Postgres holds at most 2,704 bytes.
const KEY_BYTES_MAX: usize = 1024;

/// Returns the key of the id that a provider gave to a call: the id, or the hash of a long id.
pub(crate) fn wire_key(provider_call_id: &str) -> Cow<'_, str> {
    if provider_call_id.len() <= KEY_BYTES_MAX {
        return Cow::Borrowed(provider_call_id);
    }
    Cow::Owned(format!("sha256:{}", hex(&Sha256::digest(provider_call_id))))
}

/// Returns the id of a call that the model knows.
fn wire_call_id(row: &tool_call::Model) -> &str {
    let id = &row.provider_call_id;
    if id.len() > KEY_BYTES_MAX && wire_key(id) == row.wire_call_id { id } else { &row.wire_call_id }
}

pub(crate) fn call(row: tool_call::Model, decision: Option<Decision>) -> Result<ToolCall, StoreError> {
    const TABLE: &str = "tool_calls";
    let tool_call_id = id(TABLE, &row.tool_call_id)?;
    let mut unreadable = false;
    let mut inputs = |column, text: &str| -> Input {
        json(TABLE, text).unwrap_or_else(|error| {
            log_unreadable(&row, column, &error);
            unreadable = true;
            Input::new()
        })
    };
    let kind = word(TABLE, &row.state)?;
    // The arguments of an invalid call may be any text, and such a call gets no permit.
    let input = match kind {
        StateKind::Invalid => serde_json::from_str(&row.arguments).unwrap_or_default(),
        _ => inputs("arguments", &row.arguments),
    };
    let edited = row.validated_inputs.as_deref().map(|edited| inputs("validated_inputs", edited));
    let model_input = row.model_arguments.as_deref().map(|text| inputs("model_arguments", text));
    let approval = Approval {
        inputs: edited,
        preview: preview(row.validated_preview.clone(), row.validated_preview_failed)?,
    };
    Ok(ToolCall {
        id: tool_call_id,
        thread_id: id(TABLE, &row.thread_id)?,
        message_id: id(TABLE, &row.message_id)?,
        run_id: id(TABLE, &row.run_id)?,
        step: row.step,
        wire_call_id: wire_call_id(&row).to_owned(),
        name: row.name.clone(),
        input,
        model_input,
        secrets: SecretPaths::of_json(row.secret_paths.as_deref()),
        schema_hash: row.schema_hash.clone(),
        held: row.held,
        risk: word(TABLE, &row.risk_level)?,
        reason: row.reason.clone(),
        preview: preview(row.preview.clone(), row.preview_failed)?,
        decision,
        created_at: Timestamp::from_micros(row.created_at),
        expires_at: row.expires_at.map(Timestamp::from_micros),
        remind_at: row.remind_at.filter(|_| kind == StateKind::Pending).map(Timestamp::from_micros),
        escalation: escalation(&row)?,
        executed_by: executed_by(&row)?,
        progress: progress(&row),
        unreadable,
        state: state(row, kind, approval)?,
    })
}

fn escalation(row: &tool_call::Model) -> Result<Option<Escalation>, StoreError> {
    let (Some(due), Some(to)) = (row.escalate_at, &row.escalate_to) else { return Ok(None) };
    Ok(Some(Escalation {
        to: json("tool_calls", to)?,
        due: Timestamp::from_micros(due),
        at: row.escalated_at.map(Timestamp::from_micros),
    }))
}

pub(crate) fn preview_columns(preview: Option<&Preview>) -> (Option<String>, Option<bool>) {
    match preview {
        Some(Preview::Text(text)) => (Some(text.clone()), Some(false)),
        Some(Preview::Failed(why)) => (Some(why.clone()), Some(true)),
        None => (None, None),
    }
}

/// Reads the columns of a preview.
fn preview(text: Option<String>, failed: Option<bool>) -> Result<Option<Preview>, StoreError> {
    match (text, failed) {
        (Some(text), Some(false)) => Ok(Some(Preview::Text(text))),
        (Some(why), Some(true)) => Ok(Some(Preview::Failed(why))),
        (None, None) => Ok(None),
        _ => Err(inconsistent("tool_calls", "half of a preview is missing")),
    }
}

/// A report as the row has it.
#[derive(Serialize, Deserialize)]
pub(crate) struct StoredProgress {
    pub(crate) message: Option<String>,
    pub(crate) done: Option<f64>,
    pub(crate) total: Option<f64>,
    pub(crate) at: i64,
    pub(crate) event_at: i64,
}

/// Returns the last report of a call. One that cannot be read is left out.
pub(crate) fn progress(row: &tool_call::Model) -> Option<ReportedProgress> {
    let stored = row.progress.as_deref().map(|text| json::<StoredProgress>("tool_calls", text));
    let StoredProgress { message, done, total, at, event_at } =
        stored.and_then(|stored| listed("tool_calls", &row.tool_call_id, stored))?;
    Some(ReportedProgress {
        progress: Progress { message, done, total },
        at: Timestamp::from_micros(at),
        event_at: Timestamp::from_micros(event_at),
    })
}

fn executed_by(row: &tool_call::Model) -> Result<ExecutedBy, StoreError> {
    const TABLE: &str = "tool_calls";
    match (row.by_worker, &row.child_run_id, row.result_deadline) {
        (false, None, None) => Ok(ExecutedBy::Process),
        (true, None, None) => Ok(ExecutedBy::Worker),
        (false, Some(child), None) => Ok(ExecutedBy::Child(id(TABLE, child)?)),
        (false, None, Some(at)) => Ok(ExecutedBy::Owner { result_deadline: Timestamp::from_micros(at) }),
        _ => Err(inconsistent(TABLE, "two of by_worker, child_run_id and result_deadline are set")),
    }
}

/// Returns a call as the decision of a person or a handler leaves it.
pub(crate) fn decided(
    call: ToolCall,
    answer: &Choice,
    edited_preview: Option<Preview>,
    decision: Decision,
) -> ToolCall {
    let state = match answer {
        Choice::Approve { inputs, .. } => {
            State::Approved(Approval { inputs: inputs.clone(), preview: edited_preview })
        }
        Choice::Reject { reason } => {
            State::Rejected(CallEnd { result: rejection(reason.as_deref()), at: decision.at })
        }
    };
    ToolCall { state, decision: Some(decision), ..call }
}

/// Returns the state in which an outcome leaves a call.
pub(crate) fn settled(row: &tool_call::Model, outcome: &Outcome, end: CallEnd) -> Result<State, StoreError> {
    let (approval, execution) = match call(row.clone(), None)?.state {
        State::Executing(approval, execution) | State::Interrupted(approval, execution, _) => {
            (approval, execution)
        }
        other => return Ok(other),
    };
    Ok(match outcome {
        Outcome::Succeeded(output) => State::Succeeded(approval, execution, output.as_value().clone(), end),
        Outcome::Failed(_) => State::Failed(approval, Some(execution), end),
        Outcome::FailedAgain(_) | Outcome::Interrupted | Outcome::InterruptedWith(_) | Outcome::Lost => {
            State::Interrupted(approval, execution, end)
        }
    })
}

fn log_unreadable(row: &tool_call::Model, column: &str, error: &StoreError) {
    let tool_call::Model { tool_call_id, thread_id, run_id, .. } = row;
    tracing::error!(table = "tool_calls", tool_call_id, thread_id, run_id, column, %error, "{UNREADABLE}");
}

fn state(row: tool_call::Model, kind: StateKind, approval: Approval) -> Result<State, StoreError> {
    const TABLE: &str = "tool_calls";
    let output = row.output.as_deref().map(|output| {
        json(TABLE, output).unwrap_or_else(|error| {
            log_unreadable(&row, "output", &error);
            Value::String(model_texts::UNREADABLE_OUTPUT.to_owned())
        })
    });
    let execution = match (row.exec_id, row.started_at) {
        (Some(exec_id), Some(started_at)) => {
            let (attempt, started_at) = (row.exec_attempt, Timestamp::from_micros(started_at));
            Some(Execution { id: id(TABLE, &exec_id)?, attempt, started_at })
        }
        _ => None,
    };
    let end = match (row.result, row.finished_at) {
        (Some(result), Some(at)) => Some(CallEnd { result, at: Timestamp::from_micros(at) }),
        _ => None,
    };
    let (result, exec_id) = ("result", "exec_id");
    Ok(match kind {
        StateKind::Pending => State::Pending,
        StateKind::Approved => State::Approved(approval),
        StateKind::Executing => State::Executing(approval, needed(TABLE, exec_id, execution)?),
        StateKind::Succeeded => State::Succeeded(
            approval,
            needed(TABLE, exec_id, execution)?,
            needed(TABLE, "output", output)?,
            needed(TABLE, result, end)?,
        ),
        StateKind::Failed => State::Failed(approval, execution, needed(TABLE, result, end)?),
        StateKind::Interrupted => {
            State::Interrupted(approval, needed(TABLE, exec_id, execution)?, needed(TABLE, result, end)?)
        }
        StateKind::Rejected => State::Rejected(needed(TABLE, result, end)?),
        StateKind::Expired => State::Expired(needed(TABLE, result, end)?),
        StateKind::Cancelled => {
            State::Cancelled((row.validated == Some(true)).then_some(approval), needed(TABLE, result, end)?)
        }
        StateKind::Invalid => State::Invalid(needed(TABLE, result, end)?),
    })
}
