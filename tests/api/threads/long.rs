//! Threads with more rows than a statement has parameters: 32,766 on SQLite, 65,535 on Postgres.

use holdpoint::llm::ModelMessage;
use holdpoint_testkit::{Embedded, JsonFields};
use serde_json::{Value, json};

/// A superseded message with one step.
const CUT_OFF: &str = "00000000-0000-7000-8000-000000000001";

/// More than a statement has parameters.
fn many(app: &Embedded) -> u32 {
    if app.rows.is_postgres() { 66_000 } else { 33_000 }
}

/// Adds this many superseded user messages to a thread, and a superseded message with this many calls.
async fn lengthen(app: &Embedded, thread: &str, run: &str, messages: u32, calls: u32) {
    let numbers = |up_to: u32| {
        format!(
            "WITH RECURSIVE numbers AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM numbers WHERE n < {up_to})"
        )
    };
    let rows = [(messages, numbers(messages)), (calls, numbers(calls))];
    let [(message_rows, messages), (call_rows, calls)] = rows;
    let id = "'00000000-0000-7000-8000-' || (100000000000 + n)";
    let messages = format!(
        "INSERT INTO messages (message_id, thread_id, run_id, ordinal, role, superseded_at, content, created_at)
         {messages} SELECT {id}, '{thread}', '{run}', 2 + n, 'user', 1, 'x', 1 FROM numbers"
    );
    let cut_off = format!(
        "INSERT INTO messages (message_id, thread_id, run_id, ordinal, role, superseded_at, created_at)
         VALUES ('{CUT_OFF}', '{thread}', '{run}', 2, 'assistant', 1, 1)"
    );
    let step = format!(
        "INSERT INTO message_steps (message_id, n, status, parts, created_at, finished_at)
         VALUES ('{CUT_OFF}', 0, 'complete', '[]', 1, 1)"
    );
    let calls = format!(
        "INSERT INTO tool_calls (tool_call_id, thread_id, tenant_id, message_id, step, ordinal, run_id,
            provider_call_id, wire_call_id, name, arguments, schema_hash, held, idempotent, risk_level, state,
            validated, decided_by, decided_at, exec_attempt, result, created_at, finished_at)
         {calls} SELECT {id}, '{thread}', 'default', '{CUT_OFF}', 0, n, '{run}', '', 'wire-' || n, 'nowhere', '{{}}',
            '', FALSE, FALSE, 'low', 'invalid', FALSE, 'system:invalid', 1, 0, 'No such tool.', 1, 1 FROM numbers"
    );
    for (insert, rows) in [(messages, message_rows), (cut_off, 1), (step, 1), (calls, call_rows)] {
        assert_eq!(app.rows.change(&insert).await, Ok(u64::from(rows)));
    }
    app.rows.count_again().await;
}

/// Takes a turn in a thread with these rows, and lists it.
async fn takes_a_turn_and_is_listed(messages: impl Fn(u32) -> u32, calls: impl Fn(u32) -> u32) {
    let app = Embedded::with(|config| config.limits.thread_messages = 1_000_000).await;
    let many = many(&app);
    let thread = app.client.thread().await;
    app.scene.answers("Hello.");
    let turn = app.client.send_message(&thread, "hello").await;
    let run = turn.headers["x-run-id"].to_str().unwrap();
    lengthen(&app, &thread, run, messages(many), calls(many)).await;

    app.scene.answers("Still here.");
    let turn = app.client.send_message(&thread, "and now?").await;
    assert_eq!(turn.text(), "Still here.", "{}", turn.raw);
    let page = app.client.get(&format!("/threads/{thread}/messages?page_size=200")).await;
    let texts: Vec<&Value> = page.body.list("results").iter().map(|it| &it["parts"][0]["text"]).collect();
    assert_eq!((page.status, texts.len()), (200, 4), "{texts:?}");
    for path in [format!("/threads/{thread}"), format!("/threads/{thread}/approvals?state=invalid")] {
        assert_eq!(app.client.get(&path).await.status, 200, "{path}");
    }
}

#[tokio::test]
async fn a_thread_with_more_messages_than_statement_parameters_takes_a_turn_and_is_listed() {
    takes_a_turn_and_is_listed(|many| many, |_many| 1).await;
}

/// The statements are the same on Postgres. Without optimizations, this process may take longer to read 66,000 calls
/// than a transaction on Postgres may be idle: 10 s.
#[tokio::test]
async fn on_sqlite_a_thread_with_more_calls_than_statement_parameters_takes_a_turn_and_is_listed() {
    takes_a_turn_and_is_listed(|_many| 1, |many| many).await;
}

/// What a model reads in a conversation with an edited call, an answer of two steps, a placeholder and a note. After the
/// first answer the thread gets so many superseded messages.
async fn read_by_the_model(superseded: u32) -> Vec<Vec<ModelMessage>> {
    let app = Embedded::with(|config| config.limits.thread_messages = 1_000_000).await;
    let (thread, first) = app.held("pay", "10").await;
    let edit = json!({ "toolCallId": first, "isValidated": true, "validatedInputs": { "note": "9" } });
    assert_eq!(app.client.validate(&edit).await.body["state"], "succeeded");
    app.scene.answers("Paid.");
    assert_eq!(app.client.resume(&thread).await.text(), "Paid.");
    let run = app.client.run_of(&first).await;
    lengthen(&app, &thread, &run, superseded, 3).await;
    let second = app.hold_in(&thread, "pay", "2").await;
    app.scene.answers("It waits.");
    assert_eq!(app.client.send_message(&thread, "and now?").await.text(), "It waits.");
    assert_eq!(app.client.approve(&second).await.body["state"], "succeeded");
    app.scene.answers("It is paid.");
    assert_eq!(app.client.send_message(&thread, "is it done?").await.text(), "It is paid.");
    app.scene.requests().into_iter().map(|request| request.messages).collect()
}

#[tokio::test]
async fn a_model_reads_the_same_in_a_thread_of_any_length() {
    let short = read_by_the_model(1).await;
    let last = short.last().unwrap();
    let reads = |text: &str| {
        let is_it = |message: &&ModelMessage| format!("{message:?}").contains(text);
        last.iter().filter(is_it).count()
    };
    assert_eq!(
        ["paid\\\":\\\"9", "paid\\\":\\\"2", "Awaiting approval", "It waits."].map(reads),
        [1; 4],
        "{last:#?}"
    );
    for superseded in [100, 3000] {
        assert_eq!(read_by_the_model(superseded).await, short, "after {superseded} messages");
    }
}
