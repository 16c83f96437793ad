//! The data of events: what an event records besides its type, its actor and its subject. Hashes, never inputs or
//! results.
//!
//! The names and the order of the fields are a contract with stored events and with clients.

use super::call::{RiskLevel, StateKind};
use super::clock::Timestamp;
use super::decision::{Surface, Verdict};
use super::id::{GrantId, RequestId, RunId, ToolCallId};
use super::run::TurnErrorCode;
use crate::tool::tool_request::{RequestKind, RequestState};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The data of an event. A variant names the types of its events.
///
/// Data are read as the first variant that has all its facts. So a variant precedes those with fewer of its facts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum EventData {
    /// `tool.requires_approval`.
    Held {
        /// The call.
        #[serde(flatten)]
        call: MadeCall,
        /// Why the call is held.
        reason: String,
        /// The part of the policy that requires the approval.
        source: String,
        /// The deadline for a decision.
        expires_at: Timestamp,
    },
    /// `tool.blocked`, by the policy.
    Blocked {
        /// The call.
        #[serde(flatten)]
        call: MadeCall,
        /// A rejection.
        decision: Verdict,
        /// Why the call does not run.
        reason: String,
        /// The part of the policy that forbids the call.
        source: String,
    },
    /// `tool.approved`, by the policy, for a worker.
    ClearedForWorker {
        /// The call.
        #[serde(flatten)]
        call: MadeCall,
        /// An approval.
        decision: Verdict,
        /// The part of the policy that lets the call run.
        source: String,
    },
    /// `tool.started`, without an approval.
    StartedAtOnce {
        /// The call.
        #[serde(flatten)]
        call: MadeCall,
        /// The attempt, from 1.
        attempt: i32,
        /// The part of the policy that lets the call run.
        source: String,
    },
    /// `tool.cancelled`, for a call that repeats a pending one.
    Duplicate {
        /// The call.
        #[serde(flatten)]
        call: MadeCall,
        /// A withdrawal.
        decision: Verdict,
        /// The pending call.
        duplicate_of: ToolCallId,
    },
    /// `tool.cancelled`, for a call that repeats one that expired.
    ExpiredBefore {
        /// The call.
        #[serde(flatten)]
        call: MadeCall,
        /// A withdrawal.
        decision: Verdict,
        /// The call that expired.
        expired_before: ToolCallId,
    },
    /// `tool.blocked`, for a call that repeats one that a person rejected. The words of the person are in the decision
    /// alone.
    RejectedBefore {
        /// The call.
        #[serde(flatten)]
        call: MadeCall,
        /// A rejection.
        decision: Verdict,
        /// The call that was rejected.
        rejected_before: ToolCallId,
    },
    /// `tool.called`, and `tool.failed` for a call that cannot run.
    Made(MadeCall),
    /// `tool.approved`, `tool.rejected`, `tool.expired` and `tool.cancelled`, of a call that was held.
    Decided {
        /// The tool.
        tool_name: String,
        /// The hash of the inputs that the decision is about.
        input_hash: String,
        /// The verdict.
        decision: Verdict,
        /// Whether other inputs were approved than those that the model proposed.
        edited: bool,
        /// The surface on which the decision arrived.
        surface: Surface,
        /// The part of the policy that decided, if it did.
        #[serde(skip_serializing_if = "Option::is_none")]
        source: Option<String>,
        /// The grant that the approval left.
        #[serde(skip_serializing_if = "Option::is_none")]
        grant_id: Option<GrantId>,
        /// The people that approved, if one was not enough.
        #[serde(skip_serializing_if = "Option::is_none")]
        approved_by: Option<Vec<String>>,
        /// The approver as whose delegate the actor decided.
        #[serde(skip_serializing_if = "Option::is_none")]
        on_behalf_of: Option<String>,
    },
    /// `tool.voted`.
    Voted {
        /// The tool.
        tool_name: String,
        /// The hash of the approved inputs.
        input_hash: String,
        /// Whether other inputs were approved than those that the model proposed.
        edited: bool,
        /// The surface on which the approval arrived.
        surface: Surface,
        /// The people that have approved.
        approved_by: Vec<String>,
        /// The number of people that have to approve yet.
        missing: usize,
        /// The approver as whose delegate the actor decided.
        #[serde(skip_serializing_if = "Option::is_none")]
        on_behalf_of: Option<String>,
    },
    /// `tool.decision_refused`.
    DecisionRefused {
        /// The tool.
        tool_name: String,
        /// The decision.
        refused: RefusedDecision,
    },
    /// `tool.inputs_revealed`.
    InputsRevealed {
        /// The tool.
        tool_name: String,
        /// The hash of the card.
        input_hash: String,
        /// The places of the secrets.
        secret_paths: Vec<String>,
    },
    /// `tool.delegated`.
    Delegated {
        /// The tool.
        tool_name: String,
        /// The delegator, as an actor.
        from: String,
        /// The delegate, as an actor.
        to: String,
        /// The end of the delegation.
        until: Timestamp,
        /// The delegator's reason.
        reason: String,
    },
    /// `tool.extended`.
    Extended {
        /// The tool.
        tool_name: String,
        /// The deadline before.
        from: Timestamp,
        /// The deadline.
        expires_at: Timestamp,
    },
    /// `tool.escalated`.
    Escalated {
        /// The tool.
        tool_name: String,
        /// The roles that may decide now.
        roles: Vec<String>,
    },
    /// `tool.reminded`.
    Reminded {
        /// The tool.
        tool_name: String,
        /// The deadline.
        expires_at: Timestamp,
    },
    /// `tool.accepted`.
    Accepted {
        /// The tool.
        tool_name: String,
        /// The attempt, from 1.
        attempt: i32,
        /// The deadline for the outcome.
        result_deadline: Timestamp,
    },
    /// `tool.succeeded`, `tool.failed`, `tool.interrupted`, and `tool.cancelled` of an approved call.
    Moved {
        /// How the outcome is known, if that needs saying.
        #[serde(flatten)]
        cause: MoveCause,
        /// The tool.
        tool_name: String,
        /// The state that the call reaches.
        state: StateKind,
    },
    /// `tool.started`, of an approved call, and `tool.progressed`.
    Attempt {
        /// The tool.
        tool_name: String,
        /// The attempt, from 1.
        attempt: i32,
        /// The worker that claimed the call.
        #[serde(skip_serializing_if = "Option::is_none")]
        worker: Option<String>,
    },
    /// `tool.input_requested`, `tool.input_proposed` and `tool.input_ended`. Never the message, and never a content.
    Request {
        /// The tool.
        tool_name: String,
        /// The request.
        request_id: RequestId,
        /// The kind of the request.
        kind: RequestKind,
        /// What became of the request.
        #[serde(flatten)]
        step: RequestStep,
    },
    /// `run.failed`.
    RunFailed {
        /// Why the run failed.
        code: TurnErrorCode,
    },
    /// The other events of runs, and data that this version cannot read.
    Other(Map<String, Value>),
}

/// A call, when the model made it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MadeCall {
    /// The tool.
    pub tool_name: String,
    /// The harm that the tool can do.
    pub risk_level: RiskLevel,
    /// The hash of the proposed inputs.
    pub input_hash: String,
}

/// A decision that was refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusedDecision {
    /// The verdict.
    pub decision: Verdict,
    /// The code of the error.
    pub code: String,
    /// The surface on which the decision arrived.
    pub surface: Surface,
}

/// How the outcome of a call is known.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum MoveCause {
    /// An operator found the outcome out.
    Operator {
        /// The surface on which the operator said so.
        surface: Surface,
        /// Always `operator`.
        resolved_by: String,
        /// How the operator knows.
        #[serde(skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// The tool found the outcome out.
    Tool {
        /// The sweeper, which asked the tool.
        surface: Surface,
    },
    /// The child run of the call ended.
    ChildRun {
        /// The child run.
        child_run_id: RunId,
    },
    /// The execution was lost, and another one follows.
    LostAttempt {
        /// The attempt, from 1.
        attempt: i32,
    },
    /// The execution, or its end, says so.
    Itself {},
}

/// What became of a request of a tool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum RequestStep {
    /// The request ended.
    Ended {
        /// Its state.
        answer: RequestState,
        /// The people that agreed on the answer, if it needed several.
        #[serde(skip_serializing_if = "Option::is_none")]
        confirmed_by: Option<Vec<String>>,
    },
    /// A person proposed or confirmed a content.
    Proposed {
        /// The people that propose this content.
        confirmed_by: Vec<String>,
        /// The number of people that have to confirm it yet.
        missing: usize,
    },
    /// The tool asks.
    Open {},
}

impl EventData {
    /// Returns the data of an event that records nothing else.
    pub fn none() -> Self {
        Self::Other(Map::new())
    }

    /// Reads stored data in JSON. A text that cannot be read has no facts.
    pub fn of_json(text: &str) -> Self {
        serde_json::from_str(text).unwrap_or_else(|_| Self::none())
    }

    /// Reads stored data. What cannot be read is [`EventData::Other`].
    pub fn read(data: &Map<String, Value>) -> Self {
        serde_json::from_value(Value::Object(data.clone())).unwrap_or_else(|_| Self::Other(data.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use uuid::Uuid;

    const ID: &str = "00000000-0000-0000-0000-000000000000";

    fn made() -> MadeCall {
        MadeCall { tool_name: "pay".to_owned(), risk_level: RiskLevel::High, input_hash: "h".to_owned() }
    }

    fn decided(source: Option<&str>, grant_id: Option<GrantId>) -> EventData {
        EventData::Decided {
            tool_name: "pay".to_owned(),
            input_hash: "h".to_owned(),
            decision: Verdict::Approve,
            edited: true,
            surface: Surface::Rest,
            source: source.map(str::to_owned),
            grant_id,
            approved_by: grant_id.map(|_| vec!["user:bob".to_owned()]),
            on_behalf_of: grant_id.map(|_| "user:olga".to_owned()),
        }
    }

    fn moved(cause: MoveCause) -> EventData {
        EventData::Moved { cause, tool_name: "pay".to_owned(), state: StateKind::Failed }
    }

    fn request(step: RequestStep) -> EventData {
        let (tool_name, request_id) = ("pay".to_owned(), RequestId::new(Uuid::nil()));
        EventData::Request { tool_name, request_id, kind: RequestKind::Custom, step }
    }

    #[test]
    fn data_are_written_in_their_order_and_read_as_what_they_are() {
        let at = Timestamp::from_micros(0);
        let call = ToolCallId::new(Uuid::nil());
        let (tool, text) = (|| "pay".to_owned(), |text: &str| text.to_owned());
        let moment = "1970-01-01T00:00:00.000000Z";
        let started = |worker| EventData::Attempt { tool_name: tool(), attempt: 2, worker };
        let surface = Surface::Terminal;
        let resolved_by = text("operator");
        let known = |reason: Option<&str>| {
            let (resolved_by, reason) = (resolved_by.clone(), reason.map(str::to_owned));
            moved(MoveCause::Operator { surface, resolved_by, reason })
        };
        let begun = r#""tool_name":"pay","risk_level":"high","input_hash":"h""#;
        let asked = format!(r#""tool_name":"pay","request_id":"{ID}","kind":"custom""#);
        let end = r#""tool_name":"pay","state":"failed""#;
        let held = EventData::Held { call: made(), reason: text("r"), source: text("tool"), expires_at: at };
        let blocked =
            |decision| EventData::Blocked { call: made(), decision, reason: text("r"), source: text("mode") };
        let refused =
            RefusedDecision { decision: Verdict::Reject, code: text("stale"), surface: Surface::Slack };
        let (source, decision) = (text("tool"), Verdict::Cancel);
        let voted = |on_behalf_of| EventData::Voted {
            tool_name: tool(),
            input_hash: text("h"),
            edited: false,
            surface: Surface::Stream,
            approved_by: vec![text("user:bob")],
            missing: 1,
            on_behalf_of,
        };
        let by = vec![text("user:bob")];
        for (data, expected) in [
            (EventData::Made(made()), format!("{{{begun}}}")),
            (held, format!(r#"{{{begun},"reason":"r","source":"tool","expires_at":"{moment}"}}"#)),
            (
                blocked(Verdict::Reject),
                format!(r#"{{{begun},"decision":"reject","reason":"r","source":"mode"}}"#),
            ),
            (
                EventData::ClearedForWorker {
                    call: made(),
                    decision: Verdict::Approve,
                    source: source.clone(),
                },
                format!(r#"{{{begun},"decision":"approve","source":"tool"}}"#),
            ),
            (
                EventData::StartedAtOnce { call: made(), attempt: 1, source },
                format!(r#"{{{begun},"attempt":1,"source":"tool"}}"#),
            ),
            (
                EventData::Duplicate { call: made(), decision, duplicate_of: call },
                format!(r#"{{{begun},"decision":"cancel","duplicate_of":"{ID}"}}"#),
            ),
            (
                EventData::ExpiredBefore { call: made(), decision, expired_before: call },
                format!(r#"{{{begun},"decision":"cancel","expired_before":"{ID}"}}"#),
            ),
            (
                EventData::RejectedBefore { call: made(), decision: Verdict::Reject, rejected_before: call },
                format!(r#"{{{begun},"decision":"reject","rejected_before":"{ID}"}}"#),
            ),
            (
                decided(None, None),
                text(
                    r#"{"tool_name":"pay","input_hash":"h","decision":"approve","edited":true,"surface":"rest"}"#,
                ),
            ),
            (
                decided(Some("mode"), Some(GrantId::new(Uuid::nil()))),
                format!(
                    r#"{{"tool_name":"pay","input_hash":"h","decision":"approve","edited":true,"surface":"rest","source":"mode","grant_id":"{ID}","approved_by":["user:bob"],"on_behalf_of":"user:olga"}}"#
                ),
            ),
            (
                voted(None),
                text(
                    r#"{"tool_name":"pay","input_hash":"h","edited":false,"surface":"stream","approved_by":["user:bob"],"missing":1}"#,
                ),
            ),
            (
                voted(Some(text("user:olga"))),
                text(
                    r#"{"tool_name":"pay","input_hash":"h","edited":false,"surface":"stream","approved_by":["user:bob"],"missing":1,"on_behalf_of":"user:olga"}"#,
                ),
            ),
            (
                EventData::DecisionRefused { tool_name: tool(), refused },
                text(
                    r#"{"tool_name":"pay","refused":{"decision":"reject","code":"stale","surface":"slack"}}"#,
                ),
            ),
            (
                EventData::InputsRevealed {
                    tool_name: tool(),
                    input_hash: text("h"),
                    secret_paths: vec![text("/a")],
                },
                text(r#"{"tool_name":"pay","input_hash":"h","secret_paths":["/a"]}"#),
            ),
            (
                EventData::Delegated {
                    tool_name: tool(),
                    from: text("a"),
                    to: text("b"),
                    until: at,
                    reason: text("r"),
                },
                format!(r#"{{"tool_name":"pay","from":"a","to":"b","until":"{moment}","reason":"r"}}"#),
            ),
            (
                EventData::Extended { tool_name: tool(), from: at, expires_at: at },
                format!(r#"{{"tool_name":"pay","from":"{moment}","expires_at":"{moment}"}}"#),
            ),
            (
                EventData::Reminded { tool_name: tool(), expires_at: at },
                format!(r#"{{"tool_name":"pay","expires_at":"{moment}"}}"#),
            ),
            (
                EventData::Escalated { tool_name: tool(), roles: vec![text("chief")] },
                text(r#"{"tool_name":"pay","roles":["chief"]}"#),
            ),
            (
                EventData::Accepted { tool_name: tool(), attempt: 1, result_deadline: at },
                format!(r#"{{"tool_name":"pay","attempt":1,"result_deadline":"{moment}"}}"#),
            ),
            (started(None), text(r#"{"tool_name":"pay","attempt":2}"#)),
            (started(Some(text("w"))), text(r#"{"tool_name":"pay","attempt":2,"worker":"w"}"#)),
            (request(RequestStep::Open {}), format!("{{{asked}}}")),
            (
                request(RequestStep::Ended { answer: RequestState::Declined, confirmed_by: None }),
                format!(r#"{{{asked},"answer":"declined"}}"#),
            ),
            (
                request(RequestStep::Ended {
                    answer: RequestState::Accepted,
                    confirmed_by: Some(by.clone()),
                }),
                format!(r#"{{{asked},"answer":"accepted","confirmed_by":["user:bob"]}}"#),
            ),
            (
                request(RequestStep::Proposed { confirmed_by: by, missing: 1 }),
                format!(r#"{{{asked},"confirmed_by":["user:bob"],"missing":1}}"#),
            ),
            (moved(MoveCause::Itself {}), format!("{{{end}}}")),
            (moved(MoveCause::LostAttempt { attempt: 1 }), format!(r#"{{"attempt":1,{end}}}"#)),
            (
                moved(MoveCause::ChildRun { child_run_id: RunId::new(Uuid::nil()) }),
                format!(r#"{{"child_run_id":"{ID}",{end}}}"#),
            ),
            (
                moved(MoveCause::Tool { surface: Surface::Sweeper }),
                format!(r#"{{"surface":"sweeper",{end}}}"#),
            ),
            (known(None), format!(r#"{{"surface":"terminal","resolved_by":"operator",{end}}}"#)),
            (
                known(Some("seen")),
                format!(r#"{{"surface":"terminal","resolved_by":"operator","reason":"seen",{end}}}"#),
            ),
            (EventData::RunFailed { code: TurnErrorCode::StepLimit }, text(r#"{"code":"step_limit"}"#)),
            (EventData::none(), text("{}")),
        ] {
            assert_eq!(json!(data).to_string(), expected);
            let stored: Map<String, Value> = serde_json::from_str(&expected).unwrap();
            assert_eq!(EventData::read(&stored), data, "{expected}");
        }
    }

    #[test]
    fn data_of_another_version_are_read_as_far_as_they_are_known() {
        let read = |data: Value| EventData::read(data.as_object().unwrap());
        let EventData::Made(call) = read(json!({
            "tool_name": "pay", "risk_level": "high", "input_hash": "h", "more": [1],
        })) else {
            panic!("a further fact hides the others");
        };
        assert_eq!(call, made());
        let foreign = json!({ "tool_name": 7, "state": "evaporated" });
        assert_eq!(read(foreign.clone()), EventData::Other(foreign.as_object().unwrap().clone()));
    }
}
