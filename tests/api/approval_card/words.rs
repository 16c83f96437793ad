//! `context`: the words before a call, for the requester alone unless the configuration shares them.

use super::{acme, chief, office, office_with};
use holdpoint::config::ShareContext;
use holdpoint::llm::{FinishReason, ModelEvent};
use holdpoint_testkit::{Embedded, call};
use serde_json::{Value, json};

/// A step that thinks, speaks and makes one call.
fn says_and_pays(words: &str) -> Vec<Result<ModelEvent, String>> {
    let event = |event: ModelEvent| Ok(event);
    vec![
        event(ModelEvent::Reasoning("a hidden thought".to_owned())),
        event(ModelEvent::Text(words.to_owned())),
        event(ModelEvent::CallStarted {
            index: 0,
            provider_call_id: "p".to_owned(),
            tool_name: "pay".to_owned(),
        }),
        event(ModelEvent::CallArguments { index: 0, delta: json!({ "note": "10" }).to_string() }),
        event(ModelEvent::CallFinished { index: 0 }),
        event(ModelEvent::Finished { reason: FinishReason::ToolCalls, usage: None, provider_state: None }),
    ]
}

/// A held call after an earlier exchange in the same thread: the thread and the call.
async fn held_call(app: &Embedded, user: &str, model: &str) -> (String, String) {
    let thread = app.client.thread().await;
    app.scene.answers("an earlier answer");
    app.client.send_message(&thread, "an earlier question").await;
    app.scene.then(says_and_pays(model));
    let id = app.client.send_message(&thread, user).await.pending().remove(0);
    (thread, id)
}

#[tokio::test]
async fn the_requester_alone_reads_the_words_before_a_call_unless_the_configuration_shares_them() {
    let words = json!({
        "user": { "text": "Pay <b>ten</b>.", "is_cut": false },
        "model": { "text": "I pay it.", "is_cut": false },
    });
    for (share, of_carol) in [(ShareContext::Requester, None), (ShareContext::Approvers, Some(&words))] {
        let app = office_with(|config| config.approval.share_context = share).await;
        let (_, id) = held_call(&app, "Pay <b>ten</b>.", "I pay it.").await;
        for (who, roles, expected) in
            [("alice", &[][..], Some(&words)), ("carol", &["chief"], of_carol), ("oscar", &["admin"], None)]
        {
            let found = acme(&app, who, roles).get(&format!("/approvals/{id}")).await;
            assert_eq!((found.status, found.body.get("context")), (200, expected), "{share:?} {who}");
        }
        // An operator with the role of an approver is one.
        let both = acme(&app, "olga", &["admin", "chief"]).get(&format!("/approvals/{id}")).await;
        assert_eq!(both.body.get("context"), of_carol, "{share:?}");
    }
}

#[tokio::test]
async fn c14_an_approver_reads_the_shared_words_and_nothing_else_of_the_thread() {
    let app = office_with(|config| config.approval.share_context = ShareContext::Approvers).await;
    let (thread, id) = held_call(&app, "Pay ten.", "I pay it.").await;
    let (carol, run) = (chief(&app), app.client.run_of(&id).await);
    let detail = carol.get(&format!("/approvals/{id}")).await.body;
    assert_eq!(detail["context"]["user"]["text"], "Pay ten.");
    let everything = [
        detail,
        carol.get("/approvals").await.body,
        carol.get(&format!("/threads/{thread}/approvals")).await.body,
        carol.get(&format!("/sessions/{thread}/approvals")).await.body,
        carol.get(&format!("/tool_calls/{id}")).await.body,
        carol.get(&format!("/tool_calls/{id}/events")).await.body,
        carol.get(&format!("/runs/{run}/events")).await.body,
    ];
    let read = Value::from(everything.to_vec()).to_string();
    for hidden in ["earlier", "a hidden thought"] {
        assert!(!read.contains(hidden), "{hidden}: {read}");
    }
    let lists = Value::from(everything[1..].to_vec()).to_string();
    assert!(!lists.contains("Pay ten.") && !lists.contains("I pay it."), "{lists}");
    for path in [
        format!("/threads/{thread}"),
        format!("/threads/{thread}/messages"),
        format!("/threads/{thread}/messages?format=ui-v6"),
        format!("/runs/{run}"),
        format!("/qa/chat_streamed/{thread}"),
    ] {
        let answer = carol.get(&path).await;
        assert!(!answer.body.to_string().contains("ten"), "{path}: {answer:?}");
        assert!([404, 204].contains(&answer.status) || path.starts_with("/qa/"), "{path}: {answer:?}");
    }
}

#[tokio::test]
async fn the_words_are_bounded_and_a_cut_is_reported() {
    let app = office().await;
    let (user, model) = (format!("{}é!", "u".repeat(1999)), format!("!é{}", "m".repeat(1999)));
    let (_, id) = held_call(&app, &user, &model).await;
    let context = app.client.get(&format!("/approvals/{id}")).await.body["context"].clone();
    let expected = json!({
        "user": { "text": format!("{}é", "u".repeat(1999)), "is_cut": true },
        "model": { "text": format!("é{}", "m".repeat(1999)), "is_cut": true },
    });
    assert_eq!(context, expected);
}

#[tokio::test]
async fn a_call_without_words_of_the_model_has_those_of_the_user_alone() {
    let app = office().await;
    app.scene.calls(&[call("p", "pay", &json!({ "note": "1" }))]);
    let thread = app.client.thread().await;
    let id = app.client.send_message(&thread, "pay").await.pending().remove(0);
    let context = app.client.get(&format!("/approvals/{id}")).await.body["context"].clone();
    assert_eq!(context, json!({ "user": { "text": "pay", "is_cut": false } }));
}
