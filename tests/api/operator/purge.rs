//! `holdpoint purge`: erases the payloads of deleted threads and keeps the evidence of decisions.

use holdpoint_testkit::{Deployment, Rows, eventually};
use serde_json::{Value, json};

const SECRET: &str = "heron";

const ALL: [&str; 3] = ["purge", "--older-than", "0s"];

/// Runs the purge and returns how many threads it purged wholly, and how many in part.
fn purge(deployment: &Deployment, args: &[&str]) -> [u64; 2] {
    let ended = deployment.operate(args);
    assert_eq!(ended.stderr, "", "no progress bar without a terminal");
    let numbers: Vec<u64> = ended
        .stdout_of_success()
        .lines()
        .map(|line| line.split(' ').next().unwrap().parse().unwrap())
        .collect();
    numbers.try_into().unwrap()
}

/// Every row of these tables.
async fn rows_of(rows: &Rows, tables: &[&str]) -> Vec<Value> {
    let mut all = Vec::new();
    for table in tables {
        all.extend(rows.all(&format!("SELECT * FROM {table} ORDER BY 1, 2")).await);
    }
    all
}

const PAYLOADS: [&str; 6] = ["threads", "messages", "message_steps", "runs", "tool_calls", "sent_answers"];
const EVIDENCE: [&str; 3] = ["decisions", "events", "grants"];

#[tokio::test]
async fn purge_erases_the_texts_inputs_and_results_of_deleted_threads_only() {
    let deployment = Deployment::new().await;
    deployment.release();
    let server = deployment.start("30s");
    let client = &server.client;
    let rows = deployment.rows().await;
    let mut threads = Vec::new();
    for note in [SECRET, "kept"] {
        let thread = client.thread().await;
        let title = json!({ "title": format!("about {note}") });
        client.patch(&format!("/threads/{thread}"), &title).await.has_status(200);
        let id = deployment.hold(client, &thread, note).await;
        let edited = json!({ "toolCallId": id, "isValidated": true, "validatedInputs": { "note": format!("{note}-2") } });
        assert_eq!(client.validate(&edited).await.body["state"], "succeeded");
        assert!(client.resume(&thread).await.text().contains(note), "the model repeats the result");
        threads.push(thread);
    }
    let [deleted, kept] = &threads[..] else { unreachable!() };
    let before = client.messages(kept).await;
    let deletion = client.delete(&format!("/threads/{deleted}")).await;
    deletion.has_status(204);
    let full = rows_of(&rows, &PAYLOADS).await;
    let evidence = rows_of(&rows, &EVIDENCE).await;
    for table in PAYLOADS {
        let holds = json!(rows_of(&rows, &[table]).await).to_string().contains(SECRET);
        assert_eq!(holds, table != "runs", "{table}: otherwise this test proves nothing");
    }

    assert_eq!(purge(&deployment, &["purge", "--older-than", "1h"]), [0, 0], "too recent");
    assert_eq!(rows_of(&rows, &PAYLOADS).await, full);

    assert_eq!(purge(&deployment, &ALL), [1, 0]);
    let erased = rows_of(&rows, &PAYLOADS).await;
    // The model of these tests derives a call's id from its note.
    let ids = format!("\"p-{SECRET}\"");
    assert!(!json!(erased).to_string().replace(&ids, "").contains(SECRET), "{erased:#?}");
    assert_eq!(erased.len(), full.len(), "the rows stay");
    assert_eq!(rows_of(&rows, &EVIDENCE).await, evidence);
    assert_eq!(client.messages(kept).await, before);
    let call = rows.all("SELECT name, state, decided_by FROM tool_calls WHERE erased_at IS NOT NULL").await;
    assert_eq!(call, [json!({ "name": "transfer", "state": "succeeded", "decided_by": "user:local" })]);
    let bytes = rows.all("SELECT bytes FROM threads WHERE erased_at IS NOT NULL").await;
    assert!(bytes[0]["bytes"].as_i64().unwrap() < 20, "the counter is reduced: {bytes:?}");
    rows.assert_counted().await;

    assert_eq!(purge(&deployment, &ALL), [0, 0], "a thread is purged once");
    assert_eq!(rows_of(&rows, &PAYLOADS).await, erased);
    client.get(&format!("/threads/{deleted}")).await.has_status(404);
}

#[tokio::test]
async fn a_running_call_is_purged_after_it_has_ended() {
    let deployment = Deployment::new().await;
    // The deletion asks the tool to stop; this tool ignores that.
    let server = deployment.start_with("0s", &[("HOLDPOINT_TOOLS__CANCEL_GRACE", "10m")]);
    let thread = server.client.thread().await;
    let id = deployment.hold(&server.client, &thread, "10").await;
    server.client.approve(&id).await.has_status(202);
    deployment.wait_started(&["transfer 10"]).await;
    server.client.delete(&format!("/threads/{thread}")).await.has_status(204);
    assert_eq!(purge(&deployment, &ALL), [0, 1]);
    let rows = deployment.rows().await;
    let call = format!("SELECT state, arguments FROM tool_calls WHERE tool_call_id = '{id}'");
    assert_eq!(rows.all(&call).await, [json!({ "state": "executing", "arguments": r#"{"note":"10"}"# })]);

    deployment.release();
    let whole = async || (purge(&deployment, &ALL) == [1, 0]).then_some(());
    eventually("the call ends, and the purge finds it ended", whole).await;
    let erased = "SELECT arguments, validated_inputs, output, result FROM tool_calls";
    let empty = json!({ "arguments": "{}", "validated_inputs": null, "output": "null", "result": "" });
    assert_eq!(rows.all(erased).await, [empty]);
}

#[tokio::test]
async fn a_purged_call_cannot_be_changed() {
    let deployment = Deployment::new().await;
    let (mut server, thread, id) = deployment.in_mid_tool().await;
    server.kill();
    let server = deployment.start("30s");
    server.client.becomes(&id, "interrupted").await;
    server.client.delete(&format!("/threads/{thread}")).await.has_status(204);
    assert_eq!(purge(&deployment, &ALL), [1, 0]);
    let rows = deployment.rows().await;
    let before = rows_of(&rows, &PAYLOADS).await;

    deployment
        .operate(&["approvals", "resolve", &id, "--by", "mel", "--succeeded", r#"{"found":1}"#])
        .refused_for(&format!("the tool call {id} was purged"));
    for (table, change) in [
        ("tool_calls", "result = 'x'"),
        ("tool_calls", "arguments = '[]'"),
        ("tool_calls", "state = 'failed'"),
        ("tool_calls", "erased_at = NULL"),
        ("messages", "content = 'x'"),
        ("message_steps", "parts = '[1]'"),
    ] {
        let sql = format!(
            "UPDATE {table} SET {change} WHERE erased_at IS NOT NULL AND {}",
            match table {
                "messages" => "content IS NOT NULL",
                _ => "1 = 1",
            }
        );
        let refused = rows.change(&sql).await.expect_err(&sql);
        assert!(
            ["erased, once", "does not change", "written once"].iter().any(|words| refused.contains(words)),
            "{sql}: {refused}"
        );
    }
    assert_eq!(rows_of(&rows, &PAYLOADS).await, before);
}

#[tokio::test]
async fn a_thread_with_the_maximum_of_messages_is_purged() {
    let deployment = Deployment::new().await;
    let server = deployment.start("30s");
    let thread = server.client.thread().await;
    let rows = deployment.rows().await;
    let numbers =
        "WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 5000)";
    for sql in [
        format!(
            "{numbers} INSERT INTO messages (message_id, thread_id, run_id, ordinal, role, content, created_at)
             SELECT 'user-' || n, '{thread}', 'run', 2 * n, 'user', 'words', 1 FROM numbers"
        ),
        format!(
            "{numbers} INSERT INTO messages (message_id, thread_id, run_id, ordinal, role, content, created_at)
             SELECT 'assistant-' || n, '{thread}', 'run', 2 * n + 1, 'assistant', NULL, 1 FROM numbers"
        ),
        format!(
            "{numbers} INSERT INTO message_steps (message_id, n, status, parts, created_at, finished_at)
             SELECT 'assistant-' || n, 0, 'complete', '[1]', 1, 1 FROM numbers"
        ),
    ] {
        assert_eq!(rows.change(&sql).await, Ok(5000));
    }
    rows.count_again().await;
    server.client.delete(&format!("/threads/{thread}")).await.has_status(204);
    assert_eq!(purge(&deployment, &ALL), [1, 0]);
    assert_eq!(rows.count("messages WHERE erased_at IS NOT NULL").await, 10_000);
    assert_eq!(rows.count("messages WHERE content = 'words'").await, 0);
    assert_eq!(rows.count("message_steps WHERE parts = '[]'").await, 5000);
    assert_eq!(rows.assert_counted().await, 10_000, "the texts of the erased steps");
}

#[tokio::test]
async fn an_invalid_age_is_refused_by_the_name_of_its_option() {
    let deployment = Deployment::new().await;
    deployment.operate(&["purge"]).refused_for("--older-than");
    deployment.operate(&["purge", "--older-than", "soon"]).refused_for("--older-than");
}
