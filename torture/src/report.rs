//! The report of a run: a table, the violations, and the full history of the calls with violations.

use crate::checks::{Records, Violation, threads};
use crate::clock::Micros;
use crate::figures::{self, Figures};
use crate::json::JsonPointer;
use crate::record::DeedKind;
use crate::world::REMOTE;
use std::collections::BTreeMap;
use std::fmt::Write;

/// The maximal number of histories in the report.
const HISTORIES: usize = 2;
/// The maximal number of violations of each promise in the report.
const EACH: usize = 3;

pub(crate) fn table(figures: &Figures, violations: &[Violation], seed: u64) -> String {
    let broken = |ids: &[&str]| figures::broken(violations, ids).to_string();
    let milliseconds = |of_hundred| {
        figures.recovered_within(of_hundred).map_or_else(|| "-".to_owned(), |time| format!("{time} ms"))
    };
    let bound =
        |count: usize| format!("0 (at most {:.1}e-3, by the rule of three)", 3000.0 / count.max(1) as f64);
    let doubles = match figures::broken(violations, &["S2"]) {
        0 => bound(figures.executed),
        many => many.to_string(),
    };
    let by_remote_tools: usize = REMOTE.iter().filter_map(|tool| figures.ran.get(*tool)).sum();
    let rows = [
        ("approvals decided", figures.decided.to_string()),
        ("turns read", figures.turns.to_string()),
        ("requests to the model", figures.model_requests.to_string()),
        ("kills (in mid-tool)", format!("{} ({})", figures.kills, figures.kills_in_mid_tool)),
        ("servers started", figures.starts.to_string()),
        ("outages of the database", figures.outages.to_string()),
        ("zombies", figures.zombies.to_string()),
        ("connections lost", figures.cuts.to_string()),
        ("commits without an answer", figures.unknown_commits.to_string()),
        (
            "concurrent decisions per call (mean, max)",
            format!("{:.1}, {}", figures.concurrent_mean, figures.concurrent_max),
        ),
        ("decisions that lost a race", figures.races_lost.to_string()),
        ("tries of other users", figures.other_users.to_string()),
        ("answers that are no failure", format!("{:.0} %", figures.ok_share)),
        ("calls that ran", figures.executed.to_string()),
        ("of those, interrupted", figures.interrupted.to_string()),
        ("of those, by remote tools", by_remote_tools.to_string()),
        ("kills of remote tools", figures.remote_kills.to_string()),
        ("calls with an acknowledged report", figures.reported.to_string()),
        ("recovery p50, p99", format!("{}, {}", milliseconds(50), milliseconds(99))),
        ("double executions", doubles),
        ("executed without approval", broken(&["S1", "S6", "S7"])),
        ("executed with other inputs", broken(&["S3", "V1"])),
        ("lost or stuck calls", broken(&["D2"])),
        ("work cut off without a cause", broken(&["I1"])),
        ("lost decisions", broken(&["D1", "S4"])),
        ("lost reports", broken(&["D9"])),
        ("untrue or two-faced answers", broken(&["C1", "C2", "C3", "C4", "D3", "D4", "D5"])),
        ("malformed or changed histories", broken(&["H1", "H2", "H3", "N1"])),
        ("leaks across tenants and users", broken(&["T1"])),
        ("broken rows and unlawful moves", broken(&["S5", "A1", "SQL", "R1"])),
        ("refused by the database", broken(&["G"])),
        ("panics and 500", broken(&["P", "E"])),
        ("seed", seed.to_string()),
    ];
    let mut table = String::new();
    for (name, value) in rows {
        // Writing to memory cannot fail.
        let _infallible = writeln!(table, "{name:<44} {value}");
    }
    table
}

/// Returns the violations, and the histories of the first calls with violations.
pub(crate) fn failures(records: &Records, violations: &[Violation]) -> String {
    let mut text = String::new();
    let mut kinds: BTreeMap<&str, Vec<&Violation>> = BTreeMap::new();
    for violation in violations {
        kinds.entry(violation.id).or_default().push(violation);
    }
    for (id, all) in &kinds {
        let _infallible = writeln!(text, "\n{id}: {} times", all.len());
        for violation in all.iter().take(EACH) {
            let call = violation.call.as_deref().unwrap_or("-");
            let _infallible = writeln!(text, "  {call}: {}", violation.what);
        }
    }
    let mut calls: Vec<&str> =
        kinds.values().filter_map(|all| all.iter().find_map(|it| it.call.as_deref())).collect();
    calls.sort_unstable();
    calls.dedup();
    for call in calls.into_iter().take(HISTORIES) {
        let _infallible =
            writeln!(text, "\nThe history of {call}, in milliseconds since the start of the run:");
        for (at, what) in timeline(records, call) {
            let _infallible = writeln!(text, "{:>12.3} {what}", (at - records.began) as f64 / 1000.0);
        }
    }
    text
}

/// Returns all records of a call in the order of time.
pub(crate) fn timeline(records: &Records, call: &str) -> Vec<(Micros, String)> {
    let mut history: Vec<(Micros, String)> = Vec::new();
    for line in records.ledger.iter().filter(|line| line.call == call) {
        let seen = line.seen_state.as_deref().map(|state| format!(", saw it {state}")).unwrap_or_default();
        history
            .push((line.at, format!("tool     {} {} in process {}{seen}", line.tool, line.what, line.pid)));
    }
    for event in records.rows.events.iter().filter(|event| event.tool_call_id.as_deref() == Some(call)) {
        history.push((event.at, format!("event    {} by {} {}", event.kind, event.actor, event.data)));
    }
    for hit in records.hits.iter().filter(|hit| hit.call.as_deref() == Some(call)) {
        let action = hit.action.as_deref().unwrap_or("passed");
        history.push((hit.at, format!("point    {} {action} in process {}", hit.point, hit.pid)));
    }
    for it in records.decision_requests.iter().filter(|it| it.call == call) {
        let author = format!("{} at replica {}", it.actor, it.replica);
        history.push((it.span.started, format!("decides  {author}: {:?} by {:?}", it.verdict, it.surface)));
        history.push((it.span.ended, format!("decided  {author}: {:?}", it.answer)));
    }
    let mut last = None;
    for observation in records.observations.iter().filter(|observation| observation.call == call) {
        let state = (&observation.state, observation.validated);
        if last != Some(state) {
            let began = format!("asked at {:.3}", (observation.span.started - records.began) as f64 / 1000.0);
            let what = format!(
                "seen     {} by {} at replica {} ({began})",
                observation.state, observation.route, observation.replica
            );
            history.push((observation.span.ended, what));
        }
        last = Some(state);
    }
    for turn in &records.turns {
        for fact in turn.content.facts.iter().filter(|fact| fact.call == call) {
            history.push((turn.span.ended, format!("stream   at replica {}: {:?}", turn.replica, fact.kind)));
        }
    }
    let row = records.rows.calls.iter().find(|row| row.tool_call_id == call);
    if let Some(row) = row {
        let threads = threads(records);
        let here = |name: &String| threads.get(name) == Some(&row.thread_id.as_str());
        for request in records.model_requests.iter().filter(|request| here(&request.conversation)) {
            let answer = request
                .messages
                .iter()
                .find(|message| message.at("/tool_call_id") == row.wire_call_id.as_str());
            let read = answer.map(|answer| answer.at("/content").to_string()).unwrap_or_default();
            let what = format!(
                "model    receives {} messages; the answer of the call is {read}",
                request.messages.len()
            );
            history.push((request.at, what));
        }
    }
    for line in records.logs.iter().filter(|line| line.text.contains(call)) {
        history.push((line.at, format!("server   {}: {}", line.replica, line.text)));
    }
    for it in records.intrusions.iter().filter(|it| it.call == call && it.status != 404) {
        history.push((it.at, format!("other user {}: {} {}", it.route, it.status, it.body)));
    }
    let from = history.iter().map(|(at, _)| *at).min().unwrap_or_default() - 1_000_000;
    let until = history.iter().map(|(at, _)| *at).max().unwrap_or_default();
    for deed in records.deeds.iter().filter(|deed| deed.until >= from && deed.at <= until) {
        let of_replica = deed.replica.map(|replica| format!(" of replica {replica}")).unwrap_or_default();
        let pid = deed.pid.map(|pid| format!(" (process {pid})")).unwrap_or_default();
        history.push((deed.at, format!("nemesis  {:?}{of_replica}{pid} {}", deed.kind, deed.what)));
        if deed.kind == DeedKind::Pause {
            history.push((deed.until, format!("nemesis  end of the pause{of_replica}{pid}")));
        }
    }
    history.sort();
    history
}
