//! Turns of other processes, read along here.
//!
//! Who runs a turn writes down what it says: drafts of a step, then the step with its calls, their ends, its own. Here
//! that is looked at again and again, and what is new is told as if the turn ran here, in a log that all who read it
//! here share. The log is gone when nobody reads it.

use super::Chat;
use super::live::TurnLog;
use crate::agent::Tasks;
use crate::domain::call::{State, ToolCall};
use crate::domain::id::{RunId, ToolCallId};
use crate::domain::message::{Part, Step, StepStatus, Usage};
use crate::domain::run::{Run, TurnError, TurnErrorCode};
use crate::domain::turn::{FinishReason, Shown, Spent, Standing, TurnEvent};
use crate::store::{FollowedTurn, Mark, Read, SeenStep, Store, StoreError, Thread, TurnEnd};
use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::time::{Instant, sleep};
use tracing::Instrument;

/// How often it is looked what another process has written of a turn.
const LOOK: Duration = Duration::from_millis(500);

/// A turn: no two of a run begin at once.
type Key = (RunId, i64);

/// The turns of other processes that somebody reads here.
#[derive(Debug, Clone, Default)]
pub(super) struct FollowedTurns(Arc<Mutex<HashMap<Key, Weak<TurnLog>>>>);

impl FollowedTurns {
    /// The log of this turn, and whether it is new.
    fn log(&self, key: Key) -> (Arc<TurnLog>, bool) {
        let mut turns = self.0.lock();
        if let Some(log) = turns.get(&key).and_then(Weak::upgrade) {
            return (log, false);
        }
        let log = Arc::new(TurnLog::default());
        turns.insert(key, Arc::downgrade(&log));
        (log, true)
    }

    /// Forgets a turn that nobody reads but whoever asks here. Nobody finds it meanwhile: that takes the same lock.
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
    /// What the turn under way of this run says, from its beginning, whichever process runs it. `None` where nobody
    /// can tell.
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
        let Some(turn) = read.turn_to_follow(thread, run).await? else { return Ok(None) };
        let key = (run.id, turn.began.as_micros());
        let (log, is_new) = self.followed.log(key);
        if is_new {
            let (store, tasks) = (self.store.clone(), self.tasks.clone());
            let told = Told::new(turn.first, turn.before);
            let follower =
                Follower { store, tasks, followed: self.followed.clone(), key, turn, told, log: log.clone() };
            let span = tracing::error_span!("follow", thread_id = %thread.id, run_id = %run.id);
            let patience = self.settings.lease;
            self.tasks.spawn(async move { follower.follow(patience).await }.instrument(span));
        }
        Ok(Some(log))
    }
}

/// Tells what another process writes of a turn. It closes its log however it ends, so that no reader waits for ever.
struct Follower {
    store: Store,
    tasks: Tasks,
    followed: FollowedTurns,
    key: Key,
    turn: FollowedTurn,
    told: Told,
    log: Arc<TurnLog>,
}

impl Drop for Follower {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // A page that was told nothing would post again, for ever.
            self.give_up(TurnError::internal());
        }
        self.log.close();
        self.followed.forget(self.key, &self.log);
    }
}

impl Follower {
    /// Until the turn is over, nobody reads any more, the database has not answered for so long, or this process
    /// leaves. Whether the other process lives is for others to find out, who close what it left.
    async fn follow(mut self, patience: Duration) {
        std::mem::take(&mut self.turn.continued).into_iter().for_each(|event| self.log.say(event));
        let mut mark = None;
        let mut answered = Instant::now();
        loop {
            match self.look(&mut mark).await {
                Ok(true) => return,
                Ok(false) => answered = Instant::now(),
                Err(error) if answered.elapsed() > patience => {
                    tracing::error!(%error, "a turn of another process cannot be followed any more");
                    return self.give_up(TurnError::internal());
                }
                Err(error) => tracing::warn!(%error, "a turn of another process could not be looked at"),
            }
            tokio::select! {
                () = sleep(LOOK) => {}
                () = self.tasks.stopping() => {
                    let message = "The server stopped before the answer was complete; it goes on elsewhere.";
                    let error = TurnError { code: TurnErrorCode::Interrupted, message: message.to_owned() };
                    return self.give_up(error);
                }
            }
            if self.followed.forget_unread(self.key, &self.log) {
                return;
            }
        }
    }

    fn give_up(&self, error: TurnError) {
        self.log.say(TurnEvent::Failed { error, spent: self.told.spent });
    }

    /// Tells what is new; whether the turn is over.
    async fn look(&mut self, mark: &mut Option<Mark>) -> Result<bool, StoreError> {
        let read = self.store.read().await?;
        let now = read.mark(&self.turn).await?;
        if mark.as_ref() == Some(&now) {
            return Ok(false);
        }
        let seen = read.seen(&self.turn, self.told.n).await?;
        drop(read);
        *mark = Some(now);
        let say = |event| self.log.say(event);
        let last = seen.steps.len();
        for (at, step) in (1..).zip(&seen.steps) {
            let behind = if at < last {
                Behind::Step
            } else if seen.end.is_some() {
                Behind::End
            } else {
                Behind::Nothing
            };
            self.told.step(step, behind, &say);
        }
        if let Some(end) = &seen.end {
            say(self.told.end(end));
        }
        Ok(seen.end.is_some())
    }
}

type Say<'a> = &'a dyn Fn(TurnEvent<'static>);

/// What is seen behind a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Behind {
    Nothing,
    /// Another of the turn.
    Step,
    /// The end of the turn.
    End,
}

/// How far a turn is told.
#[derive(Debug, Clone)]
struct Told {
    /// The step that is told, and whether it was begun.
    n: i32,
    begun: bool,
    /// The part of the step that is told, and how many bytes of it.
    part: usize,
    read: usize,
    ended: HashSet<ToolCallId>,
    /// Whether what the step cost is counted, and its end told.
    counted: bool,
    finished: bool,
    /// How its held calls were told to stand, until more is told of them.
    held: Option<Vec<Standing>>,
    /// Why the last whole step ended.
    reason: FinishReason,
    spent: Spent,
    /// What the steps before the turn cost.
    before: Option<Usage>,
}

impl Told {
    /// Nothing yet of a turn that begins with this step.
    fn new(first: i32, before: Option<Usage>) -> Self {
        Self {
            n: first,
            begun: false,
            part: 0,
            read: 0,
            ended: HashSet::new(),
            counted: false,
            finished: false,
            held: None,
            reason: FinishReason::Other,
            spent: Spent::default(),
            before,
        }
    }

    /// Tells what is new of a step, and of what comes between it and what is seen behind it.
    fn step(&mut self, seen: &SeenStep, behind: Behind, say: Say<'_>) {
        let SeenStep { step, reason } = seen;
        if step.n != self.n || !self.begun {
            let Self { reason, spent, before, .. } = *self;
            *self = Self { begun: true, reason, spent, ..Self::new(step.n, before) };
            self.spent.message = self.spent.message.or(self.before);
            say(TurnEvent::StepStarted);
        }
        if !self.parts(step, say) {
            return;
        }
        if self.finished {
            return self.behind(step, behind, say);
        }
        let own = || step.calls.iter().filter(|call| !call.held);
        let mut ended: Vec<_> = own().filter(|call| !self.ended.contains(&call.id)).collect();
        ended.sort_by_key(|call| call.end().map(|end| end.at));
        for call in ended {
            if let Some(shown) = Shown::of(call) {
                self.ended.insert(call.id);
                say(TurnEvent::CallEnded { tool_call_id: call.id, shown });
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
            let held: Vec<_> = step.calls.iter().filter(|call| call.held).map(Standing::of).collect();
            if !held.is_empty() {
                say(TurnEvent::Held(held.clone()));
                self.held = Some(held);
            }
            say(TurnEvent::StepFinished { reason: self.reason, usage: step.usage });
            self.finished = true;
            self.behind(step, behind, say);
        }
    }

    /// Tells, once, how the held calls of a step stand about which somebody was asked in the midst of the turn.
    fn behind(&mut self, step: &Step, behind: Behind, say: Say<'_>) {
        let Some(told) = self.held.take_if(|_| behind != Behind::Nothing) else { return };
        let held: Vec<ToolCall> = step.calls.iter().filter(|call| call.held).cloned().collect();
        let stand = match behind {
            Behind::Step => Some(held.iter().map(Standing::of).collect()),
            Behind::End | Behind::Nothing => Standing::changed(&held, &told),
        };
        if let Some(stand) = stand {
            say(TurnEvent::Continued(stand));
        }
    }

    /// Tells what is new of a step's parts; whether that is all there are. What stands behind a call that is not stored
    /// waits for it, so that all stands where it belongs.
    fn parts(&mut self, step: &Step, say: Say<'_>) -> bool {
        let call = |id: &ToolCallId| step.calls.iter().find(|call| call.id == *id);
        // In a step that has ended, a call that is not stored broke off. None of those was passed before.
        let is_there = |part: &&Part| match part {
            Part::ToolCall { tool_call_id } => {
                step.status == StepStatus::Streaming || call(tool_call_id).is_some()
            }
            _ => true,
        };
        for (at, part) in step.parts.iter().filter(is_there).enumerate().skip(self.part) {
            if at > self.part {
                say(TurnEvent::PartEnded);
                (self.part, self.read) = (at, 0);
            }
            match part {
                Part::Text { text } => {
                    if let Some(new) = self.new_words(text) {
                        say(TurnEvent::Text(new.into()));
                    }
                }
                Part::Reasoning { text } => {
                    if let Some(new) = self.new_words(text) {
                        say(TurnEvent::Reasoning(new.into()));
                    }
                }
                // What has no words is told at once, and whole.
                _ if self.read > 0 => {}
                Part::Source(source) => {
                    self.read = 1;
                    say(TurnEvent::Source(source.clone()));
                }
                Part::File(file) => {
                    self.read = 1;
                    say(TurnEvent::File(file.clone()));
                }
                Part::ToolCall { tool_call_id } => {
                    let Some(call) = call(tool_call_id) else { return false };
                    self.read = 1;
                    say(as_asked(call));
                }
            }
        }
        true
    }

    fn new_words(&mut self, text: &str) -> Option<String> {
        let new = text.get(self.read..).filter(|new| !new.is_empty())?;
        self.read = text.len();
        Some(new.to_owned())
    }

    /// What to tell at the end.
    fn end(&self, end: &TurnEnd) -> TurnEvent<'static> {
        let spent = self.spent;
        match end {
            TurnEnd::Waiting | TurnEnd::Completed => TurnEvent::Finished { reason: self.reason, spent },
            TurnEnd::Cancelled => TurnEvent::Cancelled { spent },
            TurnEnd::Failed(error) => TurnEvent::Failed { error: error.clone(), spent },
        }
    }
}

/// A call is stored, as it was when it was: an edit is told with the outcome.
fn as_asked(call: &ToolCall) -> TurnEvent<'static> {
    let input = match call.state {
        State::Invalid(_) => call.shown_input(),
        _ => &call.input,
    };
    TurnEvent::CallStored { tool_call_id: call.id, tool_name: call.name.clone(), input: input.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::clock::Timestamp;
    use std::cell::RefCell;
    use uuid::Uuid;

    fn run() -> RunId {
        RunId::new(Uuid::from_u128(1))
    }

    fn told() -> Told {
        Told::new(0, None)
    }

    fn text(words: &str) -> Part {
        Part::Text { text: words.to_owned() }
    }

    fn call() -> Part {
        Part::ToolCall { tool_call_id: ToolCallId::new(Uuid::from_u128(2)) }
    }

    /// What is told of a step that is seen so, one after the other.
    fn all_told(seen: &[(StepStatus, &[Part])]) -> Vec<TurnEvent<'static>> {
        let (mut told, said) = (told(), RefCell::new(Vec::new()));
        for (status, parts) in seen {
            let step = Step {
                n: 0,
                status: *status,
                parts: parts.to_vec(),
                calls: Vec::new(),
                usage: None,
                origin: None,
                provider_state: None,
                created_at: Timestamp::from_micros(0),
            };
            let before = said.borrow().len();
            let step =
                SeenStep { step, reason: (*status == StepStatus::Complete).then_some(FinishReason::Stop) };
            told.step(&step, Behind::Nothing, &|event| said.borrow_mut().push(event));
            let after = said.borrow().len();
            told.step(&step, Behind::Nothing, &|event| said.borrow_mut().push(event));
            assert_eq!(said.borrow().len(), after, "nothing is told twice, after {before}");
        }
        said.into_inner()
    }

    #[test]
    fn words_are_told_as_they_grow_and_thoughts_apart() {
        let thought = Part::Reasoning { text: "hm".to_owned() };
        let said = all_told(&[
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
        assert_eq!(said, expected);
    }

    #[test]
    fn what_stands_behind_a_call_waits_for_it_until_the_step_has_ended() {
        let open = [text("a"), call(), text("b")];
        let expected = [
            TurnEvent::StepStarted,
            TurnEvent::Text("a".into()),
            TurnEvent::PartEnded,
            TurnEvent::Text("b".into()),
        ];
        // As whoever closes a dead turn leaves it, and as a turn that breaks writes it.
        for left in [&open[..], &[text("a"), text("b")]] {
            let seen = [(StepStatus::Streaming, &open[..]), (StepStatus::Interrupted, left)];
            assert_eq!(all_told(&seen[..1]), expected[..3]);
            assert_eq!(all_told(&seen), expected);
        }
    }

    #[test]
    fn a_log_is_shared_by_all_who_read_it_and_gone_when_nobody_does() {
        let (turns, key) = (FollowedTurns::default(), (run(), 1));
        let (log, is_new) = turns.log(key);
        assert!(is_new);
        let (same, is_new) = turns.log(key);
        assert!(!is_new && Arc::ptr_eq(&log, &same));
        assert!(!Arc::ptr_eq(&turns.log((run(), 2)).0, &log), "another turn of the run");
        assert!(!turns.forget_unread(key, &log), "somebody is about to read it");
        let reader = same.reader();
        drop(same);
        assert!(!turns.forget_unread(key, &log), "somebody reads it");
        drop(reader);
        assert!(turns.forget_unread(key, &log));
        let (another, is_new) = turns.log(key);
        assert!(is_new);
        turns.forget(key, &log);
        assert!(!turns.log(key).1, "a log that is forgotten takes no other with it");
        drop(another);
    }
}
