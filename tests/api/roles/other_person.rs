//! `other_person`: the requester may not approve.

use super::{acme, all_of, is_not_there, office};
use holdpoint_testkit::token::{changed, claims, signed};
use serde_json::{Value, json};

#[tokio::test]
async fn b10_the_requester_cannot_approve_with_any_token_and_nothing_changes() {
    let app = office().await;
    let (_, id) = app.held("refuse", "10").await;
    let before = all_of(&app, &id).await;
    let another = json!({ "jti": "2", "azp": "a command line", "client_id": "x", "name": "Carol",
                          "email": "carol@acme.example", "act": { "sub": "carol" } });
    let another = signed(&changed(claims("acme", "alice", &["chief"]), &another));
    let same_person = [
        app.client.clone(),
        acme(&app, "alice", &["chief"]),
        acme(&app, "alice", &["boss", "chief", "clerk"]),
        app.client.with_token(&another),
    ];
    for alice in &same_person {
        for more in [
            json!({}),
            // The refusal takes precedence over the errors of these fields.
            json!({ "validatedInputs": { "note": 3 } }),
            json!({ "inputHash": "0" }),
        ] {
            let mut body = json!({ "toolCallId": id, "isValidated": true });
            body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            let refused = alice.validate(&body).await;
            let message = "You may see this call, but this decision is not yours to make.";
            let expected = json!({ "error": { "code": "forbidden", "message": message } });
            assert_eq!((refused.status, refused.body), (403, expected));
        }
        let unread = alice.validate(&json!({ "toolCallId": id, "isValidated": "true" })).await;
        assert_eq!(unread.status, 400, "a malformed body is refused first");
    }
    assert_eq!(all_of(&app, &id).await, before);
    assert_eq!(app.client.call(&id).await["state"], "pending", "the requester may see the call");
    is_not_there(&app.client.as_user("other", "alice", &["chief"]).approve(&id).await);

    let chief = acme(&app, "carol", &["chief"]).approve(&id).await;
    chief.has(200, "state", "failed");
    assert_eq!(app.ledger.lines(), ["refuse 10"]);
}

#[tokio::test]
async fn b10_the_refusal_of_an_approval_does_not_reveal_the_state_of_the_call() {
    let app = office().await;
    let chief = acme(&app, "carol", &["chief"]);
    let (thread, pending) = app.held("refuse", "1").await;
    let reported = app.client.approve(&pending).await;
    reported.has_status(403);
    let approved = app.hold_in(&thread, "refuse", "2").await;
    chief.approve(&approved).await;
    let rejected = app.hold_in(&thread, "refuse", "3").await;
    chief.reject(&rejected).await;
    let overdue = app.hold_in(&thread, "refuse", "4").await;
    let over = format!("UPDATE tool_calls SET expires_at = created_at WHERE tool_call_id = '{overdue}'");
    app.rows.change(&over).await.unwrap();
    let before = all_of(&app, &overdue).await;
    for id in [&approved, &rejected, &overdue] {
        let answer = app.client.approve(id).await;
        assert_eq!((answer.status, &answer.body), (403, &reported.body));
    }
    assert_eq!(all_of(&app, &overdue).await, before);
}

#[tokio::test]
async fn the_requester_may_reject_a_call_that_another_person_must_approve() {
    let app = office().await;
    let (thread, id) = app.held("refuse", "10").await;
    let rejected = app.client.reject(&id).await;
    rejected.has(200, "state", "rejected");
    assert_eq!(app.client.reject(&id).await.header("idempotent-replayed"), Some("true"));
    let late = acme(&app, "carol", &["chief"]).approve(&id).await;
    late.failed_with(409, "already_decided");
    assert_eq!(late.body["error"]["details"]["decision"]["by"], "user:alice");

    let id = app.hold_in(&thread, "refuse", "11").await;
    acme(&app, "carol", &["boss"]).approve(&id).await;
    let late = app.client.reject(&id).await;
    late.failed_with(409, "already_decided");
    assert_eq!(late.body["error"]["details"]["decision"]["by"], "user:carol");
    assert_eq!(app.ledger.lines(), ["refuse 11"]);
}

#[tokio::test]
async fn two_approvers_may_approve_for_each_other() {
    let mut app = office().await;
    let (carol, dave) = (acme(&app, "carol", &["chief"]), acme(&app, "dave", &["chief"]));
    let mut states = Vec::<Value>::new();
    for (requester, other) in [(&carol, &dave), (&dave, &carol)] {
        app.client = requester.clone();
        let (_, id) = app.held("refuse", "10").await;
        requester.approve(&id).await.has_status(403);
        states.push(other.approve(&id).await.body["state"].clone());
    }
    assert_eq!(states, ["failed", "failed"], "the tool ran");
}
