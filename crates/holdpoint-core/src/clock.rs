//! The sources of time and of fresh ids. Callers receive a clock instead of reading the machine's.

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt::Debug;
use std::time::Duration;
use time::OffsetDateTime;
use time::format_description::BorrowedFormatItem;
use time::format_description::well_known::Rfc3339;
use time::macros::format_description;
use uuid::Uuid;

/// A moment: microseconds since 1970, UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

const RFC3339_MICROS: &[BorrowedFormatItem<'_>] =
    format_description!("[year]-[month]-[day]T[hour]:[minute]:[second].[subsecond digits:6]Z");

impl Timestamp {
    /// Returns the moment this many microseconds after 1970-01-01T00:00:00Z.
    pub const fn from_micros(micros: i64) -> Self {
        Self(micros)
    }

    /// Returns the microseconds since 1970.
    pub const fn as_micros(self) -> i64 {
        self.0
    }

    /// Returns this moment plus a duration, saturating.
    pub fn plus(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)))
    }

    /// Returns this moment minus a duration, saturating.
    pub fn minus(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)))
    }

    /// Returns the time from `earlier` to this moment; zero if `earlier` is later.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or_default())
    }

    /// Parses a moment in RFC 3339, with any offset.
    pub fn of_rfc3339(text: &str) -> Option<Self> {
        let nanos = OffsetDateTime::parse(text, &Rfc3339).ok()?.unix_timestamp_nanos();
        i64::try_from(nanos / 1000).ok().map(Self)
    }

    /// Formats the moment as RFC 3339 in UTC. The second always has six digits, so the texts sort like the
    /// moments.
    pub fn to_rfc3339(self) -> String {
        OffsetDateTime::from_unix_timestamp_nanos(i128::from(self.0) * 1000)
            .ok()
            .and_then(|at| at.format(RFC3339_MICROS).ok())
            .unwrap_or_else(|| "1970-01-01T00:00:00.000000Z".to_owned())
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.to_rfc3339())
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::of_rfc3339(&text).ok_or_else(|| D::Error::custom("expected a moment in RFC 3339"))
    }
}

/// A source of time and of fresh ids, which contain the time. For tests with wrong clocks an app may have a
/// clock of its own (`AppBuilder::clock`).
pub trait Clock: Send + Sync + Debug {
    /// Returns the current time of this process's clock. On Postgres the store asks the database instead.
    fn now(&self) -> Timestamp;
    /// Returns a fresh UUIDv7 (RFC 9562). The ids of one process ascend.
    fn uuid(&self) -> Uuid;
}

/// The machine's clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "the one place that reads the machine's clock")]
    fn now(&self) -> Timestamp {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        Timestamp(0).plus(since)
    }

    #[expect(clippy::disallowed_methods, reason = "the one place that makes ids")]
    fn uuid(&self) -> Uuid {
        Uuid::now_v7()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_with_six_digits() {
        assert_eq!(Timestamp::from_micros(0).to_rfc3339(), "1970-01-01T00:00:00.000000Z");
        assert_eq!(Timestamp::from_micros(1_700_000_000_120_001).to_rfc3339(), "2023-11-14T22:13:20.120001Z");
        let parsed = Timestamp::of_rfc3339("2023-11-14T23:13:20.120001+01:00");
        assert_eq!(parsed, Some(Timestamp::from_micros(1_700_000_000_120_001)));
        assert_eq!(["", "2023-11-14", "2023-11-14T23:13:20"].map(Timestamp::of_rfc3339), [None; 3]);
    }
}
