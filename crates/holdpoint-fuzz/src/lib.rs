//! The runner of the fuzz targets: checks a property with random cases for a limited time. And cases for the tests of
//! several crates.
//!
//! `FUZZ_SECONDS` sets the time (default: 2; fractions are allowed). `FUZZ_SEED` sets the first seed, which reproduces a failure.
//! The runner reduces a failing case to a minimal one.

#![warn(missing_docs)]
#![expect(clippy::expect_used, clippy::panic, reason = "a test fails by a panic")]

pub mod shown_again;

use proptest::strategy::Strategy;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseResult, TestError, TestRng, TestRunner};
use std::fmt::Debug;
use std::hash::{BuildHasher, RandomState};
use std::str::FromStr;
use std::time::{Duration, Instant};

const SECONDS: &str = "FUZZ_SECONDS";
const SEED: &str = "FUZZ_SEED";
/// The number of cases of one seed.
const BATCH: u32 = 64;

/// Checks the property until the time is over, and prints the number of cases.
pub fn for_a_while<S>(target: &str, cases: &S, holds: impl Fn(S::Value) -> TestCaseResult)
where
    S: Strategy,
    S::Value: Debug,
{
    let time = Duration::from_secs_f64(number(SECONDS).unwrap_or(2.0));
    let first = number(SEED).unwrap_or_else(|| u64::from(RandomState::new().hash_one(0) as u32));
    let started = Instant::now();
    let mut run = 0_u64;
    for seed in first.. {
        if started.elapsed() >= time && seed > first {
            break;
        }
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        let config = Config { cases: BATCH, failure_persistence: None, ..Config::default() };
        let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
        // A runner counts its cases and runs only once. Each seed gets a new runner.
        match TestRunner::new_with_rng(config, rng).run(cases, &holds) {
            Ok(()) => run += u64::from(BATCH),
            Err(TestError::Fail(why, case)) => {
                panic!("{target}: {why}\nthe smallest case: {case:#?}\nagain with {SEED}={seed}");
            }
            Err(TestError::Abort(why)) => panic!("{target}: {why}"),
        }
    }
    println!("{target}: {run} cases in {:.1} s, {SEED}={first}", started.elapsed().as_secs_f64());
}

#[expect(clippy::disallowed_methods, reason = "this is the one reader of the environment")]
fn number<N: FromStr>(name: &str) -> Option<N> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name}: expected a number")))
}
