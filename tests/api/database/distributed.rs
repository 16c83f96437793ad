//! Databases whose tables lie on other machines, such as Citus with a schema for each tenant. They refuse statements that
//! a single Postgres accepts. No such database runs in a test, so the test reads the statements.

use crate::database::budgets::RecordedServer;
use holdpoint_testkit::call;
use serde_json::json;

/// Returns why a database with distributed tables would refuse the statement.
fn refusal(sql: &str) -> Option<&'static str> {
    let words = sql.split_whitespace().collect::<Vec<_>>().join(" ");
    // What depends on its arguments alone is accepted.
    let calls_a_function = |rest: &str| {
        let list = rest.split(" SELECT ").next().unwrap_or(rest);
        let list = ["octet_length(", "COALESCE(", "CAST("]
            .iter()
            .fold(list.to_owned(), |list, name| list.replace(name, ""));
        list.find('(').is_some_and(|open| list.find(')').is_none_or(|close| open < close))
    };
    let is_begin = words.starts_with("BEGIN");
    if words.split("RETURNING ").skip(1).any(calls_a_function) {
        return Some("a function in RETURNING");
    }
    let locks = words.match_indices(" FOR UPDATE").chain(words.match_indices(" FOR SHARE"));
    let mut locking = locks.map(|(at, _)| select_before(&words[..at]));
    if locking.any(|select| select.contains(" ORDER BY ") && select.contains(" JOIN ")) {
        return Some("FOR UPDATE and ORDER BY over several tables");
    }
    if !is_begin && words.trim_end_matches(';').contains("; ") {
        return Some("several commands in one text");
    }
    None
}

/// Returns the select that ends with this text, without what surrounds it and without the selects in it.
fn select_before(text: &str) -> String {
    let (mut depth, mut select) = (0_usize, Vec::new());
    for character in text.chars().rev() {
        match character {
            ')' => depth += 1,
            '(' if depth == 0 => break,
            '(' => depth -= 1,
            _ if depth == 0 => select.push(character),
            _ => {}
        }
    }
    select.into_iter().rev().collect()
}

#[test]
fn a_statement_that_a_distributed_table_refuses_is_recognised() {
    for (sql, expected) in [
        ("UPDATE a SET b = 1 RETURNING b, pg_notify($1, b::TEXT)", Some("a function in RETURNING")),
        ("WITH c AS (UPDATE a SET b = 1 RETURNING b) SELECT count(*) FROM c", None),
        ("UPDATE a SET b = 1 RETURNING CAST(octet_length(c) AS BIGINT)", None),
        (
            "SELECT * FROM a JOIN b ON true ORDER BY c FOR UPDATE",
            Some("FOR UPDATE and ORDER BY over several tables"),
        ),
        ("SELECT * FROM a ORDER BY c LIMIT 1 FOR UPDATE", None),
        (
            "WITH b AS (SELECT * FROM a WHERE c = (SELECT max(c) FROM a) FOR UPDATE) SELECT * FROM b JOIN d ORDER BY e",
            None,
        ),
        ("SET LOCAL jit = off; SET LOCAL enable_seqscan = off", Some("several commands in one text")),
        ("BEGIN; SELECT 1", None),
    ] {
        assert_eq!(refusal(sql), expected, "{sql}");
    }
}

#[tokio::test]
async fn on_postgres_no_statement_of_a_round_is_one_that_a_distributed_table_refuses() {
    let server = RecordedServer::start(|_| {}).await;
    let client = &server.app.client;
    let (thread, approved) = server.app.held("pay", "10").await;
    let rejected = server.app.hold_in(&client.thread().await, "pay", "20").await;
    client.approve(&approved).await.has(200, "state", "succeeded");
    client.reject(&rejected).await.has(200, "state", "rejected");
    server.app.scene.calls(&[call("a", "look", &json!({ "note": "1" }))]).answers("Paid.");
    assert_eq!(client.resume(&thread).await.text(), "Paid.");
    let all = server.took().await;
    let statements: Vec<_> = all.0.iter().flat_map(|one| &one.statements).collect();
    assert!(statements.iter().any(|sql| sql.contains("event_sequence")), "the numbering is recorded");
    let refused = statements.iter().filter_map(|sql| Some(format!("{}: {sql}", refusal(sql)?)));
    let refused: Vec<_> = refused.collect();
    assert_eq!(refused, Vec::<String>::new());
}
