//! `POST /tool_calls/{tool_call_id}/extend`: a later deadline, within bounds and in time.

use super::{acme, chief, office, office_with};
use futures::future::join_all;
use holdpoint_testkit::{Answer, Client, Embedded, JsonFields};
use serde_json::{Value, json};
use std::time::Duration;

async fn extend(client: &Client, id: &str, seconds: u64) -> Answer {
    client.post(&format!("/tool_calls/{id}/extend"), &json!({ "expires_in": seconds })).await
}

const DAY: u64 = 24 * 60 * 60;

/// The microseconds of this column of a call.
async fn micros(app: &Embedded, id: &str, column: &str) -> i64 {
    let sql = format!("SELECT {column} AS at FROM tool_calls WHERE tool_call_id = '{id}'");
    app.rows.all(&sql).await[0]["at"].as_i64().unwrap()
}

#[tokio::test]
async fn an_approver_lets_a_call_wait_longer_and_the_event_has_both_deadlines() {
    let app = office().await;
    let (carol, (_, id)) = (chief(&app), app.held("refuse", "1").await);
    let before = carol.get(&format!("/approvals/{id}")).await.body;
    let answer = extend(&carol, &id, 2 * DAY).await;
    let after = carol.get(&format!("/approvals/{id}")).await.body;
    let expected = json!({ "tool_call_id": id, "expires_at": after["expires_at"] });
    assert_eq!((answer.status, answer.body), (200, expected));
    assert!(after["expires_at"].as_str() > before["expires_at"].as_str(), "{after}");
    assert_eq!(after["extendable_until"], before["extendable_until"]);
    let events = app.client.get(&format!("/tool_calls/{id}/events")).await.body;
    let events = events.list("results");
    let [.., held, extended] = &events[..] else { panic!("{events:?}") };
    assert_eq!((&extended["type"], &extended["actor"]), (&json!("tool.extended"), &json!("user:carol")));
    assert_eq!(
        (&extended["data"]["from"], &extended["data"]["expires_at"]),
        (&before["expires_at"], &after["expires_at"])
    );
    assert_eq!(
        (&held["type"], &held["data"]["expires_at"]),
        (&json!("tool.requires_approval"), &before["expires_at"]),
        "the deadline at that time"
    );
    assert_eq!(after["state"], "pending");
    assert_eq!(carol.approve(&id).await.status, 200, "it is decided as before");
}

#[tokio::test]
async fn a_deadline_moves_only_to_a_later_time_and_at_most_to_ttl_max() {
    let app = office_with(|config| config.approval.ttl_max = Duration::from_secs(3 * DAY)).await;
    let (carol, (_, id)) = (chief(&app), app.held("pay", "1").await);
    let first = micros(&app, &id, "expires_at").await;
    for seconds in [1, DAY - 60, 3 * DAY + 60, 315_360_000] {
        let answer = extend(&carol, &id, seconds).await;
        assert_eq!(answer.failure(), (422, "not_extended"), "{seconds}");
        assert!(answer.message().starts_with("expires_in: expected more than"), "{}", answer.message());
    }
    assert_eq!(micros(&app, &id, "expires_at").await, first);
    extend(&carol, &id, 3 * DAY - 60).await.has_status(200);
    let (expires, created) = (micros(&app, &id, "expires_at").await, micros(&app, &id, "created_at").await);
    assert!(expires - created <= i64::try_from(3 * DAY).unwrap() * 1_000_000);
    assert_eq!(extend(&carol, &id, 2 * DAY).await.code(), "not_extended", "not back");
    for body in [
        json!({}),
        json!({ "expires_in": 0 }),
        json!({ "expires_in": 315_360_001 }),
        json!({ "expires_in": -1 }),
        json!({ "expires_in": 1.5 }),
        json!({ "expires_in": "2h" }),
        json!({ "expires_in": 1, "x": 1 }),
    ] {
        let answer = carol.post(&format!("/tool_calls/{id}/extend"), &body).await;
        assert_eq!(answer.failure(), (400, "bad_request"), "{body}");
    }
    assert_eq!(app.rows.count("events WHERE type = 'tool.extended'").await, 1);
}

#[tokio::test]
async fn a_call_that_waits_longer_than_ttl_max_is_not_extended() {
    let app = office_with(|config| config.approval.ttl_max = Duration::from_secs(60)).await;
    let (_, id) = app.held("pay", "1").await;
    let answer = extend(&app.client, &id, 2 * DAY).await;
    let message = "expires_in: the call waits as long already as approval.ttl_max allows.";
    assert_eq!((answer.code(), answer.message()), ("not_extended", message));
    let detail = app.client.get(&format!("/approvals/{id}")).await.body;
    assert_eq!(detail.get("extendable_until"), None);
}

#[tokio::test]
async fn only_callers_that_may_approve_a_call_extend_it() {
    let app = office().await;
    let (_, id) = app.held("refuse", "1").await;
    for (client, status) in [
        (app.client.clone(), 403),
        (acme(&app, "oscar", &["admin"]), 403),
        (acme(&app, "bob", &[]), 404),
        (app.client.as_user("other", "carol", &["chief"]), 404),
    ] {
        assert_eq!(extend(&client, &id, 2 * DAY).await.status, status);
        let detail = client.get(&format!("/approvals/{id}")).await.body;
        assert_eq!(detail.get("extendable_until"), None);
    }
    extend(&chief(&app), "no-id", 2 * DAY).await.has_status(404);
    let (_, own) = app.held("pay", "2").await;
    assert_eq!(extend(&app.client, &own, 2 * DAY).await.status, 200, "the requester may approve it");
}

#[tokio::test]
async fn an_overdue_call_expires_and_is_never_extended() {
    let app = office().await;
    let (carol, (_, id)) = (chief(&app), app.held("pay", "1").await);
    let overdue = format!("UPDATE tool_calls SET expires_at = created_at WHERE tool_call_id = '{id}'");
    assert_eq!(app.rows.change(&overdue).await, Ok(1));
    for _ in 0..2 {
        let answer = extend(&carol, &id, 2 * DAY).await;
        answer.failed_with(409, "expired");
        assert_eq!(app.client.call(&id).await["state"], "expired");
    }
    let (_, decided) = app.held("pay", "2").await;
    carol.reject(&decided).await;
    assert_eq!(extend(&carol, &decided, 2 * DAY).await.code(), "already_decided");
    let (_, cancelled) = app.held("pay", "3").await;
    app.client.post(&format!("/tool_calls/{cancelled}/cancel"), &json!({})).await;
    assert_eq!(extend(&carol, &cancelled, 2 * DAY).await.code(), "cancelled");
    assert_eq!(app.rows.count("events WHERE type = 'tool.extended'").await, 0);
}

#[tokio::test]
async fn of_an_extension_and_decisions_at_once_the_call_ends_once() {
    let app = office().await;
    let (carol, (_, id)) = (chief(&app), app.held("pay", "1").await);
    let extensions = join_all((1..=5).map(|n| extend(&carol, &id, (1 + n) * DAY)));
    let decisions = async { tokio::join!(carol.approve(&id), app.client.reject(&id)) };
    let (extensions, (approved, rejected)) = tokio::join!(extensions, decisions);
    let accepted = extensions.iter().filter(|answer| answer.status == 200).count();
    for answer in &extensions {
        assert!([(200, ""), (409, "already_decided"), (422, "not_extended")]
            .iter()
            .any(|(status, code)| answer.status == *status && (code.is_empty() || answer.code() == *code)),
            "{answer:?}");
    }
    let decided: Vec<u16> = vec![approved.status, rejected.status];
    assert!(decided.contains(&200) && decided.contains(&409), "{decided:?}");
    let count = async |kind: &str| {
        app.rows.count(&format!("events WHERE type = '{kind}' AND tool_call_id = '{id}'")).await
    };
    assert_eq!(count("tool.extended").await, i64::try_from(accepted).unwrap());
    assert_eq!(count("tool.approved").await + count("tool.rejected").await, 1);
    let state: Value = app.client.call(&id).await["state"].clone();
    assert!([json!("succeeded"), json!("rejected")].contains(&state), "{state}");
}
