//! Hard-to-read JSON: decisions are parsed strictly, chats leniently.

use holdpoint_testkit::Embedded;

/// Arrays nested to this depth.
fn nested(levels: usize) -> String {
    format!("{}{}", "[".repeat(levels), "]".repeat(levels))
}

#[tokio::test]
async fn e3_a_body_over_the_nesting_limit_is_refused() {
    let app = Embedded::start().await;
    let thread = app.client.thread().await;
    let chat = format!("/qa/chat_streamed/{thread}");
    for levels in [127, 128, 200, 100_000] {
        for (path, body) in [
            (chat.as_str(), format!(r#"{{"content":"hi","data":{}}}"#, nested(levels))),
            ("/qa/validate_tool", format!(r#"{{"toolCallId":{}}}"#, nested(levels))),
            ("/threads", format!(r#"{{"title":{}}}"#, nested(levels))),
        ] {
            let answer = app.client.post_raw(path, body).await;
            assert_eq!(answer.failure(), (400, "bad_request"), "{path}: {levels}");
        }
    }
    assert_eq!(app.rows.count("messages").await, 0);
    // A field that a chat does not read may be as deep as the parser allows.
    app.scene.answers("ok");
    let answer = app.client.post_raw(&chat, format!(r#"{{"content":"hi","data":{}}}"#, nested(100))).await;
    answer.has_status(200);
}

#[tokio::test]
async fn e7_text_must_be_valid_utf_8() {
    let app = Embedded::start().await;
    let thread = app.client.thread().await;
    let chat = format!("/qa/chat_streamed/{thread}");
    for words in [
        &b"\"a\xffb\""[..],
        b"\"\xc0\xaf\"",
        b"\"\xed\xa0\x80\"",
        b"\"\xf4\x90\x80\x80\"",
        b"\"a\nb\"",
        br#""\u0000""#,
        br#""\x41""#,
    ] {
        for (path, body) in [
            (chat.as_str(), [b"{\"content\":", words, b"}"].concat()),
            (chat.as_str(), words.to_vec()),
            ("/threads", [b"{\"title\":", words, b"}"].concat()),
            (
                "/qa/validate_tool",
                [b"{\"toolCallId\":\"x\",\"isValidated\":false,\"reason\":", words, b"}"].concat(),
            ),
        ] {
            let body_text = String::from_utf8_lossy(&body).into_owned();
            let answer = app.client.post_raw(path, body).await;
            assert_eq!(answer.failure(), (400, "bad_request"), "{path}: {body_text}");
        }
    }
    for (path, body) in [(chat.as_str(), "\u{feff}{\"content\":\"hi\"}"), ("/threads", "\u{feff}{}")] {
        let answer = app.client.post_raw(path, body).await;
        assert_eq!(answer.failure(), (400, "bad_request"), "{path}: a byte order mark");
    }
    assert_eq!(app.rows.count("messages").await, 0);
    assert_eq!(app.rows.count("threads").await, 1);
}

#[tokio::test]
async fn e8_no_stored_text_contains_a_nul() {
    let app = Embedded::start().await;
    let (thread, id) = app.held("pay", "10").await;
    let chat = format!("/qa/chat_streamed/{thread}");
    for (path, body) in [
        (chat.as_str(), r#"{"content":"a\u0000b"}"#.to_owned()),
        (chat.as_str(), r#"{"message":{"role":"user","content":"a\u0000b"}}"#.to_owned()),
        (chat.as_str(), r#"{"content":"hi","model":"a\u0000b"}"#.to_owned()),
        (chat.as_str(), r#"{"content":"hi","tool_selection":["a\u0000b"]}"#.to_owned()),
        ("/qa/chat_streamed", r#"{"id":"a\u0000b","content":"hi"}"#.to_owned()),
        ("/threads", r#"{"title":"a\u0000b"}"#.to_owned()),
        ("/qa/validate_tool", format!(r#"{{"toolCallId":"{id}","isValidated":false,"reason":"a\u0000b"}}"#)),
        (
            "/qa/validate_tool",
            format!(r#"{{"toolCallId":"{id}","isValidated":true,"validatedInputs":{{"note":"a\u0000b"}}}}"#),
        ),
        (
            "/qa/validate_tool",
            format!(r#"{{"toolCallId":"{id}","isValidated":true,"validatedInputs":{{"a\u0000b":"x"}}}}"#),
        ),
    ] {
        let answer = app.client.post_raw(path, body.clone()).await;
        assert!(matches!(answer.status, 400 | 422), "{path} {body}: {answer:?}");
    }
    for path in
        ["/threads/a%00b", "/tool_calls/a%00b", "/qa/chat_streamed/a%00b", "/qa/chat_streamed?chatId=a%00b"]
    {
        let answer = app.client.get(path).await;
        assert!(answer.status < 500, "{path}: {answer:?}");
    }
    assert_eq!(app.client.call(&id).await["state"], "pending");
    assert_eq!(app.rows.count("messages WHERE role = 'user'").await, 1);
}

#[tokio::test]
async fn e9_numbers_and_keys_are_read_within_bounds() {
    let app = Embedded::start().await;
    let (thread, id) = app.held("pay", "10").await;
    let chat = format!("/qa/chat_streamed/{thread}");
    let keys: String = (0..10_000).map(|n| format!(r#","k{n}":{n}"#)).collect();
    for number in ["1e400", "-1e400", &"9".repeat(400), "01", "1.", ".5", "+1", "0x1", "NaN", "Infinity"] {
        let is_read = number.len() == 400;
        for (path, body) in [
            ("/qa/validate_tool", format!(r#"{{"toolCallId":"{id}","isValidated":{number}}}"#)),
            (
                "/qa/validate_tool",
                format!(
                    r#"{{"toolCallId":"{id}","isValidated":true,"validatedInputs":{{"note":{number}}}}}"#
                ),
            ),
            ("/threads", format!(r#"{{"title":{number}}}"#)),
        ] {
            let answer = app.client.post_raw(path, body).await;
            assert!(matches!(answer.status, 400 | 422), "{path} {number}: {answer:?}");
        }
        if !is_read {
            let answer =
                app.client.post_raw(&chat, format!(r#"{{"content":"hi","temperature":{number}}}"#)).await;
            assert_eq!(answer.failure(), (400, "bad_request"), "{number}");
        }
    }
    let many =
        format!(r#"{{"toolCallId":"{id}","isValidated":true,"validatedInputs":{{"note":"x"{keys}}}}}"#);
    let answer = app.client.post_raw("/qa/validate_tool", many).await;
    answer.failed_with(422, "invalid_inputs");
    assert_eq!(app.client.call(&id).await["state"], "pending");
    assert_eq!(app.rows.count("messages WHERE role = 'user'").await, 1);

    // A chat body holds the whole state of a page: unread fields may hold anything, and the last of repeated
    // keys wins.
    app.scene.answers("ok");
    let body = format!(r#"{{"content":"not this"{keys},"content":"this"}}"#);
    app.client.post_raw(&chat, body).await.has_status(200);
    assert_eq!(app.client.questions(&thread).await.last().unwrap(), "this");
}
