//! What a turn under way has said so far, for everybody who reads along.
//!
//! A reader keeps its place in the turn's one log and encodes from there, so a slow reader costs nothing and
//! holds nobody up, and one that comes late begins at the beginning.

use crate::domain::id::RunId;
use crate::domain::turn::TurnEvent;
use bytes::BytesMut;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;

/// What one turn said.
#[derive(Debug, Default)]
pub(crate) struct TurnLog {
    events: Mutex<Vec<TurnEvent>>,
    /// How much there is, and whether more can come.
    progress: watch::Sender<Progress>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Progress {
    events: usize,
    over: bool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is guarded stays whole even if a holder panicked: each change is one call.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl TurnLog {
    /// Says one thing.
    pub(crate) fn say(&self, event: TurnEvent) {
        let mut events = lock(&self.events);
        events.push(event);
        let count = events.len();
        drop(events);
        self.progress.send_modify(|progress| progress.events = count);
    }

    /// Says that nothing follows.
    pub(crate) fn close(&self) {
        self.progress.send_modify(|progress| progress.over = true);
    }

    /// A reader at the beginning.
    pub(crate) fn reader(self: Arc<Self>) -> Reader {
        let progress = self.progress.subscribe();
        Reader { log: self, read: 0, progress }
    }
}

/// One client's place in a log.
#[derive(Debug)]
pub(crate) struct Reader {
    log: Arc<TurnLog>,
    read: usize,
    progress: watch::Receiver<Progress>,
}

impl Reader {
    /// Waits for what is new and encodes all of it; `None` at the end.
    pub(crate) async fn next(&mut self, encode: impl Fn(&TurnEvent, &mut BytesMut)) -> Option<BytesMut> {
        let seen = self.read;
        // The sender is gone only with the log, which this reader keeps.
        let progress = self.progress.wait_for(|now| now.events > seen || now.over).await.ok()?;
        drop(progress);
        let mut out = BytesMut::new();
        let events = lock(&self.log.events);
        for event in events.iter().skip(seen) {
            encode(event, &mut out);
        }
        self.read = events.len();
        drop(events);
        (!out.is_empty()).then_some(out)
    }
}

/// The turns that this process runs.
#[derive(Debug, Clone, Default)]
pub(super) struct LiveTurns(Arc<Mutex<HashMap<RunId, Arc<TurnLog>>>>);

impl LiveTurns {
    pub(super) fn begin(&self, run: RunId) -> Arc<TurnLog> {
        let log = Arc::new(TurnLog::default());
        self.adopt(run, &log);
        log
    }

    /// Lets others find this log as the run's.
    pub(super) fn adopt(&self, run: RunId, log: &Arc<TurnLog>) {
        lock(&self.0).insert(run, log.clone());
    }

    pub(super) fn find(&self, run: RunId) -> Option<Arc<TurnLog>> {
        lock(&self.0).get(&run).cloned()
    }

    /// Forgets a turn, unless the run has begun another.
    pub(super) fn end(&self, run: RunId, log: &Arc<TurnLog>) {
        let mut turns = lock(&self.0);
        if turns.get(&run).is_some_and(|current| Arc::ptr_eq(current, log)) {
            turns.remove(&run);
        }
    }
}
