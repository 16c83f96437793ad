//! A clock that is wrong on purpose.

use holdpoint::app::{Clock, SystemClock, Timestamp, Uuid};

/// The machine's clock, ahead by this many microseconds. The times in its ids are ahead too.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SkewedClock(pub(crate) i64);

impl Clock for SkewedClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(SystemClock.now().as_micros().saturating_add(self.0))
    }

    fn uuid(&self) -> Uuid {
        // The first 48 bits of a UUIDv7 are milliseconds since 1970.
        let ahead = i128::from(self.0 / 1000) << 80;
        Uuid::from_u128(SystemClock.uuid().as_u128().wrapping_add_signed(ahead))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_times_and_the_ids_of_a_skewed_clock_are_ahead_or_late() {
        const MINUTE: i64 = 60_000_000;
        for skew in [5 * MINUTE, -5 * MINUTE] {
            let ahead = SkewedClock(skew).now().as_micros() - SystemClock.now().as_micros();
            assert!((ahead - skew).abs() < MINUTE, "{ahead}");
            let millis = |id: Uuid| i64::try_from(id.as_u128() >> 80).unwrap();
            let ahead = millis(SkewedClock(skew).uuid()) - millis(SystemClock.uuid());
            assert!((ahead - skew / 1000).abs() < MINUTE / 1000, "{ahead}");
        }
    }
}
