//! Turns of other processes, tailed in this process.
//!
//! The process that runs a turn stores its progress: drafts of a step, then the step with its calls, the ends
//! of the calls, and the end of the turn. A tail polls that progress and emits new content as if the turn ran
//! here. All readers of the turn in this process share the log. The log ends when it has no readers.
//!
//! Any process may serve an address, and processes do not know each other. The rows have to hold the text anyway, in
//! case the process dies.

use super::Chat;
use super::turn_log::TurnLog;
use crate::agent::Tasks;
use holdpoint_core::call::{State, ToolCall};
use holdpoint_core::id::{RunId, ToolCallId};
use holdpoint_core::message::{Part, Step, StepStatus, Usage};
use holdpoint_core::run::{Run, TurnError, TurnErrorCode};
use holdpoint_core::turn::{FinishReason, HeldCallStatus, RenderedResult, SpentTokens, TurnEvent};
use holdpoint_store::{ProgressMark, Read, Store, StoreError, StoredStep, TailedTurn, Thread, TurnEnd};
use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::time::{Instant, sleep};
use tracing::Instrument;

/// The polling interval for the progress of a turn.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// The identity of a turn. No two turns of a run begin at the same time.
type Key = (RunId, i64);

/// The turns of other processes that have readers here.
#[derive(Debug, Clone, Default)]
pub(super) struct TailedTurns(Arc<Mutex<HashMap<Key, Weak<TurnLog>>>>);

impl TailedTurns {
    /// Returns the log of this turn, and whether the log is new.
    fn log(&self, key: Key) -> (Arc<TurnLog>, bool) {
        let mut turns = self.0.lock();
        if let Some(log) = turns.get(&key).and_then(Weak::upgrade) {
            return (log, false);
        }
        let log = Arc::new(TurnLog::default());
        turns.insert(key, Arc::downgrade(&log));
        (log, true)
    }

    /// Removes a turn that has no readers. The caller's reference does not count. No request can find the log
    /// meanwhile, because the lookup takes the same lock.
    fn forget_unread(&self, key: Key, log: &Arc<TurnLog>) -> bool {
        let mut turns = self.0.lock();
        let unread = Arc::strong_count(log) == 1 && !log.is_read();
        if unread {
            turns.remove(&key);
        }
        unread
    }

    fn forget(&self, key: Key, log: &Arc<TurnLog>) {
        let mut turns = self.0.lock();
        if turns.get(&key).is_some_and(|current| std::ptr::eq(current.as_ptr(), Arc::as_ptr(log))) {
            turns.remove(&key);
        }
    }
}

impl Chat {
    /// Returns the log of the running turn of this run, from its beginning, whichever process runs the turn.
    /// `None` if this process cannot read the turn.
    pub(super) async fn running_log(
        &self,
        read: &Read,
        thread: &Thread,
        run: &Run,
    ) -> Result<Option<Arc<TurnLog>>, StoreError> {
        if let Some(log) = self.live.find(run.id) {
            return Ok(Some(log));
        }
        if self.store.has_one_writer() {
            return Ok(None);
        }
        let Some(turn) = read.turn_to_tail(thread, run).await? else { return Ok(None) };
        let key = (run.id, turn.began.as_micros());
        let (log, is_new) = self.tailed.log(key);
        if is_new {
            let (store, tasks) = (self.store.clone(), self.tasks.clone());
            let emitted = TailCursor::new(turn.first, turn.before);
            let follower = Tail {
                store,
                tasks,
                tailed: self.tailed.clone(),
                key,
                turn,
                cursor: emitted,
                log: log.clone(),
            };
            let span = tracing::error_span!("follow", thread_id = %thread.id, run_id = %run.id);
            let max_silence = self.approval.lease;
            self.tasks.spawn(async move { follower.run(max_silence).await }.instrument(span));
        }
        Ok(Some(log))
    }
}

/// Emits the stored progress of another process's turn. Dropping the tail closes its log, so that no reader
/// waits forever.
struct Tail {
    store: Store,
    tasks: Tasks,
    tailed: TailedTurns,
    key: Key,
    turn: TailedTurn,
    cursor: TailCursor,
    log: Arc<TurnLog>,
}

impl Drop for Tail {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // Without an event the client would post again and again.
            self.give_up(TurnError::internal());
        }
        self.log.close();
        self.tailed.forget(self.key, &self.log);
    }
}

impl Tail {
    /// Runs until the turn is over, the log has no readers, the database has not answered for `max_silence`,
    /// or this process stops. The tail does not check whether the other process is alive: the sweeper and
    /// other requests close dead turns.
    async fn run(mut self, max_silence: Duration) {
        std::mem::take(&mut self.turn.continued).into_iter().for_each(|event| self.log.emit(event));
        let mut last_mark = None;
        let mut answered = Instant::now();
        loop {
            match self.poll(&mut last_mark).await {
                Ok(true) => return,
                Ok(false) => answered = Instant::now(),
                Err(error) if answered.elapsed() > max_silence => {
                    tracing::error!(%error, "gave up tailing a turn of another process");
                    return self.give_up(TurnError::internal());
                }
                Err(error) => tracing::warn!(%error, "could not read a turn of another process"),
            }
            tokio::select! {
                () = sleep(POLL_INTERVAL) => {}
                () = self.tasks.stopping() => {
                    let message = "The server stopped before the answer was complete; another server continues it.";
                    let error = TurnError { code: TurnErrorCode::Interrupted, message: message.to_owned() };
                    return self.give_up(error);
                }
            }
            if self.tailed.forget_unread(self.key, &self.log) {
                return;
            }
        }
    }

    fn give_up(&self, error: TurnError) {
        self.log.emit(TurnEvent::Failed { error, spent: self.cursor.spent });
    }

    /// Emits new progress. Returns whether the turn is over.
    async fn poll(&mut self, last_mark: &mut Option<ProgressMark>) -> Result<bool, StoreError> {
        let read = self.store.read().await?;
        let now = read.mark(&self.turn).await?;
        if last_mark.as_ref() == Some(&now) {
            return Ok(false);
        }
        let turn_progress = read.progress(&self.turn, self.cursor.n).await?;
        drop(read);
        *last_mark = Some(now);
        let emit = |event| self.log.emit(event);
        let last = turn_progress.steps.len();
        for (at, step) in (1..).zip(&turn_progress.steps) {
            let successor = if at < last {
                Successor::Step
            } else if turn_progress.end.is_some() {
                Successor::End
            } else {
                Successor::Nothing
            };
            self.cursor.step(step, successor, &emit);
        }
        if let Some(end) = &turn_progress.end {
            emit(self.cursor.end(end));
        }
        Ok(turn_progress.end.is_some())
    }
}

type Emit<'a> = &'a dyn Fn(TurnEvent<'static>);

/// The successor of a step in the stored progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Successor {
    Nothing,
    /// Another step of the turn.
    Step,
    End,
}

/// The position up to which a turn has been emitted.
#[derive(Debug, Clone)]
struct TailCursor {
    /// The current step, and whether its begin has been emitted.
    n: i32,
    started: bool,
    /// The current part of the step, and how many of its bytes have been emitted.
    part: usize,
    read: usize,
    ended: HashSet<ToolCallId>,
    /// Whether the usage of the step is counted, and whether its end has been emitted.
    counted: bool,
    finished: bool,
    /// The emitted status of the step's held calls, until an update is emitted.
    held: Option<Vec<HeldCallStatus>>,
    /// The finish reason of the last complete step.
    reason: FinishReason,
    spent: SpentTokens,
    /// The usage of the steps before the turn.
    before: Option<Usage>,
}

impl TailCursor {
    /// Returns the cursor before a turn that begins with step `first`.
    fn new(first: i32, before: Option<Usage>) -> Self {
        Self {
            n: first,
            started: false,
            part: 0,
            read: 0,
            ended: HashSet::new(),
            counted: false,
            finished: false,
            held: None,
            reason: FinishReason::Other,
            spent: SpentTokens::default(),
            before,
        }
    }

    /// Emits new content of a step, and any hold update between the step and its successor.
    fn step(&mut self, turn_progress: &StoredStep, successor: Successor, emit: Emit<'_>) {
        let StoredStep { step, reason } = turn_progress;
        if step.n != self.n || !self.started {
            let Self { reason, spent, before, .. } = *self;
            *self = Self { started: true, reason, spent, ..Self::new(step.n, before) };
            self.spent.message = self.spent.message.or(self.before);
            emit(TurnEvent::StepStarted);
        }
        if !self.parts(step, emit) {
            return;
        }
        if self.finished {
            return self.emit_hold_updates(step, successor, emit);
        }
        let own = || step.calls.iter().filter(|call| !call.held);
        let mut ended: Vec<_> = own().filter(|call| !self.ended.contains(&call.id)).collect();
        ended.sort_by_key(|call| call.end().map(|end| end.at));
        for call in ended {
            if let Some(shown) = RenderedResult::of(call) {
                self.ended.insert(call.id);
                emit(TurnEvent::CallEnded { tool_call_id: call.id, result: shown });
            }
        }
        if step.status != StepStatus::Complete {
            return;
        }
        self.reason = reason.unwrap_or(FinishReason::Other);
        if let (false, Some(usage)) = (self.counted, step.usage) {
            self.spent.add(usage);
        }
        self.counted = true;
        if own().all(|call| call.end().is_some()) {
            let held: Vec<_> = step.calls.iter().filter(|call| call.held).map(HeldCallStatus::of).collect();
            if !held.is_empty() {
                emit(TurnEvent::Held(held.clone()));
                self.held = Some(held);
            }
            emit(TurnEvent::StepFinished { reason: self.reason, usage: step.usage });
            self.finished = true;
            self.emit_hold_updates(step, successor, emit);
        }
    }

    /// Emits, once, the status of the held calls that the handler was asked about during the turn.
    fn emit_hold_updates(&mut self, step: &Step, successor: Successor, emit: Emit<'_>) {
        let Some(emitted) = self.held.take_if(|_| successor != Successor::Nothing) else { return };
        let held: Vec<ToolCall> = step.calls.iter().filter(|call| call.held).cloned().collect();
        let statuses = match successor {
            Successor::Step => Some(held.iter().map(HeldCallStatus::of).collect()),
            Successor::End | Successor::Nothing => HeldCallStatus::changed(&held, &emitted),
        };
        if let Some(statuses) = statuses {
            emit(TurnEvent::Continued(statuses));
        }
    }

    /// Emits new parts of a step. Returns whether these are all its parts. Parts after a call that is not
    /// stored wait for that call, so that the order is kept.
    fn parts(&mut self, step: &Step, emit: Emit<'_>) -> bool {
        let call = |id: &ToolCallId| step.calls.iter().find(|call| call.id == *id);
        // In a step that has ended, a call that is not stored broke off. The cursor has not passed such a
        // call before.
        let is_there = |part: &&Part| match part {
            Part::ToolCall { tool_call_id } => {
                step.status == StepStatus::Streaming || call(tool_call_id).is_some()
            }
            _ => true,
        };
        for (at, part) in step.parts.iter().filter(is_there).enumerate().skip(self.part) {
            if at > self.part {
                emit(TurnEvent::PartEnded);
                (self.part, self.read) = (at, 0);
            }
            match part {
                Part::Text { text } => {
                    if let Some(new) = self.new_text(text) {
                        emit(TurnEvent::Text(new.into()));
                    }
                }
                Part::Reasoning { text } => {
                    if let Some(new) = self.new_text(text) {
                        emit(TurnEvent::Reasoning(new.into()));
                    }
                }
                // A part without text is emitted at once and whole.
                _ if self.read > 0 => {}
                Part::Source(source) => {
                    self.read = 1;
                    emit(TurnEvent::Source(source.clone()));
                }
                Part::File(file) => {
                    self.read = 1;
                    emit(TurnEvent::File(file.clone()));
                }
                Part::ToolCall { tool_call_id } => {
                    let Some(call) = call(tool_call_id) else { return false };
                    self.read = 1;
                    emit(as_requested(call));
                }
            }
        }
        true
    }

    fn new_text(&mut self, text: &str) -> Option<String> {
        let new = text.get(self.read..).filter(|new| !new.is_empty())?;
        self.read = text.len();
        Some(new.to_owned())
    }

    /// Returns the last event of the turn.
    fn end(&self, end: &TurnEnd) -> TurnEvent<'static> {
        let spent = self.spent;
        match end {
            TurnEnd::Waiting | TurnEnd::Completed => TurnEvent::Finished { reason: self.reason, spent },
            TurnEnd::Cancelled => TurnEvent::Cancelled { spent },
            TurnEnd::Failed(error) => TurnEvent::Failed { error: error.clone(), spent },
        }
    }
}

/// Returns the event of a stored call, with the input as it was stored first. The outcome reports an edit.
fn as_requested(call: &ToolCall) -> TurnEvent<'static> {
    let input = match call.state {
        State::Invalid(_) => call.shown_input(),
        _ => call.shown_proposal(),
    };
    TurnEvent::CallStored { tool_call_id: call.id, tool_name: call.name.clone(), input }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdpoint_core::clock::Timestamp;
    use std::cell::RefCell;
    use uuid::Uuid;

    fn run() -> RunId {
        RunId::new(Uuid::from_u128(1))
    }

    fn emitted() -> TailCursor {
        TailCursor::new(0, None)
    }

    fn text(words: &str) -> Part {
        Part::Text { text: words.to_owned() }
    }

    fn call() -> Part {
        Part::ToolCall { tool_call_id: ToolCallId::new(Uuid::from_u128(2)) }
    }

    /// Returns the events for a step that is read in these states, one after the other.
    fn all_emitted(turn_progress: &[(StepStatus, &[Part])]) -> Vec<TurnEvent<'static>> {
        let (mut emitted, emitted_events) = (emitted(), RefCell::new(Vec::new()));
        for (status, parts) in turn_progress {
            let step = Step {
                n: 0,
                status: *status,
                parts: parts.to_vec(),
                calls: Vec::new(),
                usage: None,
                origin: None,
                provider_state: None,
                window: holdpoint_core::message::Window::default(),
                created_at: Timestamp::from_micros(0),
            };
            let before = emitted_events.borrow().len();
            let step =
                StoredStep { step, reason: (*status == StepStatus::Complete).then_some(FinishReason::Stop) };
            emitted.step(&step, Successor::Nothing, &|event| emitted_events.borrow_mut().push(event));
            let after = emitted_events.borrow().len();
            emitted.step(&step, Successor::Nothing, &|event| emitted_events.borrow_mut().push(event));
            assert_eq!(emitted_events.borrow().len(), after, "no event is emitted twice, after {before}");
        }
        emitted_events.into_inner()
    }

    #[test]
    fn growing_text_and_reasoning_are_emitted_as_separate_deltas() {
        let thought = Part::Reasoning { text: "hm".to_owned() };
        let emitted_events = all_emitted(&[
            (StepStatus::Streaming, &[]),
            (StepStatus::Streaming, std::slice::from_ref(&thought)),
            (StepStatus::Streaming, &[thought.clone(), text("\u{20ac}")]),
            (StepStatus::Complete, &[thought.clone(), text("\u{20ac}1")]),
        ]);
        let expected = [
            TurnEvent::StepStarted,
            TurnEvent::Reasoning("hm".into()),
            TurnEvent::PartEnded,
            TurnEvent::Text("\u{20ac}".into()),
            TurnEvent::Text("1".into()),
            TurnEvent::StepFinished { reason: FinishReason::Stop, usage: None },
        ];
        assert_eq!(emitted_events, expected);
    }

    #[test]
    fn text_after_an_open_call_is_emitted_only_after_the_step_has_ended() {
        let open = [text("a"), call(), text("b")];
        let expected = [
            TurnEvent::StepStarted,
            TurnEvent::Text("a".into()),
            TurnEvent::PartEnded,
            TurnEvent::Text("b".into()),
        ];
        // The first case is left by the process that closes a dead turn, the second by a turn that fails.
        for left in [&open[..], &[text("a"), text("b")]] {
            let turn_progress = [(StepStatus::Streaming, &open[..]), (StepStatus::Interrupted, left)];
            assert_eq!(all_emitted(&turn_progress[..1]), expected[..3]);
            assert_eq!(all_emitted(&turn_progress), expected);
        }
    }

    #[test]
    fn readers_of_a_turn_share_one_log_until_the_log_has_no_reader() {
        let (turns, key) = (TailedTurns::default(), (run(), 1));
        let (log, is_new) = turns.log(key);
        assert!(is_new);
        let (same, is_new) = turns.log(key);
        assert!(!is_new && Arc::ptr_eq(&log, &same));
        assert!(!Arc::ptr_eq(&turns.log((run(), 2)).0, &log), "another turn of the run");
        assert!(!turns.forget_unread(key, &log), "a caller holds the log");
        let reader = same.reader();
        drop(same);
        assert!(!turns.forget_unread(key, &log), "the log has a reader");
        drop(reader);
        assert!(turns.forget_unread(key, &log));
        let (another, is_new) = turns.log(key);
        assert!(is_new);
        turns.forget(key, &log);
        assert!(!turns.log(key).1, "a removed log leaves its successor in place");
        drop(another);
    }
}
