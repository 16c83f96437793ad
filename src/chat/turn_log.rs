//! The events of a running turn, for all its readers.
//!
//! A reader keeps its position in the turn's one log and encodes from there. So a slow reader costs nothing
//! and delays no other reader, and a late reader begins at the beginning.

use holdpoint_core::id::RunId;
use holdpoint_core::turn::TurnEvent;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

/// How long a reader lets a text grow before it reads more of it. Tokens that arrive faster than this share a chunk and a
/// write to the client. The first token of a text does not wait.
const GROWTH_TIME: Duration = Duration::from_millis(1);
/// The approximate size of a text event, in bytes, for a reader that catches up.
const PIECE_BYTES: usize = 16 << 10;

#[derive(Debug, Default)]
pub(crate) struct TurnLog(watch::Sender<Entries>);

#[derive(Debug, Default)]
struct Entries {
    events: Vec<TurnEvent<'static>>,
    /// Whether the log is complete.
    over: bool,
}

impl Entries {
    /// Appends an event. A text delta extends the last event of the same kind, so that the length of the log
    /// depends on the text and not on the number of deltas.
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

    /// Whether there is content after this position.
    fn has_more_after(&self, position: Position) -> bool {
        let words = self.events.get(position.event).and_then(text_of);
        self.events.len() > position.event + 1
            || match words {
                Some(words) => words.len() > position.read,
                None => self.events.len() > position.event,
            }
    }
}

/// Returns the text of an event that later deltas can extend.
fn text_of<'a>(event: &'a TurnEvent<'static>) -> Option<&'a str> {
    match event {
        TurnEvent::Text(words)
        | TurnEvent::Reasoning(words)
        | TurnEvent::CallArguments { delta: words, .. } => Some(words),
        _ => None,
    }
}

impl TurnLog {
    /// Appends an event.
    pub(crate) fn emit(&self, event: TurnEvent<'static>) {
        self.0.send_modify(|entries| entries.add(event));
    }

    /// Marks the log as complete.
    pub(crate) fn close(&self) {
        self.0.send_modify(|entries| entries.over = true);
    }

    /// Completes when the log is complete.
    pub(crate) async fn over(&self) {
        let mut entries = self.0.subscribe();
        // The log owns the sender, so there is no error.
        let _over = entries.wait_for(|entries| entries.over).await;
    }

    /// Whether the log has a reader.
    pub(super) fn is_read(&self) -> bool {
        self.0.receiver_count() > 0
    }

    /// Returns a reader at the beginning of the log.
    pub(crate) fn reader(&self) -> Reader {
        Reader {
            entries: self.0.subscribe(),
            position: Position::default(),
            piece_bytes: PIECE_BYTES,
            growth_time: GROWTH_TIME,
            read_at: None,
        }
    }
}

/// Whether a reader stops for now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Enough {
    Yes,
    No,
}

/// The position of a reader: the number of events read, and the number of text bytes read of the next event.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Position {
    event: usize,
    read: usize,
}

/// One client's position in a log.
#[derive(Debug)]
pub(crate) struct Reader {
    entries: watch::Receiver<Entries>,
    position: Position,
    /// The approximate size of a text event, in bytes.
    piece_bytes: usize,
    /// How long a text may grow between two reads.
    growth_time: Duration,
    /// When the reader read all of a text that may grow.
    read_at: Option<Instant>,
}

impl Reader {
    /// Returns this reader with text events of at most about this size.
    pub(crate) fn in_pieces(self, bytes: usize) -> Self {
        Self { piece_bytes: self.piece_bytes.min(bytes), ..self }
    }

    /// Waits for new content and passes it to `each` until `each` returns [`Enough::Yes`]. Returns false at
    /// the end of the log.
    pub(crate) async fn next(&mut self, mut each: impl FnMut(&TurnEvent<'_>) -> Enough) -> bool {
        let before = self.position;
        let only_grew = {
            let more = |entries: &Entries| entries.has_more_after(before) || entries.over;
            // A dropped log has no further content either.
            let Ok(entries) = self.entries.wait_for(more).await else { return false };
            !entries.over && entries.events.len() == before.event + 1
        };
        if only_grew
            && let Some(read_at) = self.read_at
            && read_at.elapsed() < self.growth_time
        {
            sleep_until(read_at + self.growth_time).await;
        }
        let entries = self.entries.borrow_and_update();
        while entries.has_more_after(self.position)
            && let Some(event) = entries.events.get(self.position.event)
        {
            let Position { event: at, read } = self.position;
            let enough = match text_of(event) {
                None => {
                    self.position = Position { event: at + 1, read: 0 };
                    each(event)
                }
                Some(all) if read >= all.len() => {
                    self.position = Position { event: at + 1, read: 0 };
                    continue;
                }
                Some(all) => {
                    let to = all.ceil_char_boundary(read.saturating_add(self.piece_bytes));
                    let more = all.get(read..to).unwrap_or_default();
                    self.position.read = to;
                    each(&event.with_text(more))
                }
            };
            if enough == Enough::Yes {
                break;
            }
        }
        let may_grow = self.position.read > 0 && !entries.over && !entries.has_more_after(self.position);
        self.read_at = may_grow.then(Instant::now);
        self.position != before
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

    /// Registers this log as the log of the run.
    pub(super) fn adopt(&self, run: RunId, log: &Arc<TurnLog>) {
        self.0.lock().insert(run, log.clone());
    }

    pub(super) fn find(&self, run: RunId) -> Option<Arc<TurnLog>> {
        self.0.lock().get(&run).cloned()
    }

    /// Removes the turn, unless the run has started another.
    pub(super) fn end(&self, run: RunId, log: &Arc<TurnLog>) {
        let mut turns = self.0.lock();
        if turns.get(&run).is_some_and(|current| Arc::ptr_eq(current, log)) {
            turns.remove(&run);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;
    use holdpoint_core::id::ToolCallId;
    use uuid::Uuid;

    fn all(reader: &mut Reader) -> Vec<TurnEvent<'static>> {
        let mut read_events = Vec::new();
        let each = |event: &TurnEvent<'_>| {
            read_events.push(event.clone().into_owned());
            Enough::No
        };
        reader.growth_time = Duration::ZERO;
        reader.next(each).now_or_never();
        read_events
    }

    fn text(words: &str) -> TurnEvent<'static> {
        TurnEvent::Text(words.to_owned().into())
    }

    #[test]
    fn a_reader_receives_only_the_new_part_of_growing_text() {
        let log = TurnLog::default();
        let (mut eager, mut late) = (log.reader(), log.reader());
        let delta = |id, words: &'static str| TurnEvent::CallArguments {
            tool_call_id: ToolCallId::new(Uuid::from_u128(id)),
            delta: words.into(),
        };
        log.emit(TurnEvent::StepStarted);
        log.emit(text("a"));
        assert_eq!(all(&mut eager), [TurnEvent::StepStarted, text("a")]);
        assert_eq!(all(&mut eager), []);
        for event in [text("b"), text("c"), TurnEvent::PartEnded, text("d")] {
            log.emit(event);
        }
        for event in [delta(1, "e"), delta(1, "f"), delta(2, "g"), TurnEvent::Reasoning("h".into())] {
            log.emit(event);
        }
        let rest = [text("d"), delta(1, "ef"), delta(2, "g"), TurnEvent::Reasoning("h".into())];
        let after = |first: &[TurnEvent<'static>]| [first, &[TurnEvent::PartEnded], &rest[..]].concat();
        assert_eq!(all(&mut eager), after(&[text("bc")]));
        assert_eq!(all(&mut late), after(&[TurnEvent::StepStarted, text("abc")]));
    }

    #[tokio::test]
    async fn tokens_that_arrive_faster_than_a_reader_reads_growing_text_are_read_together() {
        let log = TurnLog::default();
        let mut reader = log.reader();
        reader.growth_time = Duration::from_secs(3600);
        log.emit(text("a"));
        let mut first = Vec::new();
        let each = |event: &TurnEvent<'_>| {
            first.push(event.clone().into_owned());
            Enough::No
        };
        assert_eq!(reader.next(each).now_or_never(), Some(true), "the first token does not wait");
        log.emit(text("b"));
        assert_eq!(reader.next(|_| Enough::No).now_or_never(), None, "the text may grow");
        log.emit(text("c"));
        assert_eq!((first, all(&mut reader)), (vec![text("a")], vec![text("bc")]));
    }

    #[test]
    fn long_text_is_read_in_pieces_that_end_at_character_boundaries() {
        let log = TurnLog::default();
        log.emit(text(&"\u{20ac}".repeat(PIECE_BYTES)));
        for (mut reader, piece) in [(log.reader(), PIECE_BYTES), (log.reader().in_pieces(100), 100)] {
            let read_events = all(&mut reader);
            let lengths = read_events.iter().map(|event| text_of(event).unwrap().len());
            assert!(lengths.clone().all(|length| length <= piece + 2), "{lengths:?}");
            assert_eq!(lengths.sum::<usize>(), 3 * PIECE_BYTES);
        }
    }
}
