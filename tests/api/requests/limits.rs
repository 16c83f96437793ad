//! Limits: a value just within a limit is accepted, a value just over it is refused with a message.

use holdpoint::llm::ModelMessage;
use holdpoint_testkit::{Embedded, JsonFields, call};
use serde_json::json;

/// The answers of calls in the last request to the model.
fn sent(app: &Embedded) -> Vec<String> {
    let requests = app.scene.requests();
    let messages = requests.last().unwrap().messages.iter();
    messages
        .filter_map(|message| match message {
            ModelMessage::Tool { text, .. } => Some(text.clone()),
            _ => None,
        })
        .collect()
}

#[tokio::test]
async fn calls_over_the_limit_of_a_step_do_not_run() {
    let app = Embedded::with(|config| config.limits.calls_per_step = 2).await;
    let thread = app.client.thread().await;
    let look = |note: &str| call(note, "look", &json!({ "note": note }));
    app.scene.calls(&[look("1"), look("2")]).answers("Two.");
    app.client.send_message(&thread, "look").await;
    assert_eq!(sent(&app), [r#"{"seen":"1"}"#, r#"{"seen":"2"}"#]);

    app.scene
        .calls(&[look("3"), look("4"), look("5"), call("6", "pay", &json!({ "note": "6" }))])
        .answers("Two.");
    let turn = app.client.send_message(&thread, "look again").await;
    assert_eq!((turn.text().as_str(), turn.pending().len()), ("Two.", 0));
    let over = "More than 2 calls in one step. The tool did not run.";
    assert_eq!(sent(&app)[2..], [r#"{"seen":"3"}"#, r#"{"seen":"4"}"#, over, over]);
    let kept = app.rows.all("SELECT arguments FROM tool_calls WHERE state = 'invalid'").await;
    assert_eq!(
        kept,
        [json!({ "arguments": "{}" }), json!({ "arguments": "{}" })],
        "the arguments are not stored"
    );
    let mut ran = app.ledger.lines();
    ran.sort_unstable();
    assert_eq!(ran, ["look 1", "look 2", "look 3", "look 4"]);
}

#[tokio::test]
async fn the_pending_calls_of_a_thread_are_limited() {
    let app = Embedded::with(|config| config.limits.pending_per_thread = 2).await;
    let thread = app.client.thread().await;
    let pay = |note: &str| call(note, "pay", &json!({ "note": note }));
    let over = "2 calls of this conversation wait for approval already. The tool did not run.";
    app.scene.calls(&[pay("1"), pay("2"), pay("3")]);
    let turn = app.client.send_message(&thread, "pay").await;
    let held = turn.pending();
    assert_eq!((held.len(), turn.one('a')["result"].clone()), (2, json!({ "error": over })));

    // The limit applies to a later step of the thread as well.
    app.scene.calls(&[pay("4")]).answers("Full.");
    assert_eq!(app.client.send_message(&thread, "and 4").await.text(), "Full.");
    assert_eq!(sent(&app).last().unwrap(), over);
    // A decided call makes room, and other threads have their own limit.
    app.client.reject(&held[0]).await;
    app.hold_in(&thread, "pay", "5").await;
    let (other, _) = app.held("pay", "6").await;
    assert_eq!(app.client.get(&format!("/threads/{thread}")).await.body["pending_count"], 2);
    assert_eq!(app.client.get(&format!("/threads/{other}")).await.body["pending_count"], 1);
    assert_eq!(app.ledger.lines(), Vec::<String>::new());
}

#[tokio::test]
async fn the_length_of_arguments_is_limited() {
    // {"note":"…"} is 11 bytes and the note.
    let app = Embedded::with(|config| config.limits.args_bytes = 11 + 20).await;
    let thread = app.client.thread().await;
    let look = |note: String| call("", "look", &json!({ "note": note }));
    let fits = look("x".repeat(20));
    assert_eq!(fits.2.len(), 31);
    app.scene
        .calls(&[fits, look("y".repeat(21)), look("é".repeat(10) + "z"), look("w".repeat(90))])
        .answers("ok");
    let turn = app.client.send_message(&thread, "look").await;
    let over = "The arguments cannot be read: they are longer than 31 bytes. The tool did not run.";
    let first = json!({ "seen": "x".repeat(20) }).to_string();
    assert_eq!(sent(&app), [first.as_str(), over, over, over]);
    assert_eq!(turn.all('9')[1]["args"], json!({}));
    assert_eq!(app.ledger.lines(), [format!("look {}", "x".repeat(20))]);
    // Longer arguments are kept only up to the length that shows that they are too long.
    assert_eq!(app.rows.count("tool_calls WHERE length(arguments) <= 32").await, 4);
}

#[tokio::test]
async fn the_nesting_of_arguments_is_limited() {
    let app = Embedded::with(|config| config.limits.json_depth = 2).await;
    let thread = app.client.thread().await;
    let deep = |arguments: &str| (String::new(), "look".to_owned(), arguments.to_owned());
    app.scene
        .calls(&[deep(r#"{"note":["a"]}"#), deep(r#"{"note":[["a"]]}"#), deep(r#"{"note":[{}]}"#)])
        .answers("ok");
    app.client.send_message(&thread, "look").await;
    let sent = sent(&app);
    assert!(sent[0].starts_with("The arguments do not fit the tool: /note:"), "{sent:?}");
    for over in &sent[1..] {
        assert!(over.starts_with("The arguments cannot be read: nested too deeply"), "{over}");
        assert!(over.ends_with("The tool did not run."), "{over}");
    }
    assert_eq!(app.ledger.lines(), Vec::<String>::new());
}

#[tokio::test]
async fn a_result_for_the_model_is_cut_at_the_limit_with_a_mark() {
    let whole = json!({ "paid": "x".repeat(50) }).to_string();
    for (over, limit) in [(false, whole.len()), (true, whole.len() - 1)] {
        let app = Embedded::with(|config| config.limits.result_bytes = limit).await;
        let (thread, id) = app.held("pay", &"x".repeat(50)).await;
        let result = app.client.approve(&id).await.body.text("result").to_owned();
        let expected =
            if over { format!("{} […cut]", &whole[..limit - " […cut]".len()]) } else { whole.clone() };
        assert_eq!(result, expected);
        assert!(result.len() <= limit);
        app.scene.answers("ok");
        app.client.resume(&thread).await;
        assert_eq!(sent(&app), [expected.as_str()]);
        assert_eq!(app.client.call(&id).await["result"], json!(expected));
    }
}

#[tokio::test]
async fn a_result_is_cut_between_characters_for_ungated_calls_as_well() {
    let app = Embedded::with(|config| config.limits.result_bytes = 40).await;
    let thread = app.client.thread().await;
    app.scene.calls(&[call("a", "look", &json!({ "note": "é".repeat(40) }))]).answers("ok");
    app.client.send_message(&thread, "look").await;
    let sent = sent(&app);
    // 40 less the mark's 9 bytes are 31: 9 of {"seen":" and eleven characters of two bytes each.
    assert_eq!(sent, [format!("{{\"seen\":\"{} […cut]", "é".repeat(11))]);
    assert_eq!(sent[0].len(), 40);
}

/// Bodies with this user text, as pages post them. A line break separates the parts of a message.
fn forms(words: &str) -> Vec<serde_json::Value> {
    let in_content = json!({ "role": "user", "content": words });
    let half = words.split_at(words.len() / 2);
    let parts = json!([{ "type": "text", "text": half.0 }, { "type": "text", "text": &half.1[1..] }]);
    let in_parts = json!({ "id": "u", "role": "user", "parts": parts });
    vec![
        json!(words),
        json!({ "content": words }),
        json!({ "message": in_content }),
        json!({ "messages": [{ "role": "user", "content": "earlier" }, in_content] }),
        json!({ "messages": [in_parts] }),
        json!({ "message": in_parts, "trigger": "submit-message" }),
        json!({ "messages": [in_parts], "trigger": "submit-message", "messageId": "u" }),
        json!({ "messages": [in_parts], "trigger": "regenerate-message" }),
        json!({ "content": words, "trigger": "submit-message" }),
    ]
}

#[tokio::test]
async fn the_length_of_a_message_is_limited_in_every_form() {
    let app = Embedded::with(|config| config.limits.message_bytes = 40).await;
    let path = |thread: &str| format!("/qa/chat_streamed/{thread}");
    for body in forms(&"x".repeat(41)) {
        let thread = app.client.thread().await;
        let answer = app.client.post(&path(&thread), &body).await;
        assert_eq!(answer.failure(), (413, "body_too_large"), "{body}");
        assert_eq!(answer.message(), "The message is longer than 40 bytes.", "{body}");
    }
    assert_eq!(app.rows.count("messages").await, 0);
    for body in forms(&("é".repeat(10) + &"x".repeat(20))) {
        let thread = app.client.thread().await;
        app.scene.answers("ok");
        let response = app.client.begin(&thread, &body).await;
        let (status, output) = (response.status(), response.text().await.unwrap());
        assert_eq!(status, 200, "{body}: {output}");
        assert!(output.contains("ok"), "{body}: {output}");
    }
}

#[tokio::test]
async fn an_earlier_message_of_a_page_may_be_longer_than_a_new_one() {
    let app = Embedded::with(|config| config.limits.message_bytes = 40).await;
    let thread = app.client.thread().await;
    app.scene.answers("ok");
    let user = |words: &str| json!({ "role": "user", "content": words });
    let body = json!({ "messages": [user(&"x".repeat(100)), user("hi")] });
    assert_eq!(app.client.turn(&thread, &body).await.text(), "ok");
    assert_eq!(app.client.questions(&thread).await, ["hi"]);
}

#[tokio::test]
async fn a_tool_selection_names_each_tool_once_and_no_more_tools_than_exist() {
    let app = Embedded::start().await;
    let thread = app.client.thread().await;
    app.scene.answers("ok");
    let names: Vec<&str> = ["look", "pay"].into_iter().cycle().take(10_000).collect();
    let turn = app.client.turn(&thread, &json!({ "content": "hi", "tool_selection": names })).await;
    assert_eq!(turn.text(), "ok");
    assert_eq!(app.rows.all("SELECT tools FROM runs").await, [json!({ "tools": r#"["look","pay"]"# })]);

    let names: Vec<String> = (0..10_000).map(|n| format!("no-{n}")).collect();
    let selection = ["look".to_owned()].into_iter().chain(names).collect::<Vec<_>>();
    let body = json!({ "content": "hi", "tool_selection": selection });
    let answer = app.client.post(&format!("/qa/chat_streamed/{thread}"), &body).await;
    answer.failed_with(422, "unknown_tool");
    assert!(answer.message().contains("\"no-0\""), "{}", answer.message());
    let odd = json!({ "content": "hi", "tool_selection": ["look", 7, "pay"] });
    let answer = app.client.post(&format!("/qa/chat_streamed/{thread}"), &odd).await;
    assert_eq!(answer.message(), "tool_selection: expected a list of tool names");
}
