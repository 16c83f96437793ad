//! The wake signal of a process.
//!
//! A signal means that reading the rows may pay. A lost signal costs time only. Waiters for calls and runs share one
//! loop, `Wait`: look, wait for the signal or a second, and look for the last time at the limit. They also share one
//! signal, [`Wake`]. The other signals of the program stay separate, because waking all their receivers for each change
//! would cost reads or writes of the database:
//!
//! | Signal | Sent when | Received by | Without it |
//! |---|---|---|---|
//! | [`Wake`] | in this process: a call was decided, claimed, settled, swept or asked to stop; a turn paused or was cancelled; a child run was created or moved, or its turn ended; a run was asked to stop | everything that waits for a call or a run: deciders (`Approvals::await_ends`), continuations (`TurnTask::wait`), turns that ask a handler (`Approvals::ask_handler`); the resumer | 1 s; resumer: `approval.sweep` |
//! | `Running` of `approvals` | an execution of this process is over; carries the state of its call | the decider whose decision claimed the call (`Approvals::await_outcomes`) | `approval.wait`, then the rows |
//! | `Offer` | a tool has returned; carries the outcome, and back the state that a commit gave the call | the request that posted the decision (`Approvals::await_at_once`); back: the executor | 1 s or a third of the lease, then the executor stores the outcome |
//! | `Heartbeats::renew_now` | a run or a call was asked to stop (`cancel_requested_at`), or a report settled a call | the lease of that work, whose renewal finds the request | a third of the lease |
//! | `Store::committed_signal` | events were committed | the sequencer | 1 s, or 3 s while notifications arrive |
//! | `Store::approved_signal` | a commit of this process approved a call; carries the call, its tool and its tenant | `Approvals::run_claims`, which wakes one waiting claim of this tool | 1 s |
//! | `Feed::batches`, `NOTIFY` | events have numbers; a batch names whom they touch (`Touched`) | subscriptions and deliveries; the sequencers of other processes | the same |
//! | `Receiver::enabled` | an operator enabled the endpoint in this process | the task of the endpoint | 5 s |
//! | `TurnLog` | an event was emitted, or the turn is over | the readers of the log; at its end also `Chat::cancel`, and a continuation that decides a call of that turn | none: the log is in memory |

use holdpoint_core::id::ThreadId;
use std::future::pending;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};

/// A waiter that is this many wakes late looks at the rows, regardless of the threads of the wakes.
const CAPACITY: usize = 64;

/// Wakes what in this process waits for a call or a run to change, so that it looks at the rows again. All
/// parts of the process share one value. The signal names at most a thread, and other processes do not receive
/// it: a lost signal costs time only.
#[derive(Debug, Clone)]
pub(crate) struct Wake(broadcast::Sender<Changed>);

/// Where something changed.
#[derive(Debug, Clone, Copy)]
enum Changed {
    In(ThreadId),
    Anywhere,
}

impl Default for Wake {
    fn default() -> Self {
        Self(broadcast::Sender::new(CAPACITY))
    }
}

impl Wake {
    /// Wakes the waiters for this thread. Called after the commit of the change.
    pub(crate) fn send_in(&self, thread: ThreadId) {
        self.send_changed(Changed::In(thread));
    }

    /// Wakes every waiter. Called after the commit of a change that concerns several threads.
    pub(crate) fn send(&self) {
        self.send_changed(Changed::Anywhere);
    }

    fn send_changed(&self, changed: Changed) {
        // Without waiters there is nothing to wake.
        let _waiters = self.0.send(changed);
    }

    /// Returns the signal for a waiter, which receives the wakes from now on. A waiter that takes its signal
    /// before its first look misses nothing.
    pub(crate) fn signal(&self) -> WakeSignal {
        WakeSignal(self.0.subscribe())
    }
}

/// The end of a [`Wake`] at one waiter.
#[derive(Debug)]
pub(crate) struct WakeSignal(broadcast::Receiver<Changed>);

impl WakeSignal {
    /// Completes if a wake was sent since the last completion, otherwise with the next wake.
    pub(crate) async fn woken(&mut self) {
        self.woken_in(|_| true).await;
    }

    /// The same, for the wakes of these threads only. Wakes that were sent meanwhile are one reason to look.
    pub(crate) async fn woken_in(&mut self, concerns: impl Fn(ThreadId) -> bool) {
        loop {
            match self.0.recv().await {
                Ok(Changed::In(thread)) if !concerns(thread) => {}
                Ok(Changed::In(_) | Changed::Anywhere) | Err(RecvError::Lagged(_)) => break,
                // No sender is left.
                Err(RecvError::Closed) => pending().await,
            }
        }
        while matches!(self.0.try_recv(), Ok(_) | Err(TryRecvError::Lagged(_))) {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;
    use uuid::Uuid;

    const THREAD: ThreadId = ThreadId::new(Uuid::from_u128(1));
    const OTHER: ThreadId = ThreadId::new(Uuid::from_u128(2));

    #[test]
    fn every_waiter_receives_a_wake_once_even_if_it_was_busy() {
        let wake = Wake::default();
        wake.send();
        let mut signals = [wake.signal(), wake.clone().signal()];
        for signal in &mut signals {
            assert_eq!(signal.woken().now_or_never(), None, "the wake came before the signal was taken");
        }
        wake.send();
        wake.clone().send_in(THREAD);
        for signal in &mut signals {
            assert_eq!(signal.woken().now_or_never(), Some(()));
            assert_eq!(signal.woken().now_or_never(), None, "two wakes are one reason to look");
        }
    }

    #[test]
    fn a_waiter_for_a_thread_is_woken_by_changes_there_and_by_changes_without_a_thread() {
        let wake = Wake::default();
        let mut signal = wake.signal();
        let mut woken = || signal.woken_in(|thread| thread == THREAD).now_or_never();
        wake.send_in(OTHER);
        assert_eq!(woken(), None);
        wake.send_in(THREAD);
        assert_eq!(woken(), Some(()));
        wake.send();
        assert_eq!(woken(), Some(()));
        assert_eq!(woken(), None);
    }

    #[test]
    fn a_waiter_that_missed_wakes_looks_whatever_they_were_about() {
        let wake = Wake::default();
        let mut signal = wake.signal();
        (0..=CAPACITY).for_each(|_| wake.send_in(OTHER));
        assert_eq!(signal.woken_in(|thread| thread == THREAD).now_or_never(), Some(()));
        assert_eq!(signal.woken_in(|thread| thread == THREAD).now_or_never(), None);
    }
}
