//! Postgres servers that the tests start for themselves, and that end with the tests.

use super::{Ended, Rows, eventually, holdpoint};
use std::io::{BufRead, BufReader, Lines, Write};
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock};
use tokio::sync::OnceCell;

/// With `postgres`, tests without a required database run on Postgres. With any other value, on SQLite.
const CHOICE: &str = "TEST_DATABASE";

const MISSING: &str =
    "these tests need Postgres (Debian: apt install postgresql); what went wrong stands above";

/// The URL of an unused database if the tests without a required database run on Postgres.
#[expect(clippy::disallowed_methods, reason = "says how to test; no part of the program's configuration")]
pub(crate) async fn postgres_if_chosen() -> Option<String> {
    match std::env::var(CHOICE) {
        Ok(choice) if choice == "postgres" => Some(postgres().await),
        _ => None,
    }
}

/// The URL of an unused database with the schema, on a server that all tests of this process share.
pub(crate) async fn postgres() -> String {
    // A copy of a migrated database costs less than a migration.
    static TEMPLATE: OnceCell<String> = OnceCell::const_new();
    let template = TEMPLATE.get_or_init(async || shared().template().await).await;
    shared().database_like(template).await
}

/// The URL of a database without tables, on the same server.
pub(crate) async fn empty_postgres() -> String {
    shared().database().await
}

fn shared() -> &'static Cluster {
    static SHARED: OnceLock<Cluster> = OnceLock::new();
    SHARED.get_or_init(Cluster::start)
}

/// An empty Postgres server on its own port.
///
/// It ends when this value is dropped. It also ends with the process, however the process ends, although
/// statics are never dropped: it belongs to a shell that waits until its stdin is closed.
#[derive(Debug)]
pub(crate) struct Cluster {
    port: u16,
    synced: Synced,
    keeper: Mutex<Keeper>,
    databases: AtomicU32,
}

/// Whether the server waits for its disk.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Synced {
    /// The server syncs as in production.
    Yes,
    /// The server does not sync (`fsync = off`), for speed.
    No,
}

impl Synced {
    /// The option of `postgres`.
    const fn option(self) -> &'static str {
        match self {
            Self::Yes => "",
            Self::No => "-F",
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
    pub(crate) fn start() -> Self {
        Self::start_with(Synced::No)
    }

    pub(crate) fn start_with(synced: Synced) -> Self {
        let mut keeper = Keeper::spawn(include_str!("postgres.sh"), &[]);
        assert!(keeper.is_ok(), "{MISSING}");
        // Another process can take the port after it was found free.
        let port = (0..5)
            .map(|_| free_port())
            .find(|port| keeper.execute(&format!("start {port} {}", synced.option())));
        let port = port.expect("Postgres starts; what it said stands above");
        Self { port, synced, keeper: Mutex::new(keeper), databases: AtomicU32::new(0) }
    }

    pub(crate) fn url(&self, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{database}", self.port)
    }

    /// Creates an empty database and returns its URL.
    pub(crate) async fn database(&self) -> String {
        self.database_like("template1").await
    }

    /// Creates a copy of a database without connections, and returns its URL.
    async fn database_like(&self, template: &str) -> String {
        let name = format!("test_{}", self.databases.fetch_add(1, Ordering::Relaxed));
        let rows = Rows::open(&self.url("postgres")).await;
        rows.change(&format!("CREATE DATABASE {name} TEMPLATE {template}")).await.unwrap();
        self.url(&name)
    }

    /// Creates a database with the schema for copies, and returns its name.
    async fn template(&self) -> String {
        let url = self.database().await;
        let folder = tempfile::tempdir().unwrap();
        Ended::of(holdpoint(folder.path(), &url, &["migrate"]).output().unwrap()).stdout_of_success();
        let (_, name) = url.rsplit_once('/').unwrap();
        let rows = Rows::open(&self.url("postgres")).await;
        let sessions = format!("pg_stat_activity WHERE datname = '{name}'");
        let closed = async || (rows.count(&sessions).await == 0).then_some(());
        eventually("the sessions of the migration are closed", closed).await;
        name.to_owned()
    }

    /// Ends the server at once, as a crash would.
    pub(crate) fn stop_now(&self) {
        assert!(self.keeper.lock().unwrap().execute("stop"));
    }

    /// Restarts the server on the same port, with the committed data.
    pub(crate) fn start_again(&self) {
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

pub(super) fn free_port() -> u16 {
    TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port()
}
