//! The steps of a run: the load on one server after another.

use std::time::Duration;

/// A step, which gives one set of figures.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Step {
    pub(crate) name: &'static str,
    pub(crate) work: Work,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Work {
    /// Clients, each with one new chat after another.
    Chats { at_once: u32, answer: Answer, time: Duration },
    /// Clients, each with one round after another: a message, a held call, its approval, the rest of the answer.
    Holds { at_once: u32, time: Duration },
    /// Chats that begin evenly within a time, each on a connection of its own.
    Burst { chats: u32, answer: Answer, within: Duration },
    /// Threads, one after another, each with one turn after another.
    Threads { threads: u32, turns: u32, answer: Answer },
}

/// The answer of the fake model.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Answer {
    pub(crate) tokens: u32,
    pub(crate) pause: Duration,
}

pub(crate) const WARM_UP: &str = "warm-up";
pub(crate) const WARM_UP_HOLDS: &str = "warm-up with holds";
pub(crate) const SLOW: &str = "slow streams";
pub(crate) const FAST: &str = "fast streams";
pub(crate) const FIRST_TOKEN: &str = "first token";
pub(crate) const FIRST_TOKEN_8: &str = "first token, 8 at once";
pub(crate) const HOLDS: &str = "holds";
pub(crate) const HOLDS_16: &str = "holds, 16 at once";
pub(crate) const THREADS: &str = "long threads";

/// The chats of the step [`SLOW`].
const SLOW_CHATS: u32 = 1000;

/// The turns of a long thread: two messages each, and the last turn begins at message 400.
const LONG_THREAD_TURNS: u32 = 201;

/// Returns the steps of a run. The slow streams follow the first warm-up, because later steps leave free memory in a
/// process, and the memory of the streams would not show.
pub(crate) fn steps(quick: bool) -> Vec<Step> {
    let time = |quickly: u64, fully: u64| Duration::from_secs(if quick { quickly } else { fully });
    let chats = |at_once, tokens, pause, time| Work::Chats {
        at_once,
        answer: Answer { tokens, pause: Duration::from_millis(pause) },
        time,
    };
    let slow = Answer { tokens: 60, pause: Duration::from_millis(50) };
    let short = Answer { tokens: 20, pause: Duration::ZERO };
    let threads = if quick { 2 } else { 5 };
    let step = |name, work| Step { name, work };
    vec![
        step(WARM_UP, chats(8, 50, 0, time(2, 5))),
        // As many at once as later: each connection plans its statements, and each page is logged whole once.
        step(WARM_UP_HOLDS, Work::Holds { at_once: 16, time: time(4, 8) }),
        step(SLOW, Work::Burst { chats: SLOW_CHATS, answer: slow, within: Duration::from_millis(1500) }),
        step(FAST, chats(16, 200, 0, time(4, 8))),
        step(FIRST_TOKEN, chats(1, 5, 20, time(4, 15))),
        step(FIRST_TOKEN_8, chats(8, 10, 20, time(4, 10))),
        step(HOLDS, Work::Holds { at_once: 1, time: time(3, 6) }),
        step(HOLDS_16, Work::Holds { at_once: 16, time: time(4, 8) }),
        step(THREADS, Work::Threads { threads, turns: LONG_THREAD_TURNS, answer: short }),
    ]
}

impl Work {
    /// Whether a server without a database and tools can do this work.
    pub(crate) const fn suits_floors(self) -> bool {
        matches!(self, Self::Chats { .. } | Self::Burst { .. })
    }

    /// Returns about how long the work takes.
    pub(crate) fn duration(self) -> Duration {
        /// Of a turn in a long thread.
        const TURN: Duration = Duration::from_millis(15);
        match self {
            Self::Chats { time, .. } | Self::Holds { time, .. } => time,
            Self::Burst { answer, within, .. } => within + answer.pause * answer.tokens,
            Self::Threads { threads, turns, .. } => TURN * threads * turns,
        }
    }
}
