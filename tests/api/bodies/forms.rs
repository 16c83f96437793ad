//! What a chat accepts: every form of a body, and the names of threads.

use holdpoint::config::WhilePending;
use holdpoint::llm::ModelMessage;
use holdpoint_testkit::{Embedded, JsonFields, Turn};
use serde_json::{Value, json};

/// Every body without a message, which resumes the turn.
const NOTHING: [&str; 8] = [
    "",
    "{}",
    r#"{"content":null}"#,
    r#"{"content":""}"#,
    r#""""#,
    r#"{"id":"other","temperature":1}"#,
    r#"{"messages":null}"#,
    r#"{"message":{"role":"assistant","content":"I go on"}}"#,
];

async fn turn_raw(app: &Embedded, path: &str, body: impl Into<reqwest::Body>) -> Turn {
    let request = app.client.http.post(app.client.url(path));
    app.client.read(request.header("content-type", "application/json").body(body)).await
}

/// The last message that the model was sent.
fn last_message(app: &Embedded) -> ModelMessage {
    app.scene.requests().last().unwrap().messages.last().unwrap().clone()
}

#[tokio::test]
async fn a_message_is_accepted_in_every_form_and_unknown_fields_are_ignored() {
    let app = Embedded::start().await;
    let thread = app.client.thread().await;
    let requested = |role: &str, words: &str| json!({ "role": role, "content": words });
    let bodies = [
        json!({ "content": "one" }),
        json!("two"),
        json!({ "content": "three", "temperature": 2, "data": { "deep": [[null]] }, "stream": "yes" }),
        json!({ "id": "not read here", "message": requested("user", "four") }),
        json!({ "messages": [requested("system", "obey"), requested("user", "five")] }),
        json!({ "content": "six", "model": null, "tool_selection": null, "messages": null, "message": null }),
    ];
    let words = ["one", "two", "three", "four", "five", "six"];
    for (body, words) in bodies.iter().zip(words) {
        app.scene.answers("ok");
        let turn = app.client.turn(&thread, body).await;
        assert_eq!((turn.status, turn.text().as_str()), (200, "ok"), "{body}: {}", turn.raw);
        assert_eq!(last_message(&app), ModelMessage::User(words.to_owned()), "{body}");
    }
    assert_eq!(app.client.questions(&thread).await, words);
}

#[tokio::test]
async fn a_body_without_a_message_is_refused_where_no_turn_can_be_resumed() {
    let app = Embedded::start().await;
    let thread = app.client.thread().await;
    let path = format!("/qa/chat_streamed/{thread}");
    let refused = (409, "nothing_to_continue".to_owned());
    for body in NOTHING {
        assert_eq!(turn_raw(&app, &path, body).await.refused(), refused, "{body}");
    }
    app.scene.answers("Hello.");
    app.client.send_message(&thread, "hi").await;
    for body in NOTHING {
        assert_eq!(turn_raw(&app, &path, body).await.refused(), refused, "answered, then {body}");
    }
    assert_eq!(app.rows.count("messages").await, 2);
    assert_eq!(app.scene.requests().len(), 1);
}

#[tokio::test]
async fn a_body_without_a_message_resumes_a_decided_turn() {
    let app = Embedded::start().await;
    for body in NOTHING {
        let (thread, id) = app.held("pay", "10").await;
        app.client.approve(&id).await;
        app.scene.answers("Paid.");
        let turn = turn_raw(&app, &format!("/qa/chat_streamed/{thread}"), body).await;
        assert_eq!((turn.status, turn.codes().as_str()), (200, "a8ef0ed"), "{body}: {}", turn.raw);
        assert_eq!(turn.text(), "Paid.", "{body}");
        assert_eq!(app.client.questions(&thread).await, ["please pay 10"], "{body}");
    }
}

#[tokio::test]
async fn a_thread_is_addressed_by_its_id_and_by_the_callers_own_name() {
    let app = Embedded::start().await;
    for _ in 0..5 {
        app.scene.answers("ok");
    }
    let name = "Chat Nr. 7, 50% é";
    let encoded = "Chat%20Nr.%207%2C%2050%25%20%C3%A9";
    let user = |words: &str| json!({ "role": "user", "content": words });
    app.client.turn_by_id(&json!({ "id": name, "messages": [user("one")] })).await;
    let threads = app.client.get("/threads").await.body;
    let [thread] = threads.list("results").as_slice() else { panic!("{threads}") };
    assert_eq!((&thread["client_id"], &thread["title"]), (&json!(name), &json!("New chat")));
    let id = thread.text("thread_id");
    assert_eq!(thread["session_id"], id);

    app.client.turn_by_id(&json!({ "id": name, "message": user("two") })).await;
    app.client.turn_by_id(&json!({ "id": id, "message": user("three") })).await;
    app.client.turn(encoded, &json!({ "id": "another", "content": "four" })).await;
    app.client.turn(id, &json!({ "content": "five" })).await;
    assert_eq!(app.client.questions(id).await, ["one", "two", "three", "four", "five"]);
    assert_eq!(app.rows.count("threads").await, 1);
}

#[tokio::test]
async fn concurrent_requests_with_one_new_name_create_one_thread() {
    let app = Embedded::start().await;
    let posts = (0..8).map(|n| {
        app.scene.answers("ok");
        let (client, body) = (app.client.clone(), json!({ "id": "new", "content": format!("{n}") }));
        async move { client.turn_by_id(&body).await }
    });
    let turns = futures::future::join_all(posts).await;
    let answered = turns.iter().filter(|turn| turn.status == 200).count();
    assert!(answered >= 1);
    for turn in turns.iter().filter(|turn| turn.status != 200) {
        assert_eq!(turn.refused(), (409, "turn_in_progress".to_owned()), "{}", turn.raw);
    }
    assert_eq!(app.rows.count("threads").await, 1);
    assert_eq!(app.rows.count("messages WHERE role = 'user'").await, answered as i64);
}

#[tokio::test]
async fn a_name_may_contain_characters_that_a_path_may_not() {
    let app = Embedded::start().await;
    for (name, encoded) in [("a/b", "a%2Fb"), ("?#&", "%3F%23%26"), ("%41", "%2541"), ("a+b", "a+b")] {
        app.scene.answers("ok").answers("ok");
        let body = json!({ "id": name, "content": "one" });
        assert_eq!(app.client.turn_by_id(&body).await.text(), "ok", "{name}");
        let again = app.client.send_message(encoded, "two").await;
        assert_eq!((again.status, again.text().as_str()), (200, "ok"), "{name}: {}", again.raw);
    }
    assert_eq!(app.rows.count("threads").await, 4);
}

#[tokio::test]
async fn resuming_creates_no_thread() {
    let app = Embedded::start().await;
    let answer = json!({ "role": "assistant", "content": "x" });
    for body in [
        json!({ "id": "new" }),
        json!({ "id": "new", "content": "" }),
        json!({ "id": "new", "messages": [answer] }),
    ] {
        let turn = app.client.turn_by_id(&body).await;
        assert_eq!(turn.refused(), (409, "nothing_to_continue".to_owned()), "{body}");
    }
    assert_eq!(app.rows.count("threads").await, 0);
}

#[tokio::test]
async fn a_name_is_1_to_64_characters() {
    let app = Embedded::start().await;
    for id in [json!(null), json!(""), json!("x".repeat(65)), json!("é".repeat(65)), json!("a\0b"), json!(7)]
    {
        let answer = app.client.post("/qa/chat_streamed", &json!({ "id": id, "content": "hi" })).await;
        assert_eq!(answer.failure(), (400, "bad_request"), "{id}");
        assert!(answer.message().starts_with("id: "), "{id}: {}", answer.message());
    }
    let absent = app.client.post("/qa/chat_streamed", &json!({ "content": "hi" })).await;
    absent.failed_with(400, "bad_request");
    assert!(absent.message().starts_with("id: "), "{}", absent.message());
    assert_eq!(app.rows.count("threads").await, 0);

    for id in ["x".to_owned(), "x".repeat(64), "é".repeat(64)] {
        app.scene.answers("ok");
        assert_eq!(app.client.turn_by_id(&json!({ "id": id, "content": "hi" })).await.status, 200, "{id}");
    }
    assert_eq!(app.rows.count("threads").await, 3);
}

#[tokio::test]
async fn a_missing_thread_is_not_found() {
    let app = Embedded::start().await;
    let thread = app.client.thread().await;
    let others = [
        "01890a5d-ac96-774b-bcce-b302099a8057".to_owned(),
        "no-name-of-mine".to_owned(),
        thread.to_uppercase(),
        thread.replace('-', ""),
        format!("%7B{thread}%7D"),
        format!("{thread}%20"),
    ];
    for other in others {
        let turn = app.client.send_message(&other, "hi").await;
        assert_eq!(turn.refused(), (404, "not_found".to_owned()), "{other}");
    }
    assert_eq!(app.rows.count("messages").await, 0);
    assert_eq!(app.rows.count("threads").await, 1);
}

#[tokio::test]
async fn an_unknown_dialect_is_refused() {
    let app = Embedded::start().await;
    let thread = app.client.thread().await;
    let post = |dialect: &str| {
        let request = app.client.http.post(app.client.url(&format!("/qa/chat_streamed/{thread}")));
        request.header("x-stream-protocol", dialect.to_owned()).json(&json!({ "content": "hi" }))
    };
    for other in ["data-v2", "DATA-V1", "text"] {
        let answer = app.client.send(post(other)).await;
        assert_eq!(answer.failure(), (400, "bad_request"), "{other}");
        assert!(answer.message().contains("x-stream-protocol"), "{}", answer.message());
    }
    assert_eq!(app.rows.count("messages").await, 0);
    app.scene.answers("Hello.");
    let turn = app.client.read(post("data-v1")).await;
    assert_eq!((turn.status, turn.codes().as_str()), (200, "f0ed"));
    assert_eq!(turn.headers["x-vercel-ai-data-stream"], "v1");
}

#[tokio::test]
async fn a_malformed_body_is_refused_by_field_and_stores_nothing() {
    let app = Embedded::start().await;
    let thread = app.client.thread().await;
    let path = format!("/qa/chat_streamed/{thread}");
    let cases: [(&[u8], &str); 15] = [
        (b"{", "body"),
        (b"[]", "body"),
        (b"7", "body"),
        (b"{} {}", "body"),
        (b"\"\xff\"", "body"),
        (br#"{"content":7}"#, "content"),
        (br#"{"content":["hi"]}"#, "content"),
        (br#"{"content":"hi","model":7}"#, "model"),
        (br#"{"content":"hi","tool_selection":"look"}"#, "tool_selection"),
        (br#"{"messages":{}}"#, "messages"),
        (br#"{"messages":[{"role":"user","content":7}]}"#, "messages[0].content"),
        (br#"{"content":"a\u0000b"}"#, "content"),
        (br#""a\u0000b""#, "content"),
        (br#"{"messages":[{"role":"user","content":"a\u0000b"}]}"#, "messages[0].content"),
        (br#"{"message":{"role":"user","content":"a\u0000b"}}"#, "message.content"),
    ];
    for (body, named) in cases {
        let answer = app.client.post_raw(&path, body).await;
        let body = String::from_utf8_lossy(body);
        assert_eq!(answer.failure(), (400, "bad_request"), "{body}");
        assert!(answer.message().starts_with(named), "{body}: {}", answer.message());
    }
    assert_eq!(app.rows.count("messages").await, 0);
    assert_eq!(app.scene.requests().len(), 0);
}

#[tokio::test]
async fn a_body_is_json_by_its_content_type() {
    let app = Embedded::start().await;
    let thread = app.client.thread().await;
    let post = || app.client.http.post(app.client.url(&format!("/qa/chat_streamed/{thread}")));
    let body = r#"{"content":"hi"}"#;
    let refused = [
        post().body(body),
        post().header("content-type", "text/plain;charset=UTF-8").body(body),
        post().header("content-type", "application/x-www-form-urlencoded").body(body),
        post().header("content-type", "application/jsonp").body(body),
    ];
    for request in refused {
        let answer = app.client.send(request).await;
        answer.failed_with(415, "unsupported_media_type");
    }
    // An empty body has no wrong content type.
    let empty = app.client.send(post().header("content-type", "text/plain")).await;
    assert_eq!(empty.code(), "nothing_to_continue");
    for content_type in ["application/json; charset=utf-8", "Application/JSON"] {
        app.scene.answers("ok");
        let turn = app.client.read(post().header("content-type", content_type).body(body)).await;
        assert_eq!(turn.status, 200, "{content_type}: {}", turn.raw);
    }
    assert_eq!(app.rows.count("messages").await, 4);
}

#[tokio::test]
async fn in_defer_mode_a_new_message_passes_a_hold_and_leaves_it_pending() {
    let app = Embedded::with(|config| config.approval.while_pending = WhilePending::Defer).await;
    let (thread, id) = app.held("pay", "10").await;
    app.scene.answers("It waits.");
    assert_eq!(app.client.send_message(&thread, "and?").await.text(), "It waits.");
    assert_eq!(app.client.call(&id).await["state"], "pending");
    assert_eq!(app.client.approve(&id).await.body["state"], "succeeded");
}

#[tokio::test]
async fn in_reject_mode_a_new_message_is_refused_until_all_calls_are_decided() {
    let app = Embedded::with(|config| config.approval.while_pending = WhilePending::Reject).await;
    let (thread, id) = app.held("pay", "10").await;
    let turn = app.client.send_message(&thread, "and?").await;
    assert_eq!(turn.refused(), (409, "awaiting_approval".to_owned()));
    assert_eq!(app.client.questions(&thread).await, ["please pay 10"]);
    assert_eq!(app.client.call(&id).await["state"], "pending");
    assert_eq!(app.client.resume(&thread).await.codes(), "8ed", "resuming is no new message");

    app.client.approve(&id).await;
    app.scene.answers("Paid.");
    assert_eq!(app.client.send_message(&thread, "and?").await.text(), "Paid.");
}

#[tokio::test]
async fn in_cancel_mode_a_new_message_cancels_the_holds_and_the_model_reads_that() {
    let app = Embedded::with(|config| config.approval.while_pending = WhilePending::Cancel).await;
    let (thread, id) = app.held("pay", "10").await;
    app.scene.answers("Never mind.");
    assert_eq!(app.client.send_message(&thread, "leave it").await.text(), "Never mind.");
    let call = app.client.call(&id).await;
    assert_eq!((&call["state"], &call["validated"]), (&json!("cancelled"), &json!(false)));
    let decision = (&call["decision"]["decision"], &call["decision"]["by"]);
    assert_eq!(decision, (&json!("cancel"), &json!("user:local")));
    let late = app.client.approve(&id).await;
    late.failed_with(409, "cancelled");
    assert_eq!(app.ledger.lines(), Vec::<String>::new());
    let reported = app.scene.requests()[1].messages.clone();
    let answer = reported.iter().find_map(|message| match message {
        ModelMessage::Tool { text, .. } => Some(text.as_str()),
        _ => None,
    });
    assert_eq!(answer, Some("Cancelled, the tool did not run."));
    assert_eq!(app.client.get(&format!("/threads/{thread}")).await.body["pending_count"], 0);
}

#[tokio::test]
async fn a_list_or_null_is_refused_in_place_of_an_object() {
    let app = Embedded::start().await;
    let thread = app.client.thread().await;
    let call = "01890a5d-ac96-774b-bcce-b302099a8057";
    let bodies = [
        ("/threads", "POST", json!([null, null])),
        ("/threads", "POST", json!(["A title"])),
        (&format!("/threads/{thread}"), "PATCH", json!(null)),
        (&format!("/threads/{thread}"), "PATCH", json!(["A title"])),
        ("/qa/validate_tool", "POST", json!([call, true])),
        ("/qa/validate_tool", "POST", json!(null)),
    ];
    for (path, method, body) in bodies {
        let request = app.client.http.request(method.parse().unwrap(), app.client.url(path)).json(&body);
        let answer = app.client.send(request).await;
        assert_eq!(answer.failure(), (400, "bad_request"), "{method} {path} {body}");
        assert_eq!(answer.message(), "body: expected a JSON object", "{method} {path} {body}");
    }
    let threads = app.client.get("/threads").await.body;
    assert_eq!(threads.list("results").len(), 1, "{threads}");
}

#[tokio::test]
async fn null_counts_as_an_absent_body_where_the_body_is_optional() {
    let app = Embedded::start().await;
    for body in ["", "null", " null\r\n"] {
        let request =
            app.client.http.post(app.client.url("/threads")).header("content-type", "application/json");
        let made = app.client.send(request.body(body)).await;
        assert_eq!((made.status, &made.body["title"]), (201, &json!("New chat")), "{body:?}");
    }
}

#[tokio::test]
async fn null_is_answered_like_an_absent_body_on_every_route_whose_body_is_optional_on_sqlite() {
    let app = Embedded::start().await;
    let document: Value = serde_json::from_str(include_str!("../../../openapi/holdpoint-full.json")).unwrap();
    let mut seen = 0;
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let body = &operation["requestBody"];
            if body.is_null() || body["required"] == true {
                continue;
            }
            seen += 1;
            let of = async |body: &'static str| {
                // A thread of its own, so that no request changes the answer to the next one.
                let path = path.replace("{thread_id}", &app.client.thread().await);
                assert!(!path.contains('{'), "{path} has another parameter");
                let request =
                    app.client.http.request(method.to_uppercase().parse().unwrap(), app.client.url(&path));
                let request = request.header("content-type", "application/json").body(body);
                let answer = app.client.send(request).await;
                (answer.status, answer.body["error"]["code"].clone())
            };
            let absent = of("").await;
            for body in ["null", " null\r\n"] {
                assert_eq!(of(body).await, absent, "{method} {path} {body:?}");
            }
            assert_ne!(of("[null]").await, absent, "{method} {path}: the body is read");
        }
    }
    assert_eq!(seen, 3, "the routes with an optional body");
}

/// A text that JavaScript cut within a character, as `JSON.stringify` writes it.
const CUT: &str = r"cut emoji \ud83d";
/// The same text as the server reads it.
const MENDED: &str = "cut emoji \u{fffd}";

#[tokio::test]
async fn half_of_a_surrogate_pair_in_words_is_read_as_the_replacement_character() {
    let app = Embedded::start().await;
    let forms = [
        r#"{"content":"CUT"}"#,
        r#""CUT""#,
        r#"{"message":{"id":"1","role":"user","content":"CUT"}}"#,
        r#"{"messages":[{"id":"1","role":"user","content":"CUT"}]}"#,
        r#"{"trigger":"submit-message","messages":[{"id":"1","role":"user","parts":[{"type":"text","text":"CUT"}]}]}"#,
    ];
    for form in forms {
        let thread = app.client.thread().await;
        let path = format!("/qa/chat_streamed/{thread}");
        app.scene.answers("ok");
        let body = form.replace("CUT", CUT);
        let post = async || app.client.post_text(&path, body.clone()).await;
        let (status, text) = post().await;
        assert!(status == 200 && text.contains("ok"), "{body}: {status} {text}");
        assert_eq!(last_message(&app), ModelMessage::User(MENDED.to_owned()), "{body}");
        assert_eq!(app.client.questions(&thread).await, [MENDED], "{body}");
        // The page keeps its half, and posts it again: as the same message, and before later ones.
        if form.contains(r#""id""#) && !form.contains(r#"{"messages":[{"id":"1","role":"user","content""#) {
            let sent = app.scene.requests().len();
            let (status, text) = post().await;
            assert!(status == 200 && text.contains("ok"), "{body}: {status} {text}");
            assert_eq!(app.scene.requests().len(), sent, "{body}");
        }
        if let Some((held, _)) =
            body.split_once("]}]}").or_else(|| body.split_once("}]}")).filter(|_| form.contains("messages"))
        {
            let closed = if form.contains("parts") { "]}" } else { "}" };
            let next = r#"{"id":"3","role":"user","parts":[{"type":"text","text":"next"}],"content":"next"}"#;
            app.scene.answers("more");
            let (status, text) = app.client.post_text(&path, format!("{held}{closed},{next}]}}")).await;
            assert!(status == 200 && text.contains("more"), "{status} {text}");
            assert_eq!(app.client.questions(&thread).await, [MENDED, "next"], "{body}");
        }
    }
    // Words in other bodies.
    let titled = app.client.post_raw("/threads", format!(r#"{{"title":"{CUT}"}}"#)).await;
    assert_eq!((titled.status, &titled.body["title"]), (201, &json!(MENDED)));
    let (_, id) = app.held("pay", "10").await;
    let body = format!(r#"{{"toolCallId":"{id}","isValidated":false,"reason":"{CUT}"}}"#);
    let rejected = app.client.post_raw("/qa/validate_tool", body).await;
    rejected.has_status(200);
    assert_eq!(app.client.call(&id).await["decision"]["reason"], MENDED);
}

#[tokio::test]
async fn half_of_a_surrogate_pair_in_edited_inputs_is_refused_because_what_is_approved_runs() {
    let app = Embedded::start().await;
    let (_, id) = app.held("pay", "10").await;
    let single = |inputs: &str, reason: &str| {
        format!(
            r#"{{"toolCallId":"{id}","isValidated":true,"reason":"{reason}","validatedInputs":{inputs}}}"#
        )
    };
    let inputs = format!(r#"{{"note":"{CUT}"}}"#);
    for (path, body) in [
        ("/qa/validate_tool".to_owned(), single(&inputs, "fine")),
        ("/qa/validate_tool".to_owned(), single("{\"note\":\"\u{fffd}\"}", CUT)),
        (format!("/tool_calls/{id}/preview"), format!(r#"{{"validated_inputs":{inputs}}}"#)),
    ] {
        let refused = app.client.post_raw(&path, body).await;
        assert_eq!(refused.failure(), (422, "invalid_inputs"), "{path}: {:?}", refused.body);
        let errors = &refused.body["error"]["details"]["errors"];
        assert_eq!(errors[0]["pointer"], "/note", "{errors}");
        assert!(errors[0].text("message").starts_with("half of a surrogate pair"), "{errors}");
    }
    assert_eq!(app.client.call(&id).await["state"], "pending");
    // A replacement character that the person sent, and a half beside other inputs.
    let sent = single("{\"note\":\"\u{fffd}\"}", "fine");
    assert_eq!(app.client.post_raw("/qa/validate_tool", sent).await.body["state"], "succeeded");
    assert_eq!(app.ledger.lines(), ["pay \u{fffd}"]);
    let (_, id) = app.held("pay", "20").await;
    let beside = format!(
        r#"{{"toolCallId":"{id}","isValidated":true,"reason":"{CUT}","validatedInputs":{{"note":"21"}}}}"#
    );
    assert_eq!(app.client.post_raw("/qa/validate_tool", beside).await.body["state"], "succeeded");
    assert_eq!(app.ledger.lines()[1], "pay 21");
}
