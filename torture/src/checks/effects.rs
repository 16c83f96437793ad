//! What the tools did: only what was approved, only what was claimed, once.

use super::case::{Cases, hash};
use super::{Records, Violation};
use crate::clock::micros;
use crate::world::LEASE;
use serde_json::json;
use std::collections::HashMap;

/// How often a harmless call is begun.
const ATTEMPTS_MAX: usize = 3;

/// S1: no effect before the yes is durable. A tool that begins sees its call executing, unless whoever runs it stood still
/// for a lease between the claim and the beginning: that no database can undo. Which claim was this one's the times do
/// not tell, so the first counts.
pub(super) fn s1(_records: &Records, cases: &Cases<'_>) -> Vec<Violation> {
    let mut found = Vec::new();
    for (call, case) in cases {
        for start in case.starts() {
            let claimed = case.claims().filter(|at| *at <= start.at).min();
            let late = claimed.is_some_and(|at| start.at - at >= micros(LEASE));
            let state = start.seen_state.as_deref();
            let in_order = match state {
                // The row could not be read; what was committed tells.
                None | Some("executing") => true,
                Some("interrupted" | "succeeded" | "failed") => late,
                Some("approved") => late && case.row.idempotent,
                Some(_) => false,
            };
            if !in_order {
                found.push(Violation::of("S1", call, format!("the tool began and saw it {state:?}")));
            }
            if state.is_some() && start.seen_validated != Some(true) {
                found.push(Violation::of("S1", call, "the tool began and saw no yes"));
            }
            let approved = case.decision().is_some_and(|it| it.verdict == "approve" && it.at <= start.at);
            if !approved {
                found.push(Violation::of("S1", call, "the tool began without a yes from before"));
            }
        }
    }
    found
}

/// S2: at most once; what is harmless, again with the same key, and not for ever.
pub(super) fn s2(_records: &Records, cases: &Cases<'_>) -> Vec<Violation> {
    let mut found = Vec::new();
    for (call, case) in cases {
        let starts = case.starts().count();
        let most = if case.row.idempotent { ATTEMPTS_MAX } else { 1 };
        if starts > most {
            found.push(Violation::of("S2", call, format!("{} began {starts} times", case.row.name)));
        }
        let mut keys: Vec<&str> = case.ledger.iter().map(|line| line.key.as_str()).collect();
        keys.dedup();
        if keys.len() > 1 {
            found.push(Violation::of("S2", call, format!("it ran under several keys: {keys:?}")));
        }
    }
    found
}

/// S3: what ran is what was approved, on behalf of whose thread it is.
pub(super) fn s3(records: &Records, cases: &Cases<'_>) -> Vec<Violation> {
    let owners: HashMap<&str, (&str, &str)> = records
        .rows
        .threads
        .iter()
        .map(|thread| (thread.thread_id.as_str(), (thread.tenant_id.as_str(), thread.user_id.as_str())))
        .collect();
    let mut found = Vec::new();
    for (call, case) in cases {
        let approved = case.row.effective_inputs().map(|inputs| hash(&inputs));
        for line in &case.ledger {
            if line.tool != case.row.name || approved.as_ref() != Some(&line.args_sha256) {
                found.push(Violation::of("S3", call, format!("{} ran with other inputs", line.tool)));
            }
            let owner = owners.get(case.row.thread_id.as_str());
            if owner != Some(&(line.tenant.as_str(), line.user.as_str())) {
                let who = format!("it ran on behalf of {} of {}", line.user, line.tenant);
                found.push(Violation::of("S3", call, who));
            }
        }
    }
    found
}

/// S6: what was refused, or ended before anybody began, never ran.
pub(super) fn s6(records: &Records, cases: &Cases<'_>) -> Vec<Violation> {
    let mut found = Vec::new();
    for (call, case) in cases {
        let never =
            matches!(case.row.state.as_str(), "rejected" | "expired" | "cancelled" | "invalid" | "pending")
                || case.row.exec_id.is_none();
        if never && !case.ledger.is_empty() {
            found.push(Violation::of("S6", call, format!("it is {} and ran", case.row.state)));
        }
    }
    for line in records.ledger.iter().filter(|line| !cases.contains_key(line.call.as_str())) {
        found.push(Violation::of("S6", &line.call, "it ran, and there is no such call"));
    }
    found
}

/// S7: nothing runs that was not claimed before, durably: with no database, nothing.
pub(super) fn s7(_records: &Records, cases: &Cases<'_>) -> Vec<Violation> {
    let mut found = Vec::new();
    for (call, case) in cases {
        let mut starts: Vec<i64> = case.starts().map(|line| line.at).collect();
        starts.sort_unstable();
        for (before, at) in starts.into_iter().enumerate() {
            if case.claims().filter(|claimed| *claimed <= at).count() <= before {
                found.push(Violation::of("S7", call, "it ran without a claim of its own"));
            }
        }
    }
    found
}

/// V1: a call runs under the schema that it was decided on.
pub(super) fn v1(_records: &Records, cases: &Cases<'_>) -> Vec<Violation> {
    let mut found = Vec::new();
    for (call, case) in cases {
        let (Some(decision), Some(inputs)) = (case.decision(), case.row.effective_inputs()) else { continue };
        for start in case.starts() {
            if hash(&json!([case.row.name, inputs, start.schema_hash])) != decision.input_hash {
                found.push(Violation::of("V1", call, "it ran under a schema that nobody decided on"));
            }
        }
    }
    found
}
