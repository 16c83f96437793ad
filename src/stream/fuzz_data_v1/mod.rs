//! Fuzzing the dialect `data-v1`: whatever a turn says, in whatever pieces it arrives, the real client reads back
//! what went in, raises nothing but the failure that was said, and holds what a reload gives.

mod page;
mod plan;
mod told;

use super::v4_message;
use crate::config::fuzz::for_a_while;
use page::{Page, Read, comparable};
use plan::{Plan, plans};
use proptest::test_runner::TestCaseError;
use std::cell::RefCell;

#[test]
fn fuzz_data_v1_the_real_client_reads_back_what_a_turn_said() {
    let page = RefCell::new(Page::start());
    for_a_while("data-v1, read by the real client", &plans(), |plan| check(&page, &plan));
}

fn check(page: &RefCell<Page>, plan: &Plan) -> Result<(), TestCaseError> {
    let told = plan.tell();
    let Read { message, ends } = page.borrow_mut().read(&told.turns, &plan.pieces);
    let reloaded = v4_message(&told.message, None);
    same("message", &message.as_ref().map(comparable), &reloaded.as_ref().map(comparable))?;
    same("ends", &ends, &told.ends())
}

fn same<T: PartialEq + std::fmt::Debug>(what: &str, read: &T, said: &T) -> Result<(), TestCaseError> {
    if read == said {
        return Ok(());
    }
    Err(TestCaseError::fail(format!("{what}\n read: {read:?}\n said: {said:?}")))
}
