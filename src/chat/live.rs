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

/// As many bytes of words are told at once, about, where so many were said before a reader came by.
const PIECE_BYTES: usize = 16 << 10;

/// What one turn said.
#[derive(Debug, Default)]
pub(crate) struct TurnLog(watch::Sender<Said>);

#[derive(Debug, Default)]
struct Said {
    events: Vec<TurnEvent<'static>>,
    /// Whether nothing follows.
    over: bool,
}

impl Said {
    /// Adds what is said. Words go on in the event that they go on from, so that a log is as long as its words, and not
    /// as the pieces that they came in.
    fn add(&mut self, event: TurnEvent<'static>) {
        let grown = match (self.events.last_mut(), &event) {
            (Some(TurnEvent::Text(words)), TurnEvent::Text(more))
            | (Some(TurnEvent::Reasoning(words)), TurnEvent::Reasoning(more)) => Some((words, more)),
            (
                Some(TurnEvent::CallArguments { tool_call_id, delta }),
                TurnEvent::CallArguments { tool_call_id: same, delta: more },
            ) if tool_call_id == same => Some((delta, more)),
            _ => None,
        };
        match grown {
            Some((words, more)) => words.to_mut().push_str(more),
            None => self.events.push(event),
        }
    }

    /// Whether there is something behind this place.
    fn goes_on_behind(&self, place: Place) -> bool {
        let words = self.events.get(place.event).and_then(words);
        self.events.len() > place.event + 1
            || match words {
                Some(words) => words.len() > place.read,
                None => self.events.len() > place.event,
            }
    }
}

/// The words of an event that can go on.
fn words<'a>(event: &'a TurnEvent<'static>) -> Option<&'a str> {
    match event {
        TurnEvent::Text(words)
        | TurnEvent::Reasoning(words)
        | TurnEvent::CallArguments { delta: words, .. } => Some(words),
        _ => None,
    }
}

impl TurnLog {
    /// Says one thing.
    pub(crate) fn say(&self, event: TurnEvent<'static>) {
        self.0.send_modify(|said| said.add(event));
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

    /// Whether there is a reader.
    pub(super) fn is_read(&self) -> bool {
        self.0.receiver_count() > 0
    }

    /// A reader at the beginning.
    pub(crate) fn reader(&self) -> Reader {
        Reader { said: self.0.subscribe(), place: Place::default() }
    }
}

/// Whether a reader has had enough for now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Enough {
    Yes,
    No,
}

/// Where a reader is: behind so many events, and so many bytes of the words of the next.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Place {
    event: usize,
    read: usize,
}

/// One client's place in a log.
#[derive(Debug)]
pub(crate) struct Reader {
    said: watch::Receiver<Said>,
    place: Place,
}

impl Reader {
    /// Waits for what is new and reads of it until `each` has had enough of it; false at the end.
    pub(crate) async fn next(&mut self, mut each: impl FnMut(&TurnEvent<'_>) -> Enough) -> bool {
        let before = self.place;
        // Without a log nothing follows either.
        let waited = self.said.wait_for(|said| said.goes_on_behind(before) || said.over).await;
        let Ok(said) = waited else { return false };
        while said.goes_on_behind(self.place)
            && let Some(event) = said.events.get(self.place.event)
        {
            let Place { event: at, read } = self.place;
            let enough = match words(event) {
                None => {
                    self.place = Place { event: at + 1, read: 0 };
                    each(event)
                }
                Some(all) if read >= all.len() => {
                    self.place = Place { event: at + 1, read: 0 };
                    continue;
                }
                Some(all) => {
                    let to = all.ceil_char_boundary(read.saturating_add(PIECE_BYTES));
                    let more = all.get(read..to).unwrap_or_default();
                    self.place.read = to;
                    each(&event.with_words(more))
                }
            };
            if enough == Enough::Yes {
                break;
            }
        }
        self.place != before
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
