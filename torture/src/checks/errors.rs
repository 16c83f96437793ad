//! The checks of errors that no server may report.

use super::case::Cases;
use super::{Records, Violation};
use crate::record::{Deed, DeedKind};

/// The errors of the database when a guard of the schema refuses a statement. The code must never cause one.
const REFUSALS: [&str; 43] = [
    "check constraint",
    "CHECK constraint failed",
    "duplicate key value",
    "UNIQUE constraint failed",
    "foreign key constraint",
    "FOREIGN KEY constraint failed",
    "a call runs once",
    "a tool call begins as",
    "does not change",
    "is final",
    "is written once",
    "illegal transition",
    "is delegated once",
    "gets an owner once",
    "is sent again once for each round",
    "progress is reported while",
    "begin on a decision",
    "begins with its approval only",
    "the token of an execution",
    "has moved its call",
    "needs a remembered approval",
    "used and revoked once",
    "of events only grow",
    "of an endpoint only grows",
    "has the next definition",
    "begins as open",
    "is answered once",
    "propose an answer while",
    "has one proposal",
    "changes only while",
    "never change",
    "never deleted",
    "never replaced",
    "never overwritten",
    "is replaced once",
    "is escalated once",
    "of an escalated call",
    "has the state of its call",
    "is listed for the user",
    "pending call is delegated",
    "under a delegation in force",
    "only ended rows are erased",
    "was never claimed did not run",
];

/// G: a guard of the database refused a statement.
pub(super) fn g(records: &Records, cases: &Cases<'_>) -> Vec<Violation> {
    let refused = records.logs.iter().filter(|line| REFUSALS.iter().any(|error| line.text.contains(error)));
    let violation = |text: &str| {
        let call = cases.keys().find(|call| text.contains(**call)).map(|call| (*call).to_owned());
        Violation { id: "G", call, what: format!("the database refused: {text}") }
    };
    refused.map(|line| violation(&line.text)).collect()
}

/// P: the server panicked. Panics of the run's tools are on purpose and do not count.
pub(super) fn p(records: &Records, _cases: &Cases<'_>) -> Vec<Violation> {
    let panicked = records.logs.iter().filter(|line| {
        line.text.contains("something panicked") && !line.text.contains("bin/server/tools.rs")
    });
    let violation = |text: &str| Violation { id: "P", call: None, what: text.to_owned() };
    panicked.map(|line| violation(&line.text)).collect()
}

/// E: an answer with 500, a server that does not stop or that ends by itself, or a refused turn of the owner.
pub(super) fn e(records: &Records, _cases: &Cases<'_>) -> Vec<Violation> {
    let violation = |what: String| Violation { id: "E", call: None, what };
    let refused = records.turns.iter().filter(|turn| !matches!(turn.status, 200 | 204 | 409 | 429 | 503));
    let answers = refused.map(|turn| {
        format!("a turn of {} in {:?} is answered with {}", turn.thread, turn.dialect, turn.status)
    });
    let at_a_failpoint = |deed: &&Deed| {
        records.hits.iter().any(|hit| Some(hit.pid) == deed.pid && hit.action.as_deref() == Some("die"))
    };
    let died = records.deeds.iter().filter(|deed| deed.kind == DeedKind::Died);
    let by_itself = died.filter(|deed| !at_a_failpoint(deed));
    let ended = by_itself.map(|deed| format!("the process {:?} ended by itself: {}", deed.pid, deed.what));
    records.broken.iter().map(|(_, what)| what.clone()).chain(answers).chain(ended).map(violation).collect()
}
