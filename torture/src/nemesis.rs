//! The nemesis: a task that kills, stops and replaces servers, stops the database and cuts connections, at
//! random from the seed.

use crate::clock::Micros;
use crate::files::{self, LedgerLine};
use crate::proxy::Harm;
use crate::random::Random;
use crate::record::{Deed, DeedKind};
use crate::world::{Db, LEASE, OWN, REMOTE, RemoteCommand, ReplicaCommand, World};
use anyhow::Result;
use sea_orm::ConnectionTrait;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

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
pub(crate) enum Harming {
    Kill,
    Pause,
    /// `kill -9` of a remote tool.
    KillRemote,
    /// A pause of a remote tool.
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
    pub(crate) weights: Vec<(Harming, u32)>,
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
        use Harming::*;
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

/// The number of answered requests between two deeds.
const WORK: u64 = 12;

/// Does harm until `stop` is set, and then completes after all started deeds.
///
/// # Errors
/// A part of the world that the run needs is broken.
pub(crate) async fn run(world: Arc<World>, mix: Mix, stop: watch::Receiver<bool>) -> Result<()> {
    let mut random = Random::of(world.shared.seed, "nemesis");
    let mut started = JoinSet::new();
    let mut stopping = stop.clone();
    if mix.weights.is_empty() {
        let _stopped = stopping.wait_for(|stop| *stop).await;
        return Ok(());
    }
    while !*stop.borrow() {
        let before = world.shared.progress.load(Ordering::Relaxed);
        let pause = random.exponential(mix.mean).min(mix.mean * 4);
        // Harm to idle servers proves nothing, so the harm is less frequent on a slow machine.
        let works = async {
            while world.shared.progress.load(Ordering::Relaxed) < before + WORK {
                sleep(Duration::from_millis(20)).await;
            }
        };
        let next = async {
            sleep(pause).await;
            let _slow = timeout(mix.mean * 8, works).await;
        };
        tokio::select! {
            () = next => {}
            _ = stopping.wait_for(|stop| *stop) => break,
        }
        while let Some(done) = started.try_join_next() {
            done??;
        }
        let Some(harming) = random.weighted(&mix.weights) else { break };
        let replicas = u64::try_from(world.replicas.len()).unwrap_or(1);
        let replica = usize::try_from(random.between(0, replicas)).unwrap_or_default();
        let number = random.between(0, 1 << 40);
        let act =
            Act { world: world.clone(), replica, random: Random::of(world.shared.seed, ("deed", number)) };
        // Two deeds at once would leave the only server no time to work.
        let alone = replicas == 1;
        started.spawn(act.execute(harming));
        if alone && let Some(done) = started.join_next().await {
            done??;
        }
    }
    while let Some(done) = started.join_next().await {
        done??;
    }
    Ok(())
}

struct Act {
    world: Arc<World>,
    replica: usize,
    random: Random,
}

impl Act {
    async fn execute(mut self, harming: Harming) -> Result<()> {
        let lease = u64::try_from(LEASE.as_millis())?;
        let at = self.world.shared.clock.now();
        match harming {
            Harming::Kill => {
                self.aim();
                self.command(ReplicaCommand::Kill).await;
            }
            Harming::Pause => {
                self.aim();
                let time = self.random.millis(lease * 3 / 2, lease * 3);
                self.command(ReplicaCommand::Pause(time)).await;
            }
            Harming::KillRemote => self.command_remote(RemoteCommand::Kill),
            Harming::PauseRemote => {
                let time = self.random.millis(lease * 3 / 2, lease * 2);
                self.command_remote(RemoteCommand::Pause(time));
            }
            Harming::Deploy => {
                let build = self.build();
                self.command(ReplicaCommand::Deploy(build)).await;
            }
            Harming::Outage => {
                let time = self.random.millis(0, 3000);
                self.world.outage(time).await?;
                self.deed(at, DeedKind::Outage, format!("{} ms", time.as_millis()));
            }
            Harming::CutAll => self.harm(at, Harm::CutAll),
            Harming::CutBeforeCommit => self.harm(at, Harm::CutBeforeCommit),
            Harming::CutAfterCommit => self.harm(at, Harm::CutAfterCommit),
            Harming::SwallowAfterCommit => self.harm(at, Harm::SwallowAfterCommit),
            Harming::Delay => {
                self.harm(at, Harm::Delay(self.random.clone().millis(50, 400)));
                sleep(self.random.millis(500, 2500)).await;
                self.harm(at, Harm::Delay(Duration::ZERO));
            }
            Harming::Lock => {
                let rows = self.world.rows().await?;
                // The deed is skipped if another writer holds the lock.
                if rows.execute_unprepared("BEGIN IMMEDIATE").await.is_err() {
                    return Ok(());
                }
                let time = self.random.millis(200, 4500);
                sleep(time).await;
                rows.execute_unprepared("ROLLBACK").await?;
                self.deed(at, DeedKind::Lock, format!("{} ms", time.as_millis()));
            }
        }
        Ok(())
    }

    /// Mostly picks a server that is running a tool, where the harm has the most effect.
    fn aim(&mut self) {
        if self.random.percent(30) {
            return;
        }
        let lines: Vec<LedgerLine> = files::last_lines(&self.world.ledger()).unwrap_or_default();
        let mut running: BTreeMap<String, u32> = BTreeMap::new();
        for line in lines {
            match line.what.as_str() {
                "start" => drop(running.insert(line.call, line.pid)),
                _ => drop(running.remove(&line.call)),
            }
        }
        let deeds = self.world.shared.book.deeds.lock();
        let newest = |replica: &usize| {
            let mut starts = deeds.iter().rev().filter(|deed| deed.kind == DeedKind::Start);
            starts.find(|deed| deed.replica == Some(*replica)).and_then(|deed| deed.pid)
        };
        let busy = |replica: &usize| newest(replica).is_some_and(|pid| running.values().any(|it| *it == pid));
        let replicas: Vec<usize> = (0..self.world.replicas.len()).filter(busy).collect();
        if let Some(replica) = self.random.pick(&replicas) {
            self.replica = *replica;
        }
    }

    async fn command(&self, command: ReplicaCommand) -> bool {
        match self.world.replicas.get(self.replica) {
            Some(replica) => replica.send(command).await,
            None => false,
        }
    }

    fn command_remote(&mut self, command: RemoteCommand) {
        if let Some(remote) = self.random.pick(&self.world.remotes) {
            remote.send(command);
        }
    }

    /// Returns the arguments of a build in a rolling deploy: often the same build, sometimes without a tool
    /// or with a changed tool.
    fn build(&mut self) -> Vec<String> {
        let mut build = Vec::new();
        let own = self.random.pick(&OWN).copied().unwrap_or("pay");
        let remote = self.random.pick(&REMOTE).copied().unwrap_or("pay");
        match self.random.between(0, 12) {
            0..3 => build.extend(["--without", own].map(str::to_owned)),
            3..6 => build.extend(["--changed", own].map(str::to_owned)),
            6..8 => build.extend(["--without", remote].map(str::to_owned)),
            _ => {}
        }
        build
    }

    fn harm(&self, at: Micros, harm: Harm) {
        if let Some(proxy) = self.world.proxies.get(self.replica) {
            proxy.harm(harm);
            self.deed(at, DeedKind::Cut, format!("{harm:?}"));
        }
    }

    fn deed(&self, at: Micros, kind: DeedKind, what: String) {
        let until = self.world.shared.clock.now();
        let replica = matches!(kind, DeedKind::Cut).then_some(self.replica);
        self.world.shared.book.deeds.lock().push(Deed { at, until, kind, replica, pid: None, what });
    }
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
