//! The answers of `POST /runs/{id}/approve` and `/reject`.

use super::{approve, reject, run_becomes};
use holdpoint::config::ToolRules;
use holdpoint_testkit::token::with_tokens;
use holdpoint_testkit::{Answer, Client, Embedded, JsonFields, call};
use serde_json::{Value, json};

/// An id that names nothing.
const NOBODYS: &str = "01890a5d-ac96-774b-bcce-b302099a8057";

/// A thread in which the model made these calls of `pay` in one step.
async fn held(app: &Embedded, notes: &[&str]) -> (String, Vec<String>) {
    let thread = app.client.thread().await;
    let calls: Vec<_> = notes.iter().map(|note| call(note, "pay", &json!({ "note": note }))).collect();
    app.scene.calls(&calls);
    let turn = app.client.send_message(&thread, "pay").await;
    (thread, turn.pending())
}

async fn post(client: &Client, run: &str, what: &str, body: &Value) -> Answer {
    client.post(&format!("/runs/{run}/{what}"), body).await
}

#[tokio::test]
async fn a_decision_is_answered_at_once_and_a_repeat_gets_the_outcome() {
    let app = Embedded::start().await;
    let (_, id) = app.held("wait_for_me", "1").await;
    let run = app.client.run_of(&id).await;
    let decided = approve(&app.client, &id).await;
    let expected = json!({ "success": true, "run_id": run, "tool_call_id": id, "state": "approved" });
    assert_eq!((decided.status, &decided.body), (200, &expected));
    assert_eq!(decided.header("idempotent-replayed"), None);

    app.scene.answers("Done.");
    app.ledger.release.add_permits(1);
    run_becomes(&app.client, &run, "completed").await;
    let again = approve(&app.client, &id).await;
    assert_eq!((again.status, again.header("idempotent-replayed")), (200, Some("true")));
    let expected = json!({ "success": true, "run_id": run, "tool_call_id": id, "state": "succeeded" });
    assert_eq!(again.body, expected);
    assert_eq!(app.ledger.lines(), ["wait_for_me 1"]);

    let by = app.client.call(&id).await["decision"].clone();
    assert_eq!(
        (&by["decision"], &by["by"], &by["surface"]),
        (&json!("approve"), &json!("user:local"), &json!("rest"))
    );
}

#[tokio::test]
async fn edited_inputs_run_and_invalid_ones_leave_the_call_pending() {
    let app = Embedded::start().await;
    let (_, id) = app.held("pay", "1").await;
    let run = app.client.run_of(&id).await;
    let say = async |inputs: Value| {
        post(&app.client, &run, "approve", &json!({ "tool_call_id": id, "validated_inputs": inputs })).await
    };
    let wrong = say(json!({ "note": 7 })).await;
    wrong.failed_with(422, "invalid_inputs");
    assert_eq!(wrong.body["error"]["details"]["errors"][0]["pointer"], "/note");
    assert!(wrong.message().starts_with("validated_inputs: "), "{}", wrong.message());
    let stale = json!({ "tool_call_id": id, "input_hash": "0".repeat(64) });
    let stale = post(&app.client, &run, "approve", &stale).await;
    stale.failed_with(409, "stale");
    assert!(stale.message().starts_with("input_hash: "), "{}", stale.message());
    assert_eq!(app.client.call(&id).await["state"], "pending");

    app.scene.answers("Two paid.");
    let edited = say(json!({ "note": "2" })).await;
    edited.has(200, "success", true);
    run_becomes(&app.client, &run, "completed").await;
    assert_eq!(app.ledger.lines(), ["pay 2"]);
}

#[tokio::test]
async fn a_contrary_decision_gets_the_calls_error_while_the_run_waits_and_run_not_waiting_later() {
    let app = Embedded::start().await;
    let (_, ids) = held(&app, &["1", "2", "3"]).await;
    let [yes, overdue, no] = &ids[..] else { panic!("{ids:?}") };
    let run = app.client.run_of(yes).await;
    approve(&app.client, yes).await.has_status(200);
    let other = reject(&app.client, yes, "no").await;
    other.failed_with(409, "already_decided");
    assert_eq!(other.body["error"]["details"]["decision"]["decision"], "approve");
    let end = format!("UPDATE tool_calls SET expires_at = created_at WHERE tool_call_id = '{overdue}'");
    assert_eq!(app.rows.change(&end).await, Ok(1));
    let late = approve(&app.client, overdue).await;
    late.failed_with(409, "expired");

    app.scene.answers("One paid.");
    assert_eq!(reject(&app.client, no, "too much").await.body["state"], "rejected");
    run_becomes(&app.client, &run, "completed").await;
    for (call, state, decision) in
        [(yes, "succeeded", "approve"), (overdue, "expired", "expire"), (no, "rejected", "reject")]
    {
        let late = match decision {
            "reject" => approve(&app.client, call).await,
            _ => reject(&app.client, call, "no").await,
        };
        late.failed_with(409, "run_not_waiting");
        let details = &late.body["error"]["details"];
        assert_eq!((&details["state"], &details["decision"]["decision"]), (&json!(state), &json!(decision)));
    }
    let repeat = reject(&app.client, no, "too much").await;
    assert_eq!((repeat.status, repeat.header("idempotent-replayed")), (200, Some("true")));
}

#[tokio::test]
async fn a_decision_about_a_call_of_a_cancelled_run_gets_run_not_waiting() {
    let app = Embedded::start().await;
    let (_, id) = app.held("pay", "1").await;
    let run = app.client.run_of(&id).await;
    app.client.post(&format!("/runs/{run}/cancel"), &Value::Null).await.has_status(200);
    for late in [approve(&app.client, &id).await, reject(&app.client, &id, "no").await] {
        late.failed_with(409, "run_not_waiting");
        assert_eq!(late.body["error"]["details"]["state"], "cancelled");
    }
    assert_eq!(app.ledger.lines(), Vec::<String>::new());
}

#[tokio::test]
async fn calls_of_another_run_unheld_calls_and_unknown_calls_get_404() {
    let app = Embedded::start().await;
    let (thread, first) = app.held("pay", "1").await;
    let second = app.hold_in(&thread, "pay", "2").await;
    let (run, other) = (app.client.run_of(&first).await, app.client.run_of(&second).await);
    assert_ne!(run, other);
    app.scene.calls(&[call("l", "look", &json!({ "note": "3" }))]).answers("Seen.");
    let looked = app.client.send_message(&thread, "look").await.one('9').text("toolCallId").to_owned();
    let looks = app.client.run_of(&looked).await;
    let nothing = json!({ "error": { "code": "not_found",
        "message": "There is nothing here, or nothing for you." } });
    for (run, call) in [
        (run.as_str(), second.as_str()),
        (other.as_str(), &first),
        (looks.as_str(), &looked),
        (NOBODYS, &first),
        (run.as_str(), NOBODYS),
        ("nothing", &first),
        (run.as_str(), "nothing"),
    ] {
        for what in ["approve", "reject"] {
            let answer = post(&app.client, run, what, &json!({ "tool_call_id": call })).await;
            assert_eq!((answer.status, &answer.body), (404, &nothing), "{what} {run} {call}");
        }
    }
    for id in [first, second] {
        assert_eq!(app.client.call(&id).await["state"], "pending");
    }
}

#[tokio::test]
async fn a_malformed_decision_is_refused_by_its_field_and_decides_nothing() {
    let app = Embedded::start().await;
    let (_, id) = app.held("pay", "1").await;
    let run = app.client.run_of(&id).await;
    for (what, body, field) in [
        ("approve", json!({}), "tool_call_id"),
        ("approve", json!({ "toolCallId": id }), "toolCallId"),
        ("approve", json!({ "tool_call_id": id, "validated_inputs": [] }), "validated_inputs"),
        ("approve", json!({ "tool_call_id": id, "reason": "x".repeat(2001) }), "reason"),
        ("reject", json!({ "tool_call_id": 7 }), "tool_call_id"),
        ("reject", json!({ "tool_call_id": id, "reason": "x".repeat(2001) }), "reason"),
        ("reject", json!({ "tool_call_id": id, "validated_inputs": {} }), "validated_inputs"),
    ] {
        let answer = post(&app.client, &run, what, &body).await;
        assert_eq!(answer.failure(), (400, "bad_request"), "{what} {body}");
        assert!(answer.message().contains(field), "{what} {body}: {}", answer.message());
    }
    assert_eq!(app.client.call(&id).await["state"], "pending");
}

#[tokio::test]
async fn an_approver_decides_at_a_run_of_another_user_and_the_user_may_only_reject() {
    let mut app = Embedded::with(|config| {
        with_tokens(config);
        let roles = ["chief".to_owned()].into();
        let rules = ToolRules {
            run_roles: [].into(),
            approve_roles: roles,
            other_person: true,
            ..ToolRules::default()
        };
        config.tools.rules.insert("pay".to_owned(), rules);
    })
    .await;
    let nobody = app.client.clone();
    app.client = nobody.as_user("acme", "alice", &["clerk"]);
    let (carol, bob) = (nobody.as_user("acme", "carol", &["chief"]), nobody.as_user("acme", "bob", &[]));
    let (thread, id) = app.held("pay", "1").await;
    let run = app.client.run_of(&id).await;
    let say = json!({ "tool_call_id": id });
    post(&bob, &run, "approve", &say).await.has_status(404);
    post(&app.client, &run, "approve", &say).await.has_status(403);
    assert_eq!(carol.get(&format!("/runs/{run}")).await.status, 404, "an approver does not see the run");

    app.scene.answers("Paid.");
    let yes = post(&carol, &run, "approve", &say).await;
    yes.has(200, "state", "approved");
    run_becomes(&app.client, &run, "completed").await;
    let late = post(&carol, &run, "reject", &say).await;
    late.failed_with(409, "run_not_waiting");
    // The run keeps the requester's roles.
    let stored = app.rows.all(&format!("SELECT roles FROM runs WHERE thread_id = '{thread}'")).await;
    assert_eq!(stored, [json!({ "roles": r#"["clerk"]"# })]);

    let id = app.hold_in(&thread, "pay", "2").await;
    app.scene.answers("As you like.");
    reject(&app.client, &id, "I think not").await.has_status(200);
    run_becomes(&app.client, &app.client.run_of(&id).await, "completed").await;
    assert_eq!(app.ledger.lines(), ["pay 1"]);
}
