//! `POST /tool_calls/{tool_call_id}/reveal`: a decider opens the secrets of a card, and that is an event.

use super::{assert_hidden, held, input, masked, pointers, revealed, server};
use holdpoint::config::{Config, ToolRules};
use holdpoint_testkit::token::with_tokens;
use holdpoint_testkit::{Client, Embedded, JsonFields};
use serde_json::json;

/// `chief` approves calls of `login`, and the requester only rejects them. An `admin` operates the server.
fn staff(config: &mut Config) {
    with_tokens(config);
    config.auth.operator_roles = vec!["admin".to_owned()];
    let rules =
        ToolRules { approve_roles: vec!["chief".to_owned()], other_person: true, ..ToolRules::default() };
    config.tools.rules.insert("login".to_owned(), rules);
}

async fn office() -> Embedded {
    let mut app = server(staff).await;
    app.client = acme(&app, "alice", &[]);
    app
}

fn acme(app: &Embedded, user: &str, roles: &[&str]) -> Client {
    app.client.as_user("acme", user, roles)
}

async fn events(app: &Embedded) -> Vec<serde_json::Value> {
    app.rows.all("SELECT actor, data FROM events WHERE type = 'tool.inputs_revealed' ORDER BY at").await
}

#[tokio::test]
async fn those_that_may_decide_a_call_open_its_secrets_and_each_opening_is_an_event_without_values() {
    let app = office().await;
    let id = held(&app, "login").await;
    let hash = app.client.call(&id).await["input_hash"].clone();
    let chief = acme(&app, "carol", &["chief"]);
    let opened = revealed(&chief, &id).await;
    opened.has_status(200);
    let expected = json!({
        "tool_call_id": id, "input": input(), "secret_inputs": pointers(), "input_hash": hash,
    });
    assert_eq!(opened.body, expected);
    assert_eq!(revealed(&app.client, &id).await.body["input"], input(), "who may only reject decides too");
    let recorded = events(&app).await;
    let actors: Vec<_> = recorded.iter().map(|event| event.text("actor")).collect();
    assert_eq!(actors, ["user:carol", "user:alice"]);
    for event in &recorded {
        assert_hidden(&event.to_string());
    }
    let trail = chief.get(&format!("/tool_calls/{id}/events")).await.body;
    assert_hidden(&trail.to_string());
    let trail = trail.list("results").clone();
    let event = trail.iter().find(|event| event["type"] == "tool.inputs_revealed").unwrap();
    assert_eq!(event["data"]["secret_paths"], json!(["/card/pin", "/keys/*/token", "/password"]));
    assert_eq!((&event["data"]["args"], &event["data"]["input_hash"]), (&masked(), &hash));

    // After the decision the record can be read in full too.
    chief.approve(&id).await.has_status(200);
    assert_eq!(revealed(&chief, &id).await.body["input"], input());
    assert_eq!(app.rows.count("events WHERE type = 'tool.inputs_revealed'").await, 3);
}

#[tokio::test]
async fn others_open_nothing_get_the_answers_of_a_decision_and_leave_no_event() {
    let app = office().await;
    let id = held(&app, "login").await;
    for (client, status) in [
        (acme(&app, "mallory", &[]), 404),
        (app.client.as_user("other", "carol", &["chief"]), 404),
        (acme(&app, "olga", &["admin"]), 403),
    ] {
        let refused = revealed(&client, &id).await;
        assert_eq!(refused.status, status, "{:?}", refused.body);
        assert_hidden(&refused.body.to_string());
        assert_eq!(client.approve(&id).await.status, status);
    }
    let chief = acme(&app, "carol", &["chief"]);
    revealed(&chief, "nothing").await.has_status(404);
    assert!(events(&app).await.is_empty());
}

#[tokio::test]
async fn a_delegate_opens_the_secrets_of_the_delegated_call_alone() {
    let app = office().await;
    let (chief, bob) = (acme(&app, "carol", &["chief"]), acme(&app, "bob", &[]));
    let (id, other) = (held(&app, "login").await, held(&app, "login").await);
    revealed(&bob, &id).await.has_status(404);
    let until = app.client.call(&id).await["expires_at"].clone();
    let body = json!({ "to": "bob", "until": until, "reason": "Away." });
    let delegated = chief.post(&format!("/approvals/{id}/delegate"), &body).await;
    delegated.has_status(200);
    assert_eq!(revealed(&bob, &id).await.body["input"], input());
    revealed(&bob, &other).await.has_status(404);
}

#[tokio::test]
async fn an_opening_counts_as_a_decision_for_the_rate_limit() {
    let app = server(|config| config.limits.decisions_per_minute = Some(2)).await;
    let id = held(&app, "login").await;
    let statuses = [revealed(&app.client, &id).await.status, revealed(&app.client, &id).await.status];
    assert_eq!(statuses, [200, 200]);
    revealed(&app.client, &id).await.has_status(429);
}

#[tokio::test]
async fn a_call_without_secrets_is_opened_without_an_event_and_one_that_was_never_held_is_not_found() {
    let app = server(|_| {}).await;
    let (_, plain) = app.held("pay", "1").await;
    let opened = revealed(&app.client, &plain).await;
    assert_eq!((opened.status, &opened.body["input"]), (200, &json!({ "note": "1" })));
    assert_eq!(opened.body["secret_inputs"], json!([]));
    app.scene.calls(&[holdpoint_testkit::call("p", "login_now", &input())]).answers("Done.");
    app.client.send_message(&app.client.thread().await, "log in").await;
    let rows = app.rows.all("SELECT tool_call_id FROM tool_calls WHERE NOT held").await;
    let id = rows[0].text("tool_call_id");
    assert_eq!(app.client.call(id).await["input"], masked());
    revealed(&app.client, id).await.has_status(404);
    assert!(events(&app).await.is_empty());
}
