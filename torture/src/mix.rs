//! The mix of faults of a run: which kinds of harm, how often, and at which failpoints.

use crate::random::Random;
use clap::ValueEnum;
use std::time::Duration;

/// The lease of a turn or an execution.
pub(crate) const LEASE: Duration = Duration::from_secs(2);

/// The kind of database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Db {
    /// A file with one server.
    Sqlite,
    /// A Postgres server of the run, with any number of replicas.
    Postgres,
}

/// The failpoints of a server.
pub(crate) const POINTS: [&str; 21] = [
    "tool.approved",
    "tool.rejected",
    "tool.started",
    "tool.succeeded",
    "tool.failed",
    "tool.interrupted",
    "tool.requires_approval",
    "run.started",
    "run.waiting",
    "run.resumed",
    "run.completed",
    "run.failed",
    "call.renewed",
    "turn.renewed",
    "step.opened",
    "step.drafted",
    "tool.called",
    "tool.expired",
    "tool.cancelled",
    "other",
    "tool.run",
];

/// The kinds of harm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Harm {
    Kill,
    Pause,
    /// `kill -9` of a remote tool.
    KillRemote,
    PauseRemote,
    Deploy,
    Outage,
    CutAll,
    CutBeforeCommit,
    CutAfterCommit,
    SwallowAfterCommit,
    Delay,
    Lock,
}

/// The frequencies of the kinds of harm.
#[derive(Debug, Clone)]
pub(crate) struct Mix {
    pub(crate) weights: Vec<(Harm, u32)>,
    /// The mean time between two deeds.
    pub(crate) mean: Duration,
    /// The percentage of starts with additional faults.
    pub(crate) failing: u32,
    /// The faults of every start.
    pub(crate) faults: Vec<String>,
    /// Whether a replica's clock may be wrong.
    pub(crate) skews: bool,
}

impl Mix {
    /// Returns a mix of all kinds of harm for a database.
    pub(crate) fn everything(db: Db) -> Self {
        use Harm::*;
        let weights = match db {
            Db::Sqlite => {
                vec![(Kill, 42), (Pause, 13), (KillRemote, 12), (PauseRemote, 6), (Deploy, 9), (Lock, 22)]
            }
            Db::Postgres => vec![
                (Kill, 26),
                (Pause, 20),
                (KillRemote, 12),
                (PauseRemote, 6),
                (Deploy, 7),
                (Outage, 6),
                (CutAll, 6),
                (CutBeforeCommit, 6),
                (CutAfterCommit, 18),
                (SwallowAfterCommit, 4),
                (Delay, 5),
            ],
        };
        let skews = db == Db::Postgres;
        // A pause of the only server stops the whole system, so the harm is less frequent.
        let mean = Duration::from_millis(if skews { 900 } else { 1200 });
        // Rare faults at any commit.
        let faults = [
            "after:*=lose@0.004",
            "before:*=refuse@0.004",
            "before:*=pause:100@0.004",
            "before:*=die@0.002",
            "after:*=die@0.002",
        ];
        let faults = faults.map(str::to_owned).to_vec();
        Self { weights, mean, failing: 50, faults, skews }
    }

    /// Returns a mix without harm.
    pub(crate) fn nothing() -> Self {
        Self {
            weights: Vec::new(),
            mean: Duration::from_secs(1),
            failing: 0,
            faults: Vec::new(),
            skews: false,
        }
    }
}

/// Returns the arguments for the faults of a server, from this start to its end.
pub(crate) fn faults(mix: &Mix, replica: usize, random: &mut Random) -> Vec<String> {
    let mut arguments = vec!["--seed".to_owned(), random.between(0, 1 << 32).to_string()];
    let mut faults = mix.faults.clone();
    if random.percent(mix.failing) {
        for _ in 0..random.between(1, 4) {
            faults.extend(fault(random));
        }
    }
    for fault in faults {
        arguments.extend(["--fault".to_owned(), fault]);
    }
    // Only one replica has a wrong clock, so that the clocks of the replicas disagree.
    if mix.skews && replica == 1 && random.percent(50) {
        let seconds = if random.percent(50) { "300" } else { "-300" };
        arguments.push(format!("--skew={seconds}"));
    }
    arguments
}

fn fault(random: &mut Random) -> Option<String> {
    let point = random.pick(&POINTS)?;
    let side = if random.percent(50) { "before" } else { "after" };
    let lease = LEASE.as_millis();
    let action = match (random.between(0, 100), side) {
        (0..45, _) => "die".to_owned(),
        (45..75, "before") if is_a_commit(point) => "refuse".to_owned(),
        (45..75, _) if is_a_commit(point) => "lose".to_owned(),
        (0..92, _) => format!("pause:{}", random.between(10, 400)),
        _ => format!("pause:{}", lease + lease / 2),
    };
    // Frequent failpoints have a lower probability.
    let often = ["step.drafted", "turn.renewed", "call.renewed", "step.opened", "other"];
    let probability = if often.contains(point) { "0.03" } else { "0.12" };
    Some(format!("{side}:{point}={action}@{probability}"))
}

/// Whether a failpoint is at a commit.
fn is_a_commit(point: &str) -> bool {
    point != "tool.run"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_start_has_its_own_faults_and_the_same_seed_has_the_same() {
        let mix = Mix::everything(Db::Postgres);
        let draw = |seed| faults(&mix, 1, &mut Random::of(seed, "start"));
        assert_eq!(draw(5), draw(5));
        let different: std::collections::BTreeSet<_> = (0..20).map(draw).collect();
        assert!(different.len() > 15);
        assert!(different.iter().flatten().any(|argument| argument.contains("=die@")));
    }
}
