//! A SQLite file that cannot be written: the disk is full, another process writes, or the file is read-only.

use super::assert_unavailable;
use holdpoint_testkit::{Deployment, Embedded, Process, eventually, sqlite};
use serde_json::json;
use std::process::Command;
use std::time::Duration;
use tokio::time::timeout;

const RAN: [&str; 2] = ["transfer 10", "transfer 10 done"];

/// A server with a simulated full disk: the file size limit of its process is reached, and the signal that
/// would end the process is ignored.
struct FullDisk {
    deployment: Deployment,
    server: Process,
}

impl FullDisk {
    async fn start(settings: &[(&str, &str)]) -> Self {
        let deployment = Deployment::on_sqlite();
        let plain = deployment.command("1s");
        let mut shell = Command::new("sh");
        shell
            .args(["-c", "trap '' XFSZ; exec \"$0\" \"$@\""])
            .arg(plain.get_program())
            .args(plain.get_args());
        shell.envs(plain.get_envs().filter_map(|(key, value)| Some((key, value?))));
        shell.env("HOLDPOINT_LOG__LEVEL", "warn").envs(settings.iter().copied());
        let server = Process::spawn_captured(shell.current_dir(plain.get_current_dir().unwrap()));
        Self { deployment, server }
    }

    /// Makes every write of a database page fail. Lines of the ledger can still be written.
    fn fill(&self) {
        self.limit("2048");
    }

    /// Makes room again.
    fn clear(&self) {
        self.limit("unlimited");
    }

    fn limit(&self, bytes: &str) {
        let mut prlimit = Command::new("prlimit");
        prlimit.arg(format!("--fsize={bytes}:")).args(["--pid", &self.server.id()]);
        assert!(prlimit.status().unwrap().success());
    }

    async fn logs(&self, words: &str) {
        let logged = async || self.server.printed().contains(words).then_some(());
        eventually(&format!("it is logged that {words:?}"), logged).await;
    }
}

#[tokio::test]
async fn on_sqlite_with_a_full_disk_a_decision_is_refused_and_reads_are_answered() {
    let full = FullDisk::start(&[]).await;
    let (deployment, client) = (&full.deployment, &full.server.client);
    deployment.release();
    let thread = client.thread().await;
    let id = deployment.hold(client, &thread, "10").await;
    full.fill();
    assert_unavailable(&client.approve(&id).await);
    assert_unavailable(&client.reject(&id).await);
    assert_eq!(client.send_message(&thread, "hi").await.refused(), (503, "unavailable".to_owned()));
    assert_eq!(client.call(&id).await["state"], "pending");
    assert_eq!(client.messages(&thread).await.len(), 2);
    assert_eq!(deployment.ledger(), Vec::<String>::new());

    full.clear();
    let approved = client.approve(&id).await;
    approved.has(200, "state", "succeeded");
    assert_eq!(approved.header("idempotent-replayed"), None, "nothing was decided before");
    assert_eq!(client.resume(&thread).await.text(), "{\"transferred\":\"10\"}");
    assert_eq!(deployment.ledger(), RAN);
}

#[tokio::test]
async fn on_sqlite_with_a_full_disk_an_approved_call_starts_only_when_there_is_room() {
    let full = FullDisk::start(&[]).await;
    let (deployment, client) = (&full.deployment, &full.server.client);
    deployment.release();
    let thread = client.thread().await;
    let id = deployment.hold(client, &thread, "10").await;
    let rows = deployment.rows().await;
    rows.forbid_claims().await;
    assert_eq!(client.approve(&id).await.body["state"], "executing");
    full.fill();
    rows.allow_claims().await;
    // The sweeper tries to run the call.
    full.logs("whether a call was claimed is looked up").await;
    full.logs("disk I/O error").await;
    assert_eq!(client.call(&id).await["state"], "approved");
    assert_eq!(deployment.ledger(), Vec::<String>::new());

    full.clear();
    client.becomes(&id, "succeeded").await;
    assert_eq!(client.resume(&thread).await.text(), "{\"transferred\":\"10\"}");
    assert_eq!(deployment.ledger(), RAN);
}

#[tokio::test]
async fn on_sqlite_with_a_full_disk_an_outcome_waits_for_room() {
    let full = FullDisk::start(&[("HOLDPOINT_APPROVAL__LEASE", "20s")]).await;
    let (deployment, client) = (&full.deployment, &full.server.client);
    let thread = client.thread().await;
    let id = deployment.hold(client, &thread, "10").await;
    client.approve(&id).await.has_status(202);
    full.fill();
    deployment.release();
    full.logs("not written yet").await;
    assert_eq!(client.call(&id).await["state"], "executing");

    full.clear();
    let call = client.becomes(&id, "succeeded").await;
    assert_eq!(call["output"], json!({ "transferred": "10" }));
    assert_eq!(client.resume(&thread).await.text(), "{\"transferred\":\"10\"}");
    assert_eq!(deployment.ledger(), RAN);
}

#[tokio::test]
async fn on_sqlite_with_a_disk_that_stays_full_the_outcome_becomes_unknown() {
    let full = FullDisk::start(&[]).await;
    let (deployment, client) = (&full.deployment, &full.server.client);
    let thread = client.thread().await;
    let id = deployment.hold(client, &thread, "10").await;
    client.approve(&id).await.has_status(202);
    full.fill();
    deployment.release();
    full.logs("the outcome of a call could not be written").await;
    assert_eq!(client.call(&id).await["state"], "executing");

    full.clear();
    client.becomes(&id, "interrupted").await;
    assert!(client.resume(&thread).await.text().starts_with("The outcome is unknown"));
    assert_eq!(client.approve(&id).await.body["state"], "interrupted");
    assert_eq!(deployment.ledger(), RAN);
}

#[tokio::test]
async fn on_sqlite_with_a_full_disk_a_step_holds_nothing_and_its_thread_resumes_with_room() {
    let full = FullDisk::start(&[]).await;
    let (deployment, client) = (&full.deployment, &full.server.client);
    let thread = client.thread().await;
    let fill = async {
        deployment.wait_started(&["ponder"]).await;
        full.fill();
        deployment.release();
    };
    let (turn, ()) = tokio::join!(client.send_message(&thread, "ponder transfer 10"), fill);
    assert_eq!(turn.pending(), Vec::<String>::new(), "{}", turn.raw);
    turn.failed_with("internal");
    let rows = deployment.rows().await;
    assert_eq!(rows.count("tool_calls").await, 0);

    full.clear();
    let closed = async || (rows.count("runs WHERE status = 'failed'").await == 1).then_some(());
    eventually("the turn without a stored end is closed", closed).await;
    let again = client.resume(&thread).await;
    let [id] = &again.pending()[..] else { panic!("{}", again.raw) };
    let approved = client.approve(id).await;
    approved.has(200, "state", "succeeded");
    assert_eq!(deployment.ledger()[2..], RAN);
}

#[tokio::test]
async fn on_sqlite_a_decision_waits_for_another_writer_and_is_refused_if_it_takes_too_long() {
    let dir = tempfile::tempdir().unwrap();
    let app = Embedded::on_sqlite(&dir).await;
    let (thread, id) = app.held("pay", "10").await;
    app.rows.change("BEGIN IMMEDIATE").await.unwrap();
    assert_unavailable(&app.client.approve(&id).await);
    assert_eq!(app.client.call(&id).await["state"], "pending", "a read waits for no writer");
    assert_eq!(app.client.messages(&thread).await.len(), 2);
    assert_eq!(app.ledger.lines(), Vec::<String>::new());

    // The decision waits for a writer that finishes soon.
    let mut decision = std::pin::pin!(app.client.approve(&id));
    assert!(timeout(Duration::from_millis(500), &mut decision).await.is_err(), "it waits");
    app.rows.change("ROLLBACK").await.unwrap();
    let approved = decision.await;
    approved.has(200, "state", "succeeded");
    assert_eq!(approved.header("idempotent-replayed"), None);
    assert_eq!(app.ledger.lines(), ["pay 10"]);
}

#[tokio::test]
async fn on_sqlite_a_read_only_file_serves_reads_and_refuses_decisions() {
    let dir = tempfile::tempdir().unwrap();
    let app = Embedded::on_sqlite(&dir).await;
    let (thread, id) = app.held("pay", "10").await;
    let before = app.client.call(&id).await;
    let tools = holdpoint_testkit::probes(&app.ledger);
    let url = format!("{}?mode=ro", sqlite(&dir));
    let app = app.redeploy_with(tools, |config| config.database.url = url.into()).await;
    assert_unavailable(&app.client.approve(&id).await);
    assert_eq!(app.client.send_message(&thread, "hi").await.refused(), (503, "unavailable".to_owned()));
    assert_eq!(app.client.call(&id).await, before);
    assert_eq!(app.client.messages(&thread).await.len(), 2);

    let (tools, url) = (holdpoint_testkit::probes(&app.ledger), sqlite(&dir));
    let app = app.redeploy_with(tools, |config| config.database.url = url.into()).await;
    assert_eq!(app.client.approve(&id).await.body["state"], "succeeded");
    assert_eq!(app.ledger.lines(), ["pay 10"]);
}
