//! The checks of executions: a tool runs only approved and claimed calls, and each of them once.

use super::case::{Cases, hash};
use super::{Records, Violation};
use crate::clock::micros;
use crate::mix::LEASE;
use crate::world::HTTP_TOOL;
use serde_json::json;
use std::collections::HashMap;

/// The maximal number of executions of an idempotent call.
const ATTEMPTS_MAX: usize = 3;

/// S1: no effect before the approval is durable. A starting tool sees its call in `executing`. The exception
/// is a process that was paused for a lease between the claim and the start of the tool, which no database
/// can prevent. The times do not identify the claim of a start, so the first claim counts. Another exception is a service
/// that begins with a request when the server that sent it is dead, and a restart has interrupted the call.
pub(super) fn s1(_records: &Records, cases: &Cases<'_>) -> Vec<Violation> {
    let mut found = Vec::new();
    for (call, case) in cases {
        for start in case.starts() {
            let claimed = case.claims().filter(|at| *at <= start.at).min();
            let late = claimed.is_some_and(|at| start.at - at >= micros(LEASE));
            let state = start.seen_state.as_deref();
            let in_order = match state {
                // The tool could not read its row; the committed decision below counts.
                None | Some("executing") => true,
                Some("interrupted") if start.tool == HTTP_TOOL => claimed.is_some(),
                Some("interrupted" | "succeeded" | "failed") => late,
                Some("approved") => late && case.row.idempotent,
                Some(_) => false,
            };
            if !in_order {
                found.push(Violation::of("S1", call, format!("the tool began and its call was {state:?}")));
            }
            if state.is_some() && start.seen_validated != Some(true) {
                found.push(Violation::of("S1", call, "the tool began and saw no approval"));
            }
            let approved = case.decision().is_some_and(|it| it.verdict == "approve" && it.at <= start.at);
            if !approved {
                found.push(Violation::of("S1", call, "the tool began without an earlier approval"));
            }
        }
    }
    found
}

/// S2: at most one execution. An idempotent call has at most [`ATTEMPTS_MAX`] executions with the same
/// idempotency key.
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
            found.push(Violation::of("S2", call, format!("the call ran under several keys: {keys:?}")));
        }
    }
    found
}

/// S3: the approved tool runs with the approved inputs, on behalf of the owner of the thread.
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
            let (Some(tenant), Some(user)) = (&line.tenant, &line.user) else { continue };
            let owner = owners.get(case.row.thread_id.as_str());
            if owner != Some(&(tenant.as_str(), user.as_str())) {
                let author = format!("the call ran on behalf of {user} of {tenant}");
                found.push(Violation::of("S3", call, author));
            }
        }
    }
    found
}

/// S6: a call that was refused, or that ended before an execution, never ran.
pub(super) fn s6(records: &Records, cases: &Cases<'_>) -> Vec<Violation> {
    let mut found = Vec::new();
    for (call, case) in cases {
        let never =
            matches!(case.row.state.as_str(), "rejected" | "expired" | "cancelled" | "invalid" | "pending")
                || case.row.exec_id.is_none();
        if never && !case.ledger.is_empty() {
            found.push(Violation::of("S6", call, format!("the call is {} and ran", case.row.state)));
        }
    }
    for line in records.ledger.iter().filter(|line| !cases.contains_key(line.call.as_str())) {
        found.push(Violation::of("S6", &line.call, "a call without a row ran"));
    }
    found
}

/// S7: every start follows a durable claim of its own, so without the database no tool runs.
pub(super) fn s7(_records: &Records, cases: &Cases<'_>) -> Vec<Violation> {
    let mut found = Vec::new();
    for (call, case) in cases {
        let mut starts: Vec<i64> = case.starts().map(|line| line.at).collect();
        starts.sort_unstable();
        for (before, at) in starts.into_iter().enumerate() {
            if case.claims().filter(|claimed| *claimed <= at).count() <= before {
                found.push(Violation::of("S7", call, "the call ran without a claim of its own"));
            }
        }
    }
    found
}

/// V1: a call runs under the schema of its decision. Only the server knows the schema of an MCP tool.
pub(super) fn v1(_records: &Records, cases: &Cases<'_>) -> Vec<Violation> {
    let mut found = Vec::new();
    for (call, case) in cases {
        let (Some(decision), Some(inputs)) = (case.decision(), case.row.effective_inputs()) else { continue };
        for start in case.starts().filter(|start| !start.schema_hash.is_empty()) {
            if hash(&json!([case.row.name, inputs, start.schema_hash])) != decision.input_hash {
                found.push(Violation::of("V1", call, "the call ran under another schema than its decision"));
            }
        }
    }
    found
}
