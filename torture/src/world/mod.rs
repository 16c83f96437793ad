//! The world of a run: a database, servers, proxies and a model. They belong to the run and end with it.

mod cluster;
mod replica;

pub(crate) use replica::{Order, Replica};

use crate::clock::Clock;
use crate::guards;
use crate::model::Model;
use crate::nemesis::Mix;
use crate::proxy::Proxy;
use crate::random::Random;
use crate::record::Book;
use anyhow::{Context, Result};
use clap::ValueEnum;
use cluster::Cluster;
use futures::future::join_all;
use replica::Keeper;
use sea_orm::{ConnectOptions, ConnectionTrait, Database, DatabaseConnection, DbBackend, Statement};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;
use tokio::sync::{Mutex, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// The lease of a turn or an execution.
pub(crate) const LEASE: Duration = Duration::from_secs(2);
/// The interval of the sweeper.
pub(crate) const SWEEP: Duration = Duration::from_millis(500);
/// The maximal time from an approval to the claim of the call.
pub(crate) const START_DEADLINE: Duration = Duration::from_secs(6);
/// The time until a pending call expires.
pub(crate) const PENDING_TTL: Duration = Duration::from_secs(8);
/// The timeout of a tool.
pub(crate) const TOOL_TIMEOUT: Duration = Duration::from_secs(5);

pub(crate) const SECRET: &str = "a secret of this run alone, 32 bytes or more";
pub(crate) const ISSUER: &str = "https://issuer.example";
pub(crate) const AUDIENCE: &str = "holdpoint";
/// The role of the approvers.
pub(crate) const APPROVER: &str = "approver";
/// The tools whose calls are held.
pub(crate) const HELD: [&str; 3] = ["pay", "pay_idempotent", "pay_verified"];

/// The kind of database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Db {
    /// A file with one server.
    Sqlite,
    /// A Postgres server of the run, with any number of replicas.
    Postgres,
}

/// The shared state of all parts of a run.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) book: Arc<Book>,
    pub(crate) clock: Clock,
    pub(crate) seed: u64,
    /// The number of requests with an answer that is not a failure of the server.
    pub(crate) progress: AtomicU64,
}

/// The world of a run.
pub(crate) struct World {
    pub(crate) shared: Arc<Shared>,
    pub(crate) folder: PathBuf,
    pub(crate) replicas: Vec<Replica>,
    /// One proxy for each replica, on Postgres.
    pub(crate) proxies: Vec<Proxy>,
    /// The URL of the database, without a proxy.
    pub(crate) url: String,
    mix: watch::Sender<Mix>,
    cluster: Mutex<Option<Cluster>>,
    keeping: Mutex<JoinSet<()>>,
    model: Model,
}

/// The setup of the servers of a run.
#[derive(Debug, Clone)]
pub(crate) struct Setup {
    pub(crate) db: Db,
    pub(crate) replicas: usize,
    pub(crate) server: PathBuf,
    /// The frequencies of the harm.
    pub(crate) mix: Mix,
    /// Whether the guards of the database are dropped.
    pub(crate) unguarded: bool,
}

impl World {
    /// Starts all parts and waits until the servers are ready.
    pub(crate) async fn start(setup: &Setup, shared: Arc<Shared>, folder: &Path) -> Result<Self> {
        let model = Model::start(shared.book.clone(), shared.clock, shared.seed).await?;
        let (cluster, url) = match setup.db {
            Db::Sqlite => (None, format!("sqlite://{}?mode=rwc", folder.join("holdpoint.db").display())),
            Db::Postgres => {
                let cluster = Cluster::start().await?;
                let server = open(&cluster.url(cluster.address, "postgres")).await?;
                server.execute_unprepared("CREATE DATABASE torture").await?;
                server.close().await?;
                let url = cluster.url(cluster.address, "torture");
                (Some(cluster), url)
            }
        };
        let mut world = Self {
            shared,
            folder: folder.to_owned(),
            replicas: Vec::new(),
            proxies: Vec::new(),
            url,
            mix: watch::Sender::new(setup.mix.clone()),
            cluster: Mutex::new(cluster),
            keeping: Mutex::new(JoinSet::new()),
            model,
        };
        world.begin(setup).await?;
        Ok(world)
    }

    async fn begin(&mut self, setup: &Setup) -> Result<()> {
        for number in 0..setup.replicas {
            let url = match self.cluster.get_mut() {
                None => format!("sqlite://{}", self.folder.join("holdpoint.db").display()),
                Some(cluster) => {
                    let proxy = Proxy::to(cluster.address).await?;
                    let url = cluster.url(proxy.address, "torture");
                    self.proxies.push(proxy);
                    url
                }
            };
            for missing_tool in [None].into_iter().chain(HELD.map(Some)) {
                let config = replica::config_file(&self.folder, number, missing_tool);
                tokio::fs::write(&config, configuration(&url, self.model.address, missing_tool)).await?;
            }
        }
        if setup.unguarded {
            self.unguard(setup).await?;
        }
        for number in 0..setup.replicas {
            let keeper = self.keeper(setup, number);
            self.replicas.push(Replica::start(keeper, self.keeping.get_mut(), Vec::new()));
        }
        for replica in &self.replicas {
            let mut address = replica.address.clone();
            let is_there = address.wait_for(Option::is_some);
            timeout(Duration::from_secs(60), is_there).await.with_context(|| {
                let logs = self.shared.book.logs.lock();
                let texts: Vec<&str> = logs.iter().map(|line| line.text.as_str()).collect();
                format!("no server started: {}", texts.join("\n"))
            })??;
        }
        Ok(())
    }

    fn keeper(&self, setup: &Setup, number: usize) -> Keeper {
        let (ledger, hits) = (self.ledger().display().to_string(), self.hits().display().to_string());
        let always = vec!["--ledger".to_owned(), ledger, "--hits".to_owned(), hits];
        Keeper {
            number,
            program: setup.server.clone(),
            folder: self.folder.clone(),
            shared: self.shared.clone(),
            random: Random::of(self.shared.seed, ("replica", number)),
            always,
            mix: self.mix.subscribe(),
        }
    }

    /// Starts a server that creates the tables, stops the server, and drops the guards of the tables.
    async fn unguard(&mut self, setup: &Setup) -> Result<()> {
        let mut keeping = JoinSet::new();
        let first = Replica::start(self.keeper(setup, 0), &mut keeping, Vec::new());
        let mut address = first.address.clone();
        timeout(Duration::from_secs(60), address.wait_for(Option::is_some)).await??;
        keeping.shutdown().await;
        let rows = open(&self.url).await?;
        drop_guards(&rows).await?;
        rows.close().await?;
        Ok(())
    }

    /// Waits for the address of a replica, for at most 10 seconds.
    pub(crate) async fn address(&self, replica: usize) -> Option<SocketAddr> {
        let mut address = self.replicas.get(replica)?.address.clone();
        let found = timeout(Duration::from_secs(10), address.wait_for(Option::is_some)).await.ok()?.ok()?;
        *found
    }

    /// Returns the path of the ledger.
    pub(crate) fn ledger(&self) -> PathBuf {
        self.folder.join("ledger.jsonl")
    }

    /// Returns the path of the file with the hits of failpoints.
    pub(crate) fn hits(&self) -> PathBuf {
        self.folder.join("hits.jsonl")
    }

    /// Stops the database at once and starts it again after this time.
    pub(crate) async fn outage(&self, time: Duration) -> Result<()> {
        if let Some(cluster) = self.cluster.lock().await.as_mut() {
            cluster.stop_now().await?;
            sleep(time).await;
            // Another process may hold the port for a moment.
            let mut tries = 10;
            while let Err(error) = cluster.start_again().await {
                tries -= 1;
                if tries == 0 {
                    return Err(error.context("the database does not start again"));
                }
                sleep(Duration::from_millis(500)).await;
            }
        }
        Ok(())
    }

    /// Ends all harm: replaces all servers by builds without faults and with every tool.
    pub(crate) async fn end_harm(&self) {
        self.mix.send_replace(Mix::nothing());
        for proxy in &self.proxies {
            proxy.end_harm();
        }
        join_all(self.replicas.iter().map(|replica| replica.order(Order::Deploy(Vec::new())))).await;
    }

    /// Opens a direct connection to the database.
    pub(crate) async fn rows(&self) -> Result<DatabaseConnection> {
        open(&self.url).await
    }

    /// Stops the servers and the database.
    pub(crate) async fn end(&self) -> Result<()> {
        self.keeping.lock().await.shutdown().await;
        if let Some(cluster) = self.cluster.lock().await.take() {
            cluster.end().await?;
        }
        Ok(())
    }
}

async fn open(url: &str) -> Result<DatabaseConnection> {
    let mut options = ConnectOptions::new(url);
    options.max_connections(1).sqlx_logging(false).set_schema_search_path("holdpoint");
    Ok(Database::connect(options).await?)
}

/// Drops the guards of the database.
async fn drop_guards(rows: &DatabaseConnection) -> Result<()> {
    let backend = rows.get_database_backend();
    if backend == DbBackend::Postgres {
        rows.execute_unprepared(guards::DROP_ON_POSTGRES).await?;
        return Ok(());
    }
    rows.execute_unprepared("PRAGMA foreign_keys = OFF").await?;
    let statements = rows.query_all_raw(Statement::from_string(backend, guards::DROPS_ON_SQLITE)).await?;
    for row in statements {
        let statement: String = row.try_get_by_index(0)?;
        rows.execute_unprepared(&statement).await.with_context(|| statement.clone())?;
    }
    Ok(())
}

/// Returns the configuration file of a server. The file must not name a tool that the build lacks.
fn configuration(url: &str, model: SocketAddr, missing_tool: Option<&str>) -> String {
    let rules: String = HELD
        .iter()
        .filter(|tool| missing_tool != Some(**tool))
        .map(|tool| format!("[tools.{tool}]\napprove_roles = [\"{APPROVER}\"]\n"))
        .collect();
    let ms = |time: Duration| format!("{}ms", time.as_millis());
    format!(
        "[server]\nbind = \"127.0.0.1:0\"\ngrace = \"1s\"\n\
         [database]\nurl = \"{url}\"\nmax_connections = 6\n\
         [model]\nprovider = \"openai\"\nname = \"torture\"\nbase_url = \"http://{model}/v1\"\nretries = 2\n\
         first_byte_timeout = \"5s\"\nidle_timeout = \"5s\"\n\
         [auth]\nmode = \"jwt\"\nsecret = \"{SECRET}\"\nissuer = \"{ISSUER}\"\naudience = \"{AUDIENCE}\"\n\
         [approval]\npending_ttl = \"{}\"\nstart_deadline = \"{}\"\nlease = \"{}\"\nsweep = \"{}\"\nwait = \"4s\"\n\
         [limits]\nrequests_per_minute = 0\nturns_per_minute = 0\ndecisions_per_minute = 0\nturns_per_user = 0\n\
         turns_per_tenant = 0\nstreams_per_user = 0\n\
         [log]\nformat = \"json\"\nlevel = \"warn\"\n\
         [tools]\ntimeout = \"{}\"\n{rules}",
        ms(PENDING_TTL),
        ms(START_DEADLINE),
        ms(LEASE),
        ms(SWEEP),
        ms(TOOL_TIMEOUT),
    )
}
