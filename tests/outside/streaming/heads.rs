//! Response heads of streams, and of answers in place of a stream.

use super::{ReceivedStream, asks};
use holdpoint::config::UiDialect;
use holdpoint_testkit::dialects::{TestedDialect, dialects, protocol_headers};
use holdpoint_testkit::ui::{ui_assistant, ui_submit, ui_user};
use holdpoint_testkit::{Embedded, WatchedServer, call};
use reqwest::header::HeaderMap;
use reqwest::{RequestBuilder, Version};
use serde_json::{Value, json};

/// The headers that matter to proxies, browsers and clients.
fn headers_of(headers: &HeaderMap) -> Vec<(&str, &str)> {
    let read = ["content-type", "cache-control", "x-accel-buffering"].into_iter().chain(protocol_headers());
    read.filter_map(|name| Some((name, headers.get(name)?.to_str().unwrap()))).collect()
}

/// The response head of a stream.
fn of_a_stream(content_type: &'static str, protocol: &'static str) -> [(&'static str, &'static str); 4] {
    [
        ("content-type", content_type),
        ("cache-control", "no-store, no-transform"),
        ("x-accel-buffering", "no"),
        (protocol, "v1"),
    ]
}

#[tokio::test]
async fn a_streams_head_names_its_protocol_and_disables_proxy_buffering() {
    let app = Embedded::start().await;
    let over_http2 = reqwest::Client::builder().http2_prior_knowledge().build().unwrap();
    for (http, version) in [(app.client.http.clone(), Version::HTTP_11), (over_http2, Version::HTTP_2)] {
        let mut client = app.client.clone();
        client.http = http;
        for TestedDialect { name: dialect, content_type, protocol_header: protocol, .. } in dialects() {
            let thread = client.thread().await;
            app.scene.answers("Hello.");
            let answer = ReceivedStream::of(asks(&client, &thread, dialect)).await;
            assert_eq!(answer.response.version(), version);
            let headers = answer.response.headers().clone();
            assert_eq!(headers_of(&headers), of_a_stream(content_type, protocol), "{dialect}");
            assert!(headers.contains_key("x-run-id") && headers.contains_key("x-request-id"), "{headers:?}");
            assert_eq!(headers["x-thread-id"], thread.as_str());
            assert!(!headers.contains_key("content-length"), "{headers:?}");
            assert!(answer.all().await.contains("Hello."));
        }
    }
}

#[tokio::test]
async fn an_attached_reader_gets_the_same_head() {
    let app = Embedded::start().await;
    let gate = app.scene.gate();
    for TestedDialect { name: dialect, content_type, protocol_header: protocol, .. } in dialects() {
        let thread = app.client.thread().await;
        app.scene.answers("Hello.");
        let first = ReceivedStream::of(asks(&app.client, &thread, "data-v1")).await;
        let path = format!("/qa/chat_streamed/{thread}");
        let attach = app.client.http.get(app.client.url(&path)).header("x-stream-protocol", dialect);
        let attached = ReceivedStream::of(attach).await;
        let headers = attached.response.headers().clone();
        assert_eq!(headers_of(&headers), of_a_stream(content_type, protocol), "{dialect}");
        assert_eq!(headers["x-run-id"], first.response.headers()["x-run-id"]);
        assert_eq!(headers["x-thread-id"], thread.as_str());
        gate.add_permits(2);
        assert!(attached.all().await.contains("Hello."));
        first.all().await;
    }
}

#[tokio::test]
async fn an_attach_without_a_running_turn_gets_an_empty_stream_or_no_content() {
    let app = Embedded::start().await;
    let thread = app.client.thread().await;
    for listed in dialects() {
        let TestedDialect { name: dialect, content_type, protocol_header: protocol, nothing_to_read, .. } =
            listed;
        let path = format!("/qa/chat_streamed/{thread}");
        let attach = app.client.http.get(app.client.url(&path)).header("x-stream-protocol", dialect);
        let answer = attach.send().await.unwrap();
        let (status, headers) = (answer.status().as_u16(), answer.headers().clone());
        assert!(!headers.contains_key("x-run-id"), "{headers:?}");
        assert_eq!(answer.text().await.unwrap(), "");
        let head = match nothing_to_read {
            204 => vec![("cache-control", "no-store")],
            _ => of_a_stream(content_type, protocol).to_vec(),
        };
        assert_eq!((status, headers_of(&headers)), (*nothing_to_read, head), "{dialect}");
    }
}

#[tokio::test]
async fn an_error_before_the_stream_starts_is_a_json_answer_in_every_dialect() {
    let app = Embedded::start().await;
    let thread = app.client.thread().await;
    for TestedDialect { name: dialect, .. } in dialects() {
        let post = |path: &str, body: Value| {
            let request = app.client.http.post(app.client.url(path));
            request.header("x-stream-protocol", dialect).json(&body)
        };
        let own = format!("/qa/chat_streamed/{thread}");
        let refused: [(u16, RequestBuilder); 4] = [
            (400, post(&own, json!({ "content": 5 }))),
            (404, post("/qa/chat_streamed/nobody-made-it", json!({ "content": "hi" }))),
            (409, post(&own, json!({}))),
            (422, post(&own, json!({ "content": "hi", "model": "oracle" }))),
        ];
        for (status, request) in refused {
            let answer = app.client.send(request).await;
            assert_eq!(
                (answer.status, answer.body["error"]["code"].is_string()),
                (status, true),
                "{answer:?}"
            );
            let expected = [("content-type", "application/json"), ("cache-control", "no-store")];
            assert_eq!(headers_of(&answer.headers), expected, "{dialect}");
        }
    }
}

#[tokio::test]
async fn an_unknown_dialect_is_refused_by_the_name_of_the_header_on_sqlite() {
    let app = Embedded::start().await;
    let thread = app.client.thread().await;
    for dialect in ["ui-v0", "v4", "data-v2", "UI-V6", "ui-v5, ui-v6", ""] {
        let answer = app.client.send(asks(&app.client, &thread, dialect)).await;
        assert_eq!(answer.failure(), (400, "bad_request"), "{dialect:?}");
        assert!(answer.message().contains("x-stream-protocol"), "{dialect:?}: {}", answer.message());
        for path in [format!("/qa/chat_streamed/{thread}"), "/qa/chat_streamed?chatId=x".to_owned()] {
            let attach = app.client.http.get(app.client.url(&path)).header("x-stream-protocol", dialect);
            let answer = app.client.send(attach).await;
            assert_eq!(answer.failure(), (400, "bad_request"), "{dialect:?}");
        }
    }
    assert_eq!(app.rows.count("messages").await, 0);
}

#[tokio::test]
async fn the_routes_of_ui_pages_answer_with_the_same_heads() {
    let app = Embedded::start().await;
    let gate = app.scene.gate();
    let (content_type, protocol) = ("text/event-stream", "x-vercel-ai-ui-message-stream");
    for path in ["/qa/chat_streamed/chat-1/stream", "/qa/chat_streamed/chat-1/chat-1/stream"] {
        let attach = || app.client.http.get(app.client.url(path));
        app.scene.answers("Hello.");
        let body = ui_submit("chat-1", &[ui_user(path, "hi")]);
        let posted = app.client.http.post(app.client.url("/qa/chat_streamed")).json(&body);
        let (posted, attached) = (ReceivedStream::of(posted).await, ReceivedStream::of(attach()).await);
        gate.add_permits(2);
        for stream in [posted, attached] {
            assert_eq!(headers_of(stream.response.headers()), of_a_stream(content_type, protocol), "{path}");
            assert!(stream.all().await.contains("Hello."));
        }
        let nothing = attach().send().await.unwrap();
        let expected = (204, vec![("cache-control", "no-store")]);
        assert_eq!((nothing.status().as_u16(), headers_of(nothing.headers())), expected, "{path}");
    }
}

#[tokio::test]
async fn a_page_without_a_protocol_header_gets_the_configured_dialect() {
    let (requested, data) = ("\"type\":\"tool-approval-request\"", "\"type\":\"data-tool-validation\"");
    for (configured, header, headers_of, untold, is_v7) in [
        (UiDialect::V6, None, requested, data, false),
        (UiDialect::V5, None, data, requested, false),
        (UiDialect::V7, None, requested, data, true),
        (UiDialect::V5, Some("ui-v6"), requested, data, false),
        (UiDialect::V7, Some("ui-v6"), requested, data, false),
        (UiDialect::V6, Some("ui-v7"), requested, data, true),
        (UiDialect::V6, Some("ui-v5"), data, requested, false),
    ] {
        let app = Embedded::with(|config| config.stream.default_ui_dialect = configured).await;
        let gate = app.scene.gate();
        app.scene.calls(&[call("a", "pay", &json!({ "note": "1" }))]);
        let with_header = |request: RequestBuilder| match header {
            Some(dialect) => request.header("x-stream-protocol", dialect),
            None => request,
        };
        let body = ui_submit("chat-1", &[ui_user("u-1", "pay")]);
        let posted = with_header(app.client.http.post(app.client.url("/qa/chat_streamed")).json(&body));
        let posted = ReceivedStream::of(posted).await;
        let attach = app.client.http.get(app.client.url("/qa/chat_streamed/chat-1/stream"));
        let attached = ReceivedStream::of(with_header(attach)).await;
        gate.add_permits(4);
        for stream in [posted, attached] {
            let raw = stream.all().await;
            assert!(raw.contains(headers_of) && !raw.contains(untold), "{configured:?}, {header:?}: {raw}");
        }
        // Only the chunk about a decision distinguishes ui-v7.
        let held = app.client.get("/approvals").await.body["results"][0]["tool_call_id"].clone();
        app.client.approve(held.as_str().unwrap()).await;
        gate.add_permits(2);
        app.scene.answers("Paid.");
        let continued = ui_submit("chat-1", &[ui_assistant("a-1", &json!([]))]);
        let continued = app.client.http.post(app.client.url("/qa/chat_streamed")).json(&continued);
        let raw = ReceivedStream::of(with_header(continued)).await.all().await;
        assert!(raw.contains("Paid."), "{configured:?}, {header:?}: {raw}");
        assert_eq!(
            raw.contains("\"type\":\"tool-approval-response\""),
            is_v7,
            "{configured:?}, {header:?}: {raw}"
        );
        // The server recognizes pages of AI SDK 4 by their bodies.
        gate.add_permits(2);
        app.scene.answers("Hello.");
        let turn = app.client.turn_by_id(&json!({ "id": "chat-2", "content": "hi" })).await;
        assert_eq!((turn.codes().as_str(), turn.text().as_str()), ("f0ed", "Hello."));
    }
}

#[tokio::test]
async fn the_first_hold_for_a_page_that_names_no_dialect_is_logged_with_the_header_and_the_key_on_sqlite() {
    for (configured, header, expected) in
        [("ui-v6", None, 1), ("ui-v6", Some("ui-v6"), 0), ("ui-v5", None, 0), ("ui-v7", None, 0)]
    {
        let settings = [
            ("HOLDPOINT_LOG__LEVEL", "warn"),
            ("HOLDPOINT_LOG__FORMAT", "json"),
            ("HOLDPOINT_STREAM__DEFAULT_UI_DIALECT", configured),
        ];
        let watched = WatchedServer::start(&settings).await;
        let ann = watched.server.client.as_user("acme", "ann", &[]);
        for chat in ["chat-1", "chat-2"] {
            let body = ui_submit(chat, &[ui_user("u-1", "call pay 1")]);
            let request = ann.http.post(ann.url("/qa/chat_streamed")).json(&body);
            let request = header.iter().fold(request, |request, it| request.header("x-stream-protocol", *it));
            let raw = ReceivedStream::of(request).await.all().await;
            assert!(raw.contains("data-tool-hold"), "{raw}");
        }
        let output = watched.finish();
        let lines: Vec<&str> = output.lines().filter(|line| line.contains("x-stream-protocol")).collect();
        assert_eq!(lines.len(), expected, "{configured}, {header:?}: {output}");
        for line in lines {
            assert!(line.contains("\"WARN\"") && line.contains("stream.default_ui_dialect"), "{line}");
        }
    }
}
