//! Faults on purpose, for the torture run: failpoints at every commit and around tools, and bugs that its checker has to
//! find. Only with the feature `torture`, which no release has; what happens is chosen when the process starts.
//!
//! A failpoint is a place with a name and two sides, `before` and `after`. A commit is named by the first event it writes
//! (`tool.approved`, `tool.started`, `run.waiting`), a step by its hold (`tool.requires_approval`) where it has one; what
//! writes no event has a name of its own: `call.renewed`, `turn.renewed`, `step.opened`, `step.drafted`,
//! `step.written`, `step.broken`, and `other`. Beside commits there are `tool.run`, `hold.told`, `decision.told` and `sweep.found`.
//!
//! The crate `fail` would not do: it cannot end the process without unwinding, nor have a commit made and its answer lost;
//! its `sleep` stops a thread of the runtime, and its luck has no seed.

use std::fmt::{self, Display};
use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write;
use std::path::Path;
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;

#[cfg(not(debug_assertions))]
compile_error!("the feature `torture` breaks the server on purpose; no release may have it");

/// A static, because a fault may be anywhere and nothing may be handed on for its sake in a release.
static CHOSEN: OnceLock<Chosen> = OnceLock::new();

/// What goes wrong in this process.
#[derive(Debug, Default)]
pub struct Chosen {
    /// At failpoints; of several for the same side of a point, the first with luck.
    pub faults: Vec<Fault>,
    /// What luck is made of: the same hits of the same faults have the same luck.
    pub seed: u64,
    /// Where each hit of a failpoint is told, a JSON object a line.
    pub hits: Option<File>,
    /// A bug that this process has.
    pub bug: Option<Bug>,
    /// How far its clock is ahead, in microseconds.
    pub skew_micros: i64,
}

impl Chosen {
    /// Chooses it for this process, for good. False if something was chosen before.
    pub fn install(self) -> bool {
        CHOSEN.set(self).is_ok()
    }

    /// A file for the hits, which others may append to as well.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn hits_in(path: &Path) -> std::io::Result<File> {
        File::options().create(true).append(true).open(path)
    }
}

/// A side of a failpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Before,
    After,
}

impl Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Before => "before",
            Self::After => "after",
        })
    }
}

/// What a failpoint does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    /// Ends the process at once, as `kill -9` does: nothing is unwound, nothing is flushed.
    Die,
    /// Before a commit: it is not made.
    Refuse,
    /// After a commit: the caller is told that it was not made.
    Lose,
    /// Lets this much time go by.
    Pause(Duration),
}

impl Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Die => f.write_str("die"),
            Self::Refuse => f.write_str("refuse"),
            Self::Lose => f.write_str("lose"),
            Self::Pause(time) => write!(f, "pause:{}", time.as_millis()),
        }
    }
}

/// What may happen at a failpoint, as `after:tool.started=die@0.02`: one side of it; `die`, `refuse` (before), `lose`
/// (after) or `pause:` and milliseconds; and how likely (always, if that is not said). The point `*` is every one;
/// only a commit can be refused or lost.
#[derive(Debug, Clone)]
pub struct Fault {
    side: Side,
    point: String,
    action: Action,
    probability: f64,
    hits: Arc<AtomicU64>,
}

impl FromStr for Fault {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected = || {
            format!("{text:?}: expected before|after:POINT=die|refuse|lose|pause:MILLISECONDS[@PROBABILITY]")
        };
        let (place, what) = text.split_once('=').ok_or_else(expected)?;
        let (side, point) = place.split_once(':').ok_or_else(expected)?;
        let (action, probability) = what.split_once('@').unwrap_or((what, "1"));
        let side = match side {
            "before" => Side::Before,
            "after" => Side::After,
            _ => return Err(expected()),
        };
        let action = match action.split_once(':') {
            None if action == "die" => Action::Die,
            None if action == "refuse" && side == Side::Before => Action::Refuse,
            None if action == "lose" && side == Side::After => Action::Lose,
            Some(("pause", millis)) => {
                Action::Pause(Duration::from_millis(millis.parse().map_err(|_| expected())?))
            }
            _ => return Err(expected()),
        };
        let probability =
            probability.parse().ok().filter(|it| (0.0..=1.0).contains(it)).ok_or_else(expected)?;
        Ok(Self { side, point: point.to_owned(), action, probability, hits: Arc::default() })
    }
}

impl Fault {
    fn is_at(&self, side: Side, point: &Point) -> bool {
        let applies = point.commits || !matches!(self.action, Action::Refuse | Action::Lose);
        applies && self.side == side && (self.point == "*" || self.point == point.name)
    }

    /// Whether this hit has bad luck. Each hit has its own, whatever other tasks hit meanwhile.
    fn strikes(&self, seed: u64) -> bool {
        let mut hasher = DefaultHasher::new();
        let hit = self.hits.fetch_add(1, Ordering::Relaxed);
        (seed, hit, self.side == Side::Before, &self.point, self.action.to_string()).hash(&mut hasher);
        // The upper half is a number from 0 up to 1 in steps that a float has.
        let chance = f64::from((hasher.finish() >> 32) as u32) / (f64::from(u32::MAX) + 1.0);
        chance < self.probability
    }
}

/// A place where something may go wrong, and the call that it is about, if it is about one.
#[derive(Debug, Clone)]
pub(crate) struct Point {
    name: &'static str,
    call: Option<String>,
    /// Whether it is a commit, which can be refused and whose answer can be lost.
    commits: bool,
}

/// How a failpoint was passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Passed {
    Well,
    /// The caller has to be told that it failed.
    Failed,
}

impl Point {
    pub(crate) fn of(name: &'static str, call: Option<&dyn Display>) -> Self {
        Self { name, call: call.map(ToString::to_string), commits: false }
    }

    /// What goes wrong before it.
    pub(crate) async fn before(&self) -> Passed {
        Box::pin(self.pass(Side::Before)).await
    }

    /// What goes wrong after it.
    pub(crate) async fn after(&self) -> Passed {
        Box::pin(self.pass(Side::After)).await
    }

    async fn pass(&self, side: Side) -> Passed {
        let Some(chosen) = CHOSEN.get() else { return Passed::Well };
        let at_point = chosen.faults.iter().filter(|fault| fault.is_at(side, self));
        let action =
            at_point.map(|fault| (fault.strikes(chosen.seed), fault.action)).find(|(strikes, _)| *strikes);
        let action = action.map(|(_, action)| action);
        if let Some(mut hits) = chosen.hits.as_ref() {
            // A line that cannot be written is missed by whoever counts them.
            let _written = hits.write_all(self.line(side, action).as_bytes());
        }
        match action {
            None => {}
            Some(Action::Die) => std::process::abort(),
            Some(Action::Refuse | Action::Lose) => return Passed::Failed,
            Some(Action::Pause(time)) => tokio::time::sleep(time).await,
        }
        Passed::Well
    }

    fn line(&self, side: Side, action: Option<Action>) -> String {
        let line = serde_json::json!({
            "at": machine_micros(),
            "pid": std::process::id(),
            "point": format!("{side}:{}", self.name),
            "call": self.call,
            "action": action.map(|action| action.to_string()),
        });
        format!("{line}\n")
    }
}

/// The name of a commit: the first thing that was said of it.
#[derive(Debug, Default)]
pub(crate) struct CommitName(Mutex<Option<Point>>);

impl CommitName {
    pub(crate) fn set(&self, name: &'static str, call: Option<&dyn Display>) {
        self.0.lock().get_or_insert_with(|| Point::of(name, call));
    }

    pub(crate) fn into_point(self) -> Point {
        let named = self.0.into_inner().unwrap_or_else(|| Point::of("other", None));
        Point { commits: true, ..named }
    }
}

/// How far this process's clock is ahead, in microseconds.
pub(crate) fn skew_micros() -> i64 {
    CHOSEN.get().map_or(0, |chosen| chosen.skew_micros)
}

/// Whether this process has the bug.
pub(crate) fn has(bug: Bug) -> bool {
    CHOSEN.get().is_some_and(|chosen| chosen.bug == Some(bug))
}

/// By the machine's clock, whatever the process takes for its own: who counts hits compares those of many processes.
#[expect(
    clippy::disallowed_methods,
    reason = "the domain's clock may be ahead, and is not this rank's to use"
)]
fn machine_micros() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

/// A bug that the checker of a run has to find, at its true place. Each says which guard of the database refuses what it
/// does; where none can see it, only the checker is left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Bug {
    /// A decision moves a call whatever its state. Refused by `tool_calls_decided` (SQLite), `tool_calls_moves`
    /// (Postgres): a decision is final.
    DecideAnyState,
    /// The tool runs, then the call is claimed. No database can see it: the rows are the same, later.
    ClaimAfterTool,
    /// The sweeper closes by its id a call that it found silent a while ago. Refused where the call has ended since, by
    /// `tool_calls_moves`: succeeded or failed to interrupted is no transition. Where it has been renewed no
    /// database can see it.
    ReapById,
    /// What lost its process is run again, harmless or not. Refused by `tool_calls_attempts` (SQLite), `tool_calls_moves`
    /// (Postgres), and by the CHECK on `exec_attempt`.
    ReapToApproved,
    /// Holds are told before they are committed. No database can see it.
    TellBeforeCommit,
    /// Threads are everybody's. No database can see it: nothing is written amiss.
    NoTenant,
    /// The request's future owns the decision and the tool, so that a client's going away cuts them off. No
    /// database can see it.
    RequestOwnsWork,
    /// What is urgent is written without a transaction of its own, on connections that a `BEGIN` was left on which
    /// nobody tracks. No database can see it: to it the transaction is not over yet.
    LeakedTransaction,
    /// A late outcome rewrites what the model was told. Refused by `sent_answers_fixed`.
    LateRewrites,
    /// A later decision overwrites the one in force. Refused by `tool_calls_decided` (SQLite), `tool_calls_moves`
    /// (Postgres), and by the CHECKs on `validated` and the state.
    LastWins,
}
