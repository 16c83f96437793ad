//! The figures of a run.

use crate::checks::{Records, Violation};
use crate::clock::micros;
use crate::http;
use crate::json::JsonPointer;
use crate::mix::LEASE;
use crate::record::{Answer, DecisionRequest, Deed, DeedKind, Surface};
use std::collections::{BTreeMap, BTreeSet, HashMap};

#[derive(Debug, Clone, Default)]
pub(crate) struct Figures {
    /// Decisions by users.
    pub(crate) decided: usize,
    pub(crate) turns: usize,
    /// Processes that were killed, or that died by themselves, mostly at a failpoint.
    pub(crate) kills: usize,
    /// The kills while a tool was running.
    pub(crate) kills_in_mid_tool: usize,
    pub(crate) starts: usize,
    pub(crate) outages: usize,
    /// Processes that were paused for longer than a lease and then resumed.
    pub(crate) zombies: usize,
    /// Lost connections to the database.
    pub(crate) cuts: u64,
    /// Commits without a delivered answer.
    pub(crate) unknown_commits: u64,
    /// Decisions that lost a race against another decision.
    pub(crate) races_lost: usize,
    pub(crate) concurrent_mean: f64,
    pub(crate) concurrent_max: usize,
    pub(crate) other_users: usize,
    pub(crate) model_requests: usize,
    /// Calls that ran.
    pub(crate) executed: usize,
    pub(crate) interrupted: usize,
    /// The times from a kill to the next end or interruption of a call that the killed process was running,
    /// in milliseconds.
    pub(crate) recovery: Vec<i64>,
    /// The percentage of requests with an answer that is not a failure of the server.
    pub(crate) ok_share: f64,
    pub(crate) states: BTreeMap<String, usize>,
    /// The number of calls that ran, by their tool.
    pub(crate) ran: BTreeMap<String, usize>,
    /// The number of calls whose reported outcome was acknowledged.
    pub(crate) reported: usize,
    /// Remote tools that were killed, or that ended because of a call.
    pub(crate) remote_kills: usize,
    /// The number of hits of each failpoint, and the number of faults at the failpoint.
    pub(crate) points: BTreeMap<String, (usize, usize)>,
    /// The number of faults by the first part of their action.
    pub(crate) strikes: BTreeMap<String, usize>,
}

impl Figures {
    pub(crate) fn of(records: &Records) -> Self {
        let mut points: BTreeMap<String, (usize, usize)> = BTreeMap::new();
        let mut strikes: BTreeMap<String, usize> = BTreeMap::new();
        let mut lost = 0;
        for hit in &records.hits {
            let (passed, struck) = points.entry(hit.point.clone()).or_default();
            *passed += 1;
            *struck += usize::from(hit.action.is_some());
            let action = hit.action.as_deref().and_then(|action| action.split(':').next());
            lost += u64::from(action == Some("lose"));
            if let Some(action) = action {
                *strikes.entry(action.to_owned()).or_default() += 1;
            }
        }
        let mut states: BTreeMap<String, usize> = BTreeMap::new();
        for call in &records.rows.calls {
            *states.entry(call.state.clone()).or_default() += 1;
        }
        let mut ran: BTreeMap<String, usize> = BTreeMap::new();
        for call in records.rows.calls.iter().filter(|call| call.exec_id.is_some()) {
            *ran.entry(call.name.clone()).or_default() += 1;
        }
        let report = records.ledger.iter().filter(|line| line.what == "reported");
        let reported: BTreeSet<&str> = report.map(|line| line.call.as_str()).collect();
        let deeds = |kind: DeedKind| records.deeds.iter().filter(move |deed| deed.kind == kind);
        let kills: Vec<&Deed> = deeds(DeedKind::Kill).chain(deeds(DeedKind::Died)).collect();
        let hit: Vec<Vec<&str>> = kills.iter().map(|kill| running_calls(records, kill)).collect();
        let (concurrent_mean, concurrent_max) = concurrency(&records.decision_requests);
        let by_a_person = |verdict: &str| matches!(verdict, "approve" | "reject");
        let executed = records.rows.calls.iter().filter(|call| call.exec_id.is_some());
        Self {
            decided: records
                .rows
                .decisions
                .iter()
                .filter(|it| is_user(&it.actor) && by_a_person(&it.verdict))
                .count(),
            turns: records.turns.len(),
            kills: kills.len(),
            kills_in_mid_tool: hit.iter().filter(|calls| !calls.is_empty()).count(),
            starts: deeds(DeedKind::Start).filter(|deed| deed.replica.is_some()).count(),
            outages: deeds(DeedKind::Outage).count() + deeds(DeedKind::Lock).count(),
            zombies: deeds(DeedKind::Pause).filter(|deed| deed.until - deed.at > micros(LEASE)).count(),
            cuts: records.wires.1,
            unknown_commits: records.wires.0 + lost,
            races_lost: records
                .decision_requests
                .iter()
                .filter(|it| code(it) == Some("already_decided"))
                .count(),
            concurrent_mean,
            concurrent_max,
            other_users: records.intrusions.len(),
            model_requests: records.model_requests.len(),
            executed: executed.count(),
            interrupted: states.get("interrupted").copied().unwrap_or_default(),
            recovery: recovery(records, &kills, &hit),
            ok_share: ok_share(records),
            states,
            ran,
            reported: reported.len(),
            // Only a server has a number.
            remote_kills: kills.iter().filter(|kill| kill.replica.is_none()).count(),
            points,
            strikes,
        }
    }

    /// Returns a percentile of the recovery times, in milliseconds.
    pub(crate) fn recovered_within(&self, of_hundred: usize) -> Option<i64> {
        let last = self.recovery.len().checked_sub(1)?;
        self.recovery.get((last * of_hundred).div_ceil(100)).copied()
    }
}

/// Returns the number of violations of these promises.
pub(crate) fn broken(violations: &[Violation], ids: &[&str]) -> usize {
    violations.iter().filter(|violation| ids.contains(&violation.id)).count()
}

fn is_user(actor: &str) -> bool {
    actor.starts_with("user:")
}

fn code(request: &DecisionRequest) -> Option<&str> {
    match &request.answer {
        Answer::Received { status: 409, body, .. } => body.at("/error/code").as_str(),
        _ => None,
    }
}

/// Returns the calls that a process was running when it was killed.
fn running_calls<'a>(records: &'a Records, kill: &Deed) -> Vec<&'a str> {
    let mut found: BTreeMap<&str, bool> = BTreeMap::new();
    let of_process = |pid: u32| Some(pid) == kill.pid;
    for line in records.ledger.iter().filter(|line| of_process(line.pid) && line.at <= kill.at) {
        let runs = found.entry(line.call.as_str()).or_default();
        *runs = !matches!(line.what.as_str(), "end" | "reported");
    }
    // A tool that panicked or hung has no end in the ledger.
    let ended: HashMap<&str, i64> = records
        .rows
        .calls
        .iter()
        .filter_map(|call| Some((call.tool_call_id.as_str(), call.finished_at?)))
        .collect();
    let still = |call: &str| ended.get(call).is_none_or(|at| *at > kill.at);
    found.into_iter().filter(|(call, runs)| *runs && still(call)).map(|(call, _)| call).collect()
}

/// Returns the times from each kill to the next end or interruption of each call that the process was
/// running.
fn recovery(records: &Records, kills: &[&Deed], hit: &[Vec<&str>]) -> Vec<i64> {
    let mut times = Vec::new();
    for (kill, calls) in kills.iter().zip(hit) {
        for call in calls {
            let ends = records.rows.events.iter().filter(|event| {
                event.tool_call_id.as_deref() == Some(call)
                    && matches!(event.kind.as_str(), "tool.interrupted" | "tool.succeeded" | "tool.failed")
                    && event.at >= kill.at
            });
            times.extend(ends.map(|event| (event.at - kill.at) / 1000).min());
        }
    }
    times.sort_unstable();
    times
}

/// Returns the mean and the maximum, over all calls, of the decisions that were in flight at once.
fn concurrency(decision_requests: &[DecisionRequest]) -> (f64, usize) {
    let mut calls: HashMap<&str, Vec<&DecisionRequest>> = HashMap::new();
    for request in decision_requests {
        calls.entry(&request.call).or_default().push(request);
    }
    let at_once = |all: &Vec<&DecisionRequest>| {
        let with = |one: &&DecisionRequest| {
            all.iter()
                .filter(|it| it.span.started <= one.span.started && one.span.started <= it.span.ended)
                .count()
        };
        all.iter().map(with).max().unwrap_or_default()
    };
    let most: Vec<usize> = calls.values().map(at_once).collect();
    let sum: usize = most.iter().sum();
    #[expect(clippy::cast_precision_loss, reason = "a mean is approximate")]
    let mean = sum as f64 / most.len().max(1) as f64;
    (mean, most.into_iter().max().unwrap_or_default())
}

/// Returns the percentage of good answers. Requests whose client disconnected do not count.
fn ok_share(records: &Records) -> f64 {
    let (mut good, mut all) = (0_u64, 0_u64);
    for request in &records.decision_requests {
        match &request.answer {
            Answer::Received { status, .. } => good += u64::from(*status < 500),
            Answer::Unknown(why) if why == http::DISCONNECTED || request.surface == Surface::Page => continue,
            Answer::Unknown(_) => {}
        }
        all += 1;
    }
    for (more_good, more) in records.request_counts.values() {
        good += more_good;
        all += more;
    }
    #[expect(clippy::cast_precision_loss, reason = "a share is approximate")]
    let share = 100.0 * good as f64 / all.max(1) as f64;
    share
}
