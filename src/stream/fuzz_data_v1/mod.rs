//! Fuzzing the dialect `data-v1`: whatever a turn says, in whatever pieces it arrives, the real client reads back
//! what went in, raises nothing but the failure that was said, and holds what a reload gives.

mod page;
mod plan;
mod told;

use super::v4_message;
use crate::config::fuzz;
use page::{Page, Read, comparable};
use plan::{Plan, plans};
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};
use std::cell::RefCell;
use std::hash::{BuildHasher, RandomState};
use std::io::Write;
use std::time::Instant;

/// Cases of one seed.
const BATCH: u32 = 50;

#[test]
fn fuzz_data_v1_the_real_client_reads_back_what_a_turn_said() {
    let page = RefCell::new(Page::start());
    let (begun, time) = (Instant::now(), fuzz::time());
    let mut seed = fuzz::seed().unwrap_or_else(|| RandomState::new().hash_one(0));
    let mut cases = 0;
    loop {
        let config = Config { cases: BATCH, failure_persistence: None, ..Config::default() };
        let mut random = [0; 32];
        random[..8].copy_from_slice(&seed.to_le_bytes());
        let random = TestRng::from_seed(RngAlgorithm::ChaCha, &random);
        let run = TestRunner::new_with_rng(config, random).run(&plans(), |plan| check(&page, &plan));
        if let Err(failure) = run {
            panic!("{failure}\nonce more: HOLDPOINT_FUZZ_SEED={seed} cargo test --lib fuzz_data_v1");
        }
        cases += BATCH;
        seed = seed.wrapping_add(1);
        if begun.elapsed() >= time {
            break;
        }
    }
    let rate = f64::from(cases) / begun.elapsed().as_secs_f64();
    // Past the harness, which shows only what a failed test said.
    writeln!(std::io::stderr(), "fuzz_data_v1: {cases} cases, {rate:.0} a second").unwrap();
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
