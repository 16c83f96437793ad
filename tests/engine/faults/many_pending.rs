//! A very large number of pending calls.

use holdpoint_testkit::{Embedded, eventually};
use std::time::Duration;
use tokio::time::timeout;

const PENDING: i64 = 10_000;
/// More than one page of a sweep.
const DUE: i64 = 120;
/// The longest time that a decision may take.
const PATIENCE: Duration = Duration::from_secs(20);

#[tokio::test]
async fn expired_calls_among_ten_thousand_pending_ones_expire_without_delaying_decisions() {
    let app = Embedded::with(|config| config.approval.sweep = Duration::from_millis(100)).await;
    let mut decided = Vec::new();
    for n in 0..5 {
        decided.push(app.held("pay", &n.to_string()).await.1);
    }
    let (_, one) = app.held("pay", "one of many").await;
    let (numbers, number) = if app.rows.is_postgres() {
        (format!("SELECT n FROM generate_series(1, {PENDING}) AS n"), "lpad(to_hex(n), 12, '0')")
    } else {
        let numbers = format!(
            "WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < {PENDING})
                 SELECT n FROM numbers"
        );
        (numbers, "printf('%012x', n)")
    };
    // The expired calls come last.
    let like_the_one = format!(
        "INSERT INTO tool_calls (tool_call_id, thread_id, tenant_id, message_id, step, ordinal, run_id, provider_call_id,
             wire_call_id, name, arguments, schema_hash, held, idempotent, risk_level, reason, state, exec_attempt,
             created_at, expires_at, listed_for)
         SELECT substr(tool_call_id, 1, 24) || {number}, thread_id, tenant_id, message_id, step, n, run_id, {number},
             {number}, name, arguments, schema_hash, held, idempotent, risk_level, reason, state, exec_attempt,
             created_at, CASE WHEN n > {PENDING} - {DUE} THEN created_at ELSE expires_at END, listed_for
         FROM tool_calls, ({numbers}) AS numbers WHERE tool_call_id = '{one}'"
    );
    assert_eq!(app.rows.change(&like_the_one).await, Ok(PENDING as u64));

    let decide = async {
        for id in &decided {
            let answer = timeout(PATIENCE, app.client.approve(id)).await.expect("no decision is delayed");
            assert_eq!(answer.body["state"], "succeeded", "{:?}", answer.body);
        }
    };
    let expire = async {
        let over = async || (app.rows.count("tool_calls WHERE state = 'expired'").await == DUE).then_some(());
        eventually("what is due has expired", over).await;
    };
    tokio::join!(decide, expire);
    assert_eq!(app.rows.count("tool_calls WHERE state = 'pending'").await, PENDING - DUE + 1);
    assert_eq!(app.rows.count("events WHERE type = 'tool.expired'").await, DUE);
    assert_eq!(app.ledger.lines().len(), decided.len());
}
