//! Reports of progress of executing calls.

use crate::clock::Timestamp;
use crate::text::without_nul;
use std::time::Duration;

/// Maximum length of a message, in characters.
const MESSAGE_MAX: usize = 500;
/// The mark of a message that was longer.
const CUT: &str = " […cut]";
/// The least pause between two reports that are stored.
const PAUSE_MIN: Duration = Duration::from_secs(5);
/// A call that runs for longer has longer pauses: this part of the time that it has run. So the number of reports that are
/// stored grows with the logarithm of that time.
const PAUSE_PART: u32 = 20;

/// How far a tool has come, in its own words and numbers.
#[derive(Debug, Clone, PartialEq)]
pub struct Progress {
    /// Plain text, cut to 500 characters.
    pub message: Option<String>,
    /// How much is done, in a unit of the tool.
    pub done: Option<f64>,
    /// How much there is to do, if the tool knows.
    pub total: Option<f64>,
}

/// The last report of progress of a call that was stored.
#[derive(Debug, Clone, PartialEq)]
pub struct ReportedProgress {
    /// What the execution reported.
    pub progress: Progress,
    /// When it was stored.
    pub at: Timestamp,
    /// When a report was an event.
    pub event_at: Timestamp,
}

impl Progress {
    /// Returns a report, or `None` if it says nothing.
    pub fn new(message: Option<&str>, done: Option<f64>, total: Option<f64>) -> Option<Self> {
        let message = message.map(str::trim).filter(|message| !message.is_empty()).map(cut);
        let [done, total] = [done, total].map(|number| number.filter(|number| number.is_finite()));
        let says = message.is_some() || done.is_some() || total.is_some();
        says.then_some(Self { message, done, total })
    }
}

impl ReportedProgress {
    /// Whether the next report is an event, of a call that started then.
    pub fn is_over(&self, started_at: Timestamp, now: Timestamp) -> bool {
        now.since(self.event_at) >= pause(self.event_at.since(started_at))
    }
}

/// Returns the least time between a report that is stored when the call has run for this time, and the next one.
pub fn pause(ran_for: Duration) -> Duration {
    PAUSE_MIN.max(ran_for / PAUSE_PART)
}

fn cut(message: &str) -> String {
    if message.chars().nth(MESSAGE_MAX).is_none() {
        return without_nul(message);
    }
    let kept: String = message.chars().take(MESSAGE_MAX.saturating_sub(CUT.chars().count())).collect();
    without_nul(&kept) + CUT
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_a_short_text_with_finite_numbers() {
        let report = Progress::new(Some(" row 3\0 "), Some(3.0), Some(f64::INFINITY)).unwrap();
        assert_eq!(report.message.as_deref(), Some("row 3\u{fffd}"));
        assert_eq!((report.done, report.total), (Some(3.0), None));
        let long = Progress::new(Some(&"ü".repeat(600)), None, None).unwrap().message.unwrap();
        assert_eq!((long.chars().count(), long.ends_with("ü […cut]")), (500, true));
        assert_eq!(Progress::new(Some(&"ü".repeat(500)), None, None).unwrap().message, Some("ü".repeat(500)));
        assert_eq!(Progress::new(Some("  "), Some(f64::NAN), None), None);
    }

    #[test]
    fn the_pauses_between_reports_grow_with_the_time_of_the_call() {
        let (mut at, mut reports) = (Duration::ZERO, 0);
        while at < Duration::from_secs(24 * 3600) {
            at += pause(at);
            reports += 1;
        }
        assert!((100..200).contains(&reports), "{reports} in a day");
        assert_eq!(pause(Duration::from_secs(60)), PAUSE_MIN);
    }
}
