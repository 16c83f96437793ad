//! The world of a run: a database, servers, proxies and a model. They belong to the run and end with it.

mod cluster;
mod configuration;
mod front_door;
mod remote;
mod replica;

pub(crate) use remote::{Remote, RemoteCommand};
pub(crate) use replica::{Replica, ReplicaCommand};

use crate::clock::Clock;
use crate::guards;
use crate::mix::{Db, LEASE, Mix};
use crate::model::Model;
use crate::proxy::Proxy;
use crate::random::Random;
use crate::record::Book;
use anyhow::{Context, Result};
use cluster::Cluster;
use configuration::Configuration;
use front_door::FrontDoor;
use futures::future::join_all;
use replica::Keeper;
use sea_orm::{ConnectOptions, ConnectionTrait, Database, DatabaseConnection, DbBackend, Statement};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::{Mutex, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// The interval of the sweeper.
pub(crate) const SWEEP: Duration = Duration::from_millis(500);
/// The maximal time from an approval to the claim of the call.
pub(crate) const START_DEADLINE: Duration = Duration::from_secs(6);
/// The time until a pending call expires.
pub(crate) const PENDING_TTL: Duration = Duration::from_secs(8);
pub(crate) const TOOL_TIMEOUT: Duration = Duration::from_secs(5);

pub(crate) const SECRET: &str = "a secret of this run alone, 32 bytes or more";
pub(crate) const ISSUER: &str = "https://issuer.example";
pub(crate) const AUDIENCE: &str = "holdpoint";
pub(crate) const APPROVER: &str = "approver";
pub(crate) const WORKER: &str = "worker";
/// The tools of the servers whose calls are held.
pub(crate) const OWN: [&str; 3] = ["pay", "pay_idempotent", "pay_verified"];
/// The tool of an MCP server, which each server starts for itself.
pub(crate) const MCP_TOOL: &str = "bank__pay";
pub(crate) const HTTP_TOOL: &str = "pay_http";
/// The tools of workers: a call of the first one is held, and a call of the second one may be repeated.
pub(crate) const WORKER_TOOLS: [&str; 2] = ["pay_worker", "note_worker"];
/// The tools that other programs execute.
pub(crate) const REMOTE: [&str; 4] = [MCP_TOOL, HTTP_TOOL, WORKER_TOOLS[0], WORKER_TOOLS[1]];
/// The time that the service has to report an outcome.
pub(crate) const RESULT_DEADLINE: Duration = Duration::from_secs(5);

/// The shared state of all parts of a run.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) book: Arc<Book>,
    pub(crate) clock: Clock,
    pub(crate) seed: u64,
    /// The number of requests with an answer that is not a failure of the server.
    pub(crate) progress: AtomicU64,
}

pub(crate) struct World {
    pub(crate) shared: Arc<Shared>,
    pub(crate) folder: PathBuf,
    pub(crate) replicas: Vec<Replica>,
    /// One proxy for each replica, on Postgres.
    pub(crate) proxies: Vec<Proxy>,
    /// The URL of the database, without a proxy.
    pub(crate) url: String,
    /// The service of the HTTP tool, and the workers.
    pub(crate) remotes: Vec<Remote>,
    mix: watch::Sender<Mix>,
    front_door: Option<FrontDoor>,
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
    /// The program of the remote tools.
    pub(crate) remote: PathBuf,
    /// The token of each worker.
    pub(crate) workers: Vec<String>,
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
            remotes: Vec::new(),
            url,
            front_door: None,
            mix: watch::Sender::new(setup.mix.clone()),
            cluster: Mutex::new(cluster),
            keeping: Mutex::new(JoinSet::new()),
            model,
        };
        world.begin(setup).await?;
        Ok(world)
    }

    async fn begin(&mut self, setup: &Setup) -> Result<()> {
        let front_door = TcpListener::bind(("127.0.0.1", 0)).await?;
        // Free again, for the service of this run.
        let service = TcpListener::bind(("127.0.0.1", 0)).await?.local_addr()?;
        let public = front_door.local_addr()?;
        tokio::fs::write(self.folder.join(configuration::SECRET_FILE), configuration::SERVICE_SECRET).await?;
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
            let remote = self.remote_arguments(&[MCP_TOOL]).join("\", \"");
            let (model, program, folder) = (self.model.address, &setup.remote, &self.folder);
            let configuration =
                Configuration { url, model, folder, program, arguments: remote, public, service };
            for missing_tool in [None].into_iter().chain(OWN.into_iter().chain(REMOTE).map(Some)) {
                let config = replica::config_file(&self.folder, number, missing_tool);
                tokio::fs::write(&config, configuration.text(missing_tool)).await?;
            }
        }
        if setup.unguarded {
            self.unguard(setup).await?;
        }
        for number in 0..setup.replicas {
            let keeper = self.keeper(setup, number);
            self.replicas.push(Replica::start(keeper, self.keeping.get_mut(), Vec::new()));
        }
        let addresses = self.replicas.iter().map(|replica| replica.address.clone()).collect();
        self.front_door = Some(FrontDoor::open(front_door, addresses));
        self.start_remotes(setup, public, service);
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

    /// Returns the arguments of a program with these remote tools.
    fn remote_arguments(&self, tools: &[&str]) -> Vec<String> {
        let ledger = self.ledger().display().to_string();
        let mut arguments = vec!["--ledger".to_owned(), ledger, "--database".to_owned(), self.url.clone()];
        arguments.extend(tools.iter().map(|tool| format!("--tool={tool}")));
        arguments
    }

    /// Starts the service and the workers.
    fn start_remotes(&mut self, setup: &Setup, public: SocketAddr, service: SocketAddr) {
        let (listen, secret) = (service.to_string(), configuration::SERVICE_SECRET);
        let own = ["service", "--listen", &listen, "--secret", secret].map(str::to_owned);
        let mut all = vec![[self.remote_arguments(&[HTTP_TOOL]), own.to_vec()].concat()];
        for token in &setup.workers {
            let own = ["worker", "--server", &public.to_string(), "--token", token].map(str::to_owned);
            all.push([self.remote_arguments(&WORKER_TOOLS), own.to_vec()].concat());
        }
        for (number, arguments) in all.into_iter().enumerate() {
            let random = Random::of(self.shared.seed, ("remote", number));
            let (program, shared) = (setup.remote.clone(), self.shared.clone());
            let keeper = remote::Keeper { program, arguments, shared, random };
            self.remotes.push(Remote::start(keeper, self.keeping.get_mut()));
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
        join_all(self.replicas.iter().map(|replica| replica.send(ReplicaCommand::Deploy(Vec::new())))).await;
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
