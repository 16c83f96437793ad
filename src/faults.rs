//! Deliberate faults for the torture run: failpoints at every commit and around tools, and bugs that the
//! checker of the run has to find. They exist only with the feature `torture`, which no release has. They are
//! configured when the process starts.
//!
//! A failpoint has a name and two sides, `before` and `after`. The name of a commit is its first event
//! (`tool.approved`, `tool.started`, `run.waiting`). A step with a hold has the event of the hold
//! (`tool.requires_approval`). A commit without events has a name of its own: `call.renewed`, `turn.renewed`,
//! `step.opened`, `step.drafted`, `step.written`, `step.broken`, and `other`. Further failpoints are
//! `tool.run`, `hold.told`, `decision.told` and `sweep.found`.
//!
//! The crate `fail` is not sufficient: it cannot end the process without unwinding, and cannot make a commit
//! and lose its result. Its `sleep` blocks a thread of the runtime, and its randomness has no seed.

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

/// A static, so that releases do not have to pass this value to every place with a fault.
static CHOSEN: OnceLock<Chosen> = OnceLock::new();

/// The faults of this process.
#[derive(Debug, Default)]
pub struct Chosen {
    /// The faults at failpoints. If several apply to one side of a failpoint, the first one that strikes
    /// counts.
    pub faults: Vec<Fault>,
    /// The seed of the randomness. The same hits of the same faults have the same result.
    pub seed: u64,
    /// The file for the hits of failpoints, one JSON object a line.
    pub hits: Option<File>,
    /// The planted bug of this process.
    pub bug: Option<Bug>,
    /// The offset of the clock, in microseconds ahead.
    pub skew_micros: i64,
}

impl Chosen {
    /// Installs these faults for the lifetime of the process. Returns false if faults were installed before.
    pub fn install(self) -> bool {
        CHOSEN.set(self).is_ok()
    }

    /// Opens a file for the hits. Other processes may append to the same file.
    ///
    /// # Errors
    /// Returns an error if the file cannot be opened.
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

/// The effect of a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    /// Ends the process immediately, like `kill -9`, without unwinding or flushing.
    Die,
    /// Prevents the commit. Applies before a commit.
    Refuse,
    /// Reports a made commit as failed. Applies after a commit.
    Lose,
    /// Waits for this time.
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

/// A possible fault at a failpoint, such as `after:tool.started=die@0.02`: the side; `die`, `refuse`
/// (before), `lose` (after) or `pause:` with milliseconds; and the probability (default: always). The name
/// `*` matches every failpoint; only commits can be refused or lost.
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

    /// Whether the fault strikes at this hit. Each hit has its own random number, independent of concurrent
    /// tasks.
    fn strikes(&self, seed: u64) -> bool {
        let mut hasher = DefaultHasher::new();
        let hit = self.hits.fetch_add(1, Ordering::Relaxed);
        (seed, hit, self.side == Side::Before, &self.point, self.action.to_string()).hash(&mut hasher);
        // The upper half becomes a number from 0 (inclusive) to 1 (exclusive), in steps that a float
        // represents.
        let chance = f64::from((hasher.finish() >> 32) as u32) / (f64::from(u32::MAX) + 1.0);
        chance < self.probability
    }
}

/// A failpoint, with the id of its call, if it has one.
#[derive(Debug, Clone)]
pub(crate) struct Point {
    name: &'static str,
    call: Option<String>,
    /// Whether the failpoint is a commit, which can be refused and whose result can be lost.
    commits: bool,
}

/// The result of a failpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Passed {
    Well,
    /// The caller receives a failure.
    Failed,
}

impl Point {
    pub(crate) fn of(name: &'static str, call: Option<&dyn Display>) -> Self {
        Self { name, call: call.map(ToString::to_string), commits: false }
    }

    /// Runs the faults before the failpoint.
    pub(crate) async fn before(&self) -> Passed {
        Box::pin(self.pass(Side::Before)).await
    }

    /// Runs the faults after the failpoint.
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
            // A line that cannot be written is missing in the count of hits.
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

/// The name of a commit: the first name that is set.
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

/// Returns how far this process's clock is ahead, in microseconds.
pub(crate) fn skew_micros() -> i64 {
    CHOSEN.get().map_or(0, |chosen| chosen.skew_micros)
}

/// Whether this process has the bug.
pub(crate) fn has(bug: Bug) -> bool {
    CHOSEN.get().is_some_and(|chosen| chosen.bug == Some(bug))
}

/// Returns the time of the machine's clock, without the offset of the process, because the checker compares
/// the hits of many processes.
#[expect(
    clippy::disallowed_methods,
    reason = "the domain's clock may be skewed, and this layer must not use the domain"
)]
fn machine_micros() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

/// A planted bug that the checker of a run has to find, at a realistic place. Each variant names the guard of
/// the database that refuses its effect, if a guard can. Otherwise only the checker can find the bug.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Bug {
    /// A decision moves a call whatever its state is. Refused by `tool_calls_decided` (SQLite),
    /// `tool_calls_moves` (Postgres): a decision is final.
    DecideAnyState,
    /// The tool runs before the call is claimed. The database cannot detect this: the rows are the same, only
    /// later.
    ClaimAfterTool,
    /// The sweeper closes a call by its id, after an earlier check found the lease expired. If the call ended
    /// since, `tool_calls_moves` refuses: succeeded or failed to interrupted is not a legal transition. If
    /// the lease was renewed since, the database cannot detect this.
    ReapById,
    /// A call of a lost process runs again, even if the tool is not idempotent. Refused by
    /// `tool_calls_attempts` (SQLite), `tool_calls_moves` (Postgres), and by the CHECK on `exec_attempt`.
    ReapToApproved,
    /// Holds are emitted before their commit. The database cannot detect this.
    TellBeforeCommit,
    /// Threads are visible to every user. The database cannot detect this, because all writes are correct.
    NoTenant,
    /// The request's future owns the decision and the tool, so a client that disconnects cuts both off. The
    /// database cannot detect this.
    RequestOwnsWork,
    /// Urgent writes have no transaction of their own, on connections with an untracked `BEGIN`. The database
    /// cannot detect this: for the database the transaction is still open.
    LeakedTransaction,
    /// A late outcome rewrites a result that the model has read. Refused by `sent_answers_fixed`.
    LateRewrites,
    /// A later decision overwrites the decision in force. Refused by `tool_calls_decided` (SQLite),
    /// `tool_calls_moves` (Postgres), and by the CHECKs on `validated` and the state.
    LastWins,
}
