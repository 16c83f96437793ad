//! The checks of decisions: a decision takes effect once and permanently, and all clients read the same
//! decision.

use super::case::{Case, Cases, same};
use super::{Records, Violation};
use crate::json::At;
use crate::record::{Answer, Deciding, Deed, DeedKind, Sight, Surface, Verdict};
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
        let says_yes = decision.verdict == "approve";
        let same_voice = case.row.decided_by.as_ref() == Some(&decision.actor);
        if case.row.validated != Some(says_yes) || !same_voice || case.row.decided_at != Some(decision.at) {
            let row = format!("{:?} by {:?}", case.row.validated, case.row.decided_by);
            let said = format!("{} by {}", decision.verdict, decision.actor);
            found.push(Violation::of("S4", call, format!("the row has {row}, the decision has {said}")));
        }
    }
    found
}

/// D1: an acknowledged decision is durable.
pub(super) fn d1(records: &Records, cases: &Cases<'_>) -> Vec<Violation> {
    let mut found = Vec::new();
    for deciding in &records.decidings {
        let Answer::Said { status: 200 | 202, body, .. } = &deciding.answer else { continue };
        if *body.at("/state") == "pending" {
            continue;
        }
        let holds = cases.get(deciding.call.as_str()).is_some_and(|case| holds(case, &deciding.verdict));
        if !holds {
            let what =
                format!("{} read that {:?} is in force, but it is not", deciding.actor, deciding.verdict);
            found.push(Violation::of("D1", &deciding.call, what));
        }
    }
    found
}

/// C1: a repeated decision is answered with its outcome, and only one answer is not a replay. A different
/// decision is answered with the decision in force. The call exists for all callers with the right to decide.
pub(super) fn c1(records: &Records, cases: &Cases<'_>) -> Vec<Violation> {
    let mut found = Vec::new();
    for (call, case) in cases {
        let is_fresh = |deciding: &&&Deciding| match &deciding.answer {
            Answer::Said { status, body, replayed } => {
                matches!(status, 200 | 202) && *body.at("/state") != "pending" && !replayed
            }
            Answer::Unknown(_) => false,
        };
        let fresh = case.decidings.iter().filter(is_fresh).count();
        if fresh > 1 {
            found.push(Violation::of("C1", call, format!("{fresh} answers acknowledge a new decision")));
        }
        for deciding in &case.decidings {
            let Answer::Said { status, body, replayed } = &deciding.answer else { continue };
            // A build that lacks the tool knows no approvers of the tool.
            if matches!(status, 403 | 404) && !lacked(records, deciding, &case.row.name) {
                let what = format!("{} may decide the call, and is answered with {status}", deciding.actor);
                found.push(Violation::of("C1", call, what));
            }
            let is_theirs = case.decision().is_some_and(|it| it.actor == deciding.actor);
            if matches!(status, 200 | 202) && *body.at("/state") != "pending" && !replayed && !is_theirs {
                let what = format!("{} read an acknowledgement of another decision", deciding.actor);
                found.push(Violation::of("C1", call, what));
            }
            match status {
                200 if ended_otherwise(case, deciding, body) => {
                    let what =
                        format!("{} read an outcome that the call does not have: {body}", deciding.actor);
                    found.push(Violation::of("C1", call, what));
                }
                409 if *body.at("/error/code") == "already_decided" => {
                    if holds(case, &deciding.verdict) {
                        let what = format!("{} repeats the decision and is refused", deciding.actor);
                        found.push(Violation::of("C1", call, what));
                    }
                    let told = body.at("/error/details/decision");
                    let right = case.decision().is_some_and(|it| {
                        *told.at("/by") == *it.actor && *told.at("/decision") == *it.verdict
                    });
                    if !right {
                        let what = format!("{} read a decision that is not in force", deciding.actor);
                        found.push(Violation::of("C1", call, what));
                    }
                }
                _ => {}
            }
        }
    }
    found
}

/// Whether the build of the answering server may have lacked this tool.
fn lacked(records: &Records, deciding: &Deciding, tool: &str) -> bool {
    let starts = records.deeds.iter().filter(|deed| {
        deed.kind == DeedKind::Start
            && deed.replica == Some(deciding.replica)
            && deed.at <= deciding.span.ended
    });
    let is_without = |deed: &Deed| {
        let mut words = deed.what.split_whitespace();
        words.any(|word| word == "--without") && words.next() == Some(tool)
    };
    let mut before: Vec<&Deed> = starts.collect();
    before.sort_by_key(|deed| deed.at);
    let since = before.iter().rposition(|deed| deed.at <= deciding.span.begun).unwrap_or_default();
    before.into_iter().skip(since).any(is_without)
}

/// C2: after one client read a decision, no later read shows a pending call or another decision. A final
/// state never changes.
pub(super) fn c2(_records: &Records, cases: &Cases<'_>) -> Vec<Violation> {
    let mut found = Vec::new();
    for (call, case) in cases {
        let mut sights = case.sights.clone();
        sights.sort_by_key(|sight| sight.span.ended);
        let decided = sights.iter().find(|sight| sight.validated.is_some());
        if let Some(decided) = decided {
            let before = |sight: &&&Sight| sight.state == "pending" && sight.span.begun > decided.span.ended;
            if let Some(sight) = sights.iter().find(before) {
                found.push(Violation::of(
                    "C2",
                    call,
                    format!("seen decided, then pending by {}", sight.route),
                ));
            }
            let other_edit = |one: &Sight, other: &Sight| match (&one.edit, &other.edit) {
                (Some(one), Some(other)) => !same(one, other),
                (None, None) => false,
                // The answer to a decision does not show all fields.
                _ => one.route != "decision" && other.route != "decision",
            };
            let differs = |sight: &&&Sight| {
                let said = sight.validated.is_some();
                said && (sight.validated != decided.validated || other_edit(sight, decided))
            };
            if let Some(sight) = sights.iter().find(differs) {
                found.push(Violation::of(
                    "C2",
                    call,
                    format!("seen with two different decisions, by {}", sight.route),
                ));
            }
        }
        let unknown = sights.iter().find(|sight| sight.state == "interrupted");
        if let Some(unknown) = unknown {
            let later = sights.iter().filter(|sight| sight.span.begun > unknown.span.ended);
            let mut goes_back =
                later.filter(|sight| !matches!(sight.state.as_str(), "interrupted" | "succeeded" | "failed"));
            if let Some(sight) = goes_back.next() {
                let what = format!("seen interrupted, then {} by {}", sight.state, sight.route);
                found.push(Violation::of("C2", call, what));
            }
        }
        let ended = sights.iter().find(|sight| has_ended(&sight.state));
        if let Some(ended) = ended {
            let moved = |sight: &&&Sight| sight.span.begun > ended.span.ended && sight.state != ended.state;
            if let Some(sight) = sights.iter().find(moved) {
                let what = format!("seen {}, then {} by {}", ended.state, sight.state, sight.route);
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
            |deciding: &&&Deciding| deciding.actor == decision.actor && holds(case, &deciding.verdict);
        let mut said = case.decidings.iter().filter(theirs).peekable();
        let all_refused =
            |deciding: &&Deciding| matches!(&deciding.answer, Answer::Said { status: 400..500, .. });
        if said.peek().is_some() && said.all(all_refused) {
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
            let asked = inputs.as_ref().unwrap_or(&proposed);
            case.row.validated == Some(true)
                && case.row.effective_inputs().is_some_and(|runs| same(asked, &runs))
        }
    }
}

/// Whether the answer to a decision has a final state that the call does not have now. `interrupted` does not
/// count: its outcome may have become known since.
fn ended_otherwise(case: &Case<'_>, deciding: &Deciding, body: &Value) -> bool {
    let state = body.at("/state").as_str().unwrap_or_default();
    // The routes of runs and sessions do not return the result.
    let tells = deciding.surface != Surface::Elsewhere;
    has_ended(state)
        && (case.row.state != state || tells && body.at("/result").as_str() != case.row.result.as_deref())
}

fn has_ended(state: &str) -> bool {
    matches!(state, "succeeded" | "failed" | "rejected" | "expired" | "cancelled" | "invalid")
}
