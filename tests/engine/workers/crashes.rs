//! The end of a worker or of a server at each step. The server is its own binary, and the worker the example in
//! Python, with tools of the test.

use super::{Job, ask, code};
use holdpoint_testkit::{
    Client, Process, Rows, UNKNOWN, eventually, in_repository, postgres_if_chosen, sqlite,
};
use serde_json::json;
use std::process::{Child, Command};
use tempfile::TempDir;

/// A folder with a configuration and a database.
pub(super) struct Shop {
    pub(super) dir: TempDir,
    database: String,
}

/// The tool that the demo model calls for `delete X`.
fn tool(idempotent: bool) -> String {
    format!(
        r#"
tools.demo = false
[[worker_tools]]
name = "delete_file"
description = "Deletes a file of the shop."
idempotent = {idempotent}
timeout = "10 minutes"
[worker_tools.input_schema]
type = "object"
properties = {{ path = {{ type = "string" }} }}
"#
    )
}

impl Shop {
    pub(super) async fn new(toml: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let database = postgres_if_chosen().await.unwrap_or_else(|| sqlite(&dir));
        std::fs::write(dir.path().join("holdpoint.toml"), toml).unwrap();
        Self { dir, database }
    }

    pub(super) fn start(&self, lease: &str) -> Process {
        let mut command = Command::new(env!("CARGO_BIN_EXE_holdpoint"));
        command
            .current_dir(self.dir.path())
            .env("HOLDPOINT_DATABASE__URL", &self.database)
            .env("HOLDPOINT_APPROVAL__LEASE", lease)
            .env("HOLDPOINT_APPROVAL__SWEEP", "50ms")
            .env("HOLDPOINT_APPROVAL__WAIT", "0s")
            .env("HOLDPOINT_LOG__LEVEL", "error");
        Process::spawn(&mut command)
    }

    /// Starts a worker of this server whose tool has this body, in Python. `begun` and `go` are files.
    fn worker(&self, server: &Client, body: &str) -> Worker {
        let script = format!(
            "import os, pathlib, time, worker\n\
             def delete_file(call, stop):\n{body}\n\
             worker.work({{\"delete_file\": delete_file}})\n"
        );
        std::fs::write(self.dir.path().join("own_worker.py"), script).unwrap();
        let mut python = Command::new("python3");
        python
            .current_dir(self.dir.path())
            .arg("own_worker.py")
            .env("PYTHONPATH", in_repository("examples/worker-python"))
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .env("HOLDPOINT_URL", &server.base);
        Worker(python.spawn().expect("python3 is installed"))
    }

    async fn rows(&self) -> Rows {
        Rows::open(&self.database).await
    }

    fn has(&self, file: &str) -> bool {
        self.dir.path().join(file).exists()
    }

    async fn becomes(&self, file: &str) {
        eventually(file, async || self.has(file).then_some(())).await;
    }
}

/// A worker process, which ends with the test.
pub(super) struct Worker(pub(super) Child);

impl Worker {
    fn kill(&mut self) {
        // SIGKILL.
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _killed = self.0.kill();
        let _reaped = self.0.wait();
    }
}

/// The body of a tool that hangs in mid-call.
const HANGS: &str = "    pathlib.Path(f\"begun{call['attempt']}\").touch()\n    time.sleep(600)";
/// The body of a tool that waits for a file.
const WAITS: &str = "    pathlib.Path('begun1').touch()\n    while not os.path.exists('go'): time.sleep(0.01)\n    \
                     return {'key': call['idempotency_key'], 'attempt': call['attempt']}";

/// Has the model call `delete_file`, and approves the call.
pub(super) async fn approved(client: &Client) -> String {
    let turn = client.send_message(&client.thread().await, "delete a").await;
    let [id] = &turn.pending()[..] else { panic!("{}", turn.raw) };
    client.approve(id).await.has_status(202);
    id.clone()
}

#[tokio::test]
async fn a_worker_killed_in_mid_call_leaves_the_outcome_unknown() {
    let shop = Shop::new(&tool(false)).await;
    let server = shop.start("1s");
    let mut worker = shop.worker(&server.client, HANGS);
    let id = approved(&server.client).await;
    shop.becomes("begun1").await;
    worker.kill();
    assert_eq!(server.client.becomes(&id, "interrupted").await["result"], UNKNOWN);
    assert!(Job::of(&ask(&server.client, &["delete_file"], 0).await).is_none());
}

#[tokio::test]
async fn a_call_of_a_killed_worker_goes_to_another_one_if_it_is_idempotent() {
    let shop = Shop::new(&tool(true)).await;
    let server = shop.start("3s");
    let mut worker = shop.worker(&server.client, HANGS);
    let id = approved(&server.client).await;
    shop.becomes("begun1").await;
    worker.kill();
    let again = async || Job::of(&ask(&server.client, &["delete_file"], 10).await);
    let job = eventually("the call is handed out again", again).await;
    assert_eq!((&job.id, &job.call["attempt"], &job.call["idempotency_key"]), (&id, &json!(2), &json!(id)));
    job.succeed(&server.client, &json!("done")).await;
    assert_eq!(server.client.call(&id).await["output"], "done");
}

#[tokio::test]
async fn an_execution_longer_than_its_lease_is_kept_alive_by_renewals() {
    let shop = Shop::new(&tool(false)).await;
    let server = shop.start("3s");
    let _worker = shop.worker(&server.client, WAITS);
    let id = approved(&server.client).await;
    shop.becomes("begun1").await;
    let rows = shop.rows().await;
    let kept = async || {
        let kept = rows.count("tool_calls WHERE lease_until - started_at > 6500000").await;
        (kept == 1).then_some(())
    };
    eventually("the lease is renewed beyond twice its time", kept).await;
    assert_eq!(server.client.call(&id).await["state"], "executing");
    std::fs::write(shop.dir.path().join("go"), "").unwrap();
    let done = server.client.becomes(&id, "succeeded").await;
    assert_eq!(done["output"], json!({ "key": id, "attempt": 1 }));
}

#[tokio::test]
async fn a_server_killed_before_a_claim_hands_the_call_out_after_its_start() {
    let shop = Shop::new(&tool(false)).await;
    let mut server = shop.start("30s");
    let id = approved(&server.client).await;
    server.kill();
    let server = shop.start("30s");
    let job = Job::of(&ask(&server.client, &["delete_file"], 0).await).unwrap();
    assert_eq!((&job.id, &job.call["attempt"]), (&id, &json!(1)));
}

#[tokio::test]
async fn a_server_killed_in_mid_call_does_not_end_the_execution_of_a_worker() {
    let shop = Shop::new(&tool(true)).await;
    let mut server = shop.start("30s");
    let id = approved(&server.client).await;
    let job = Job::of(&ask(&server.client, &["delete_file"], 0).await).unwrap();
    server.kill();
    let mut server = shop.start("30s");
    assert_eq!(server.client.call(&id).await["state"], "executing");
    job.renew(&server.client).await.has_status(200);
    assert_eq!(job.succeed(&server.client, &json!("done")).await.body["state"], "succeeded");
    server.kill();
    let server = shop.start("30s");
    assert_eq!(server.client.call(&id).await["output"], "done");
    let again = job.succeed(&server.client, &json!("done")).await;
    assert_eq!((again.status, again.header("idempotent-replayed")), (200, Some("true")));
    assert_eq!(code(&job.renew(&server.client).await), (409, "execution_over"));
}

#[tokio::test]
async fn a_worker_outlives_its_server_and_settles_at_the_next_one() {
    let shop = Shop::new(&format!("server.bind = \"127.0.0.1:0\"\n{}", tool(false))).await;
    let mut server = shop.start("30s");
    let id = approved(&server.client).await;
    let job = Job::of(&ask(&server.client, &["delete_file"], 0).await).unwrap();
    server.kill();
    // The worker posts its outcome while no server answers, and again later.
    let lost = server.client.http.post(server.client.url(&format!("/tool_calls/{id}/settle"))).send().await;
    assert!(lost.is_err());
    let server = shop.start("30s");
    assert_eq!(job.succeed(&server.client, &json!("late")).await.body["state"], "succeeded");
}

#[tokio::test]
async fn no_log_line_has_a_permit() {
    let shop = Shop::new(&tool(false)).await;
    let mut command = Command::new(env!("CARGO_BIN_EXE_holdpoint"));
    command
        .current_dir(shop.dir.path())
        .env("HOLDPOINT_DATABASE__URL", &shop.database)
        .env("HOLDPOINT_APPROVAL__WAIT", "0s")
        .env("HOLDPOINT_LOG__LEVEL", "trace");
    let server = Process::spawn_captured(&mut command);
    approved(&server.client).await;
    let job = Job::of(&ask(&server.client, &["delete_file"], 0).await).unwrap();
    job.renew(&server.client).await;
    job.succeed(&server.client, &json!("done")).await;
    let printed = server.finish();
    assert!(printed.contains("a call has started"), "{printed}");
    assert!(!printed.contains(&job.permit), "the log has the permit");
}
