//! The wake signal of a process.

use std::future::pending;
use tokio::sync::watch;

/// Wakes everything in this process that waits for a call or a run to change, so that it looks at the rows
/// again. All parts of the process share one value. The signal carries nothing, and other processes do not
/// receive it: a lost signal costs time only.
#[derive(Debug, Clone, Default)]
pub(crate) struct Wake(watch::Sender<()>);

impl Wake {
    /// Wakes every waiter. Called after the commit of the change.
    pub(crate) fn send(&self) {
        self.0.send_replace(());
    }

    /// Returns the signal for a waiter, which receives the wakes from now on. A waiter that takes its signal
    /// before its first look misses nothing.
    pub(crate) fn signal(&self) -> WakeSignal {
        WakeSignal(self.0.subscribe())
    }
}

/// The end of a [`Wake`] at one waiter.
#[derive(Debug)]
pub(crate) struct WakeSignal(watch::Receiver<()>);

impl WakeSignal {
    /// Completes if a wake was sent since the last completion, otherwise with the next wake.
    pub(crate) async fn woken(&mut self) {
        if self.0.changed().await.is_err() {
            // No sender is left.
            pending().await
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    #[test]
    fn every_waiter_receives_a_wake_once_even_if_it_was_busy() {
        let wake = Wake::default();
        wake.send();
        let mut signals = [wake.signal(), wake.clone().signal()];
        for signal in &mut signals {
            assert_eq!(signal.woken().now_or_never(), None, "the wake came before the signal was taken");
        }
        wake.send();
        wake.clone().send();
        for signal in &mut signals {
            assert_eq!(signal.woken().now_or_never(), Some(()));
            assert_eq!(signal.woken().now_or_never(), None, "two wakes are one reason to look");
        }
    }
}
