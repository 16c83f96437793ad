//! Cancelling reaches the tool: the tool is signalled to stop and has a grace period, and its return value
//! settles the call, however late.

use holdpoint::config::Config;
use holdpoint::tools::{Permit, Tool, ToolError, ToolRegistry};
use holdpoint_testkit::{
    Answer, Embedded, JsonFields, Ledger, Probe, Socket, call, eventually, postgres, probes,
};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::timeout;

/// Longer than any test runs.
const LONG: Duration = Duration::from_secs(3600);

macro_rules! heeds {
    ($type:ident, $name:literal, hil: $hil:literal) => {
        /// Waits until the tool is signalled to stop, then returns `done` or fails.
        struct $type(Ledger);

        impl Tool for $type {
            const NAME: &'static str = $name;
            const DESCRIPTION: &'static str = "A probe.";
            const HIL: bool = $hil;
            type Input = Probe;
            type Output = Value;

            async fn execute(&self, input: Probe, permit: Permit<Self>) -> Result<Value, ToolError> {
                self.0.write(format!("{} began", $name));
                permit.cancellation().cancelled().await;
                self.0.write(format!("{} stopped", $name));
                if input.note == "done" {
                    Ok(json!("done before"))
                } else {
                    Err(ToolError::new("nothing was done"))
                }
            }
        }
    };
}

heeds!(Heed, "heed", hil: true);
heeds!(HeedAtOnce, "heed_at_once", hil: false);

/// A server whose tools observe cancellation and have an unlimited grace period.
async fn with_cancellable_tools(change: impl FnOnce(&mut Config)) -> Embedded {
    let app = Embedded::start().await;
    let mut tools: ToolRegistry = probes(&app.ledger);
    tools.register(Heed(app.ledger.clone())).unwrap();
    tools.register(HeedAtOnce(app.ledger.clone())).unwrap();
    let all = |config: &mut Config| {
        config.tools.cancel_grace = LONG;
        config.approval.lease = LONG;
        config.approval.wait = LONG;
        change(config);
    };
    app.redeploy_with(tools, all).await
}

async fn soon<T>(waiting: impl Future<Output = T>) -> T {
    timeout(Duration::from_secs(60), waiting).await.expect("it ends long before its time is over")
}

async fn stopped(app: &Embedded, tool: &str) {
    let line = format!("{tool} stopped");
    eventually("the tool stops", async || app.ledger.lines().contains(&line).then_some(())).await;
}

/// Approves a call of `heed` and runs `then` once the tool runs. Returns the answers of both.
async fn approved_and(app: &Embedded, id: &str, then: impl Future<Output = Answer>) -> (Answer, Answer) {
    let then = async {
        app.ledger.wait_started().await;
        then.await
    };
    soon(async { tokio::join!(app.client.approve(id), then) }).await
}

#[tokio::test]
async fn the_return_value_of_a_tool_that_is_signalled_to_stop_is_its_outcome() {
    let app = with_cancellable_tools(|_| {}).await;
    for (note, state, result) in
        [("done", "succeeded", "done before"), ("not", "failed", "The tool failed: nothing was done")]
    {
        let (_, id) = app.held("heed", note).await;
        let path = format!("/tool_calls/{id}/cancel");
        let cancel = app.client.post(&path, &Value::Null);
        let (decided, cancelled) = Box::pin(approved_and(&app, &id, cancel)).await;
        let expected = json!({ "success": false, "tool_call_id": id, "state": state });
        assert_eq!((cancelled.status, &cancelled.body), (200, &expected));
        assert_eq!(
            (decided.status, &decided.body["state"], &decided.body["result"]),
            (200, &json!(state), &json!(result))
        );
        app.ledger.wait_started().await;
    }
}

#[tokio::test]
async fn cancelling_a_run_or_session_and_deleting_a_thread_stop_the_running_tools() {
    let app = with_cancellable_tools(|_| {}).await;
    for way in ["run", "session", "thread"] {
        let (thread, id) = app.held("heed", "not").await;
        let run = app.client.run_of(&id).await;
        let cancel = async {
            match way {
                "run" => app.client.post(&format!("/runs/{run}/cancel"), &Value::Null).await,
                "session" => app.client.post(&format!("/sessions/{thread}/cancel"), &Value::Null).await,
                _ => app.client.delete(&format!("/threads/{thread}")).await,
            }
        };
        let (decided, cancelled) = approved_and(&app, &id, cancel).await;
        assert!(cancelled.status < 300, "{way}: {:?}", cancelled.body);
        assert_eq!(
            (decided.status, &decided.body["state"]),
            (200, &json!("failed")),
            "{way}: {:?}",
            decided.body
        );
        app.ledger.wait_started().await;
    }
}

#[tokio::test]
async fn cancelling_a_turn_stops_its_running_tools() {
    let app = with_cancellable_tools(|_| {}).await;
    let thread = app.client.thread().await;
    app.scene.calls(&[call("a", "heed_at_once", &json!({ "note": "not" }))]);
    let cancel = async {
        app.ledger.wait_started().await;
        let runs = app.rows.all("SELECT run_id FROM runs").await;
        app.client.post(&format!("/runs/{}/cancel", runs[0].text("run_id")), &Value::Null).await
    };
    let (_, cancelled) = soon(async { tokio::join!(app.client.send_message(&thread, "go"), cancel) }).await;
    cancelled.has(200, "status", "cancelled");
    stopped(&app, "heed_at_once").await;
    let settled = async || (app.rows.count("tool_calls WHERE state = 'failed'").await == 1).then_some(());
    eventually("the call is settled", settled).await;
}

#[tokio::test]
async fn a_tool_that_times_out_is_signalled_to_stop() {
    let app = with_cancellable_tools(|config| config.tools.timeout = Duration::from_millis(50)).await;
    let (_, id) = app.held("heed", "done").await;
    let decided = soon(app.client.approve(&id)).await;
    decided.has(200, "state", "succeeded");
}

#[tokio::test]
async fn a_tool_whose_lease_is_lost_is_signalled_to_stop() {
    let app = with_cancellable_tools(|config| config.approval.lease = Duration::from_secs(3)).await;
    let (_, id) = app.held("heed", "done").await;
    let lose = format!(
        "UPDATE tool_calls SET state = 'interrupted', lease_until = NULL, result = 'lost', finished_at = created_at
             WHERE tool_call_id = '{id}' AND state = 'executing'"
    );
    let lost = async {
        assert_eq!(app.rows.change(&lose).await, Ok(1));
        stopped(&app, "heed").await;
        app.client.get("/threads").await
    };
    approved_and(&app, &id, lost).await;
    assert_eq!(app.client.becomes(&id, "succeeded").await["output"], "done before");
}

#[tokio::test]
async fn a_tool_is_signalled_to_stop_at_shutdown_and_its_return_value_is_written() {
    let mut app = with_cancellable_tools(|config| {
        config.approval.wait = Duration::ZERO;
        config.server.grace = Duration::from_millis(100);
    })
    .await;
    let (_, id) = app.held("heed", "done").await;
    app.client.approve(&id).await.has_status(202);
    app.ledger.wait_started().await;
    app.end().await;
    let row =
        app.rows.all(&format!("SELECT state, output FROM tool_calls WHERE tool_call_id = '{id}'")).await;
    assert_eq!(row, [json!({ "state": "succeeded", "output": "\"done before\"" })]);
}

#[tokio::test]
async fn a_tool_that_ignores_the_signal_is_abandoned_after_the_grace_and_settles_its_call_late() {
    let app = Embedded::start().await;
    let (thread, id) = app.held("wait_for_me", "10").await;
    let path = format!("/tool_calls/{id}/cancel");
    let cancel = app.client.post(&path, &Value::Null);
    let (decided, cancelled) = Box::pin(approved_and(&app, &id, cancel)).await;
    cancelled.has(200, "state", "interrupted");
    assert_eq!(decided.body["state"], "interrupted");
    app.scene.answers("I see.");
    assert_eq!(app.client.resume(&thread).await.text(), "I see.");

    app.ledger.release.add_permits(1);
    assert_eq!(app.client.becomes(&id, "succeeded").await["output"], json!({ "waited": "10" }));
    app.scene.answers("So it did.");
    assert_eq!(app.client.send_message(&thread, "and?").await.text(), "So it did.");
    let sent = format!("{:?}", app.scene.growing_requests().last().unwrap().messages);
    assert!(sent.contains("[tool outcome] wait_for_me"), "{sent}");
}

#[tokio::test]
async fn on_postgres_a_cancel_at_another_process_reaches_the_tool() {
    let url = postgres().await;
    let change = |config: &mut Config| {
        config.database.url = url.clone().into();
        config.approval.lease = Duration::from_secs(3);
    };
    let runs = Embedded::with(change).await;
    let mut tools = ToolRegistry::new();
    tools.register(Heed(runs.ledger.clone())).unwrap();
    let runs = runs.redeploy_with(tools, |config| {
        change(config);
        config.tools.cancel_grace = LONG;
    });
    let (runs, other) = (runs.await, Embedded::with(change).await);
    let (_, id) = runs.held("heed", "done").await;
    let path = format!("/tool_calls/{id}/cancel");
    let cancel = other.client.post(&path, &Value::Null);
    let (_, cancelled) = Box::pin(approved_and(&runs, &id, cancel)).await;
    cancelled.has(200, "state", "succeeded");
}

/// Deletes the thread once its call is approved.
async fn delete_after_approval(app: &Embedded, thread: &str, id: &str) {
    let approved = format!("tool_calls WHERE tool_call_id = '{id}' AND state = 'approved'");
    eventually("the yes is committed", async || (app.rows.count(&approved).await == 1).then_some(())).await;
    app.client.delete(&format!("/threads/{thread}")).await.has_status(204);
}

#[tokio::test]
async fn an_approval_whose_thread_is_deleted_before_the_claim_returns_the_end_of_the_call() {
    let app = Embedded::with(|config| config.approval.wait = LONG).await;
    app.rows.forbid_claims().await;
    let ended = |body: &Value| {
        assert_eq!((&body["success"], &body["state"]), (&json!(false), &json!("cancelled")), "{body}");
        assert_eq!(body["result"], "Cancelled, the tool did not run.");
    };
    let (thread, id) = app.held("pay", "1").await;
    let (one, ()) =
        soon(async { tokio::join!(app.client.approve(&id), delete_after_approval(&app, &thread, &id)) })
            .await;
    one.has_status(200);
    ended(&one.body);
    app.client.approve(&id).await.has_status(404);

    let (thread, id) = app.held("pay", "2").await;
    let batch = json!({ "decisions": [{ "toolCallId": id, "isValidated": true }] });
    let batch = app.client.post("/qa/validate_tools", &batch);
    let (many, ()) = soon(async { tokio::join!(batch, delete_after_approval(&app, &thread, &id)) }).await;
    assert_eq!((many.status, &many.body["results"][0]["status"]), (200, &json!(200)));
    ended(&many.body["results"][0]);

    let (thread, id) = app.held("pay", "3").await;
    let mut socket = Socket::open(&app.client, "/ws", &[]).await.unwrap();
    let (name, decide) = (json!(1), json!({ "tool_call_id": id, "decision": "approve" }));
    let (output, ()) =
        soon(async { tokio::join!(socket.ask(&name, &decide), delete_after_approval(&app, &thread, &id)) })
            .await;
    assert_eq!(output.0, 200);
    ended(&output.1);
    assert_eq!(app.ledger.lines(), Vec::<String>::new());
}

#[tokio::test]
async fn an_approval_whose_thread_is_deleted_while_the_tool_runs_returns_its_outcome() {
    let app = Embedded::with(|config| config.approval.wait = LONG).await;
    let (thread, id) = app.held("wait_for_me", "1").await;
    let path = format!("/threads/{thread}");
    let (decided, deleted) = approved_and(&app, &id, async { app.client.delete(&path).await }).await;
    deleted.has_status(204);
    assert_eq!(
        (decided.status, &decided.body["success"], &decided.body["state"]),
        (200, &json!(false), &json!("interrupted"))
    );
}
