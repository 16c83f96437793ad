//! Repeated and concurrent approvals leave one grant, and every call runs once.

use super::{child, granted, grants, made, remember};
use futures::future::join_all;
use holdpoint_testkit::{Embedded, JsonFields, call};
use serde_json::json;

#[tokio::test]
async fn repeated_approvals_create_one_grant() {
    let app = Embedded::start().await;
    let (thread, id) = app.held("pay", "1").await;
    let answers = join_all((0..8).map(|_| remember(&app.client, &id))).await;
    assert!(answers.iter().all(|answer| answer.status == 200), "{answers:?}");
    let replayed = answers.iter().filter(|answer| answer.header("idempotent-replayed").is_some());
    assert_eq!(replayed.count(), 7);
    assert_eq!(grants(&app.client, &thread).await.len(), 1);
    assert_eq!(app.rows.count("grants").await, 1);
    assert_eq!(app.ledger.lines(), ["pay 1"]);
}

#[tokio::test]
async fn repeating_an_approval_with_remember_creates_no_grant() {
    let app = Embedded::start().await;
    let (thread, id) = app.held("pay", "1").await;
    app.client.approve(&id).await.has_status(200);
    assert_eq!(remember(&app.client, &id).await.header("idempotent-replayed"), Some("true"));
    assert_eq!(app.rows.count("grants").await, 0);
    assert_eq!(made(&app, &thread, "pay", "2").await["state"], "pending");
}

#[tokio::test]
async fn concurrent_approvals_in_many_threads_create_one_grant_and_run_each_call_once() {
    let app = Embedded::start().await;
    let root = app.client.thread().await;
    let mut ids = Vec::new();
    for thread in 0..3 {
        let thread_id = if thread == 0 { root.clone() } else { child(&app.client, &root).await };
        // Each thread has the same provider ids: only the server's own ids identify a call.
        let calls: Vec<_> = (0..5)
            .map(|n| call(&format!("p{n}"), "pay", &json!({ "note": format!("{thread}{n}") })))
            .collect();
        app.scene.calls(&calls);
        ids.extend(app.client.send_message(&thread_id, "pay all").await.pending());
    }
    assert_eq!(ids.len(), 15);
    let answers = join_all(ids.iter().map(|id| remember(&app.client, id))).await;
    for answer in &answers {
        // A call that another approval's grant has already approved gets the same answer.
        assert!([200, 202].contains(&answer.status), "{:?}", answer.body);
    }
    let mut ran = Vec::new();
    for id in &ids {
        ran.push(format!("pay {}", app.client.becomes(id, "succeeded").await["input"].text("note")));
    }
    let mut lines = app.ledger.lines();
    lines.sort();
    ran.sort();
    assert_eq!(lines, ran, "each once");
    assert_eq!(grants(&app.client, &root).await.len(), 1);
    assert_eq!(app.rows.count("grants").await, 1);
}

#[tokio::test]
async fn a_concurrent_reject_and_session_grant_leave_each_call_with_one_decision() {
    let app = Embedded::start().await;
    for round in 0..10 {
        let thread = app.client.thread().await;
        let calls: Vec<_> = (0..4)
            .map(|n| call(&format!("p{n}"), "pay", &json!({ "note": format!("{round}-{n}") })))
            .collect();
        app.scene.calls(&calls);
        let ids = app.client.send_message(&thread, "pay all").await.pending();
        let (yes, noes) = tokio::join!(
            remember(&app.client, &ids[0]),
            join_all(ids[1..].iter().map(|id| app.client.reject(id)))
        );
        yes.has_status(200);
        for (id, no) in ids[1..].iter().zip(noes) {
            let (state, times) = match no.status {
                200 => ("rejected", 0),
                409 => ("succeeded", 1),
                other => panic!("{other}: {:?}", no.body),
            };
            let call = app.client.becomes(id, state).await;
            let line = format!("pay {}", call["input"].text("note"));
            assert_eq!(app.ledger.lines().iter().filter(|ran| **ran == line).count(), times, "{line}");
        }
    }
}

#[tokio::test]
async fn the_list_of_grants_is_paginated() {
    let app = Embedded::start().await;
    let thread = app.client.thread().await;
    for (tool, note) in [("pay", "1"), ("mumble", "2")] {
        let id = app.hold_in(&thread, tool, note).await;
        granted(&app.client, &id).await;
    }
    let path = format!("/sessions/{thread}/grants");
    let first = app.client.get(&format!("{path}?page_size=1")).await.body;
    assert_eq!((&first["results"][0]["tool_name"], &first["has_more"]), (&json!("mumble"), &json!(true)));
    let cursor = first.text("next_cursor");
    let second = app.client.get(&format!("{path}?page_size=1&cursor={cursor}")).await.body;
    assert_eq!((&second["results"][0]["tool_name"], &second["has_more"]), (&json!("pay"), &json!(false)));
    for (query, named) in [("cursor=x", "cursor"), ("page_size=0", "page_size")] {
        let refused = app.client.get(&format!("{path}?{query}")).await;
        refused.has_status(400);
        assert!(refused.message().starts_with(named), "{}", refused.message());
    }
}
