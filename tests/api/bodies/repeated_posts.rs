//! Posts that a client repeats because it lost the answer: the stored answer is streamed, and the model is not
//! asked again.

use holdpoint::config::{Config, ToolRules};
use holdpoint_testkit::token::with_tokens;
use holdpoint_testkit::{Client, Embedded, JsonFields, Turn, call};
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

/// A request with the words of a message.
struct Post {
    path: String,
    key: Option<&'static str>,
    body: Value,
}

impl Post {
    async fn send(&self, client: &Client) -> (u16, String, String) {
        let mut request = client.http.post(client.url(&self.path)).json(&self.body);
        if let Some(key) = self.key {
            request = request.header("idempotency-key", key);
        }
        let answer = request.send().await.unwrap();
        let status = answer.status().as_u16();
        let text = answer.text().await.unwrap();
        let code = serde_json::from_str::<Value>(&text).unwrap_or_default();
        (status, code["error"]["code"].as_str().unwrap_or_default().to_owned(), text)
    }
}

#[tokio::test]
async fn a_stored_name_with_another_text_is_refused_and_with_the_same_text_repeats_the_answer() {
    type Posted = fn(&str, &str) -> Post;
    let app = Embedded::start().await;
    // As AI SDK 4 to 7, a page of its own, and a client without a stream post a message.
    let posts: [(&str, Posted); 7] = [
        ("ui", |thread, words| Post {
            path: format!("/qa/chat_streamed/{thread}"),
            key: None,
            body: json!({ "trigger": "submit-message",
                "messages": [{ "id": "1", "role": "user", "parts": [{ "type": "text", "text": words }] }] }),
        }),
        ("ui, with a later name", |thread, words| Post {
            path: format!("/qa/chat_streamed/{thread}"),
            key: None,
            body: json!({ "messages": [
                { "id": "0", "role": "assistant", "parts": [{ "type": "text", "text": "Hello." }] },
                { "id": "1", "role": "user", "parts": [{ "type": "text", "text": words }] }] }),
        }),
        ("v4, the message", |thread, words| Post {
            path: format!("/qa/chat_streamed/{thread}"),
            key: None,
            body: json!({ "message": { "id": "1", "role": "user", "content": words } }),
        }),
        ("v4, the history", |thread, words| Post {
            path: format!("/qa/chat_streamed/{thread}"),
            key: None,
            body: json!({ "messages": [{ "id": "0", "role": "assistant", "content": "Hello." },
                { "id": "1", "role": "user", "content": words }] }),
        }),
        ("a key and the words", |thread, words| Post {
            path: format!("/qa/chat_streamed/{thread}"),
            key: Some("1"),
            body: json!({ "content": words }),
        }),
        ("a key and the history", |thread, words| Post {
            path: format!("/qa/chat_streamed/{thread}"),
            key: Some("1"),
            body: json!({ "messages": [{ "role": "user", "content": words }] }),
        }),
        ("a turn as JSON", |thread, words| Post {
            path: format!("/threads/{thread}/turns"),
            key: Some("1"),
            body: json!({ "content": words }),
        }),
    ];
    for (form, post) in posts {
        let thread = app.client.thread().await;
        app.scene.answers("The answer.");
        let first = post(&thread, "one").send(&app.client).await;
        assert!(first.0 == 200 && first.2.contains("The answer."), "{form}: {first:?}");
        let other = post(&thread, "two").send(&app.client).await;
        assert_eq!((other.0, other.1.as_str()), (409, "name_used"), "{form}: {other:?}");
        assert!(other.2.contains("another text"), "{form}: {other:?}");
        let asked = app.scene.requests().len();
        // A page of AI SDK 4 that posts the same history again asks for another answer.
        let regenerates = usize::from(form == "v4, the history");
        for _ in 0..regenerates {
            app.scene.answers("The answer.");
        }
        let again = post(&thread, "one").send(&app.client).await;
        assert!(again.0 == 200 && again.2.contains("The answer."), "{form}: {again:?}");
        if form == "a turn as JSON" {
            assert_eq!(again.2, first.2);
        }
        assert_eq!(app.client.questions(&thread).await, ["one"], "{form}");
        assert_eq!(app.scene.requests().len(), asked + regenerates, "{form}");
    }
}

#[tokio::test]
async fn words_under_the_name_of_another_message_are_no_edit_and_no_continuation() {
    let app = Embedded::start().await;
    app.scene.answers("A1").answers("A2");
    let user = |id: &str, words: &str| json!({ "id": id, "role": "user", "content": words });
    let thread = app.client.thread().await;
    app.client.turn(&thread, &json!({ "messages": [user("1", "one")] })).await;
    app.client.turn(&thread, &json!({ "messages": [user("1", "one"), user("2", "two")] })).await;
    let answer = app.client.messages(&thread).await[3].text("message_id").to_owned();
    for body in [
        json!({ "messages": [user("1", "one"), user("1", "three")] }),
        json!({ "messages": [user("1", "one"), user("2", "two"), user("1", "three")] }),
        json!({ "trigger": "submit-message", "messageId": answer, "content": "three" }),
    ] {
        let refused = app.client.turn(&thread, &body).await;
        assert_eq!(refused.refused(), (409, "name_used".to_owned()), "{body}");
    }
    assert_eq!(app.client.questions(&thread).await, ["one", "two"]);
    // The words of that answer's own question continue it.
    let body = json!({ "trigger": "submit-message", "messageId": answer, "content": "two" });
    assert_eq!(app.client.turn(&thread, &body).await.refused(), (409, "nothing_to_continue".to_owned()));
    assert_eq!(app.scene.requests().len(), 2);
}
