//! Postgres servers that the tests start for themselves, and that end with the tests.

use super::places::CHOICE;
use super::ports::free_port;
use super::{EndedCommand, Rows, eventually, holdpoint};
use std::cell::RefCell;
use std::io::{BufRead, BufReader, Lines, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock};
use tokio::sync::{OnceCell, mpsc, oneshot};

const MISSING: &str =
    "these tests need Postgres (Debian: apt install postgresql); what went wrong stands above";

/// The URL of an unused database if the tests without a required database run on Postgres.
#[expect(clippy::disallowed_methods, reason = "says how to test; no part of the program's configuration")]
pub async fn postgres_if_chosen() -> Option<String> {
    match std::env::var(CHOICE) {
        Ok(choice) if choice == "postgres" => Some(postgres().await),
        _ => None,
    }
}

/// The URL of an unused database with the schema, on a server that all tests of this process share. It is dropped at
/// the end of the test.
pub async fn postgres() -> String {
    // A copy of a migrated database costs less than a migration.
    static TEMPLATE: OnceCell<String> = OnceCell::const_new();
    let template = TEMPLATE.get_or_init(async || SharedCluster::get().cluster.template().await).await;
    SharedCluster::get().database_like(template).await
}

/// The URL of a database without tables, on the same server.
pub async fn empty_postgres() -> String {
    SharedCluster::get().database_like("template1").await
}

/// The server of all tests of this process.
struct SharedCluster {
    cluster: Cluster,
    /// The connection that creates and drops databases runs on a thread of its own: it outlives each test.
    changes: mpsc::UnboundedSender<DatabaseChange>,
}

/// A statement that creates or drops a database, and the receiver of its outcome.
type DatabaseChange = (String, oneshot::Sender<Result<u64, String>>);

/// The databases of the test on this thread, which drops them when it ends. The server has its files in memory.
struct Databases(RefCell<Vec<String>>);

thread_local! {
    static DATABASES: Databases = const { Databases(RefCell::new(Vec::new())) };
}

impl SharedCluster {
    fn get() -> &'static Self {
        static SHARED: OnceLock<SharedCluster> = OnceLock::new();
        SHARED.get_or_init(|| {
            let cluster = Cluster::start();
            let (changes, mut next) = mpsc::unbounded_channel::<DatabaseChange>();
            let url = cluster.url("postgres");
            std::thread::spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                runtime.block_on(async {
                    let rows = Rows::open(&url).await;
                    while let Some((sql, done)) = next.recv().await {
                        // A test that has ended does not wait: a database that is not dropped only takes memory.
                        let _ended = done.send(rows.change(&sql).await);
                    }
                });
            });
            Self { cluster, changes }
        })
    }

    async fn database_like(&self, template: &str) -> String {
        let name = self.cluster.next_name();
        DATABASES.with(|databases| databases.0.borrow_mut().push(name.clone()));
        self.change(create_database(&name, template)).await.unwrap().unwrap();
        self.cluster.url(&name)
    }

    fn change(&self, sql: String) -> oneshot::Receiver<Result<u64, String>> {
        let (done, changed) = oneshot::channel();
        self.changes.send((sql, done)).unwrap();
        changed
    }
}

impl Drop for Databases {
    fn drop(&mut self) {
        for name in self.0.take() {
            drop(SharedCluster::get().change(format!("DROP DATABASE {name} WITH (FORCE)")));
        }
    }
}

/// Copies the files of the template: without a log entry for each page, and with the cache of the catalog, which
/// otherwise the first session would build.
fn create_database(name: &str, template: &str) -> String {
    format!("CREATE DATABASE {name} TEMPLATE {template} STRATEGY file_copy")
}

/// An empty Postgres server on its own port.
///
/// It ends when this value is dropped. It also ends with the process, however the process ends, although
/// statics are never dropped: it belongs to a shell that waits until its stdin is closed.
#[derive(Debug)]
pub struct Cluster {
    port: u16,
    synced: DiskSync,
    keeper: Mutex<Keeper>,
    databases: AtomicU32,
}

/// Whether the server waits for its disk.
#[derive(Debug, Clone, Copy)]
pub enum DiskSync {
    /// The server syncs as in production.
    Yes,
    /// The server does not sync (`fsync = off`), for speed.
    No,
}

impl DiskSync {
    const fn option(self) -> &'static str {
        match self {
            Self::Yes => "",
            Self::No => "-F",
        }
    }

    /// The argument of the script: what is not synced need not be on a disk.
    const fn files(self) -> &'static str {
        match self {
            Self::Yes => "on-disk",
            Self::No => "in-memory",
        }
    }
}

/// A shell that runs servers, and ends them when its stdin is closed.
#[derive(Debug)]
pub(super) struct Keeper {
    shell: Child,
    answers: Lines<BufReader<ChildStdout>>,
}

impl Cluster {
    pub fn start() -> Self {
        Self::start_with(DiskSync::No)
    }

    pub fn start_with(synced: DiskSync) -> Self {
        let mut keeper = Keeper::spawn(include_str!("postgres.sh"), &[synced.files().to_owned()]);
        assert!(keeper.is_ok(), "{MISSING}");
        // Another process can take the port after it was found free.
        let port = (0..5)
            .map(|_| free_port())
            .find(|port| keeper.execute(&format!("start {port} {}", synced.option())));
        let port = port.expect("Postgres starts; what it said stands above");
        Self { port, synced, keeper: Mutex::new(keeper), databases: AtomicU32::new(0) }
    }

    pub fn url(&self, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{database}", self.port)
    }

    /// Creates an empty database and returns its URL.
    pub async fn database(&self) -> String {
        let name = self.next_name();
        Rows::open(&self.url("postgres")).await.change(&create_database(&name, "template1")).await.unwrap();
        self.url(&name)
    }

    fn next_name(&self) -> String {
        format!("test_{}", self.databases.fetch_add(1, Ordering::Relaxed))
    }

    /// Creates a database with the schema for copies, and returns its name.
    async fn template(&self) -> String {
        let url = self.database().await;
        let folder = tempfile::tempdir().unwrap();
        EndedCommand::of(holdpoint(folder.path(), &url, &["migrate"]).output().unwrap()).stdout_of_success();
        let (_, name) = url.rsplit_once('/').unwrap();
        let rows = Rows::open(&self.url("postgres")).await;
        let sessions = format!("pg_stat_activity WHERE datname = '{name}'");
        let closed = async || (rows.count(&sessions).await == 0).then_some(());
        eventually("the sessions of the migration are closed", closed).await;
        name.to_owned()
    }

    /// Ends the server at once, as a crash would.
    pub fn stop_now(&self) {
        assert!(self.keeper.lock().unwrap().execute("stop"));
    }

    /// Restarts the server on the same port, with the committed data.
    pub fn start_again(&self) {
        assert!(self.keeper.lock().unwrap().execute(&format!(
            "start {} {}",
            self.port,
            self.synced.option()
        )));
    }
}

impl Keeper {
    /// Starts this script with these arguments.
    pub(super) fn spawn(script: &str, args: &[String]) -> Self {
        let mut shell = Command::new("sh");
        shell
            .args(["-c", script, "keeper"])
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .current_dir("/");
        let mut shell = as_postgres(&mut shell).spawn().unwrap();
        let answers = BufReader::new(shell.stdout.take().unwrap()).lines();
        Self { shell, answers }
    }

    pub(super) fn execute(&mut self, command: &str) -> bool {
        writeln!(self.shell.stdin.as_mut().unwrap(), "{command}").unwrap();
        self.is_ok()
    }

    pub(super) fn is_ok(&mut self) -> bool {
        self.answers.next().is_some_and(|answer| answer.unwrap() == "ok")
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        // `wait` closes its stdin first.
        let _ended = self.shell.wait();
    }
}

/// Runs the shell of a server as a user other than root, because such servers refuse root.
pub(super) fn as_postgres(shell: &mut Command) -> &mut Command {
    if id(&["-u"]) == Some(0) {
        shell.uid(id(&["-u", "postgres"]).expect(MISSING)).gid(id(&["-g", "postgres"]).expect(MISSING));
    }
    // A signal that ends the tests at the terminal must not end the server.
    shell.process_group(0)
}

/// The numeric id of a user or a group, if it exists.
fn id(args: &[&str]) -> Option<u32> {
    let output = Command::new("id").args(args).stderr(Stdio::null()).output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().parse().ok()
}
