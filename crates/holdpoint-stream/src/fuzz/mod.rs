//! Fuzz tests of the dialects. For every turn, and for every split of its bytes, the real clients read back
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

#[test]
fn fuzz_data_v1_the_real_client_reads_back_what_a_turn_emitted() {
    fuzz("data-v1, read by the real client", Dialect::DATA_V1, &["ui-utils4"]);
}

#[test]
fn fuzz_ui_v5_the_real_clients_read_back_what_a_turn_emitted() {
    fuzz("ui-v5, read by the real clients", Dialect::UI_V5, &["ai5", "ai5-first"]);
}

#[test]
fn fuzz_ui_v6_the_real_clients_read_back_what_a_turn_emitted() {
    let clients = ["ai6", "ai6-first", "ai7", "ai7-first"];
    fuzz("ui-v6, read by the real clients", Dialect::UI_V6, &clients);
}

#[test]
fn fuzz_ui_v7_the_real_clients_read_back_what_a_turn_emitted() {
    fuzz("ui-v7, read by the real clients", Dialect::UI_V7, &["ai7", "ai7-first"]);
}

fn fuzz(target: &str, dialect: &Dialect, clients: &[&str]) {
    let pages = RefCell::new(Pages::start(clients));
    for_a_while(target, &scenarios(), |scenario| check(&pages, &scenario, dialect));
}

fn check(pages: &RefCell<Pages>, scenario: &Scenario, dialect: &Dialect) -> TestCaseResult {
    let simulated = scenario.simulate();
    if dialect != Dialect::DATA_V1 {
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
