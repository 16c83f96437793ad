//! A monotonic clock with the times of the database.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Microseconds since 1970.
pub(crate) type Micros = i64;

/// A clock that never goes back. The clock of the machine sets its start.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    started: Instant,
    started_at: Micros,
}

impl Clock {
    #[expect(clippy::disallowed_methods, reason = "compared with the times of the rows and the ledger")]
    pub(crate) fn start() -> Self {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { started: Instant::now(), started_at: micros(since_1970) }
    }

    pub(crate) fn now(self) -> Micros {
        self.started_at + micros(self.started.elapsed())
    }

    /// The start of the run.
    pub(crate) fn began(self) -> Micros {
        self.started_at
    }
}

/// Returns a span of time in microseconds.
pub(crate) fn micros(time: Duration) -> Micros {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
}
