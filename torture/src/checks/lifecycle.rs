//! The checks of the lifecycle of a call: legal transitions only, one event for each transition, and a
//! correct outcome.

use super::case::{Case, Cases};
use super::{Records, Violation};
use crate::clock::micros;
use crate::files::LedgerLine;
use crate::json::JsonPointer;
use crate::mix::LEASE;
use crate::record::{Deed, DeedKind, FINAL_READ, Observation};
use crate::rows::{CallRow, EventRow, ThreadCounts};
use crate::world::{REMOTE, TOOL_TIMEOUT};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;

/// The maximal time from the start of the transaction of an end, which is the stored time, to its commit.
const WRITTEN: Duration = Duration::from_secs(2);

/// S5 and A1: the events are legal transitions, one for each, from the first state of the call to its stored
/// state. An event has the time at which its transaction began, so the times do not give the order of the
/// commits. The check accepts any legal order.
pub(super) fn s5(_records: &Records, cases: &Cases<'_>) -> Vec<Violation> {
    let mut found = Vec::new();
    for (call, case) in cases {
        let mut events = case.events.clone();
        // A refused decision and a later deadline move no call.
        events.retain(|event| {
            !matches!(
                event.kind.as_str(),
                "tool.decision_refused"
                    | "tool.extended"
                    | "tool.delegated"
                    | "tool.inputs_revealed"
                    | "tool.reminded"
                    | "tool.voted"
                    | "tool.escalated"
            )
        });
        events.sort_by_key(|event| event.at);
        if !leads_to_end(case.row, "", &events) {
            let kinds: Vec<&str> = events.iter().map(|event| event.kind.as_str()).collect();
            let what = format!("illegal transitions: {kinds:?}, and the call is {}", case.row.state);
            found.push(Violation::of("S5", call, what));
        }
        let claims = i64::try_from(case.claims().count()).unwrap_or(i64::MAX);
        if claims != case.row.exec_attempt {
            let what = format!("{claims} events of a claim, and {} attempts", case.row.exec_attempt);
            found.push(Violation::of("A1", call, what));
        }
    }
    found
}

/// Whether these events, in any order, lead a call from this state to its stored state.
fn leads_to_end(call: &CallRow, from: &str, events: &[&EventRow]) -> bool {
    if events.is_empty() {
        return from == call.state;
    }
    (0..events.len()).any(|at| {
        let mut rest = events.to_vec();
        let event = rest.remove(at);
        next_state(call, from, event).is_some_and(|next| leads_to_end(call, next, &rest))
    })
}

/// Returns the state after an event, or `None` for an illegal transition.
fn next_state(call: &CallRow, from: &str, event: &EventRow) -> Option<&'static str> {
    let data: Value = serde_json::from_str(&event.data).unwrap_or_default();
    Some(match (from, event.kind.as_str()) {
        ("", "tool.called") => "called",
        ("called", "tool.requires_approval") => "pending",
        ("called", "tool.failed") => "invalid",
        ("called", "tool.blocked") => "rejected",
        ("called" | "pending" | "approved", "tool.cancelled") => "cancelled",
        ("pending", "tool.approved") => "approved",
        // The policy lets a worker execute the call.
        ("called", "tool.approved") if !call.held => "approved",
        ("pending", "tool.rejected") => "rejected",
        ("pending", "tool.expired") => "expired",
        ("called" | "approved", "tool.started") => "executing",
        ("executing" | "approved" | "interrupted", "tool.failed") => "failed",
        (
            "executing",
            "tool.accepted"
            | "tool.progressed"
            | "tool.input_requested"
            | "tool.input_proposed"
            | "tool.input_ended",
        ) => "executing",
        ("executing" | "interrupted", "tool.succeeded") => "succeeded",
        ("executing", "tool.interrupted") if *data.at("/state") == "approved" => {
            // Only an idempotent call has another attempt.
            return call.idempotent.then_some("approved");
        }
        ("executing" | "approved", "tool.interrupted") => "interrupted",
        _ => return None,
    })
}

/// SQL: the CHECKs of the schema hold. The run may have dropped them, so this check repeats them.
pub(super) fn sql(_records: &Records, cases: &Cases<'_>) -> Vec<Violation> {
    let mut found = Vec::new();
    for (call, case) in cases {
        let row = case.row;
        let leased = usize::from(row.lease_until.is_some());
        let delegated = usize::from(row.child_run_id.is_some()) + usize::from(row.result_deadline.is_some());
        let by_the_system = row.decided_by.as_ref().is_some_and(|by| by.starts_with("system:"));
        let broken = [
            (row.validated.is_none() != (row.state == "pending"), "without a verdict, or pending with one"),
            (row.held && row.validated == Some(true) && by_the_system, "held, and approved by the system"),
            (row.exec_attempt > 1 && !row.idempotent, "claimed again"),
            (row.is_open() == row.finished_at.is_some(), "open with an end, or ended without one"),
            (
                if row.state == "executing" { leased + delegated != 1 } else { leased != 0 },
                "executing without exactly one of lease, child and owner, or leased otherwise",
            ),
            (row.finished_at.is_some() != row.result.is_some(), "ended without a result, or open with one"),
            (
                (row.state == "succeeded") != row.output.is_some(),
                "succeeded without an output, or vice versa",
            ),
        ];
        for (_, what) in broken.into_iter().filter(|(is_broken, _)| *is_broken) {
            found.push(Violation::of("SQL", call, format!("{what} ({})", row.state)));
        }
    }
    found
}

/// R1: the counts of each thread are the sums over its rows.
pub(super) fn r1(records: &Records, _cases: &Cases<'_>) -> Vec<Violation> {
    let is_wrong = |it: &&ThreadCounts| (it.messages, it.bytes) != (it.true_messages, it.true_bytes);
    let violation = |it: &ThreadCounts| {
        let ThreadCounts { thread_id, messages, bytes, true_messages, true_bytes } = it;
        let what = format!(
            "the thread {thread_id} counts {messages} messages and {bytes} bytes, its rows {true_messages} and {true_bytes}"
        );
        Violation { id: "R1", call: None, what }
    };
    records.rows.counts.iter().filter(is_wrong).map(violation).collect()
}

/// D2: no call is lost, and no call or run is stuck.
pub(super) fn d2(records: &Records, cases: &Cases<'_>) -> Vec<Violation> {
    let open = cases.iter().filter(|(_, case)| case.row.is_open());
    let mut found: Vec<Violation> =
        open.map(|(call, case)| Violation::of("D2", call, format!("stuck, {}", case.row.state))).collect();
    for run in records.rows.runs.iter().filter(|run| run.status == "running") {
        found.push(Violation { id: "D2", call: None, what: format!("the run {} is stuck", run.run_id) });
    }
    let streamed = records.turns.iter().flat_map(|turn| &turn.content.facts);
    let streamed = streamed.map(|fact| (&fact.call, format!("streamed as {:?}", fact.kind)));
    let seen = records.observations.iter().map(|observation| {
        (&observation.call, format!("seen {} by {}", observation.state, observation.route))
    });
    for (call, how) in streamed.chain(seen).filter(|(call, _)| !cases.contains_key(call.as_str())) {
        found.push(Violation::of("D2", call, format!("lost: the call was {how}")));
    }
    found
}

/// D3: every replica shows a known outcome. An unknown outcome is shown as unknown, never as a success.
pub(super) fn d3(records: &Records, cases: &Cases<'_>) -> Vec<Violation> {
    let replicas: BTreeSet<usize> = records
        .deeds
        .iter()
        .filter(|deed| deed.kind == DeedKind::Start)
        .filter_map(|deed| deed.replica)
        .collect();
    let mut found = Vec::new();
    for (call, case) in cases {
        found.extend(wrong_outcome(case).map(|what| Violation::of("D3", call, what)));
        let last = |replica| {
            case.observations
                .iter()
                .find(move |observation| observation.route == FINAL_READ && observation.replica == replica)
        };
        for replica in &replicas {
            let what = match last(*replica) {
                None => format!("replica {replica} did not show the call at the end of the run"),
                Some(observation) if differs(case.row, observation) => {
                    format!(
                        "the call is {} and replica {replica} shows {}",
                        case.row.state, observation.state
                    )
                }
                Some(_) => continue,
            };
            found.push(Violation::of("D3", call, what));
        }
    }
    found
}

/// Whether an observation shows another end than the row, although the call had ended well before the
/// observation.
fn differs(row: &CallRow, observation: &Observation) -> bool {
    let had_ended = row.finished_at.is_some_and(|at| at + micros(WRITTEN) < observation.span.started);
    had_ended && (observation.state != row.state || observation.result != row.result)
}

fn wrong_outcome(case: &Case<'_>) -> Option<String> {
    let row = case.row;
    let result = row.result.as_deref().unwrap_or_default();
    let inputs = row.effective_inputs().unwrap_or_default();
    // The verified outcome of a tool takes precedence over the end of its process.
    let was_verified =
        case.events.iter().any(|event| event.kind == "tool.succeeded" && event.actor == "system:sweeper");
    let hung = *inputs.at("/then") == "hang" && case.had_effect();
    let began = case.starts().next().is_some();
    let output = || row.output.as_ref().and_then(|output| serde_json::from_str::<Value>(output).ok());
    match row.state.as_str() {
        "succeeded" if !case.had_effect() => Some("shown as succeeded, and it had no effect".to_owned()),
        "succeeded" if was_verified => {
            (output() != Some(json!({ "verified": true }))).then(|| "the output of another call".to_owned())
        }
        "succeeded" if !case.tool_ended("ok") => Some("shown as succeeded, and its tool did not".to_owned()),
        "succeeded" => (output() != Some(json!({ "n": inputs.at("/n") })))
            .then(|| "the output of another call".to_owned()),
        "failed" if case.tool_ended("ok") => Some("shown as failed, and its tool succeeded".to_owned()),
        "failed" if hung => Some("shown as failed, and the outcome is unknown".to_owned()),
        // A verification before the effect makes the tool refuse the effect later.
        "failed" if result.contains("did not run") && began => {
            Some("shown as not run, and it ran".to_owned())
        }
        "interrupted" if !result.contains("unknown") => Some(format!("unknown outcome, shown as: {result}")),
        _ => None,
    }
}

/// I1: an execution with an unknown end was interrupted by harm to its process or to the database. A
/// disconnected client is no cause, neither before the effect nor after the tool of a server has returned. The execution
/// of a remote tool also depends on the servers, and its lines do not name one.
pub(super) fn i1(records: &Records, cases: &Cases<'_>) -> Vec<Violation> {
    let mut found = Vec::new();
    for (call, case) in cases.iter().filter(|(_, case)| case.row.state == "interrupted") {
        let Some(start) = case.starts().last() else { continue };
        let is_remote = REMOTE.contains(&start.tool.as_str());
        let interrupted =
            case.events.iter().filter(|event| event.kind == "tool.interrupted").map(|event| event.at).max();
        let interrupted = interrupted.unwrap_or(i64::MAX);
        let is_harm = |deed: &Deed| !matches!(deed.kind, DeedKind::Start | DeedKind::Crashed);
        let was_calm = !records.deeds.iter().any(|deed| is_harm(deed) && deed.at <= interrupted);
        // A tool that panics or hangs after its effect is interrupted without harm, and so is one that fails when it
        // is tried again. Harm to any process or connection may delay a known outcome beyond its lease.
        if case.had_effect() && (is_remote || !was_calm || !case.tool_ended("ok")) {
            continue;
        }
        // The timeout of the tool starts before its first line, because the tool reads its row first.
        let claimed = case.claims().filter(|at| *at <= start.at).max().unwrap_or(start.at);
        let stop_requested = case.row.cancel_requested_at.is_some();
        let took_too_long = interrupted - claimed >= micros(TOOL_TIMEOUT);
        let harmed = records.deeds.iter().any(|deed| {
            let meanwhile = deed.until.min(interrupted) - deed.at.max(claimed);
            let of_the_database = matches!(deed.kind, DeedKind::Outage | DeedKind::Cut | DeedKind::Lock);
            // A paused process may hold the lock of a row, for which all connections of another process wait,
            // so that the other process renews no lease. A process may miss one renewal: less than half a
            // lease is no cause.
            let holds_up = deed.kind == DeedKind::Pause && meanwhile >= micros(LEASE) / 2;
            let its_own = (is_remote || deed.pid == Some(start.pid)) && deed.kind != DeedKind::Start;
            meanwhile >= 0 && (of_the_database || holds_up || its_own)
        });
        // The crash of a program ends all executions of its process.
        let crashed = is_remote
            && cases.values().any(|other| {
                let then = other.row.effective_inputs().unwrap_or_default();
                let ended_with = |line: &LedgerLine| {
                    line.pid == start.pid
                        && line.what == "effect"
                        && (claimed..=interrupted).contains(&line.at)
                };
                *then.at("/then") == "crash" && other.ledger.iter().copied().any(ended_with)
            });
        let failed = records.hits.iter().any(|hit| {
            hit.action.is_some()
                && (is_remote || hit.pid == start.pid)
                && (claimed..=interrupted).contains(&hit.at)
        });
        if !(stop_requested || took_too_long || harmed || crashed || failed) {
            found.push(Violation::of("I1", call, "interrupted without harm to its process"));
        }
    }
    found
}

/// I2: the sweeper takes no execution from a living holder before the end of its lease. Only a single process
/// on its database knows at its start that the previous process has ended.
pub(super) fn i2(records: &Records, cases: &Cases<'_>) -> Vec<Violation> {
    let mut found = Vec::new();
    for (call, case) in cases {
        let by_the_sweeper =
            |event: &&&EventRow| event.kind == "tool.interrupted" && event.actor == "system:sweeper";
        for event in case.events.iter().filter(by_the_sweeper) {
            let Some(claimed) = case.claims().filter(|at| *at <= event.at).max() else { continue };
            let ended = |deed: &Deed| {
                let ends = matches!(deed.kind, DeedKind::Kill | DeedKind::Died | DeedKind::Deploy);
                ends && deed.until >= claimed && deed.at <= event.at
            };
            if event.at - claimed < micros(LEASE) && !records.deeds.iter().any(ended) {
                let what = format!("reaped {} ms after its claim", (event.at - claimed) / 1000);
                found.push(Violation::of("I2", call, what));
            }
        }
    }
    found
}
