//! How calls lived: by the rules, each move with its event, to an honest end.

use super::case::{Case, Cases};
use super::{Records, Violation};
use crate::clock::micros;
use crate::json::At;
use crate::record::{DeedKind, Sight};
use crate::rows::EventRow;
use crate::world::TOOL_TIMEOUT;
use serde_json::Value;

/// S5 and A1: the events are moves that a call may make, one for each, from its beginning to how it stands. In which
/// order moves were committed the times do not tell (they are of when a transaction began), so there has to be one.
pub(super) fn s5(_records: &Records, cases: &Cases<'_>) -> Vec<Violation> {
    let mut found = Vec::new();
    for (call, case) in cases {
        let mut events = case.events.clone();
        events.sort_by_key(|event| event.at);
        if !walks("", &events, &case.row.state) {
            let kinds: Vec<&str> = events.iter().map(|event| event.kind.as_str()).collect();
            let what = format!("no life of a call: {kinds:?}, and it is {}", case.row.state);
            found.push(Violation::of("S5", call, what));
        }
        let claims = i64::try_from(case.claims().count()).unwrap_or(i64::MAX);
        if claims != case.row.exec_attempt {
            let what = format!("{claims} events of a beginning, and {} attempts", case.row.exec_attempt);
            found.push(Violation::of("A1", call, what));
        }
    }
    found
}

/// Whether these events, in some order, lead from one state to the other.
fn walks(from: &str, events: &[&EventRow], to: &str) -> bool {
    if events.is_empty() {
        return from == to;
    }
    (0..events.len()).any(|at| {
        let mut rest = events.to_vec();
        let event = rest.remove(at);
        moved(from, event).is_some_and(|next| walks(next, &rest, to))
    })
}

/// Where an event leads.
fn moved(from: &str, event: &EventRow) -> Option<&'static str> {
    let data: Value = serde_json::from_str(&event.data).unwrap_or_default();
    Some(match (from, event.kind.as_str()) {
        ("", "tool.called") => "called",
        ("called", "tool.requires_approval") => "pending",
        ("called", "tool.failed") => "invalid",
        ("called", "tool.blocked") => "rejected",
        ("called" | "pending" | "approved", "tool.cancelled") => "cancelled",
        ("pending", "tool.approved") => "approved",
        ("pending", "tool.rejected") => "rejected",
        ("pending", "tool.expired") => "expired",
        ("called" | "approved", "tool.started") => "executing",
        ("executing" | "approved" | "interrupted", "tool.failed") => "failed",
        ("executing" | "interrupted", "tool.succeeded") => "succeeded",
        ("executing", "tool.interrupted") if *data.at("/state") == "approved" => "approved",
        ("executing" | "approved", "tool.interrupted") => "interrupted",
        _ => return None,
    })
}

/// The checks of the schema, asked again: they may be off.
pub(super) fn sql(_records: &Records, cases: &Cases<'_>) -> Vec<Violation> {
    let mut found = Vec::new();
    for (call, case) in cases {
        let row = case.row;
        let by_the_system = row.decided_by.as_ref().is_some_and(|by| by.starts_with("system:"));
        let broken = [
            (row.validated.is_none() != (row.state == "pending"), "without a word whether it may run"),
            (
                row.held && row.validated == Some(true) && by_the_system,
                "a person was asked, and another said yes",
            ),
            (row.exec_attempt > 1 && !row.idempotent, "begun again"),
            (row.is_open() == row.finished_at.is_some(), "ended and not, at once"),
            ((row.state == "executing") != row.lease_until.is_some(), "nobody says that they live"),
            (row.finished_at.is_some() != row.result.is_some(), "without words for the model"),
            ((row.state == "succeeded") != row.output.is_some(), "without an output"),
        ];
        for (_, what) in broken.into_iter().filter(|(is_broken, _)| *is_broken) {
            found.push(Violation::of("SQL", call, format!("{what} ({})", row.state)));
        }
    }
    found
}

/// D2: nothing is lost and nothing is stuck.
pub(super) fn d2(records: &Records, cases: &Cases<'_>) -> Vec<Violation> {
    let open = cases.iter().filter(|(_, case)| case.row.is_open());
    let mut found: Vec<Violation> =
        open.map(|(call, case)| Violation::of("D2", call, format!("stuck, {}", case.row.state))).collect();
    for run in records.rows.runs.iter().filter(|run| run.status == "running") {
        found.push(Violation { id: "D2", call: None, what: format!("the run {} is stuck", run.run_id) });
    }
    for turn in &records.turns {
        for fact in turn.told.facts.iter().filter(|fact| !cases.contains_key(fact.call.as_str())) {
            found.push(Violation::of("D2", &fact.call, format!("lost: it was told as {:?}", fact.said)));
        }
    }
    found
}

/// D3: what is known is told, and what is not known is told as that, never as a success.
pub(super) fn d3(_records: &Records, cases: &Cases<'_>) -> Vec<Violation> {
    let mut found = Vec::new();
    for (call, case) in cases {
        if let Some(what) = dishonest(case) {
            found.push(Violation::of("D3", call, what));
        }
        let last: Option<&&Sight> =
            case.sights.iter().filter(|sight| sight.route == "final").max_by_key(|sight| sight.span.begun);
        let differs = |sight: &&&Sight| {
            let settled = case.row.finished_at.is_some_and(|at| at < sight.span.begun);
            settled && (sight.state != case.row.state || sight.result != case.row.result)
        };
        if let Some(sight) = last.filter(|sight| differs(sight)) {
            found.push(Violation::of(
                "D3",
                call,
                format!("it is {} and shown {}", case.row.state, sight.state),
            ));
        }
    }
    found
}

fn dishonest(case: &Case<'_>) -> Option<String> {
    let words = case.row.result.as_deref().unwrap_or_default();
    let ended = |outcome: &str| {
        case.ledger.iter().any(|line| line.what == "end" && line.outcome.as_deref() == Some(outcome))
    };
    let told_by_the_service =
        case.events.iter().any(|event| event.kind == "tool.succeeded" && event.actor == "system:sweeper");
    match case.row.state.as_str() {
        "succeeded" if !case.had_effect() => {
            Some("it is told to have succeeded, and had no effect".to_owned())
        }
        // What the service behind a tool tells counts more than what became of the process that asked it.
        "succeeded" if ended("fail") && !ended("ok") && !told_by_the_service => {
            Some("it is told to have succeeded, and failed".to_owned())
        }
        "failed" if ended("ok") => Some("it is told to have failed, and succeeded".to_owned()),
        "interrupted" if !words.contains("unknown") => Some(format!("nobody knows, and it is told: {words}")),
        _ => None,
    }
}

/// I1: what was begun and has no known end was cut off by something that was done to its process, or to the database. That
/// its client went away is no cause.
pub(super) fn i1(records: &Records, cases: &Cases<'_>) -> Vec<Violation> {
    let mut found = Vec::new();
    for (call, case) in cases.iter().filter(|(_, case)| case.row.state == "interrupted" && !case.had_effect())
    {
        let Some(start) = case.starts().last() else { continue };
        let told =
            case.events.iter().filter(|event| event.kind == "tool.interrupted").map(|event| event.at).max();
        let told = told.unwrap_or(i64::MAX);
        let asked_to_stop = case.row.cancel_requested_at.is_some();
        let took_too_long = told - start.at >= micros(TOOL_TIMEOUT);
        let harmed = records.deeds.iter().any(|deed| {
            let then = deed.until >= start.at && deed.at <= told;
            let at_all = matches!(deed.kind, DeedKind::Outage | DeedKind::Cut | DeedKind::Lock);
            then && deed.kind != DeedKind::Start && (at_all || deed.pid == Some(start.pid))
        });
        let failed = records
            .hits
            .iter()
            .any(|hit| hit.action.is_some() && hit.pid == start.pid && (start.at..=told).contains(&hit.at));
        if !(asked_to_stop || took_too_long || harmed || failed) {
            found.push(Violation::of("I1", call, "it was cut off, and nothing had been done to its process"));
        }
    }
    found
}
