//! The faults of a server under test: at its commits and around its tools.
//!
//! A failpoint has a name and two sides, `before` and `after`. The name of a commit is that of
//! [`Commit`]: its first event (`tool.approved`, `run.waiting`), or a name of its own (`call.renewed`,
//! `step.opened`). The failpoint around a tool is `tool.run`.
//!
//! The crate `fail` is not sufficient: it cannot end the process without unwinding, and cannot make a commit
//! and lose its result. Its `sleep` blocks a thread of the runtime, and its randomness has no seed.

use futures::FutureExt;
use futures::future::BoxFuture;
use holdpoint::app::{Commit, CommitFailed, CommitHook};
use holdpoint::tools::ToolCallId;
use holdpoint_torture::ledger::machine_micros;
use std::fmt::{self, Display};
use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The failpoint around the tools.
const TOOL: &str = "tool.run";

#[derive(Debug, Default)]
pub(crate) struct Faults {
    /// If several faults apply to one side of a failpoint, the first one that strikes counts.
    pub(crate) faults: Vec<Fault>,
    /// The seed of the randomness. The same hits of the same faults have the same result.
    pub(crate) seed: u64,
    /// The file for the hits of failpoints, one JSON object a line.
    pub(crate) hits: Option<File>,
}

/// Opens a file for the hits. Other processes may append to the same file.
pub(crate) fn hits_in(path: &Path) -> std::io::Result<File> {
    File::options().create(true).append(true).open(path)
}

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
pub(crate) struct Fault {
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
        let (point_of_commit, what) = text.split_once('=').ok_or_else(expected)?;
        let (side, point) = point_of_commit.split_once(':').ok_or_else(expected)?;
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
    fn is_at(&self, side: Side, point: Failpoint) -> bool {
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
        let random = f64::from((hasher.finish() >> 32) as u32) / (f64::from(u32::MAX) + 1.0);
        random < self.probability
    }
}

/// A failpoint, with its call, if it has one.
#[derive(Debug, Clone, Copy)]
struct Failpoint {
    name: &'static str,
    call: Option<ToolCallId>,
    /// Whether the failpoint is a commit, which can be refused and whose result can be lost.
    commits: bool,
}

impl From<&Commit> for Failpoint {
    fn from(commit: &Commit) -> Self {
        Self { name: commit.name, call: commit.call, commits: true }
    }
}

impl Faults {
    /// Runs a tool, with the faults before and after it. The faults after the tool also apply if the tool
    /// panics.
    pub(crate) async fn around_tool<T>(&self, call: ToolCallId, tool: impl Future<Output = T>) -> T {
        let point = Failpoint { name: TOOL, call: Some(call), commits: false };
        // Only a commit can fail, so neither side has an error here.
        let _passed = self.pass(Side::Before, point).await;
        let ran = AssertUnwindSafe(tool).catch_unwind().await;
        let _passed = self.pass(Side::After, point).await;
        ran.unwrap_or_else(|panic| resume_unwind(panic))
    }

    async fn pass(&self, side: Side, point: Failpoint) -> Result<(), CommitFailed> {
        let at_point = self.faults.iter().filter(|fault| fault.is_at(side, point));
        let action =
            at_point.map(|fault| (fault.strikes(self.seed), fault.action)).find(|(strikes, _)| *strikes);
        let action = action.map(|(_, action)| action);
        if let Some(mut hits) = self.hits.as_ref() {
            // A line that cannot be written is missing in the count of hits.
            let _written = hits.write_all(line(side, point, action).as_bytes());
        }
        match action {
            None => {}
            Some(Action::Die) => std::process::abort(),
            Some(Action::Refuse | Action::Lose) => return Err(CommitFailed),
            Some(Action::Pause(time)) => tokio::time::sleep(time).await,
        }
        Ok(())
    }
}

impl CommitHook for Faults {
    fn before<'a>(&'a self, commit: &'a Commit) -> BoxFuture<'a, Result<(), CommitFailed>> {
        self.pass(Side::Before, commit.into()).boxed()
    }

    fn after<'a>(&'a self, commit: &'a Commit) -> BoxFuture<'a, Result<(), CommitFailed>> {
        self.pass(Side::After, commit.into()).boxed()
    }
}

fn line(side: Side, point: Failpoint, action: Option<Action>) -> String {
    let line = serde_json::json!({
        "at": machine_micros(),
        "pid": std::process::id(),
        "point": format!("{side}:{}", point.name),
        "call": point.call.map(|call| call.to_string()),
        "action": action.map(|action| action.to_string()),
    });
    format!("{line}\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    fn faults(texts: &[&str]) -> Faults {
        let faults = texts.iter().map(|text| text.parse().unwrap()).collect();
        Faults { faults, seed: 1, hits: None }
    }

    const APPROVED: Failpoint = Failpoint { name: "tool.approved", call: None, commits: true };
    const RUN: Failpoint = Failpoint { name: TOOL, call: None, commits: false };

    #[test]
    fn a_fault_without_a_side_a_known_action_or_a_probability_is_refused() {
        for text in [
            "tool.approved=die",
            "beside:tool.approved=die",
            "before:tool.approved",
            "before:tool.approved=lose",
            "after:tool.approved=refuse",
            "after:tool.approved=pause:soon",
            "after:tool.approved=die@2",
        ] {
            assert!(text.parse::<Fault>().is_err(), "{text}");
        }
    }

    #[tokio::test]
    async fn a_fault_fails_the_commit_of_its_name_on_its_side_only() {
        let faults = faults(&["before:tool.approved=refuse"]);
        assert_eq!(faults.pass(Side::Before, APPROVED).await, Err(CommitFailed));
        assert_eq!(faults.pass(Side::After, APPROVED).await, Ok(()));
        assert_eq!(faults.pass(Side::Before, Failpoint { name: "other", ..APPROVED }).await, Ok(()));
    }

    #[tokio::test]
    async fn the_star_matches_every_commit_and_a_tool_is_neither_refused_nor_lost() {
        let faults = faults(&["before:*=refuse", "after:*=lose"]);
        for side in [Side::Before, Side::After] {
            assert_eq!(faults.pass(side, APPROVED).await, Err(CommitFailed));
            assert_eq!(faults.pass(side, RUN).await, Ok(()));
        }
    }

    #[tokio::test]
    async fn the_same_seed_strikes_at_the_same_hits() {
        let strikes = || async {
            let faults = faults(&["after:*=lose@0.5"]);
            let mut strikes = Vec::new();
            for _ in 0..40 {
                strikes.push(faults.pass(Side::After, APPROVED).await.is_err());
            }
            strikes
        };
        let first = strikes().await;
        assert_eq!(first, strikes().await);
        assert!(first.contains(&true) && first.contains(&false), "{first:?}");
    }

    #[tokio::test]
    async fn both_sides_of_a_tool_that_panics_are_recorded() {
        let mut file = tempfile::tempfile().unwrap();
        let faults = Faults { hits: Some(file.try_clone().unwrap()), ..faults(&["after:tool.run=pause:1"]) };
        let call = "01890a5d-ac96-774b-bcce-b302099a8057";
        let ran = faults.around_tool(call.parse().unwrap(), async { panic!("it broke") });
        assert!(AssertUnwindSafe(ran).catch_unwind().await.map(|(): ()| ()).is_err());
        let mut text = String::new();
        std::io::Seek::rewind(&mut file).unwrap();
        file.read_to_string(&mut text).unwrap();
        let lines: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let seen: Vec<_> =
            lines.iter().map(|line| (&line["point"], &line["action"], &line["call"])).collect();
        let json = |text: &str| serde_json::Value::from(text);
        let (before, after, pause, call) =
            (json("before:tool.run"), json("after:tool.run"), json("pause:1"), json(call));
        assert_eq!(seen, [(&before, &serde_json::Value::Null, &call), (&after, &pause, &call)]);
    }
}
