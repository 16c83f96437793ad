//! The nemesis: it kills, stops and replaces servers, ends the database, and cuts wires, by chance from the seed.

use crate::chance::Chance;
use crate::clock::Micros;
use crate::files::{self, LedgerLine};
use crate::proxy::Harm;
use crate::record::{Deed, DeedKind};
use crate::world::{Db, HELD, LEASE, Order, World};
use anyhow::Result;
use sea_orm::ConnectionTrait;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// The places where a server can be made to fail.
pub(crate) const POINTS: [&str; 25] = [
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
    "step.written",
    "tool.called",
    "tool.expired",
    "tool.cancelled",
    "other",
    "sweep.found",
    "tool.run",
    "hold.told",
    "decision.told",
];

/// What it does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Harming {
    Kill,
    Pause,
    Deploy,
    Outage,
    CutAll,
    CutBeforeCommit,
    CutAfterCommit,
    SwallowAfterCommit,
    Delay,
    Lock,
}

/// How often it does what.
#[derive(Debug, Clone)]
pub(crate) struct Mix {
    pub(crate) weights: Vec<(Harming, u32)>,
    /// Between two deeds, on average.
    pub(crate) mean: Duration,
    /// How many starts of a hundred have failpoints that strike.
    pub(crate) failing: u32,
    /// Failpoints of every start.
    pub(crate) faults: Vec<String>,
    /// Whether a replica's clock may be wrong.
    pub(crate) skews: bool,
}

impl Mix {
    /// All there is, on this database.
    pub(crate) fn everything(db: Db) -> Self {
        use Harming::*;
        let weights = match db {
            Db::Sqlite => vec![(Kill, 50), (Pause, 15), (Deploy, 10), (Lock, 25)],
            Db::Postgres => vec![
                (Kill, 26),
                (Pause, 22),
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
        // Of one server all of it stands still.
        let mean = Duration::from_millis(if skews { 900 } else { 1200 });
        // Now and then at any commit.
        let faults =
            ["after:*=lose@0.004", "before:*=refuse@0.004", "before:*=die@0.002", "after:*=die@0.002"];
        let faults = faults.map(str::to_owned).to_vec();
        Self { weights, mean, failing: 50, faults, skews }
    }

    /// Nothing.
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

/// What a server is to fail in, from this start to its end.
pub(crate) fn faults(mix: &Mix, replica: usize, chance: &mut Chance) -> Vec<String> {
    let mut arguments = vec!["--seed".to_owned(), chance.between(0, 1 << 32).to_string()];
    let mut faults = mix.faults.clone();
    if chance.percent(mix.failing) {
        for _ in 0..chance.between(1, 4) {
            faults.extend(fault(chance));
        }
    }
    for fault in faults {
        arguments.extend(["--fault".to_owned(), fault]);
    }
    // Of one alone, so that the others disagree with it.
    if mix.skews && replica == 1 && chance.percent(50) {
        let seconds = if chance.percent(50) { "300" } else { "-300" };
        arguments.push(format!("--skew={seconds}"));
    }
    arguments
}

fn fault(chance: &mut Chance) -> Option<String> {
    let point = chance.pick(&POINTS)?;
    let side = if !has_an_after(point) || chance.percent(50) { "before" } else { "after" };
    let lease = LEASE.as_millis();
    let action = match (chance.between(0, 100), side) {
        (0..45, _) => "die".to_owned(),
        (45..75, "before") if is_a_commit(point) => "refuse".to_owned(),
        (45..75, _) if is_a_commit(point) => "lose".to_owned(),
        (0..92, _) => format!("pause:{}", chance.between(10, 400)),
        _ => format!("pause:{}", lease + lease / 2),
    };
    // What happens all the time is to happen seldom.
    let often = ["step.drafted", "turn.renewed", "call.renewed", "step.opened", "step.written", "other"];
    let probability = if often.contains(point) { "0.03" } else { "0.12" };
    Some(format!("{side}:{point}={action}@{probability}"))
}

/// Whether it is where something is made durable.
fn is_a_commit(point: &str) -> bool {
    !matches!(point, "sweep.found" | "tool.run" | "hold.told" | "decision.told")
}

/// Whether anything comes behind it in which to fail.
pub(crate) fn has_an_after(point: &str) -> bool {
    !matches!(point, "sweep.found" | "decision.told")
}

/// How many requests are to be answered between two deeds.
const WORK: u64 = 12;

/// Does harm until it is to stop, and then comes back when all that was begun is over.
///
/// # Errors
/// Something is broken that has to be whole for the run to go on.
pub(crate) async fn rage(world: Arc<World>, mix: Mix, stop: watch::Receiver<bool>) -> Result<()> {
    let mut chance = Chance::of(world.shared.seed, "nemesis");
    let mut under_way = JoinSet::new();
    let mut stopping = stop.clone();
    if mix.weights.is_empty() {
        let _stopped = stopping.wait_for(|stop| *stop).await;
        return Ok(());
    }
    while !*stop.borrow() {
        let before = world.shared.progress.load(Ordering::Relaxed);
        let pause = chance.exponential(mix.mean).min(mix.mean * 4);
        // Harm to what does nothing proves nothing: on a slow machine it comes slower.
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
        while let Some(done) = under_way.try_join_next() {
            done??;
        }
        let Some(harming) = chance.weighted(&mix.weights) else { break };
        let replicas = u64::try_from(world.replicas.len()).unwrap_or(1);
        let replica = usize::try_from(chance.between(0, replicas)).unwrap_or_default();
        let number = chance.between(0, 1 << 40);
        let act =
            Act { world: world.clone(), replica, chance: Chance::of(world.shared.seed, ("deed", number)) };
        // Two deeds at once leave the only server no time to do anything.
        let alone = replicas == 1;
        under_way.spawn(act.commit(harming));
        if alone && let Some(done) = under_way.join_next().await {
            done??;
        }
    }
    while let Some(done) = under_way.join_next().await {
        done??;
    }
    Ok(())
}

struct Act {
    world: Arc<World>,
    replica: usize,
    chance: Chance,
}

impl Act {
    async fn commit(mut self, harming: Harming) -> Result<()> {
        let lease = u64::try_from(LEASE.as_millis())?;
        let at = self.world.shared.clock.now();
        match harming {
            Harming::Kill => {
                self.aim();
                self.order(Order::Kill).await;
            }
            Harming::Pause => {
                self.aim();
                let time = self.chance.millis(lease * 3 / 2, lease * 3);
                self.order(Order::Pause(time)).await;
            }
            Harming::Deploy => {
                let build = self.build();
                self.order(Order::Deploy(build)).await;
            }
            Harming::Outage => {
                let time = self.chance.millis(0, 3000);
                self.world.outage(time).await?;
                self.deed(at, DeedKind::Outage, format!("{} ms", time.as_millis()));
            }
            Harming::CutAll => self.harm(at, Harm::CutAll),
            Harming::CutBeforeCommit => self.harm(at, Harm::CutBeforeCommit),
            Harming::CutAfterCommit => self.harm(at, Harm::CutAfterCommit),
            Harming::SwallowAfterCommit => self.harm(at, Harm::SwallowAfterCommit),
            Harming::Delay => {
                self.harm(at, Harm::Delay(self.chance.clone().millis(50, 400)));
                sleep(self.chance.millis(500, 2500)).await;
                self.harm(at, Harm::Delay(Duration::ZERO));
            }
            Harming::Lock => {
                let rows = self.world.rows().await?;
                // Who writes just now is left to.
                if rows.execute_unprepared("BEGIN IMMEDIATE").await.is_err() {
                    return Ok(());
                }
                let time = self.chance.millis(200, 4500);
                sleep(time).await;
                rows.execute_unprepared("ROLLBACK").await?;
                self.deed(at, DeedKind::Lock, format!("{} ms", time.as_millis()));
            }
        }
        Ok(())
    }

    /// Mostly at a server that runs a tool at this moment: there it hurts most.
    fn aim(&mut self) {
        if self.chance.percent(30) {
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
        if let Some(replica) = self.chance.pick(&replicas) {
            self.replica = *replica;
        }
    }

    async fn order(&self, order: Order) -> bool {
        match self.world.replicas.get(self.replica) {
            Some(replica) => replica.order(order).await,
            None => false,
        }
    }

    /// A build as a rolling deploy brings one: mostly the same, now and then with a tool gone or changed.
    fn build(&mut self) -> Vec<String> {
        let mut build = Vec::new();
        let tool = self.chance.pick(&HELD).copied().unwrap_or("pay");
        match self.chance.between(0, 10) {
            0..3 => build.extend(["--without", tool].map(str::to_owned)),
            3..6 => build.extend(["--changed", tool].map(str::to_owned)),
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
    fn each_start_fails_in_its_own_way_and_the_same_seed_in_the_same() {
        let mix = Mix::everything(Db::Postgres);
        let draw = |seed| faults(&mix, 1, &mut Chance::of(seed, "start"));
        assert_eq!(draw(5), draw(5));
        let different: std::collections::BTreeSet<_> = (0..20).map(draw).collect();
        assert!(different.len() > 15);
        assert!(different.iter().flatten().any(|argument| argument.contains("=die@")));
    }
}
