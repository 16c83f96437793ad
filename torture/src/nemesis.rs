//! The nemesis: a task that kills, stops and replaces servers, stops the database and cuts connections, at
//! random from the seed.

use crate::clock::Micros;
use crate::files::{self, LedgerLine};
use crate::mix::{Harm, LEASE, Mix};
use crate::proxy::ConnectionHarm;
use crate::random::Random;
use crate::record::{Deed, DeedKind};
use crate::world::{OWN, REMOTE, RemoteCommand, ReplicaCommand, World};
use anyhow::Result;
use sea_orm::ConnectionTrait;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

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
        let act = HarmAction {
            world: world.clone(),
            replica,
            random: Random::of(world.shared.seed, ("deed", number)),
        };
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

struct HarmAction {
    world: Arc<World>,
    replica: usize,
    random: Random,
}

impl HarmAction {
    async fn execute(mut self, harming: Harm) -> Result<()> {
        let lease = u64::try_from(LEASE.as_millis())?;
        let at = self.world.shared.clock.now();
        match harming {
            Harm::Kill => {
                self.aim();
                self.command(ReplicaCommand::Kill).await;
            }
            Harm::Pause => {
                self.aim();
                let time = self.random.millis(lease * 3 / 2, lease * 3);
                self.command(ReplicaCommand::Pause(time)).await;
            }
            Harm::KillRemote => self.command_remote(RemoteCommand::Kill),
            Harm::PauseRemote => {
                let time = self.random.millis(lease * 3 / 2, lease * 2);
                self.command_remote(RemoteCommand::Pause(time));
            }
            Harm::Deploy => {
                let build = self.build();
                self.command(ReplicaCommand::Deploy(build)).await;
            }
            Harm::Outage => {
                let time = self.random.millis(0, 3000);
                self.world.outage(time).await?;
                self.deed(at, DeedKind::Outage, format!("{} ms", time.as_millis()));
            }
            Harm::CutAll => self.harm(at, ConnectionHarm::CutAll),
            Harm::CutBeforeCommit => self.harm(at, ConnectionHarm::CutBeforeCommit),
            Harm::CutAfterCommit => self.harm(at, ConnectionHarm::CutAfterCommit),
            Harm::SwallowAfterCommit => self.harm(at, ConnectionHarm::SwallowAfterCommit),
            Harm::Delay => {
                self.harm(at, ConnectionHarm::Delay(self.random.clone().millis(50, 400)));
                sleep(self.random.millis(500, 2500)).await;
                self.harm(at, ConnectionHarm::Delay(Duration::ZERO));
            }
            Harm::Lock => {
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

    fn harm(&self, at: Micros, harm: ConnectionHarm) {
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
