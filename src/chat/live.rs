//! What a turn under way has said so far, for everybody who reads along.
//!
//! A reader keeps its place in the turn's one log and encodes from there, so a slow reader costs nothing and
//! holds nobody up, and one that comes late begins at the beginning.

use crate::domain::id::RunId;
use crate::domain::turn::TurnEvent;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use tokio::sync::watch;

/// What one turn said.
#[derive(Debug, Default)]
pub(crate) struct TurnLog(watch::Sender<Said>);

#[derive(Debug, Default)]
struct Said {
    events: Vec<TurnEvent>,
    /// Whether nothing follows.
    over: bool,
}

impl TurnLog {
    /// Says one thing.
    pub(crate) fn say(&self, event: TurnEvent) {
        self.0.send_modify(|said| said.events.push(event));
    }

    /// Says that nothing follows.
    pub(crate) fn close(&self) {
        self.0.send_modify(|said| said.over = true);
    }

    /// Comes back once nothing follows.
    pub(crate) async fn over(&self) {
        let mut said = self.0.subscribe();
        // The sender is this log's own: there is no error.
        let _over = said.wait_for(|said| said.over).await;
    }

    /// A reader at the beginning.
    pub(crate) fn reader(&self) -> Reader {
        Reader { said: self.0.subscribe(), read: 0 }
    }
}

/// Whether a reader has had enough for now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Enough {
    Yes,
    No,
}

/// One client's place in a log.
#[derive(Debug)]
pub(crate) struct Reader {
    said: watch::Receiver<Said>,
    read: usize,
}

impl Reader {
    /// Waits for what is new and reads of it until `each` has had enough of it; false at the end.
    pub(crate) async fn next(&mut self, mut each: impl FnMut(&TurnEvent) -> Enough) -> bool {
        let read = self.read;
        // Without a log nothing follows either.
        let Ok(said) = self.said.wait_for(|said| said.events.len() > read || said.over).await else {
            return false;
        };
        for event in said.events.iter().skip(read) {
            self.read += 1;
            if each(event) == Enough::Yes {
                break;
            }
        }
        self.read > read
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
        self.0.lock().insert(run, log.clone());
    }

    pub(super) fn find(&self, run: RunId) -> Option<Arc<TurnLog>> {
        self.0.lock().get(&run).cloned()
    }

    /// Forgets a turn, unless the run has begun another.
    pub(super) fn end(&self, run: RunId, log: &Arc<TurnLog>) {
        let mut turns = self.0.lock();
        if turns.get(&run).is_some_and(|current| Arc::ptr_eq(current, log)) {
            turns.remove(&run);
        }
    }
}
