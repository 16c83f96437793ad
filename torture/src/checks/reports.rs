//! The check of reports: outcomes that services and workers report.

use super::case::Cases;
use super::{Records, Violation};

/// D9: an acknowledged report is durable, and its repetition is acknowledged too. A failure of a repeated attempt
/// leaves the outcome unknown.
pub(super) fn d9(_records: &Records, cases: &Cases<'_>) -> Vec<Violation> {
    let mut found = Vec::new();
    for (call, case) in cases {
        let state = case.row.state.as_str();
        for report in case.ledger.iter().filter(|line| line.what == "reported") {
            let outcome = report.outcome.as_deref().unwrap_or_default();
            let holds = match outcome {
                "ok" => state == "succeeded",
                "fail" => state == "failed" || (state == "interrupted" && case.row.exec_attempt > 1),
                _ => false,
            };
            if !holds {
                let what = format!("the report {outcome} was acknowledged, and the call is {state}");
                found.push(Violation::of("D9", call, what));
            }
        }
    }
    found
}
