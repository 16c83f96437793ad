//! What a fuzz target is told: for how long, and where to begin.

use std::time::Duration;

/// Long enough to run each time with the other tests.
const TIME: Duration = Duration::from_secs(2);

/// How long to try cases: `HOLDPOINT_FUZZ_SECONDS`.
pub(crate) fn time() -> Duration {
    number("HOLDPOINT_FUZZ_SECONDS").map_or(TIME, Duration::from_secs)
}

/// Where to begin, to see again what failed: `HOLDPOINT_FUZZ_SEED`.
pub(crate) fn seed() -> Option<u64> {
    number("HOLDPOINT_FUZZ_SEED")
}

#[expect(clippy::disallowed_methods, reason = "this is the one reader of the environment")]
fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}: expected a number, not {text:?}")))
}
