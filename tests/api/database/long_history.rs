//! A thread of 2,000 messages: what a turn costs there, with and without a window.

use crate::database::budgets::{LoggedServer, RecordedServer};
use holdpoint_testkit::{Client, Rows, Transactions};
use std::time::{Duration, Instant};

/// The turns that the thread has, each with two messages.
const TURNS: u32 = 1000;
/// The limit of tokens of the window. The whole thread has about 180,000.
const LIMIT: u64 = 30_000;
/// The turns that are measured.
const MEASURED: usize = 9;

/// Adds complete turns to a thread that has one.
async fn lengthen(rows: &Rows, thread: &str) {
    let numbers = format!(
        "WITH RECURSIVE numbers AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM numbers WHERE n < {TURNS})"
    );
    let id = |kind: u32, n: &str| format!("'00000000-0000-7000-{kind}-' || (100000000000 + {n})");
    let (asked, answer, run) = (id(8000, "n"), id(9000, "n"), id(8001, "n"));
    let words = "The file is in the folder of the project, and the test passes. ".repeat(4);
    let statements = [
        format!(
            "INSERT INTO messages (message_id, thread_id, run_id, ordinal, role, content, created_at)
             {numbers} SELECT {asked}, '{thread}', {run}, 2 * n, 'user', 'Question ' || n || '. {words}', 1
             FROM numbers"
        ),
        format!(
            "INSERT INTO messages (message_id, thread_id, run_id, ordinal, role, created_at)
             {numbers} SELECT {answer}, '{thread}', {run}, 2 * n + 1, 'assistant', 1 FROM numbers"
        ),
        format!(
            "INSERT INTO message_steps (message_id, n, status, parts, input_tokens, output_tokens, created_at, finished_at)
             {numbers} SELECT {answer}, 0, 'complete', '[{{\"type\":\"text\",\"text\":\"Answer ' || n || '. {words}\"}}]',
                 CASE n WHEN 1 THEN 1500 END, CASE n WHEN 1 THEN 5 END, 1, 1 FROM numbers"
        ),
        format!(
            "INSERT INTO runs (run_id, thread_id, user_message_id, assistant_message_id, status, roles, server_resumes,
                 created_at, finished_at)
             {numbers} SELECT {run}, '{thread}', {asked}, {answer}, 'completed', '[]', FALSE, 1, 1 FROM numbers"
        ),
    ];
    for statement in statements {
        assert_eq!(rows.change(&statement).await, Ok(u64::from(TURNS)), "{statement}");
    }
    rows.count_again().await;
}

/// Prints what turns cost, and returns the statements of the cheapest one.
fn statements(what: &str, mut times: Vec<Duration>, turns: &[Transactions]) -> usize {
    times.sort_unstable();
    let least = turns.iter().map(|turn| turn.cost().statements).min().unwrap();
    println!(
        "{what}: {:?} (from {:?} to {:?}), {least} statements",
        times[MEASURED / 2],
        times[0],
        times[MEASURED - 1]
    );
    least
}

async fn turn(client: &Client, thread: &str, n: usize) -> Duration {
    let began = Instant::now();
    let turn = client.send_message(thread, &format!("and {n}?")).await;
    assert!(!turn.text().is_empty(), "{}", turn.raw);
    began.elapsed()
}

async fn costs_on_postgres(what: &str, limit: Option<u64>, is_long: bool) -> usize {
    let server = RecordedServer::start(|config| {
        config.limits.thread_messages = 1_000_000;
        config.model.context_tokens = limit;
    })
    .await;
    let (app, thread) = (&server.app, server.app.client.thread().await);
    app.scene.answers("Hello.");
    turn(&app.client, &thread, 0).await;
    if is_long {
        lengthen(&server.rows, &thread).await;
    }
    let (mut times, mut turns) = (Vec::new(), Vec::new());
    for n in 0..=MEASURED {
        app.scene.answers("Yes.");
        server.took().await;
        times.push(turn(&app.client, &thread, n).await);
        turns.push(server.part().await);
    }
    let sent = app.scene.requests().pop().unwrap().messages.len();
    assert_eq!(sent > 2000, is_long && limit.is_none(), "{sent} messages");
    // The first turn moves the window.
    statements(&format!("on Postgres, {what}, {sent} messages sent"), times.split_off(1), &turns[1..])
}

async fn costs_on_sqlite(what: &str, limit: Option<u64>, is_long: bool) -> usize {
    let limit = limit.map(|limit| limit.to_string());
    let mut settings = vec![("HOLDPOINT_LIMITS__THREAD_MESSAGES", "1000000")];
    settings.extend(limit.as_deref().map(|limit| ("HOLDPOINT_MODEL__CONTEXT_TOKENS", limit)));
    let mut server = LoggedServer::start(&settings).await;
    let client = server.server.client.clone();
    let thread = client.thread().await;
    turn(&client, &thread, 0).await;
    if is_long {
        lengthen(&server.rows, &thread).await;
    }
    let (mut times, mut turns) = (Vec::new(), Vec::new());
    for n in 0..=MEASURED {
        server.took().await;
        times.push(turn(&client, &thread, n).await);
        turns.push(server.part().await);
    }
    let windows = server.rows.count("message_steps WHERE turns_left_out > 0").await;
    assert_eq!(windows > 0, is_long && limit.is_some());
    statements(&format!("on SQLite, {what}"), times.split_off(1), &turns[1..])
}

#[tokio::test]
async fn on_postgres_a_turn_after_2000_messages_has_as_many_statements_as_one_after_two() {
    let short = costs_on_postgres("after 2 messages", None, false).await;
    let long = costs_on_postgres("after 2,000 messages", None, true).await;
    let window = costs_on_postgres("after 2,000 messages, with a window", Some(LIMIT), true).await;
    // A long thread is read with a few statements more, the window with none.
    assert!(long <= short + 4 && window <= long, "{short}, {long} and {window} statements");
}

#[tokio::test]
async fn on_sqlite_a_turn_after_2000_messages_has_as_many_statements_as_one_after_two() {
    let short = costs_on_sqlite("after 2 messages", None, false).await;
    let long = costs_on_sqlite("after 2,000 messages", None, true).await;
    let window = costs_on_sqlite("after 2,000 messages, with a window", Some(LIMIT), true).await;
    assert!(long <= short + 4 && window <= long, "{short}, {long} and {window} statements");
}
