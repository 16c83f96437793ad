//! New messages and their words.

use super::{CHAT, MAJORS, assert_last_request, names, talked, thread_named};
use holdpoint::config::UiDialect;
use holdpoint::llm::ModelEvent;
use holdpoint_testkit::ui::{recorded, ui_assistant, ui_submit, ui_submit_at, ui_user};
use holdpoint_testkit::{Embedded, call};
use serde_json::{Value, json};

#[tokio::test]
async fn a_new_message_as_every_major_posts_it() {
    for major in MAJORS {
        let app = Embedded::start().await;
        app.scene.answers("Hello.");
        let turn = app.client.ui_turn(&recorded(&format!("{major}/a-text.1"), &[])).await;
        assert_eq!((turn.status, turn.text().as_str()), (200, "Hello."), "{major}: {}", turn.raw);
        assert_last_request(&app, &["hello"]);
        let thread = thread_named(&app, "chat-a-text").await;
        let messages = app.client.messages(&thread).await;
        assert_eq!(messages[0]["client_id"], "client-1");
        assert_eq!(messages[1]["message_id"], turn.message_id());
    }
}

#[tokio::test]
async fn a_page_may_post_only_its_last_message_and_omit_the_trigger() {
    let app = Embedded::start().await;
    let mut empty_content = ui_user("u7", "seven");
    empty_content["content"] = json!("");
    let bodies = [
        json!({ "id": CHAT, "message": ui_user("u1", "one"), "trigger": "submit-message" }),
        json!({ "id": CHAT, "message": ui_user("u2", "two") }),
        json!({ "id": CHAT, "messages": [ui_user("u3", "three")] }),
        json!({ "id": CHAT, "messages": [ui_user("u4", "four")], "message": null, "trigger": null, "messageId": null }),
        json!({ "id": CHAT, "content": "five", "trigger": "submit-message" }),
        json!({ "id": CHAT, "message": { "id": "u6", "role": "user", "content": "six" }, "trigger": "submit-message" }),
        json!({ "id": CHAT, "message": empty_content, "trigger": "submit-message" }),
        json!({ "id": CHAT, "messages": [ui_user("u8", "eight")], "content": "", "trigger": "submit-message" }),
    ];
    for body in &bodies {
        app.scene.answers("ok");
        let turn = app.client.ui_turn(body).await;
        assert_eq!((turn.status, turn.text().as_str()), (200, "ok"), "{body}: {}", turn.raw);
    }
    let thread = thread_named(&app, CHAT).await;
    let words = ["one", "two", "three", "four", "five", "six", "seven", "eight"];
    assert_eq!(app.client.questions(&thread).await, words);
    let named = names(&app, &thread).await;
    let by = [
        json!("u1"),
        json!("u2"),
        json!("u3"),
        json!("u4"),
        Value::Null,
        json!("u6"),
        json!("u7"),
        json!("u8"),
    ];
    assert_eq!(named, by);
}

#[tokio::test]
async fn a_page_gets_the_dialect_of_its_body_unless_the_header_names_another() {
    let app = Embedded::start().await;
    let v4 = |words: &str| json!({ "role": "user", "content": words });
    let both = json!({ "role": "user", "content": "c", "parts": [{ "type": "text", "text": "p" }] });
    let ui = ui_user("u", "hi");
    let bodies = [
        (json!({ "messages": [ui] }), true),
        (json!({ "messages": [v4("x"), { "role": "user", "content": null, "parts": ui["parts"] }] }), true),
        (json!({ "messages": [v4("x")], "trigger": "submit-message" }), true),
        (json!({ "messages": [ui, v4("x")] }), false),
        (json!({ "messages": [both] }), false),
        (json!({ "message": both, "messages": [ui] }), false),
        (json!({ "content": "x", "trigger": null }), false),
    ];
    for (body, is_ui) in &bodies {
        for (requested, expected) in [(None, *is_ui), (Some("data-v1"), false), (Some("ui-v6"), true)] {
            app.scene.answers("ok");
            let thread = app.client.thread().await;
            let path = app.client.url(&format!("/qa/chat_streamed/{thread}"));
            let request = app.client.http.post(path).json(body);
            let request = match requested {
                Some(dialect) => request.header("x-stream-protocol", dialect),
                None => request,
            };
            let answer = request.send().await.unwrap();
            assert_eq!(answer.status(), 200, "{body}");
            let is_ui = answer.headers().contains_key("x-vercel-ai-ui-message-stream");
            assert_eq!(is_ui, expected, "{requested:?} {body}");
            assert!(answer.text().await.unwrap().contains("ok"));
        }
    }
}

#[tokio::test]
async fn the_text_of_a_message_joins_its_text_parts_with_newlines() {
    let app = Embedded::start().await;
    let text = |text: &str| json!({ "type": "text", "text": text });
    let step = json!({ "type": "step-start" });
    let cases = [
        (json!([text("one")]), "one"),
        (json!([text("Sum this up:"), text("It rained.\nA lot.")]), "Sum this up:\nIt rained.\nA lot."),
        (json!([step, text("what is it?")]), "what is it?"),
        (json!([text(""), text("a"), text("c"), text("")]), "a\nc"),
        (json!([text(" ")]), " "),
    ];
    for (n, (parts, words)) in cases.iter().enumerate() {
        app.scene.answers("ok");
        let name = format!("chat-{n}");
        let message = json!({ "id": "u1", "role": "user", "parts": parts, "metadata": { "text": "x" } });
        let turn = app.client.ui_turn(&ui_submit(&name, &[message])).await;
        assert_eq!(turn.text(), "ok", "{parts}: {}", turn.raw);
        assert_last_request(&app, &[words]);
        let thread = thread_named(&app, &name).await;
        let shown = app.client.messages(&thread).await;
        assert_eq!(shown[0]["parts"], json!([text(words)]), "a reload shows one text");
    }
}

#[tokio::test]
async fn a_new_message_needs_text_and_other_messages_are_not_parsed() {
    let app = Embedded::start().await;
    let user_message = |parts: Value| json!({ "id": "u2", "role": "user", "parts": parts });
    let empty = json!({ "type": "step-start" });
    let before = ui_user("u1", "one");
    let refused = [
        (json!({ "messages": [before, user_message(json!([]))] }), "messages[1].parts: "),
        (json!({ "messages": [before, user_message(json!([empty]))] }), "messages[1].parts: "),
        (json!({ "message": user_message(json!([{ "type": "text", "text": "" }])) }), "message.parts: "),
        (json!({ "message": user_message(json!("hi")) }), "message.parts: "),
        (json!({ "message": { "role": "user" }, "trigger": "submit-message" }), "message.content: "),
        (
            json!({ "message": user_message(json!([empty, { "type": "text", "text": "a\0b" }])) }),
            "message.parts[1].text: ",
        ),
        (ui_submit_at(CHAT, &[user_message(json!([empty]))], "u2"), "messages[0].parts: "),
        (
            json!({ "message": { "role": "user", "content": "", "parts": [empty] }, "trigger": "submit-message" }),
            "message.parts: ",
        ),
        (json!({ "messages": [before], "trigger": "resume-stream" }), "trigger: "),
        (json!({ "messages": [before], "trigger": "" }), "trigger: "),
        (json!({ "messages": [before], "trigger": 7 }), "trigger: "),
        (json!({ "messages": { "0": before }, "trigger": "submit-message" }), "messages: "),
        (json!({ "content": ["x"], "trigger": "submit-message" }), "content: "),
    ];
    for (mut body, named) in refused {
        body["id"] = json!(CHAT);
        let answer = app.client.post("/qa/chat_streamed", &body).await;
        assert_eq!(answer.failure(), (400, "bad_request"), "{body}");
        assert!(answer.message().starts_with(named), "{body}: {}", answer.message());
    }
    assert_eq!(app.rows.count("threads").await, 0);

    app.scene.answers("ok");
    let odd = [
        user_message(json!([{ "type": "text", "text": "a\0b" }])),
        json!({ "role": "user", "parts": 7 }),
        ui_assistant("a", &json!("none")),
        json!(null),
        json!([]),
        ui_user("u3", "three"),
    ];
    assert_eq!(app.client.ui_turn(&ui_submit(CHAT, &odd)).await.text(), "ok");
    assert_last_request(&app, &["three"]);
}

#[tokio::test]
async fn a_part_of_a_new_message_that_no_model_can_be_given_is_refused_by_name() {
    let app = Embedded::start().await;
    let user_message = |parts: Value| json!({ "id": "u2", "role": "user", "parts": parts });
    let text = json!({ "type": "text", "text": "what is it?" });
    let file = json!({ "type": "file", "mediaType": "image/png", "url": "data:image/png;base64,AA==" });
    let (before, with_file) = (ui_user("u1", "one"), user_message(json!([text, file])));
    let attached = json!({ "role": "user", "content": "what is it?",
        "experimental_attachments": [{ "name": "a.png", "contentType": "image/png", "url": "data:," }] });
    let with = |part: Value| json!({ "message": user_message(json!([text, part])) });
    let malformed = [
        (with(json!("what is it?")), "message.parts[1] (not an object)"),
        (with(json!(["what", "is it?"])), "message.parts[1] (not an object)"),
        (with(json!(null)), "message.parts[1] (not an object)"),
        (with(json!({})), "message.parts[1] (without a type)"),
        (with(json!({ "text": "what is it?" })), "message.parts[1] (without a type)"),
        (with(json!({ "type": 7, "text": "what is it?" })), "message.parts[1] (without a type)"),
        (with(json!({ "type": "text" })), "message.parts[1] (text without a text)"),
        (with(json!({ "type": "text", "text": null })), "message.parts[1] (text without a text)"),
        (with(json!({ "type": "text", "text": ["what is it?"] })), "message.parts[1] (text without a text)"),
        (
            json!({ "messages": [before, user_message(json!([null, text]))] }),
            "messages[1].parts[0] (not an object)",
        ),
        // Pages of AI SDK 4.
        (
            json!({ "messages": [{ "role": "user", "content": "what is it?", "parts": [text, "and this?"] }] }),
            "messages[0].parts[1] (not an object)",
        ),
        (
            json!({ "messages": [{ "role": "user", "content": "what is it?",
                "experimental_attachments": attached["experimental_attachments"][0] }] }),
            "messages[0].experimental_attachments (not a list)",
        ),
    ];
    let refused = [
        (json!({ "messages": [before, with_file] }), "messages[1].parts[1] (file image/png)"),
        (
            json!({ "messages": [before, user_message(json!([file]))] }),
            "messages[1].parts[0] (file image/png)",
        ),
        (json!({ "message": with_file }), "message.parts[1] (file image/png)"),
        (ui_submit_at(CHAT, std::slice::from_ref(&with_file), "u2"), "messages[0].parts[1] (file image/png)"),
        (
            json!({ "message": user_message(json!([{ "type": "file", "url": "x" }, text])) }),
            "message.parts[0] (file)",
        ),
        (
            json!({ "message": user_message(json!([text, { "type": "data-map", "data": {} }])) }),
            "message.parts[1] (data-map)",
        ),
        (
            json!({ "message": user_message(json!([text, { "type": "tool-pay", "state": "output-available" }])) }),
            "message.parts[1] (tool-pay)",
        ),
        (
            json!({ "message": user_message(json!([text, { "type": "source-url", "url": "x" }])) }),
            "message.parts[1] (source-url)",
        ),
        (
            json!({ "messages": [before, with_file], "trigger": "regenerate-message" }),
            "messages[1].parts[1] (file image/png)",
        ),
        // Pages of AI SDK 4.
        (
            json!({ "messages": [{ "role": "user", "content": "one" }, attached] }),
            "messages[1].experimental_attachments[0] (file image/png)",
        ),
        (json!({ "message": attached }), "message.experimental_attachments[0] (file image/png)"),
    ];
    for (mut body, named) in refused.into_iter().chain(malformed) {
        body["id"] = json!(CHAT);
        let answer = app.client.post("/qa/chat_streamed", &body).await;
        assert_eq!(answer.failure(), (422, "unsupported_part"), "{body}");
        assert!(answer.message().starts_with(&format!("{named}: ")), "{body}: {}", answer.message());
    }
    assert_eq!((app.rows.count("threads").await, app.scene.requests().len()), (0, 0));

    // The page still shows the refused message, and posts it before its next one.
    let answer = json!([{ "type": "step-start" }, { "type": "reasoning", "text": "r" }, file,
        { "type": "source-url", "url": "x" }, { "type": "data-x", "data": 1 }, { "type": "text", "text": "A" },
        { "type": "text" }, {}, null, "odd"]);
    let odd = user_message(json!([null, "odd", {}, { "type": "text" }]));
    let shown = [with_file, odd, ui_assistant("a", &answer), ui_user("u3", "then this")];
    app.scene.answers("ok");
    assert_eq!(app.client.ui_turn(&ui_submit(CHAT, &shown)).await.text(), "ok");
    assert_last_request(&app, &["then this"]);
    let mut posted = attached;
    posted["experimental_attachments"] = json!([]);
    app.scene.answers("ok");
    let turn = app.client.turn_by_id(&json!({ "id": "v4", "messages": [posted] })).await;
    assert_eq!((turn.status, turn.text().as_str()), (200, "ok"), "{}", turn.raw);
}

#[tokio::test]
async fn a_page_that_names_ai_sdk_5_and_no_stream_gets_an_error_that_names_the_header() {
    let app = Embedded::start().await;
    let body = ui_submit(CHAT, &[ui_user("u1", "one")]);
    let agent =
        |version: &str| format!("Mozilla/5.0 ai-sdk/provider-utils/5.0.1 ai-sdk/{version} runtime/browser");
    let post = |client: &holdpoint_testkit::Client, version: &str| {
        client.http.post(client.url("/qa/chat_streamed")).header("user-agent", agent(version)).json(&body)
    };
    let refused = app.client.send(post(&app.client, "5.0.93")).await;
    refused.failed_with(400, "bad_request");
    assert!(refused.message().starts_with("x-stream-protocol: expected ui-v5 "), "{}", refused.message());
    assert_eq!(app.rows.count("threads").await, 0);
    for (version, header) in [("5.0.93", Some("ui-v5")), ("6.0.12", None), ("7.0.1", None), ("50.1.0", None)]
    {
        app.scene.answers("ok");
        let mut request = post(&app.client, version);
        if let Some(header) = header {
            request = request.header("x-stream-protocol", header);
        }
        // The same message again: its answer is complete.
        let status = app.client.read_ui(request).await.status;
        assert!([200, 409].contains(&status), "{version}: {status}");
    }
    let for_all = Embedded::with(|config| config.stream.default_ui_dialect = UiDialect::V5).await;
    for_all.scene.answers("ok");
    assert_eq!(for_all.client.read_ui(post(&for_all.client, "5.0.93")).await.text(), "ok");
}

#[tokio::test]
async fn a_page_selects_the_model_and_the_tools_beside_its_messages() {
    let app = Embedded::start().await;
    let mut body = ui_submit(CHAT, &[ui_user("u1", "one")]);
    body["model"] = json!("scene");
    body["tool_selection"] = json!(["look"]);
    app.scene.answers("ok");
    assert_eq!(app.client.ui_turn(&body).await.text(), "ok");
    let tools = app.scene.requests()[0].tools.iter().map(|tool| tool.name.clone()).collect::<Vec<_>>();
    assert_eq!(tools, ["look"]);
    for (field, value, refused) in [
        ("model", json!("none"), (422, "unknown_model")),
        ("tool_selection", json!(["none"]), (422, "unknown_tool")),
        ("model", json!(7), (400, "bad_request")),
        ("tool_selection", json!("look"), (400, "bad_request")),
    ] {
        let mut body = ui_submit(CHAT, &[ui_user("u2", "two")]);
        body[field] = value;
        let turn = app.client.ui_turn(&body).await;
        assert_eq!(turn.refused(), (refused.0, refused.1.to_owned()), "{body}");
    }
}

#[tokio::test]
async fn a_message_posted_again_is_the_same_message() {
    let app = Embedded::start().await;
    let body = ui_submit(CHAT, &[ui_user("u1", "hi")]);
    let failed = app.client.ui_turn(&body).await;
    assert!(failed.error().is_some_and(|error| error.starts_with("upstream_error: ")), "{}", failed.raw);
    app.scene.answers("Hello.");
    let again = app.client.ui_turn(&body).await;
    assert_eq!((again.text().as_str(), again.error()), ("Hello.", None), "{}", again.raw);
    assert_eq!(again.message_id(), failed.message_id(), "the same answer continues");
    let done = app.client.ui_turn(&body).await;
    assert_eq!((done.text().as_str(), done.message_id()), ("Hello.", again.message_id()), "{}", done.raw);
    assert_eq!(app.scene.requests().len(), 2, "the stored answer");
    assert_eq!(app.rows.count("messages").await, 2);
    assert_eq!(app.rows.count("runs").await, 1);
}

#[tokio::test]
async fn a_message_posted_again_gets_its_whole_answer() {
    for again in [ui_submit(CHAT, &[ui_user("u1", "hi")]), ui_submit_at(CHAT, &[ui_user("u1", "hi")], "u1")] {
        let app = Embedded::start().await;
        let half = vec![Ok(ModelEvent::Text("Half".to_owned())), Err("broken".to_owned())];
        app.scene.then(half).calls(&[call("p-1", "pay", &json!({ "note": "10" }))]);
        let failed = app.client.ui_turn(&again).await;
        assert!(failed.error().is_some(), "{}", failed.raw);

        let held = app.client.ui_turn(&again).await;
        assert_eq!((held.text().as_str(), held.message_id()), ("Half", failed.message_id()), "{}", held.raw);
        let [id] = &held.pending()[..] else { panic!("{}", held.raw) };
        let waits = app.client.ui_turn(&again).await;
        assert_eq!((waits.text().as_str(), waits.message_id()), ("Half", held.message_id()), "{}", waits.raw);
        assert_eq!(waits.all("tool-input-available")[0]["input"], json!({ "note": "10" }));
        assert!(waits.pending().contains(id), "{}", waits.raw);
        assert_eq!(app.client.approve(id).await.body["state"], "succeeded");

        let gate = app.scene.gate();
        app.scene.answers("Paid.");
        let thread = thread_named(&app, CHAT).await;
        let goes_on = app.client.begin(&thread, &again).await;
        let along = app.client.begin(&thread, &again).await;
        gate.add_permits(100);
        for response in [goes_on, along] {
            let turn = app.client.read_ui_on(response).await;
            assert_eq!(
                (turn.text().as_str(), turn.message_id()),
                ("HalfPaid.", held.message_id()),
                "{}",
                turn.raw
            );
            assert_eq!(turn.error(), None);
            let place = |kind: &str| turn.chunks.iter().position(|chunk| chunk["type"] == kind);
            let (input, output) = (place("tool-input-available"), place("tool-output-available"));
            assert!(input.is_some() && input < output, "{}", turn.raw);
        }
        assert_eq!(app.ledger.lines(), ["pay 10"]);
        assert_eq!(app.scene.requests().len(), 3);
        assert_eq!(app.client.questions(&thread).await, ["hi"]);
    }
}

#[tokio::test]
async fn an_invalid_name_is_ignored() {
    let app = Embedded::start().await;
    let odd = [json!(7), json!(""), json!("x".repeat(65)), json!("a\0b"), Value::Null, json!(["u1"])];
    for id in &odd {
        app.scene.answers("ok");
        let mut message = ui_user("", "one");
        message["id"] = id.clone();
        let body = json!({ "id": CHAT, "messages": [message], "trigger": "submit-message", "messageId": id });
        assert_eq!(app.client.ui_turn(&body).await.text(), "ok", "{id}");
    }
    let thread = thread_named(&app, CHAT).await;
    assert_eq!(names(&app, &thread).await, vec![Value::Null; odd.len()]);
    for longest in ["x".repeat(64), "é".repeat(64)] {
        app.scene.answers("ok");
        app.client.ui_turn(&ui_submit(CHAT, &[ui_user(&longest, "one")])).await;
        assert_eq!(names(&app, &thread).await.pop(), Some(json!(longest)));
    }
}

#[tokio::test]
async fn the_posted_history_is_not_compared_if_messages_have_names() {
    let app = Embedded::start().await;
    let talk = talked(&app, &["one", "two"]).await;
    // A page with a trimmed history, a page with a changed history, and a page that posts the same words
    // again.
    app.scene.answers("A3").answers("A4").answers("A5");
    for messages in [
        vec![ui_user("u3", "three")],
        vec![ui_user("u1", "changed"), ui_assistant(&talk.answers[0], &json!([])), ui_user("u4", "four")],
        vec![ui_user("u1", "one"), ui_user("u5", "two")],
    ] {
        let turn = app.client.ui_turn(&ui_submit(CHAT, &messages)).await;
        assert!(turn.text().starts_with('A'), "{}", turn.raw);
    }
    assert_eq!(app.client.questions(&talk.thread).await, ["one", "two", "three", "four", "two"]);
    assert_last_request(&app, &["one", "A1", "two", "A2", "three", "A3", "four", "A4", "two"]);
}
