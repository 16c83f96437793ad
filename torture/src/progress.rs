//! The progress of a run: a bar on a terminal, or else a line at intervals.

use crate::load::Load;
use crate::record::DeedKind;
use indicatif::{ProgressBar, ProgressStyle};
use parking_lot::Mutex;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

/// The interval of the lines without a terminal.
const EVERY: Duration = Duration::from_secs(10);

pub(crate) struct Progress {
    bar: Option<ProgressBar>,
    name: String,
    time: Duration,
    last: Mutex<Option<Instant>>,
}

impl Progress {
    /// Returns the display for a run with harm for this time.
    pub(crate) fn new(name: &str, time: Duration) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new(u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
            let style = ProgressStyle::with_template("{prefix:>8} {spinner} [{bar:30}] {elapsed} {wide_msg}");
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            bar.set_prefix(name.to_owned());
            bar.enable_steady_tick(Duration::from_millis(200));
            bar
        });
        Self { bar, name: name.to_owned(), time, last: Mutex::new(None) }
    }

    /// Shows the current phase.
    pub(crate) fn phase(&self, phase: &str) {
        match &self.bar {
            Some(bar) => bar.set_message(phase.to_owned()),
            None => eprintln!("{}: {phase}", self.name),
        }
    }

    /// Shows the remaining time and the counts.
    pub(crate) fn tick(&self, left: Duration, load: &Load) {
        let book = load.book();
        let deeds = book.deeds.lock();
        let count = |kinds: &[DeedKind]| deeds.iter().filter(|deed| kinds.contains(&deed.kind)).count();
        let message = format!(
            "{} s left: {} calls, {} decisions, {} kills, {} pauses, {} cuts",
            left.as_secs(),
            load.held_call_count(),
            book.decision_requests.lock().len(),
            count(&[DeedKind::Kill, DeedKind::Died]),
            count(&[DeedKind::Pause]),
            count(&[DeedKind::Cut, DeedKind::Outage, DeedKind::Lock]),
        );
        match &self.bar {
            Some(bar) => {
                let done = self.time.saturating_sub(left);
                bar.set_position(u64::try_from(done.as_millis()).unwrap_or(u64::MAX));
                bar.set_message(message);
            }
            None => {
                let mut last = self.last.lock();
                if last.is_none_or(|last| last.elapsed() >= EVERY) {
                    *last = Some(Instant::now());
                    eprintln!("{}: {message}", self.name);
                }
            }
        }
    }

    /// Removes the bar.
    pub(crate) fn end(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
