//! The checks of decisions: a decision takes effect once and permanently, and all clients read the same
//! decision.

use super::case::{Case, Cases, same};
use super::{Records, Violation};
use crate::json::JsonPointer;
use crate::record::{Answer, DecisionRequest, Deed, DeedKind, Observation, Surface, Verdict};
use crate::world::MCP_TOOL;
use serde_json::Value;

/// S4: exactly one decision moves a call, and the row agrees with the decision.
pub(super) fn s4(_records: &Records, cases: &Cases<'_>) -> Vec<Violation> {
    let mut found = Vec::new();
    for (call, case) in cases {
        let finals = case.decisions.iter().filter(|decision| decision.is_final).count();
        let undecided = case.row.state == "pending" || !case.row.held;
        if finals > 1 || (finals == 0 && !undecided) || (finals == 1 && case.row.state == "pending") {
            found.push(Violation::of(
                "S4",
                call,
                format!("{finals} final decisions moved the call to {}", case.row.state),
            ));
        }
        let Some(decision) = case.decision() else { continue };
        let approves = decision.verdict == "approve";
        let same_actor = case.row.decided_by.as_ref() == Some(&decision.actor);
        if case.row.validated != Some(approves) || !same_actor || case.row.decided_at != Some(decision.at) {
            let row = format!("{:?} by {:?}", case.row.validated, case.row.decided_by);
            let expected = format!("{} by {}", decision.verdict, decision.actor);
            found.push(Violation::of("S4", call, format!("the row has {row}, the decision has {expected}")));
        }
    }
    found
}

/// D1: an acknowledged decision is durable.
pub(super) fn d1(records: &Records, cases: &Cases<'_>) -> Vec<Violation> {
    let mut found = Vec::new();
    for request in &records.decision_requests {
        let Answer::Received { status: 200 | 202, body, .. } = &request.answer else { continue };
        if *body.at("/state") == "pending" {
            continue;
        }
        let holds = cases.get(request.call.as_str()).is_some_and(|case| holds(case, &request.verdict));
        if !holds {
            let what =
                format!("{} read that {:?} is in force, but it is not", request.actor, request.verdict);
            found.push(Violation::of("D1", &request.call, what));
        }
    }
    found
}

/// C1: a repeated decision is answered with its outcome, and only one answer is not a replay. A different
/// decision is answered with the decision in force. The call exists for all callers with the right to decide.
pub(super) fn c1(records: &Records, cases: &Cases<'_>) -> Vec<Violation> {
    let mut found = Vec::new();
    for (call, case) in cases {
        let is_fresh = |request: &&&DecisionRequest| match &request.answer {
            Answer::Received { status, body, replayed } => {
                matches!(status, 200 | 202) && *body.at("/state") != "pending" && !replayed
            }
            Answer::Unknown(_) => false,
        };
        let fresh = case.decision_requests.iter().filter(is_fresh).count();
        if fresh > 1 {
            found.push(Violation::of("C1", call, format!("{fresh} answers acknowledge a new decision")));
        }
        for request in &case.decision_requests {
            let Answer::Received { status, body, replayed } = &request.answer else { continue };
            // A build that lacks the tool knows no approvers of the tool.
            if matches!(status, 403 | 404) && !lacked(records, request, &case.row.name) {
                let what = format!("{} may decide the call, and is answered with {status}", request.actor);
                found.push(Violation::of("C1", call, what));
            }
            let is_theirs = case.decision().is_some_and(|it| it.actor == request.actor);
            if matches!(status, 200 | 202) && *body.at("/state") != "pending" && !replayed && !is_theirs {
                let what = format!("{} read an acknowledgement of another decision", request.actor);
                found.push(Violation::of("C1", call, what));
            }
            match status {
                200 if ended_otherwise(case, request, body) => {
                    let what =
                        format!("{} read an outcome that the call does not have: {body}", request.actor);
                    found.push(Violation::of("C1", call, what));
                }
                409 if *body.at("/error/code") == "already_decided" => {
                    if holds(case, &request.verdict) {
                        let what = format!("{} repeats the decision and is refused", request.actor);
                        found.push(Violation::of("C1", call, what));
                    }
                    let reported = body.at("/error/details/decision");
                    let right = case.decision().is_some_and(|it| {
                        *reported.at("/by") == *it.actor && *reported.at("/decision") == *it.verdict
                    });
                    if !right {
                        let what = format!("{} read a decision that is not in force", request.actor);
                        found.push(Violation::of("C1", call, what));
                    }
                }
                _ => {}
            }
        }
    }
    found
}

/// Whether the answering server may have lacked this tool: its build, or the connection to its MCP server.
fn lacked(records: &Records, request: &DecisionRequest, tool: &str) -> bool {
    if tool == MCP_TOOL {
        return true;
    }
    let starts = records.deeds.iter().filter(|deed| {
        deed.kind == DeedKind::Start && deed.replica == Some(request.replica) && deed.at <= request.span.ended
    });
    let is_without = |deed: &Deed| {
        let mut arguments = deed.what.split_whitespace();
        arguments.any(|argument| argument == "--without") && arguments.next() == Some(tool)
    };
    let mut before: Vec<&Deed> = starts.collect();
    before.sort_by_key(|deed| deed.at);
    let since = before.iter().rposition(|deed| deed.at <= request.span.started).unwrap_or_default();
    before.into_iter().skip(since).any(is_without)
}

/// C2: after one client read a decision, no later read shows a pending call or another decision. A final
/// state never changes.
pub(super) fn c2(_records: &Records, cases: &Cases<'_>) -> Vec<Violation> {
    let mut found = Vec::new();
    for (call, case) in cases {
        let mut observations = case.observations.clone();
        observations.sort_by_key(|observation| observation.span.ended);
        let decided = observations.iter().find(|observation| observation.validated.is_some());
        if let Some(decided) = decided {
            let before = |observation: &&&Observation| {
                observation.state == "pending" && observation.span.started > decided.span.ended
            };
            if let Some(observation) = observations.iter().find(before) {
                found.push(Violation::of(
                    "C2",
                    call,
                    format!("seen decided, then pending by {}", observation.route),
                ));
            }
            let other_edit = |one: &Observation, other: &Observation| match (&one.edit, &other.edit) {
                (Some(one), Some(other)) => !same(one, other),
                (None, None) => false,
                // The answer to a decision does not show all fields.
                _ => one.route != "decision" && other.route != "decision",
            };
            let differs = |observation: &&&Observation| {
                let is_decided = observation.validated.is_some();
                is_decided && (observation.validated != decided.validated || other_edit(observation, decided))
            };
            if let Some(observation) = observations.iter().find(differs) {
                found.push(Violation::of(
                    "C2",
                    call,
                    format!("seen with two different decisions, by {}", observation.route),
                ));
            }
        }
        let unknown = observations.iter().find(|observation| observation.state == "interrupted");
        if let Some(unknown) = unknown {
            let later =
                observations.iter().filter(|observation| observation.span.started > unknown.span.ended);
            let mut goes_back = later.filter(|observation| {
                !matches!(observation.state.as_str(), "interrupted" | "succeeded" | "failed")
            });
            if let Some(observation) = goes_back.next() {
                let what = format!("seen interrupted, then {} by {}", observation.state, observation.route);
                found.push(Violation::of("C2", call, what));
            }
        }
        let ended = observations.iter().find(|observation| has_ended(&observation.state));
        if let Some(ended) = ended {
            let moved = |observation: &&&Observation| {
                observation.span.started > ended.span.ended && observation.state != ended.state
            };
            if let Some(observation) = observations.iter().find(moved) {
                let what =
                    format!("seen {}, then {} by {}", ended.state, observation.state, observation.route);
                found.push(Violation::of("C2", call, what));
            }
        }
    }
    found
}

/// C3: a refused decision does not take effect. The check skips decisions of the surface `stream`, whose
/// answer does not report a refusal.
pub(super) fn c3(_records: &Records, cases: &Cases<'_>) -> Vec<Violation> {
    let mut found = Vec::new();
    for (call, case) in cases {
        let Some(decision) = case.decision().filter(|it| it.surface != "stream") else { continue };
        let theirs =
            |request: &&&DecisionRequest| request.actor == decision.actor && holds(case, &request.verdict);
        let mut requests = case.decision_requests.iter().filter(theirs).peekable();
        let all_refused =
            |request: &&DecisionRequest| matches!(&request.answer, Answer::Received { status: 400..500, .. });
        if requests.peek().is_some() && requests.all(all_refused) {
            found.push(Violation::of(
                "C3",
                call,
                format!("{} was refused, but it took effect", decision.actor),
            ));
        }
    }
    found
}

/// C4: the clock of the database decides between a decision and the expiry.
pub(super) fn c4(_records: &Records, cases: &Cases<'_>) -> Vec<Violation> {
    let mut found = Vec::new();
    for (call, case) in cases {
        let (Some(decision), Some(expires)) = (case.decision(), case.row.expires_at) else { continue };
        let by_a_person = matches!(decision.verdict.as_str(), "approve" | "reject");
        if by_a_person && decision.at >= expires {
            found.push(Violation::of("C4", call, "decided after its expiry"));
        }
        if decision.verdict == "expire" && decision.at < expires {
            found.push(Violation::of("C4", call, "expired before its expiry"));
        }
    }
    found
}

/// Whether a verdict is in force: the row has the same verdict and, for an approval, the same inputs.
fn holds(case: &Case<'_>, verdict: &Verdict) -> bool {
    match verdict {
        Verdict::Reject => case.row.state == "rejected",
        Verdict::Approve(inputs) => {
            let proposed: Value = serde_json::from_str(&case.row.arguments).unwrap_or_default();
            let requested = inputs.as_ref().unwrap_or(&proposed);
            case.row.validated == Some(true)
                && case.row.effective_inputs().is_some_and(|runs| same(requested, &runs))
        }
    }
}

/// Whether the answer to a decision has a final state that the call does not have now. `interrupted` does not
/// count: its outcome may have become known since.
fn ended_otherwise(case: &Case<'_>, request: &DecisionRequest, body: &Value) -> bool {
    let state = body.at("/state").as_str().unwrap_or_default();
    // The routes of runs and sessions do not return the result.
    let has_result = request.surface != Surface::RunOrSession;
    has_ended(state)
        && (case.row.state != state
            || has_result && body.at("/result").as_str() != case.row.result.as_deref())
}

fn has_ended(state: &str) -> bool {
    matches!(state, "succeeded" | "failed" | "rejected" | "expired" | "cancelled" | "invalid")
}
