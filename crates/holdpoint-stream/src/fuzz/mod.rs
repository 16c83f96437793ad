//! Fuzz test of the dialects. For every turn, and for every split of its bytes, the real clients read back
//! the events, report only emitted failures, and hold the same message as a reload.

mod expected;
mod page;
mod scenario;
mod simulation;

use crate::Dialect;
use holdpoint_fuzz::for_a_while;
use page::{Pages, Read, comparable, encoded};
use proptest::test_runner::{TestCaseError, TestCaseResult};
use scenario::{Scenario, scenarios};
use serde_json::Value;
use std::cell::RefCell;
use std::thread;

/// What the pages of a dialect show beside the message of a reload.
#[derive(Debug)]
pub(crate) struct PageTraits {
    pub(crate) end: PageEnd,
    /// Whether the page shows the answer of its own user to a held call, whatever the decision in force is.
    pub(crate) keeps_own_answer: bool,
}

/// What a page reports at the end of a turn.
#[derive(Debug, Clone, Copy)]
pub(crate) enum PageEnd {
    Nothing,
    Reason,
    ReasonAndUsage,
}

#[test]
fn fuzz_the_real_clients_of_each_dialect_read_back_what_a_turn_emitted() {
    thread::scope(|scope| {
        for dialect in Dialect::ALL {
            scope.spawn(|| fuzz(dialect));
        }
    });
}

fn fuzz(dialect: &Dialect) {
    let pages = RefCell::new(Pages::of(dialect));
    let target = format!("{}, read by the real clients", dialect.name);
    for_a_while(&target, &scenarios(), |scenario| check(&pages, &scenario, dialect));
}

fn check(pages: &RefCell<Pages>, scenario: &Scenario, dialect: &Dialect) -> TestCaseResult {
    let simulated = scenario.simulate();
    if dialect.is_ui {
        simulated.turns.iter().try_for_each(|turn| framed(&encoded(turn, scenario, dialect)))?;
    }
    let expected = comparable(&simulated.held(dialect), &simulated, dialect);
    for Read { client, message, ends } in pages.borrow_mut().read(&simulated, scenario, dialect) {
        same(&format!("message of {client}"), &comparable(&message, &simulated, dialect), &expected)?;
        same(&format!("ends of {client}"), &ends, &simulated.ends(dialect))?;
    }
    Ok(())
}

/// Checks the framing. Clients read beyond the end and ignore chunks without a type, so the clients do not
/// detect such faults.
fn framed(bytes: &[u8]) -> TestCaseResult {
    let wrong = |what: &str| TestCaseError::fail(format!("{what}: {}", String::from_utf8_lossy(bytes)));
    let text = std::str::from_utf8(bytes).map_err(|_| wrong("no UTF-8"))?;
    let chunks = text.strip_suffix("\n\ndata: [DONE]\n\n").ok_or_else(|| wrong("no end"))?;
    for event in chunks.split("\n\n").filter(|event| !event.starts_with(':')) {
        let chunk = event.strip_prefix("data: ").ok_or_else(|| wrong("no event"))?;
        let chunk: Value = serde_json::from_str(chunk).map_err(|_| wrong("no chunk"))?;
        if !chunk["type"].is_string() {
            return Err(wrong("no type"));
        }
    }
    Ok(())
}

fn same<T: PartialEq + std::fmt::Debug>(what: &str, read: &T, expected: &T) -> TestCaseResult {
    if read == expected {
        return Ok(());
    }
    Err(TestCaseError::fail(format!("{what}\n read: {read:?}\n expected: {expected:?}")))
}
