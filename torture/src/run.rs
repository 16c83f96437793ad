//! One run, from an empty database to the result of the checks.

use crate::checks::{self, Records, Violation};
use crate::clock::Clock;
use crate::figures::Figures;
use crate::gates;
use crate::load::{Amount, Load, Users};
use crate::mix::{Db, LEASE, Mix};
use crate::nemesis;
use crate::progress::Progress;
use crate::record::Book;
use crate::rows::{self, Rows};
use crate::world::{PENDING_TTL, START_DEADLINE, SWEEP, Setup, Shared, World};
use crate::{files, http::Request};
use anyhow::Result;
use futures::StreamExt;
use futures::future::join_all;
use futures::stream;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

/// The maximal time from the end of the harm until no call is open and no run is running.
const QUIET: Duration =
    LEASE.saturating_add(SWEEP).saturating_add(START_DEADLINE).saturating_add(Duration::from_secs(5));

/// The maximal time of each closing phase: the last decisions and the last reads.
const PATIENCE: Duration = Duration::from_secs(120);

/// The number of concurrent reads for each replica.
const READS: usize = 4;

#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) db: Db,
    pub(crate) replicas: usize,
    pub(crate) seed: u64,
    pub(crate) time: Duration,
    pub(crate) server: PathBuf,
    /// The program of the remote tools.
    pub(crate) remote: PathBuf,
    pub(crate) amount: Amount,
    pub(crate) mix: Mix,
    /// Whether the guards of the database are dropped.
    pub(crate) unguarded: bool,
    /// The end of the harm.
    pub(crate) until: HarmEnd,
}

/// The condition that ends the harm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HarmEnd {
    Time,
    /// The time of the settings, and longer if a slow machine has not reached the minimum of `gates`.
    Seen,
    /// This number of held calls, and at most the time of the settings.
    Calls(usize),
}

pub(crate) struct Outcome {
    pub(crate) records: Records,
    pub(crate) violations: Vec<Violation>,
    pub(crate) figures: Figures,
}

impl Settings {
    pub(crate) fn minutes(&self) -> f64 {
        self.time.as_secs_f64() / 60.0
    }

    /// Returns the settings of a usual run, with a load for two cores and the programs of this folder.
    pub(crate) fn usual(db: Db, replicas: usize, seed: u64, time: Duration, programs: &Path) -> Self {
        Self {
            db,
            replicas: if db == Db::Sqlite { 1 } else { replicas },
            seed,
            time,
            server: programs.join("holdpoint-torture-server"),
            remote: programs.join("holdpoint-torture-remote"),
            amount: Amount {
                users: 10,
                readers: 2,
                other_users: 1,
                disconnecting: 30,
                disconnecting_ms: (0, 800),
                slow: 3,
                slow_ms: (2600, 4400),
            },
            mix: Mix::everything(db),
            unguarded: false,
            until: HarmEnd::Seen,
        }
    }
}

/// Runs the load and the nemesis, and then the checks.
pub(crate) async fn run(settings: &Settings, folder: &Path, progress: &Progress) -> Result<Outcome> {
    progress.phase("starting");
    let book = Arc::new(Book::default());
    let clock = Clock::start();
    let shared =
        Arc::new(Shared { book: book.clone(), clock, seed: settings.seed, progress: AtomicU64::new(0) });
    let setup = Setup {
        db: settings.db,
        replicas: settings.replicas,
        server: settings.server.clone(),
        remote: settings.remote.clone(),
        workers: Users::new()?.workers().iter().map(|worker| worker.token.clone()).collect(),
        mix: settings.mix.clone(),
        unguarded: settings.unguarded,
    };
    let world = Arc::new(World::start(&setup, shared, folder).await?);
    let done = Box::pin(torture(settings, &world, progress)).await;
    progress.phase("checking");
    world.end().await?;
    files::keep(folder, &book, done.as_ref().ok())?;
    let rows = done?;
    // The checks run on another thread, so that the process still handles signals.
    let checking = tokio::task::spawn_blocking(move || {
        let records = Records::gather(rows, &world)?;
        let violations = checks::all(&records);
        let figures = Figures::of(&records);
        anyhow::Ok(Outcome { records, violations, figures })
    });
    checking.await?
}

async fn torture(settings: &Settings, world: &Arc<World>, progress: &Progress) -> Result<Rows> {
    let load = Load::new(world.clone(), settings.amount.clone()).await?;
    progress.phase("harm");
    let mut clients = load.begin();
    let until = Instant::now() + settings.time;
    {
        let stop = watch::Sender::new(false);
        let harm = nemesis::run(world.clone(), settings.mix.clone(), stop.subscribe());
        let watch = async {
            while Instant::now() < until {
                progress.tick(until.saturating_duration_since(Instant::now()), &load);
                if matches!(settings.until, HarmEnd::Calls(enough) if load.held_call_count() >= enough) {
                    break;
                }
                sleep(Duration::from_millis(500)).await;
            }
            if settings.until == HarmEnd::Seen {
                wait_for_minimum(settings, world, &load, progress).await;
            }
        };
        let watch = async {
            watch.await;
            stop.send_replace(true);
        };
        let mut harm = pin!(harm);
        let mut watch = pin!(watch);
        tokio::select! {
            // The nemesis ends before `stop` only with an error.
            harmed = &mut harm => harmed?,
            () = &mut watch => harm.await?,
        }
    }
    progress.phase("quiet");
    load.stop();
    world.end_harm().await;
    // A task stops before its next request. A task that still waits for an answer after 10 seconds is
    // aborted.
    let _left =
        timeout(Duration::from_secs(10), async { while clients.join_next().await.is_some() {} }).await;
    clients.shutdown().await;
    load.deciders_done(PENDING_TTL).await;
    let db = world.rows().await?;
    quiet(&load, &db).await?;
    let _left = timeout(PATIENCE, read_from_all_replicas(&load, &db)).await;
    let rows = Rows::read(&db).await?;
    db.close().await?;
    Ok(rows)
}

/// Waits until the run has reached the minimum of `gates`, and at most four times the time of the settings.
async fn wait_for_minimum(settings: &Settings, world: &World, load: &Load, progress: &Progress) {
    let until = Instant::now() + settings.time * 4;
    let mut shown = Vec::new();
    while Instant::now() < until {
        // The database may be down at the moment.
        let figures = async {
            let db = world.rows().await?;
            let rows = Rows::read(&db).await?;
            db.close().await?;
            anyhow::Ok(Figures::of(&Records::gather(rows, world)?))
        };
        if let Ok(figures) = figures.await {
            let missing = gates::too_few(&figures, settings.db, settings.minutes());
            if missing.is_empty() {
                return;
            }
            if missing != shown {
                progress.phase(&format!("has yet to see {}", missing.join("; ")));
                shown = missing;
            }
        }
        progress.tick(Duration::ZERO, load);
        sleep(Duration::from_secs(3)).await;
    }
}

/// Rejects all pending calls, so that no call has to expire.
async fn reject_pending(load: &Arc<Load>, db: &sea_orm::DatabaseConnection) -> Result<()> {
    let rows = Rows::read(db).await?;
    for call in rows.calls.iter().filter(|call| call.state == "pending") {
        let Some(token) = load.token_of(&rows, call) else { continue };
        let body = json!({ "toolCallId": call.tool_call_id, "isValidated": false });
        load.send(0, Request::post("/qa/validate_tool", &token, Some(body))).await;
    }
    Ok(())
}

/// Waits until no call is open and no run is running, or until the time is over. The checks report the rest, also a server
/// that does not start.
async fn quiet(load: &Arc<Load>, db: &sea_orm::DatabaseConnection) -> Result<()> {
    const PENDING: &str = "SELECT count(*) FROM tool_calls WHERE state = 'pending'";
    const OPEN: &str = "SELECT count(*) FROM tool_calls WHERE state IN ('pending', 'approved', 'executing')";
    // A run that a server will resume makes further calls.
    const RUNNING: &str = "SELECT count(*) FROM runs
        WHERE status = 'running' OR (status = 'waiting' AND server_resumes)";
    let until = Instant::now() + QUIET;
    while Instant::now() < until {
        if rows::count(db, OPEN).await? + rows::count(db, RUNNING).await? == 0 {
            return Ok(());
        }
        // Again and again: a run that a server resumes after an expiry may make another call.
        if rows::count(db, PENDING).await? > 0 {
            let _left = timeout(PATIENCE, reject_pending(load, db)).await;
        }
        sleep(Duration::from_millis(200)).await;
    }
    Ok(())
}

/// Reads each call from each replica.
async fn read_from_all_replicas(load: &Arc<Load>, db: &sea_orm::DatabaseConnection) -> Result<()> {
    let rows = Rows::read(db).await?;
    let reads = |replica| {
        let owned = rows.calls.iter().filter_map(|call| Some((call, load.token_of(&rows, call)?)));
        stream::iter(owned).for_each_concurrent(READS, move |(call, token)| async move {
            load.read_call_at_end(replica, &call.tool_call_id, &token).await;
        })
    };
    join_all((0..load.world.replicas.len()).map(reads)).await;
    Ok(())
}
