//! `holdpoint approvals`: lists pending calls, and resolves calls with an unknown outcome.

use holdpoint_testkit::{
    Deployment, JsonFields, Process, UNKNOWN, empty_postgres, empty_sqlite, postgres_if_chosen,
};
use serde_json::{Value, json};

/// Runs `approvals list` and returns the cells of each line.
fn listed(deployment: &Deployment, args: &[&str]) -> Vec<Vec<String>> {
    let table = deployment.operate(&[&["approvals", "list"], args].concat()).stdout_of_success();
    let cells =
        |line: &str| line.split("  ").map(str::trim).filter(|it| !it.is_empty()).map(str::to_owned).collect();
    table.lines().map(cells).collect()
}

/// A place with a running server, in which the call `transfer 10` is interrupted: its outcome is unknown.
async fn interrupted() -> (Deployment, Process, String, String) {
    let deployment = Deployment::new().await;
    let (mut server, thread, id) = deployment.in_mid_tool().await;
    server.kill();
    let server = deployment.start("30s");
    server.client.becomes(&id, "interrupted").await;
    (deployment, server, thread, id)
}

#[tokio::test]
async fn a_call_resolved_as_succeeded_is_reported_to_the_model_and_the_page() {
    let (deployment, server, thread, id) = interrupted().await;
    let client = &server.client;
    assert!(client.resume(&thread).await.text().starts_with("The outcome is unknown"));
    let resolved = deployment.operate(&[
        "approvals",
        "resolve",
        &id,
        "--by",
        "mel",
        "--succeeded",
        r#"{"transferred":"10"}"#,
        "--reason",
        "It is on the statement.",
    ]);
    assert_eq!(
        resolved.stdout_of_success(),
        format!("{id} is succeeded; the model reads that an operator established it\n")
    );

    let result = "An operator established that the tool ran and succeeded. Its output: {\"transferred\":\"10\"} \
                  Reason: It is on the statement.";
    let call = client.call(&id).await;
    assert_eq!((&call["state"], &call["result"]), (&json!("succeeded"), &json!(result)));
    assert_eq!(call["output"], json!({ "transferred": "10" }));
    assert_eq!(call["decision"]["by"], "user:local", "the approver stays the decider");
    let shown = client.messages(&thread).await;
    assert!(json!(shown).to_string().contains("An operator established"), "{shown:?}");
    // A repeated approval returns the resolved state.
    assert_eq!(client.approve(&id).await.body["state"], "succeeded");

    assert_eq!(client.send_message(&thread, "thanks").await.text(), "thanks");
    assert_eq!(client.send_message(&thread, "again").await.text(), "again");
    let rows = deployment.rows().await;
    let sent = rows.all("SELECT kind, text FROM sent_answers ORDER BY n").await;
    let note = format!("[tool outcome] transfer, call p-10: {result}");
    assert_eq!(sent, [json!({ "kind": "answer", "text": UNKNOWN }), json!({ "kind": "note", "text": note })]);
    let events = rows.all("SELECT type, actor, data FROM events WHERE type = 'tool.succeeded'").await;
    let [event] = &events[..] else { panic!("{events:?}") };
    let data: Value = serde_json::from_str(event.text("data")).unwrap();
    let want = json!({ "tool_name": "transfer", "state": "succeeded", "surface": "terminal",
                       "resolved_by": "operator", "reason": "It is on the statement." });
    assert_eq!((&event["actor"], data), (&json!("user:mel"), want));
    assert_eq!(deployment.ledger(), ["transfer 10"], "the tool did not run again");
}

#[tokio::test]
async fn an_operator_resolves_a_call_as_failed_while_no_server_runs() {
    let (deployment, server, thread, id) = interrupted().await;
    server.finish();
    let args = ["approvals", "resolve", &id, "--failed", "The bank refused it.", "--by", "mel"];
    assert!(deployment.operate(&args).stdout_of_success().contains("is failed"));

    let server = deployment.start("30s");
    let call = server.client.call(&id).await;
    let result = "An operator established that the tool failed: The bank refused it.";
    assert_eq!((&call["state"], &call["result"]), (&json!("failed"), &json!(result)));
    assert_eq!(call.get("output"), None);
    // The model got no earlier answer for this call, so the resolution is its answer.
    assert_eq!(server.client.resume(&thread).await.text(), result);
    let rows = deployment.rows().await;
    let sent = rows.all("SELECT kind, text FROM sent_answers").await;
    assert_eq!(sent, [json!({ "kind": "answer", "text": result })]);
}

#[tokio::test]
async fn a_call_that_is_not_interrupted_cannot_be_resolved() {
    let deployment = Deployment::new().await;
    deployment.release();
    let server = deployment.start("30s");
    let client = &server.client;
    let hold = async |note| deployment.hold(client, &client.thread().await, note).await;
    let [pending, succeeded, rejected, cancelled, expired] =
        [hold("1").await, hold("2").await, hold("3").await, hold("4").await, hold("5").await];
    client.approve(&succeeded).await;
    client.reject(&rejected).await;
    client.post(&format!("/tool_calls/{cancelled}/cancel"), &Value::Null).await;
    let rows = deployment.rows().await;
    let overdue = format!("UPDATE tool_calls SET expires_at = created_at WHERE tool_call_id = '{expired}'");
    rows.change(&overdue).await.unwrap();
    client.becomes(&expired, "expired").await;
    // The server resumes their runs.
    for id in [&cancelled, &expired] {
        let run = client.run_of(id).await;
        client.run_becomes(&run, "completed").await;
    }
    let everything = async || {
        let mut all = rows.all("SELECT * FROM tool_calls ORDER BY 1").await;
        all.extend(rows.all("SELECT * FROM events ORDER BY 1").await);
        all
    };
    let before = everything().await;
    let resolve = |id: &str, more: &[&str]| {
        deployment.operate(&[&["approvals", "resolve", id, "--by", "mel"], more].concat())
    };
    for (id, state) in [
        (&pending, "pending"),
        (&succeeded, "succeeded"),
        (&rejected, "rejected"),
        (&cancelled, "cancelled"),
        (&expired, "expired"),
    ] {
        for more in [&["--succeeded"][..], &["--failed", "no"]] {
            resolve(id, more).refused_for(&format!("the tool call {id} is {state}; only an interrupted one"));
        }
    }
    let unused = "01890a5d-ac96-774b-bcce-b302099a8057";
    resolve(unused, &["--succeeded"]).refused_for(&format!("there is no tool call {unused}"));
    resolve("no-id", &["--succeeded"]).refused_for("there is no tool call no-id");
    resolve(&pending, &[]).refused_for("--succeeded");
    resolve(&pending, &["--failed"]).refused_for("--failed");
    resolve(&pending, &["--succeeded", "--failed", "no"]).refused_for("cannot be used with");
    resolve(&pending, &["--succeeded", "{"]).refused_for("--succeeded");
    resolve(&pending, &["--failed", " "]).refused_for("--failed: expected 1 to 2000 characters");
    resolve(&pending, &["--succeeded", "--reason", "\u{1b}[2J"]).refused_for("--reason: expected");
    deployment
        .operate(&["approvals", "resolve", &pending, "--by", "", "--succeeded"])
        .refused_for("--by: expected");
    deployment.operate(&["approvals", "resolve", &pending, "--succeeded"]).refused_for("--by");
    assert_eq!(everything().await, before);
}

#[tokio::test]
async fn the_first_of_two_resolutions_wins() {
    let (deployment, server, _, id) = interrupted().await;
    let resolve =
        |args: &[&str]| deployment.operate(&[&["approvals", "resolve", &id, "--by"], args].concat());
    resolve(&["mel", "--succeeded"]).stdout_of_success();
    resolve(&["zoe", "--failed", "no"]).refused_for("is succeeded; only an interrupted one");
    let call = server.client.call(&id).await;
    let result = "An operator established that the tool ran and succeeded.";
    assert_eq!((&call["result"], &call["output"]), (&json!(result), &Value::Null));
    assert_eq!(
        deployment.rows().await.count("events WHERE type IN ('tool.succeeded', 'tool.failed')").await,
        1
    );
}

#[tokio::test]
async fn pending_and_interrupted_calls_are_listed_newest_first() {
    let (deployment, server, _, unknown) = interrupted().await;
    let client = &server.client;
    let first = deployment.hold(client, &client.thread().await, "20").await;
    let odd = client.thread().await;
    let second = deployment.hold(client, &odd, "21").await;
    let rejected = deployment.hold(client, &client.thread().await, "22").await;
    client.reject(&rejected).await;
    let rows = deployment.rows().await;
    rows.change(&format!(
        "UPDATE threads SET user_id = 'ann\u{1b}[2J\u{202e}\u{e0041}' WHERE thread_id = '{odd}'"
    ))
    .await
    .unwrap();

    let since = |call: &Value, field: &str| call[field].as_str().unwrap().to_owned();
    let line = |id: &str, state: &str, user: &str, since: String| {
        [id, "transfer", state, "default", user, &since].map(str::to_owned).to_vec()
    };
    let head = ["TOOL CALL", "TOOL", "STATE", "TENANT", "USER", "SINCE"].map(str::to_owned).to_vec();
    let table = listed(&deployment, &[]);
    assert_eq!(table.len(), 4, "{table:?}");
    assert_eq!(table[0], head);
    assert_eq!(
        table[1][..5],
        line(&second, "pending", "ann\\u{1b}[2J\\u{202e}\\u{e0041}", String::new())[..5]
    );
    assert_eq!(table[2], line(&first, "pending", "local", since(&client.call(&first).await, "created_at")));
    let unknown_since = since(&client.call(&unknown).await, "finished_at");
    assert_eq!(table[3], line(&unknown, "interrupted", "local", unknown_since));

    let ids = |args: &[&str]| -> Vec<String> {
        listed(&deployment, args).into_iter().skip(1).map(|line| line[0].clone()).collect()
    };
    assert_eq!(ids(&["--state", "interrupted"]), std::slice::from_ref(&unknown));
    assert_eq!(ids(&["--state", "rejected,interrupted"]), [rejected, unknown]);
    assert_eq!(ids(&["--state", "executing"]), Vec::<String>::new());
    let short = deployment.operate(&["approvals", "list", "--limit", "1"]);
    assert!(short.stderr.contains("more than 1"), "{short:?}");
    assert_eq!(short.stdout_of_success().lines().count(), 2);
    deployment.operate(&["approvals", "list", "--state", "lost"]).refused_for("lost");
    deployment.operate(&["approvals", "list", "--limit", "0"]).refused_for("--limit");
}

#[tokio::test]
async fn a_missing_database_is_not_created_on_sqlite() {
    let dir = tempfile::tempdir().unwrap();
    let deployment = Deployment::at(format!("sqlite://{}/none.db", dir.path().display()));
    for args in [&["approvals", "list"][..], &["fence", "--by", "mel"]] {
        deployment.operate(args).refused_for("database.url: there is no such database");
    }
    assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 0);
}

#[tokio::test]
async fn a_database_with_another_schema_version_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    // An empty database file.
    std::fs::write(dir.path().join("holdpoint.db"), "").unwrap();
    let deployment = Deployment::at(match postgres_if_chosen().await {
        Some(_) => empty_postgres().await,
        None => empty_sqlite(&dir),
    });
    for args in [&["approvals", "list"][..], &["fence", "--by", "mel"]] {
        deployment.operate(args).refused_for("run `holdpoint migrate` first");
    }
    deployment.operate(&["migrate"]).stdout_of_success();
    assert_eq!(listed(&deployment, &[]).len(), 1, "only the header line");
}
