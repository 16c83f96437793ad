//! Quiet hours: a daily time in which messages to a recipient wait.

use crate::config::channels::QuietHours;
use holdpoint_core::clock::Timestamp;
use jiff::tz::TimeZone;

/// The quiet hours of a recipient, in the recipient's time zone.
pub(super) struct QuietTime {
    pub(super) hours: QuietHours,
    pub(super) zone: TimeZone,
}

impl QuietTime {
    /// Returns the end of the quiet hours that this moment is in.
    pub(super) fn end(&self, now: Timestamp) -> Option<Timestamp> {
        let QuietHours { from, to } = self.hours;
        let now = jiff::Timestamp::from_microsecond(now.as_micros()).ok()?.to_zoned(self.zone.clone());
        let (date, time) = (now.date(), now.time());
        let end = if from < to {
            (from <= time && time < to).then_some(date)?
        } else if time >= from {
            date.tomorrow().ok()?
        } else {
            (time < to).then_some(date)?
        };
        let end = end.to_datetime(to).to_zoned(self.zone.clone()).ok()?;
        Some(Timestamp::from_micros(end.timestamp().as_microsecond()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        Timestamp::of_rfc3339(text).unwrap()
    }

    fn end(hours: &str, zone: &str, now: &str) -> Option<String> {
        let quiet = QuietTime { hours: hours.parse().unwrap(), zone: TimeZone::get(zone).unwrap() };
        quiet.end(at(now)).map(Timestamp::to_rfc3339).map(|text| text.replace(".000000", ""))
    }

    #[test]
    fn the_quiet_hours_end_at_their_local_time_also_after_midnight_and_a_change_of_the_clocks() {
        for (hours, zone, now, expected) in [
            ("22:00-07:00", "UTC", "2026-01-31T21:59:59Z", None),
            ("22:00-07:00", "UTC", "2026-01-31T22:00:00Z", Some("2026-02-01T07:00:00Z")),
            ("22:00-07:00", "UTC", "2026-02-01T06:59:59Z", Some("2026-02-01T07:00:00Z")),
            ("22:00-07:00", "UTC", "2026-02-01T07:00:00Z", None),
            ("12:00-13:30", "UTC", "2026-02-01T12:15:00Z", Some("2026-02-01T13:30:00Z")),
            ("12:00-13:30", "UTC", "2026-02-01T13:30:00Z", None),
            ("22:00-07:00", "Europe/Zurich", "2026-01-31T21:30:00Z", Some("2026-02-01T06:00:00Z")),
            // Daylight saving time begins at 01:00 UTC on this day, and the end is an hour earlier in UTC.
            ("22:00-07:00", "Europe/Zurich", "2026-03-28T21:30:00Z", Some("2026-03-29T05:00:00Z")),
            // A local time that does not exist on this day.
            ("22:00-02:30", "Europe/Zurich", "2026-03-28T21:30:00Z", Some("2026-03-29T01:30:00Z")),
            ("22:00-07:00", "Asia/Kathmandu", "2026-01-31T16:20:00Z", Some("2026-02-01T01:15:00Z")),
        ] {
            assert_eq!(end(hours, zone, now).as_deref(), expected, "{hours} {zone} {now}");
        }
    }
}
