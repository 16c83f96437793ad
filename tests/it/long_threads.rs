//! Threads with more rows than a statement has parameters: 32,766 on SQLite, 65,535 on Postgres.

use crate::support::Embedded;
use holdpoint::llm::ModelMessage;
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
        "INSERT INTO messages (message_id, thread_id, run_id, ordinal, role, status, content, created_at)
         {messages} SELECT {id}, '{thread}', '{run}', 2 + n, 'user', 'superseded', 'x', 1 FROM numbers"
    );
    let cut_off = format!(
        "INSERT INTO messages (message_id, thread_id, run_id, ordinal, role, status, created_at)
         VALUES ('{CUT_OFF}', '{thread}', '{run}', 2, 'assistant', 'superseded', 1)"
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
    let texts: Vec<&Value> =
        page.body["results"].as_array().unwrap().iter().map(|it| &it["parts"][0]["text"]).collect();
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
    let run = app.client.call(&first).await["run_id"].as_str().unwrap().to_owned();
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

/// Adds this many turns to a thread with one turn, whose run is `run`. The server of the model counted a token for three
/// bytes.
async fn add_turns(app: &Embedded, thread: &str, run: &str, turns: u32) {
    let numbers = format!(
        "WITH RECURSIVE numbers AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM numbers WHERE n < {turns})"
    );
    let id = |of: u32| format!("'00000000-0000-7000-8{of}00-' || (100000000000 + n)");
    let (user, answer, own_run) = (id(1), id(2), id(3));
    let text = "x".repeat(400);
    let inserts = [
        format!(
            "INSERT INTO messages (message_id, thread_id, run_id, ordinal, role, status, content, created_at)
             {numbers} SELECT {user}, '{thread}', {own_run}, 2 * n, 'user', 'complete', 'turn ' || n || ' {text}', 1
             FROM numbers"
        ),
        format!(
            "INSERT INTO messages (message_id, thread_id, run_id, ordinal, role, status, created_at)
             {numbers} SELECT {answer}, '{thread}', {own_run}, 1 + 2 * n, 'assistant', 'complete', 1 FROM numbers"
        ),
        format!(
            "INSERT INTO message_steps (message_id, n, status, parts, finish_reason, input_tokens, output_tokens, created_at,
                finished_at)
             {numbers} SELECT {answer}, 0, 'complete', '[{{\"type\":\"text\",\"text\":\"{text}\"}}]', 'stop',
                CASE WHEN n < 40 THEN 2000 + 290 * n ELSE 14000 END, 100, 1, 1
             FROM numbers"
        ),
        format!(
            "INSERT INTO runs (run_id, thread_id, user_message_id, assistant_message_id, status, roles, server_resumes,
                created_at, finished_at)
             {numbers} SELECT {own_run}, '{thread}', {user}, {answer}, 'completed', roles, FALSE, 1, 1
             FROM numbers, runs WHERE run_id = '{run}'"
        ),
    ];
    for insert in inserts {
        app.rows.change(&insert).await.unwrap();
    }
}

#[tokio::test]
async fn a_thread_of_two_thousand_messages_stays_below_a_limit_of_tokens() {
    let mut sizes = Vec::new();
    for limit in [None, Some(16_000)] {
        let app = Embedded::with(|config| config.model.context_tokens = limit).await;
        let thread = app.client.thread().await;
        app.scene.answers("Hello.");
        let first = app.client.send_message(&thread, "hello").await;
        add_turns(&app, &thread, first.headers["x-run-id"].to_str().unwrap(), 1000).await;
        for _ in 0..3 {
            app.scene.answers("Still here.");
            let turn = app.client.send_message(&thread, "and now?").await;
            assert_eq!(turn.text(), "Still here.", "{}", turn.raw);
        }
        let requests = app.scene.requests();
        let last = requests.last().unwrap();
        sizes.push(last.messages.len());
        let texts = format!("{last:?}");
        assert_eq!(texts.contains("turn 1 "), limit.is_none());
        assert!(texts.contains("turn 1000 "));
    }
    let [whole, bounded] = sizes[..] else { panic!("{sizes:?}") };
    assert!(whole > 2000 && (20..200).contains(&bounded), "{sizes:?}");
}
