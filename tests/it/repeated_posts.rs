//! Posts that a client repeats because it lost the answer: the stored answer is streamed, and the model is not
//! asked again.

use crate::support::token::with_tokens;
use crate::support::{Client, Embedded, Turn, call};
use holdpoint::config::{Config, ToolRules};
use serde_json::{Value, json};

async fn post(client: &Client, key: &str, body: &Value) -> Turn {
    let request = client.http.post(client.url("/qa/chat_streamed")).json(body);
    client.read(request.header("idempotency-key", key)).await
}

#[tokio::test]
async fn a_repeated_key_streams_the_answer_of_the_first_request() {
    let app = Embedded::start().await;
    let user = json!({ "role": "user", "content": "hi" });
    for (n, body) in [
        json!({ "id": "a", "messages": [user] }),
        json!({ "id": "b", "message": user }),
        json!({ "id": "c", "content": "hi" }),
    ]
    .into_iter()
    .enumerate()
    {
        app.scene.answers("Hello.");
        let first = post(&app.client, "k1", &body).await;
        assert_eq!(first.text(), "Hello.", "{}", first.raw);
        let again = post(&app.client, "k1", &body).await;
        assert_eq!((again.status, again.codes()), (200, first.codes()), "{}", again.raw);
        assert_eq!((again.text().as_str(), again.one('f')), ("Hello.", first.one('f')));
        assert_eq!(app.scene.requests().len(), n + 1);
    }
    assert_eq!(app.rows.count("runs").await, 3);
    app.scene.answers("More.");
    let next = post(&app.client, "k2", &json!({ "id": "c", "content": "hi" })).await;
    assert_eq!(next.text(), "More.", "another key is another message");
}

#[tokio::test]
async fn a_repeated_key_streams_a_hold_and_then_its_outcome() {
    let app = Embedded::start().await;
    app.scene.calls(&[call("p", "pay", &json!({ "note": "10" }))]).answers("Paid.");
    let body = json!({ "id": "a", "messages": [{ "role": "user", "content": "pay" }] });
    let first = post(&app.client, "k1", &body).await;
    let again = post(&app.client, "k1", &body).await;
    assert!(again.pending().iter().all(|id| first.pending().contains(id)), "{}", again.raw);
    assert_eq!(again.codes(), "f98e8ed", "the message, and that the call waits: {}", again.raw);
    assert_eq!((again.one('9'), &again.parts), (first.one('9'), &first.parts));
    let [id] = &first.pending()[..] else { panic!("{}", first.raw) };
    assert_eq!(app.client.approve(id).await.body["state"], "succeeded");
    for _ in 0..2 {
        let whole = post(&app.client, "k1", &body).await;
        assert_eq!((whole.text().as_str(), whole.all('a').len()), ("Paid.", 1), "{}", whole.raw);
        assert_eq!(whole.parts.len(), 2, "the card and the decision: {:?}", whole.parts);
    }
    assert_eq!((app.scene.requests().len(), app.ledger.lines().len()), (2, 1));
}

#[tokio::test]
async fn the_name_of_a_message_counts_before_the_key_and_a_bad_key_is_refused() {
    let app = Embedded::start().await;
    app.scene.answers("One.").answers("Two.");
    let body = |id: &str| json!({ "id": "a", "message": { "id": id, "role": "user", "content": "hi" } });
    assert_eq!(post(&app.client, "k", &body("m1")).await.text(), "One.");
    assert_eq!(post(&app.client, "k", &body("m2")).await.text(), "Two.");
    assert_eq!(post(&app.client, "k2", &body("m1")).await.text(), "One.");
    let long = post(&app.client, &"k".repeat(65), &json!({ "id": "a", "content": "hi" })).await;
    assert_eq!(long.refused(), (400, "bad_request".to_owned()));
    assert_eq!(app.scene.requests().len(), 2);
}

/// The card of the call that this user's model makes.
async fn card(client: &Client, app: &Embedded, tool: &str) -> Value {
    app.scene.calls(&[call("p", tool, &json!({ "note": "10" }))]);
    let turn = client.turn_by_id(&json!({ "id": tool, "content": "go" })).await;
    let [card] = &turn.parts[..] else { panic!("{}", turn.raw) };
    card["data"].clone()
}

#[tokio::test]
async fn a_card_says_what_its_reader_may_do() {
    let app = Embedded::with(|config: &mut Config| {
        with_tokens(config);
        let rules = ToolRules { approve_roles: vec!["chief".to_owned()], ..ToolRules::default() };
        let of_two = ToolRules { approvals: 2, ..rules.clone() };
        config.tools.rules.insert("pay".to_owned(), of_two);
        config.tools.rules.insert("refuse".to_owned(), ToolRules { other_person: true, ..rules });
    })
    .await;
    let alice = app.client.as_user("acme", "alice", &[]);
    for (tool, may) in [("pay", (true, false, 2)), ("refuse", (false, false, 1))] {
        let card = card(&alice, &app, tool).await;
        let shown = (&card["canEdit"], &card["canRemember"], &card["approvalsNeeded"]);
        assert_eq!(shown, (&json!(may.0), &json!(may.1), &json!(may.2)), "{card}");
        assert_eq!(card["requestedBy"], "user:alice");
    }
}

#[tokio::test]
async fn a_key_without_a_character_or_with_more_than_64_is_refused_by_every_route_that_takes_one() {
    let app = Embedded::start().await;
    let thread = app.client.thread().await;
    let named = json!({ "id": "page-1", "content": "hi" });
    let unnamed = json!({ "content": "hi" });
    for (path, body) in [
        ("/qa/chat_streamed".to_owned(), &named),
        (format!("/qa/chat_streamed/{thread}"), &unnamed),
        (format!("/threads/{thread}/turns"), &unnamed),
    ] {
        for key in [String::new(), "k".repeat(65)] {
            let request = app.client.http.post(app.client.url(&path)).json(body);
            let answer = app.client.send(request.header("idempotency-key", &key)).await;
            assert_eq!(answer.status, 400, "{path}");
            assert_eq!(answer.body["error"]["message"], "idempotency-key: expected 1 to 64 characters");
        }
    }
    assert_eq!(app.rows.count("runs").await, 0);
}
