//! `approve_roles`: users who may decide for others, and what they see.

use super::{UNKNOWN, acme, all_of, is_not_there, office, office_with, rule};
use futures::future::join_all;
use holdpoint_testkit::{Client, JsonFields, call};
use serde_json::{Value, json};
use std::time::Duration;

/// Sends every request about this call, its thread and its run. Returns the statuses and bodies of the
/// answers.
async fn everything(client: &Client, call: &str, thread: &str, run: &str) -> Vec<(u16, String)> {
    let get = |path: String| client.http.get(client.url(&path));
    let post = |path: String| client.http.post(client.url(&path));
    let decide = |yes: bool| json!({ "toolCallId": call, "isValidated": yes });
    let mut answers = Vec::new();
    for request in [
        get(format!("/tool_calls/{call}")),
        post("/qa/validate_tool".to_owned()).json(&decide(true)),
        post("/qa/validate_tool".to_owned()).json(&decide(false)),
        post(format!("/tool_calls/{call}/cancel")),
        get(format!("/threads/{thread}")),
        get(format!("/threads/{thread}/messages")),
        get(format!("/threads/{thread}/messages?format=v4")),
        client.http.patch(client.url(&format!("/threads/{thread}"))).json(&json!({ "title": "mine" })),
        client.http.delete(client.url(&format!("/threads/{thread}"))),
        get(format!("/qa/chat_streamed/{thread}")),
        post(format!("/qa/chat_streamed/{thread}")),
        post(format!("/qa/chat_streamed/{thread}")).json(&json!({ "content": "hello" })),
        get(format!("/runs/{run}")),
        post(format!("/runs/{run}/cancel")),
        post(format!("/runs/{run}/approve")).json(&json!({ "tool_call_id": call })),
        post(format!("/runs/{run}/reject")).json(&json!({ "tool_call_id": call })),
        post(format!("/sessions/{thread}/approvals/{call}")).json(&json!({ "decision": "allow_once" })),
        post(format!("/sessions/{thread}/cancel")),
    ] {
        let answer = request.send().await.unwrap();
        answers.push((answer.status().as_u16(), answer.text().await.unwrap()));
    }
    answers
}

#[tokio::test]
async fn an_approver_sees_and_decides_the_held_calls_of_another_user() {
    let app = office().await;
    let chief = acme(&app, "carol", &["clerk", "chief"]);
    let (thread, yes) = app.held("pay", "10").await;
    let no = app.hold_in(&thread, "pay", "11").await;
    assert_eq!(chief.call(&yes).await, app.client.call(&yes).await);
    let approved = chief.approve(&yes).await;
    let expected = json!({ "success": true, "result": "{\"paid\":\"10\"}", "toolCallId": yes,
                           "state": "succeeded", "waitsForPage": true });
    assert_eq!((approved.status, approved.body), (200, expected));
    assert_eq!(chief.reject(&no).await.body["state"], "rejected");
    assert_eq!(chief.call(&yes).await["output"], json!({ "paid": "10" }), "and the outcome");
    assert_eq!(app.ledger.lines(), ["pay 10"]);
}

#[tokio::test]
async fn c2_a_user_who_is_neither_requester_nor_approver_gets_404_and_empty_lists() {
    let app = office().await;
    let (thread, id) = app.held("pay", "10").await;
    let run = app.client.run_of(&id).await;
    let before = all_of(&app, &id).await;
    let other_users = [
        acme(&app, "bob", &[]),
        acme(&app, "bob", &["clerk", "boss", "chie", "chiefs", "Chief", "chief clerk", " chief"]),
        // Roles and user names belong to one tenant.
        app.client.as_user("other", "carol", &["chief"]),
        app.client.as_user("other", "alice", &["chief"]),
        app.client.as_user("ACME", "alice", &["chief"]),
    ];
    for other_user in other_users {
        let found = everything(&other_user, &id, &thread, &run).await;
        assert_eq!(found, everything(&other_user, UNKNOWN, UNKNOWN, UNKNOWN).await);
        assert!(found.iter().all(|(status, _)| *status == 404), "{found:?}");
        assert_eq!(other_user.get("/threads").await.body, json!({ "results": [], "has_more": false }));
    }
    assert_eq!(all_of(&app, &id).await, before);
    assert_eq!(app.client.get(&format!("/threads/{thread}")).await.body["pending_count"], 1);
    assert_eq!(app.client.approve(&id).await.body["state"], "succeeded");
}

#[tokio::test]
async fn an_approver_gets_404_for_the_thread_the_run_and_the_cancel() {
    let app = office().await;
    let chief = acme(&app, "carol", &["chief"]);
    let (thread, id) = app.held("pay", "10").await;
    let run = app.client.run_of(&id).await;
    let found = everything(&chief, UNKNOWN, &thread, &run).await;
    assert_eq!(found, everything(&chief, UNKNOWN, UNKNOWN, UNKNOWN).await);
    assert_eq!(chief.get("/threads").await.body, json!({ "results": [], "has_more": false }));
    is_not_there(&chief.post(&format!("/tool_calls/{id}/cancel"), &json!({})).await);
    assert_eq!(chief.call(&id).await["state"], "pending");
    let cancelled = app.client.post(&format!("/tool_calls/{id}/cancel"), &json!({})).await;
    assert_eq!(cancelled.body["state"], "cancelled");
}

#[tokio::test]
async fn an_approver_of_one_tool_sees_neither_calls_of_another_tool_nor_unheld_calls() {
    let app = office().await;
    let chief = acme(&app, "carol", &["chief"]);
    let thread = app.client.thread().await;
    app.ledger.release.add_permits(1);
    let note = json!({ "note": "a" });
    app.scene.calls(&[
        call("p1", "dawdle", &note),
        call("p2", "pay", &json!({})),
        call("p3", "mumble", &note),
        call("p4", "pay", &note),
    ]);
    let turn = app.client.send_message(&thread, "do it all").await;
    let calls: Vec<&str> = turn.all('9').iter().map(|call| call.text("toolCallId")).collect::<Vec<_>>();
    let [ran, invalid, of_another, held] = calls[..] else { panic!("{}", turn.raw) };
    for id in [ran, invalid, of_another] {
        is_not_there(&chief.get(&format!("/tool_calls/{id}")).await);
        is_not_there(&chief.approve(id).await);
        is_not_there(&chief.reject(id).await);
        app.client.get(&format!("/tool_calls/{id}")).await.has_status(200);
    }
    assert_eq!(chief.approve(held).await.body["state"], "succeeded");
    assert_eq!(app.ledger.lines(), ["dawdle a", "pay a"]);
}

#[tokio::test]
async fn approvers_do_not_see_the_calls_of_a_deleted_thread() {
    let app = office().await;
    let chief = acme(&app, "carol", &["chief"]);
    let (thread, id) = app.held("pay", "10").await;
    assert_eq!(chief.call(&id).await["state"], "pending");
    app.client.delete(&format!("/threads/{thread}")).await.has_status(204);
    is_not_there(&chief.get(&format!("/tool_calls/{id}")).await);
    is_not_there(&chief.approve(&id).await);
    assert_eq!(app.ledger.lines(), Vec::<String>::new());
}

#[tokio::test]
async fn an_approver_without_the_run_role_sees_the_tool() {
    let app = office_with(|config| rule(config, "pay", &["clerk"], &["chief"], false)).await;
    let chief = acme(&app, "carol", &["chief"]);
    chief.get("/tools/pay").await.has_status(200);
    assert!(chief.get("/tools").await.body.to_string().contains("\"pay\""));
    let thread = chief.thread().await;
    app.scene.calls(&[call("p1", "pay", &json!({ "note": "a" }))]).answers("No.");
    assert!(chief.send_message(&thread, "pay a").await.raw.contains("There is no tool named"));
    is_not_there(&acme(&app, "bob", &[]).get("/tools/pay").await);
}

#[tokio::test]
async fn b11_a_role_removed_before_the_decision_does_not_count() {
    let app = office().await;
    let (_, id) = app.held("pay", "10").await;
    let carol = acme(&app, "carol", &["chief"]);
    assert_eq!(carol.call(&id).await["state"], "pending", "the card is shown");
    let before = all_of(&app, &id).await;
    let carol = acme(&app, "carol", &[]);
    for answer in [carol.approve(&id).await, carol.reject(&id).await] {
        is_not_there(&answer);
    }
    assert_eq!(all_of(&app, &id).await, before);
    assert_eq!(acme(&app, "carol", &["chief"]).approve(&id).await.body["state"], "succeeded");
    // The user without the role cannot read the outcome either.
    is_not_there(&carol.get(&format!("/tool_calls/{id}")).await);
    is_not_there(&carol.approve(&id).await);
}

#[tokio::test]
async fn an_approver_waits_for_the_outcome_like_the_requester() {
    let app = office_with(|config| config.approval.wait = Duration::from_millis(100)).await;
    let chief = acme(&app, "carol", &["chief"]);
    let (_, id) = app.held("wait_for_me", "10").await;
    chief.approve(&id).await.has_status(202);
    app.ledger.release.add_permits(1);
    let mut done = chief.approve(&id).await;
    while done.status == 202 {
        done = chief.approve(&id).await;
    }
    done.has(200, "state", "succeeded");
    assert_eq!(done.header("idempotent-replayed"), Some("true"));
    assert_eq!(app.ledger.lines(), ["wait_for_me 10"]);
}

#[tokio::test]
async fn the_same_verdict_of_another_person_gets_the_outcome_and_changes_nothing() {
    let app = office().await;
    let chief = acme(&app, "carol", &["chief"]);
    for (first, second, by) in [(&app.client, &chief, "user:alice"), (&chief, &app.client, "user:carol")] {
        let (_, id) = app.held("pay", by).await;
        let taken = first.approve(&id).await;
        let before = all_of(&app, &id).await;
        let again = second.approve(&id).await;
        assert_eq!((again.status, again.header("idempotent-replayed")), (200, Some("true")));
        assert_eq!(again.body, taken.body);
        let other = second.reject(&id).await;
        other.failed_with(409, "already_decided");
        assert_eq!(other.body["error"]["details"]["decision"]["by"], by);
        assert_eq!(all_of(&app, &id).await, before);
    }
    assert_eq!(app.ledger.lines(), ["pay user:alice", "pay user:carol"]);
}

#[tokio::test]
async fn an_approvers_edit_is_validated_run_and_reported_like_the_requesters() {
    let app = office().await;
    let chief = acme(&app, "carol", &["chief"]);
    let (_, id) = app.held("pay", "10").await;
    let edit = |inputs: Value| json!({ "toolCallId": id, "isValidated": true, "validatedInputs": inputs });
    let wrong = chief.validate(&edit(json!({ "note": 3 }))).await;
    wrong.failed_with(422, "invalid_inputs");
    assert_eq!(chief.call(&id).await["state"], "pending");
    let done = chief.validate(&edit(json!({ "note": "9" }))).await;
    assert_eq!(
        (&done.body["state"], &done.body["validatedInputs"]),
        (&json!("succeeded"), &json!({"note": "9"}))
    );
    assert_eq!(app.ledger.lines(), ["pay 9"]);
    let decision = &app.client.call(&id).await["decision"];
    assert_eq!((&decision["by"], &decision["edited"]), (&json!("user:carol"), &json!(true)));
    assert_eq!(
        app.client.approve(&id).await.code(),
        "already_decided",
        "the proposed inputs are another decision"
    );
}

#[tokio::test]
async fn of_two_concurrent_contrary_decisions_one_wins_and_the_other_gets_the_name_of_its_decider() {
    const CALLS: usize = 16;
    let app = office().await;
    let chief = acme(&app, "carol", &["chief"]);
    let thread = app.client.thread().await;
    let requested: Vec<_> =
        (0..CALLS).map(|n| call(&format!("p{n}"), "pay", &json!({ "note": n.to_string() }))).collect();
    app.scene.calls(&requested);
    let ids = app.client.send_message(&thread, "pay them all").await.pending();
    assert_eq!(ids.len(), CALLS);
    let both = ids.iter().map(async |id| tokio::join!(app.client.approve(id), chief.reject(id)));
    let mut paid = 0;
    for (id, (yes, no)) in ids.iter().zip(join_all(both).await) {
        let (won, lost, by) = match yes.status {
            200 => (yes, no, "user:alice"),
            _ => (no, yes, "user:carol"),
        };
        assert_eq!((won.status, won.header("idempotent-replayed")), (200, None), "{}", won.body);
        lost.failed_with(409, "already_decided");
        assert_eq!(lost.body["error"]["details"]["decision"]["by"], by);
        let call = app.client.call(id).await;
        assert_eq!((&call["state"], &call["decision"]["by"]), (&won.body["state"], &json!(by)));
        paid += usize::from(call["state"] == "succeeded");
    }
    assert_eq!(app.ledger.lines().len(), paid);
    assert_eq!(app.rows.count("decisions").await, i64::try_from(CALLS).unwrap());
}
