//! Grants: approvals that are remembered, the calls that they cover, and their end.

mod changes;
mod concurrent;
mod inputs;
mod narrow;
mod processes;
mod revoked;
mod rights;

use holdpoint_testkit::{Answer, Client, Embedded, JsonFields, call};
use serde_json::{Value, json};

/// Approves a call and asks the server to remember the approval for the session.
async fn remember(client: &Client, call: &str) -> Answer {
    client.validate(&json!({ "toolCallId": call, "isValidated": true, "remember": "session" })).await
}

/// Approves a call for the session. The server accepts the grant and runs the call.
async fn granted(client: &Client, call: &str) {
    let answer = remember(client, call).await;
    answer.has(200, "state", "succeeded");
}

/// Has the model make a call in this thread, and returns the call.
async fn made(app: &Embedded, thread: &str, tool: &str, note: &str) -> Value {
    app.scene.calls(&[call(&format!("p-{note}"), tool, &json!({ "note": note }))]).answers("I see.");
    let turn = app.client.send_message(thread, &format!("please {tool} {note}")).await;
    app.scene.forget();
    app.client.call(turn.all('9')[0].text("toolCallId")).await
}

/// Creates a child thread in the same session.
async fn child(client: &Client, parent: &str) -> String {
    let made = client.post("/threads", &json!({ "parent_id": parent })).await;
    made.has_status(201);
    made.body.text("thread_id").to_owned()
}

/// The grants of a session, as this client sees them.
async fn grants(client: &Client, session: &str) -> Vec<Value> {
    let found = client.get(&format!("/sessions/{session}/grants")).await;
    found.has_status(200);
    found.body.list("results").clone()
}

async fn revoke(client: &Client, session: &str, grant: &Value) -> u16 {
    let grant = grant.text("grant_id");
    client.delete(&format!("/sessions/{session}/grants/{grant}")).await.status
}

/// The state of a call, its decider and the source of the decision.
fn state_of(call: &Value) -> [&Value; 3] {
    [&call["state"], &call["decision"]["by"], &call["decision"]["source"]]
}

/// The data of the events of this type about a call.
async fn events_of(app: &Embedded, call: &str, event: &str) -> Vec<Value> {
    let sql = format!("SELECT data FROM events WHERE tool_call_id = '{call}' AND type = '{event}'");
    let rows = app.rows.all(&sql).await;
    rows.iter().map(|row| serde_json::from_str(row.text("data")).unwrap()).collect()
}

#[tokio::test]
async fn a_grant_covers_the_whole_session_and_every_use_names_it() {
    let app = Embedded::start().await;
    let (thread, first) = app.held("pay", "1").await;
    assert_eq!(grants(&app.client, &thread).await, Vec::<Value>::new());
    granted(&app.client, &first).await;
    let all = grants(&app.client, &thread).await;
    let [grant] = all.as_slice() else { panic!("{all:?}") };
    let decided = app.client.call(&first).await;
    assert_eq!(decided["decision"]["remember"], "session");
    let expected = json!({ "grant_id": grant["grant_id"], "session_id": thread, "tool_name": "pay",
        "schema_hash": decided["schema_hash"], "granted_by": "user:local", "tool_call_id": first,
        "created_at": decided["decision"]["at"] });
    assert_eq!(grant, &expected);
    assert_eq!(events_of(&app, &first, "tool.approved").await[0]["grant_id"], grant["grant_id"]);

    let source = json!(format!("remembered:{}", grant.text("grant_id")));
    let again = made(&app, &thread, "pay", "2").await;
    assert_eq!(state_of(&again), [&json!("succeeded"), &json!("system:policy"), &source]);
    assert_eq!((&again["held"], &again["decision"]["surface"]), (&json!(false), &json!("policy")));
    let used = again.text("tool_call_id");
    assert_eq!(events_of(&app, used, "tool.started").await[0]["source"], source);
    let below = made(&app, &child(&app.client, &thread).await, "pay", "3").await;
    assert_eq!(state_of(&below), [&json!("succeeded"), &json!("system:policy"), &source]);

    // The grant covers neither another tool nor another session.
    assert_eq!(made(&app, &thread, "refuse", "4").await["state"], "pending");
    let elsewhere = app.client.thread().await;
    assert_eq!(made(&app, &elsewhere, "pay", "5").await["state"], "pending");
    assert_eq!(grants(&app.client, &elsewhere).await, Vec::<Value>::new());
    assert_eq!(app.ledger.lines(), ["pay 1", "pay 2", "pay 3"]);
}

#[tokio::test]
async fn a_grant_from_a_child_thread_covers_the_whole_session() {
    let app = Embedded::start().await;
    let root = app.client.thread().await;
    let below = child(&app.client, &root).await;
    let first = app.hold_in(&below, "pay", "1").await;
    granted(&app.client, &first).await;
    assert_eq!(made(&app, &root, "pay", "2").await["state"], "succeeded");
    let beside = child(&app.client, &root).await;
    assert_eq!(made(&app, &beside, "pay", "3").await["state"], "succeeded");
    assert_eq!(grants(&app.client, &root).await.len(), 1);
    let of_child = app.client.get(&format!("/sessions/{below}/grants")).await;
    assert_eq!(of_child.status, 404, "a session has the id of its root");
}

#[tokio::test]
async fn a_grant_approves_the_pending_calls_of_the_session() {
    let app = Embedded::start().await;
    let thread = app.client.thread().await;
    let requested: Vec<_> = [("pay", "1"), ("pay", "2"), ("pay", "3"), ("refuse", "4")]
        .iter()
        .map(|(tool, note)| call(&format!("p-{note}"), tool, &json!({ "note": note })))
        .collect();
    app.scene.calls(&requested);
    let ids = app.client.send_message(&thread, "please").await.pending();
    let below = child(&app.client, &thread).await;
    let in_child = app.hold_in(&below, "pay", "5").await;
    let (_, elsewhere) = app.held("pay", "6").await;

    granted(&app.client, &ids[0]).await;
    let grant = grants(&app.client, &thread).await.remove(0);
    let source = json!(format!("remembered:{}", grant.text("grant_id")));
    for freed in [&ids[1], &ids[2], &in_child] {
        let call = app.client.becomes(freed, "succeeded").await;
        assert_eq!(state_of(&call), [&json!("succeeded"), &json!("user:local"), &source]);
        assert_eq!((&call["held"], &call["decision"]["remember"]), (&json!(true), &Value::Null));
        assert_eq!(events_of(&app, freed, "tool.approved").await[0]["source"], source);
    }
    for waits in [&ids[3], &elsewhere] {
        assert_eq!(app.client.call(waits).await["state"], "pending");
    }
    let mut lines = app.ledger.lines();
    lines.sort();
    assert_eq!(lines, ["pay 1", "pay 2", "pay 3", "pay 5"]);

    // A later decision about one of these calls gets its current state.
    let refused = app.client.reject(&ids[1]).await;
    refused.failed_with(409, "already_decided");
    assert_eq!(app.client.approve(&ids[1]).await.header("idempotent-replayed"), Some("true"));
    // The model reads all outcomes.
    app.client.reject(&ids[3]).await.has_status(200);
    app.scene.answers("Paid.");
    assert_eq!(app.client.resume(&thread).await.text(), "Paid.");
}

#[tokio::test]
async fn only_an_approval_can_be_remembered() {
    let app = Embedded::start().await;
    let (thread, id) = app.held("pay", "1").await;
    let no = json!({ "toolCallId": id, "isValidated": false, "remember": "session" });
    let refused = app.client.validate(&no).await;
    refused.failed_with(422, "not_remembered");
    assert_eq!(refused.message(), "remember: expected it with an approval");
    for wrong in [json!("forever"), json!(true), json!(["session"])] {
        let body = json!({ "toolCallId": id, "isValidated": true, "remember": wrong });
        let refused = app.client.validate(&body).await;
        assert_eq!(refused.status, 400, "{wrong}");
        assert!(refused.message().starts_with("remember"), "{}", refused.message());
    }
    let both = json!({ "decisions": [no] });
    let answer = app.client.post("/qa/validate_tools", &both).await;
    let result = &answer.body["results"][0];
    assert_eq!((answer.status, &result["status"]), (200, &json!(422)), "{result}");
    assert_eq!(app.client.call(&id).await["state"], "pending");
    let yes = json!({ "decisions": [{ "toolCallId": id, "isValidated": true, "remember": "session" }] });
    assert_eq!(app.client.post("/qa/validate_tools", &yes).await.body["results"][0]["status"], 200);
    assert_eq!(grants(&app.client, &thread).await.len(), 1);
    let null = json!({ "toolCallId": id, "isValidated": true, "remember": null });
    assert_eq!(app.client.validate(&null).await.header("idempotent-replayed"), Some("true"));
}
