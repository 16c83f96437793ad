//! Rules for every request: one shape of errors, a request id, limits on bodies, and nothing for other users.

use bytes::Bytes;
use futures::stream;
use holdpoint_testkit::{Answer, Embedded, JsonFields};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Asserts that the answer is an error of this kind in the common shape, with a request id and no internal
/// detail.
fn assert_error(answer: &Answer, status: u16, code: &str, what: &str) {
    assert_eq!(answer.failure(), (status, code), "{what}: {}", answer.body);
    let fields = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(fields(&answer.body), ["error"], "{what}");
    let mut detail = fields(&answer.body["error"]);
    detail.retain(|field| field != "details");
    assert_eq!(detail, ["code", "message"], "{what}");
    assert_eq!(answer.header("content-type"), Some("application/json"), "{what}");
    assert_minted(answer, what);
    let text = answer.body.to_string().to_lowercase();
    for internal in ["sql", "poem", "serde", "src/", ".rs", "panic", "threads\""] {
        assert!(!text.contains(internal), "{what}: {internal} in {text}");
    }
}

/// Asserts that the server generated the request id of the answer.
fn assert_minted(answer: &Answer, what: &str) {
    let id = answer.header("x-request-id").unwrap_or_else(|| panic!("{what}: no x-request-id"));
    let uuid =
        id.len() == 36 && id.chars().all(|c| c == '-' || c.is_ascii_digit() || ('a'..='f').contains(&c));
    assert!(uuid, "{what}: {id}");
}

/// A body whose length is not declared.
fn chunked(length: usize) -> reqwest::Body {
    let piece = |n: usize| Ok::<_, std::io::Error>(Bytes::from(" ".repeat(n)));
    reqwest::Body::wrap_stream(stream::iter([piece(length / 2), piece(length - length / 2)]))
}

#[tokio::test]
async fn every_failure_has_one_shape() {
    let app = Embedded::start().await;
    let thread = app.client.thread().await;
    let unknown = "01890a5d-ac96-774b-bcce-b302099a8057";
    for prefix in ["", "/api"] {
        for path in ["/nowhere", "/threads/", "/qa", "/tools/a/b", "/tools/nope", "/threads/x", "//"] {
            let path = format!("{prefix}{path}");
            assert_error(&app.client.get(&path).await, 404, "not_found", &path);
        }
        let unknown = format!("{prefix}/tool_calls/{unknown}");
        assert_error(&app.client.get(&unknown).await, 404, "not_found", &unknown);
        for (method, path) in [
            (Method::PUT, "/threads".to_owned()),
            (Method::DELETE, "/threads".to_owned()),
            (Method::POST, format!("/threads/{thread}")),
            (Method::GET, "/qa/validate_tool".to_owned()),
            (Method::POST, "/tools".to_owned()),
            (Method::PATCH, format!("/threads/{thread}/messages")),
        ] {
            let path = format!("{prefix}{path}");
            let request = app.client.http.request(method.clone(), app.client.url(&path));
            let answer = app.client.send(request).await;
            assert_error(&answer, 405, "method_not_allowed", &format!("{method} {path}"));
        }
        let path = format!("{prefix}/threads/%ff");
        assert_error(&app.client.get(&path).await, 400, "bad_request", &path);
        for query in ["page_size=x", "page_size=0", "cursor=x"] {
            let path = format!("{prefix}/threads?{query}");
            assert_error(&app.client.get(&path).await, 400, "bad_request", &path);
        }
        for path in ["/threads", "/qa/validate_tool", "/qa/chat_streamed"] {
            let path = format!("{prefix}{path}");
            let plain = app.client.http.post(app.client.url(&path)).body("{}");
            assert_error(&app.client.send(plain).await, 415, "unsupported_media_type", &path);
            assert_error(&app.client.post_raw(&path, "{").await, 400, "bad_request", &path);
        }
    }
}

#[tokio::test]
async fn an_internal_error_exposes_no_internal_detail() {
    let app = Embedded::start().await;
    let thread = app.client.thread().await;
    app.rows.change("ALTER TABLE threads RENAME TO hidden").await.unwrap();
    for path in ["/threads".to_owned(), format!("/threads/{thread}"), format!("/threads/{thread}/messages")] {
        let answer = app.client.get(&path).await;
        assert_error(&answer, 500, "internal", &path);
        assert_eq!(answer.message(), "The server failed.");
    }
    let body = json!({ "content": "hi" });
    let answer = app.client.post(&format!("/qa/chat_streamed/{thread}"), &body).await;
    assert_error(&answer, 500, "internal", "chat");
}

#[tokio::test]
async fn the_body_limit_applies_with_and_without_a_declared_length() {
    let app = Embedded::with(|config| {
        config.limits.body_bytes = 1000;
        config.limits.chat_body_bytes = 2000;
    })
    .await;
    let thread = app.client.thread().await;
    for prefix in ["", "/api"] {
        for (path, max) in [
            ("/qa/validate_tool".to_owned(), 1000),
            ("/threads".to_owned(), 1000),
            ("/qa/chat_streamed".to_owned(), 2000),
            (format!("/qa/chat_streamed/{thread}"), 2000),
        ] {
            let path = format!("{prefix}{path}");
            let over = format!("The body is longer than {max} bytes.");
            for body in [" ".repeat(max + 1).into(), chunked(max + 1)] {
                let answer = app.client.post_raw(&path, body).await;
                assert_error(&answer, 413, "body_too_large", &path);
                assert_eq!(answer.message(), over);
            }
            // A body within the limit is read, and is no JSON.
            for body in [" ".repeat(max).into(), chunked(max)] {
                assert_error(&app.client.post_raw(&path, body).await, 400, "bad_request", &path);
            }
        }
    }
}

#[tokio::test]
async fn a_client_that_sends_an_oversized_body_before_reading_receives_the_error() {
    let app = Embedded::start().await;
    let address = app.client.base.strip_prefix("http://").unwrap().to_owned();
    let head = |length: &str| {
        format!("POST /qa/validate_tool HTTP/1.1\r\nhost: {address}\r\n{length}\r\nconnection: close\r\n\r\n")
    };
    let body = vec![b' '; 4 << 20];
    let declared = [head(&format!("content-length: {}", body.len())).as_bytes(), &body].concat();
    let size = format!("{:x}\r\n", body.len());
    let chunked =
        [head("transfer-encoding: chunked").as_bytes(), size.as_bytes(), &body, b"\r\n0\r\n\r\n"].concat();
    for (what, request) in [("declared", declared), ("chunked", chunked)] {
        let mut socket = TcpStream::connect(&address).await.unwrap();
        socket.write_all(&request).await.unwrap_or_else(|error| panic!("{what}: {error}"));
        let mut answer = String::new();
        socket.read_to_string(&mut answer).await.unwrap_or_else(|error| panic!("{what}: {error}"));
        assert!(answer.starts_with("HTTP/1.1 413 "), "{what}: {answer}");
        assert!(answer.contains("\"body_too_large\""), "{what}: {answer}");
    }
}

#[tokio::test]
async fn every_response_has_a_request_id_and_a_valid_given_id_is_kept() {
    let app = Embedded::start().await;
    let get = |path: &str, id: &[u8]| {
        let id = reqwest::header::HeaderValue::from_bytes(id).unwrap();
        app.client.http.get(app.client.url(path)).header("x-request-id", id)
    };
    let paths = ["/threads", "/nowhere", "/healthz", "/readyz", "/openapi.json", "/threads?page_size=0"];
    for path in paths {
        for id in ["a", "Trace-7_x", &"x".repeat(64)] {
            let answer = app.client.send(get(path, id.as_bytes())).await;
            assert_eq!(answer.header("x-request-id"), Some(id), "{path}");
        }
        let long = "x".repeat(65);
        let harmful: [&[u8]; 8] =
            [b"", b"a b", b"a\"b", b"a\tb", b"<script>", b"\xc3\xa9", b"../x", long.as_bytes()];
        for id in harmful {
            let answer = app.client.send(get(path, id)).await;
            assert_minted(&answer, path);
        }
        assert_minted(&app.client.get(path).await, path);
    }
    let one = app.client.get("/threads").await;
    assert_ne!(one.header("x-request-id"), app.client.get("/threads").await.header("x-request-id"));
}

#[tokio::test]
async fn an_error_in_a_stream_contains_the_request_id() {
    let app = Embedded::start().await;
    let thread = app.client.thread().await;
    let request = app.client.http.post(app.client.url(&format!("/qa/chat_streamed/{thread}")));
    let request = request.header("x-request-id", "trace-7").json(&json!({ "content": "hi" }));
    let turn = app.client.read(request).await;
    assert_eq!(turn.headers["x-request-id"], "trace-7");
    let reported = turn.error();
    assert!(
        reported.starts_with("upstream_error: ") && reported.ends_with("(request trace-7)"),
        "{reported}"
    );
}

#[tokio::test]
async fn the_routes_are_under_api_as_well() {
    let app = Embedded::start().await;
    let made = app.client.post("/api/threads", &json!({ "title": "x" })).await;
    made.has_status(201);
    let thread = made.body.text("thread_id");
    app.scene.calls(&[holdpoint_testkit::call("a", "pay", &json!({ "note": "1" }))]);
    let turn = app.client.http.post(app.client.url(&format!("/api/qa/chat_streamed/{thread}")));
    let turn = app.client.read(turn.json(&json!({ "content": "pay" }))).await;
    let id = turn.pending()[0].clone();
    let body = json!({ "toolCallId": id, "isValidated": true });
    assert_eq!(app.client.post("/api/qa/validate_tool", &body).await.body["state"], "succeeded");
    for path in [
        "/threads".to_owned(),
        format!("/threads/{thread}"),
        format!("/threads/{thread}/messages?format=v4"),
        format!("/tool_calls/{id}"),
        "/tools".to_owned(),
        "/tools/pay".to_owned(),
        "/qa/models".to_owned(),
    ] {
        let (root, api) = (app.client.get(&path).await, app.client.get(&format!("/api{path}")).await);
        assert_eq!((root.status, api.status), (200, 200), "{path}");
        assert_eq!(root.body, api.body, "{path}");
    }
}

#[tokio::test]
async fn operator_routes_are_only_at_the_root() {
    let app = Embedded::start().await;
    assert_minted(&app.client.get("/").await, "/");
    for path in ["/healthz", "/readyz", "/openapi.json", "/docs", "/"] {
        assert_eq!(app.client.get(path).await.status, 200, "{path}");
    }
    for path in ["/api/healthz", "/api/readyz", "/api/openapi.json", "/api/docs", "/api/", "/api"] {
        assert_error(&app.client.get(path).await, 404, "not_found", path);
    }
    for path in ["/healthz", "/readyz", "/openapi.json"] {
        let answer = app.client.post(path, &json!({})).await;
        assert_error(&answer, 405, "method_not_allowed", path);
    }
}

#[tokio::test]
async fn the_documentation_can_be_disabled() {
    let app = Embedded::with(|config| {
        config.server.docs = Some(false);
        config.server.console = Some(false);
    })
    .await;
    for path in ["/docs", "/docs/", "/"] {
        assert_error(&app.client.get(path).await, 404, "not_found", path);
    }
    app.client.get("/openapi.json").await.has_status(200);
}

#[tokio::test]
async fn foreign_hosts_and_origins_are_refused_on_every_route() {
    let app = Embedded::start().await;
    let with = |method: &Method, path: &str, header: &str, value: &str| {
        let request = app.client.http.request(method.clone(), app.client.url(path));
        app.client.send(request.header(header, value.to_owned()))
    };
    for (method, path) in [
        (Method::GET, "/threads"),
        (Method::POST, "/threads"),
        (Method::POST, "/qa/validate_tool"),
        (Method::POST, "/qa/chat_streamed"),
        (Method::GET, "/api/threads"),
        (Method::GET, "/openapi.json"),
        (Method::GET, "/docs"),
        (Method::GET, "/"),
        (Method::GET, "/nowhere"),
    ] {
        for host in [
            "evil.example",
            "localhost.evil.example",
            "10.0.0.1:80",
            "0.0.0.0",
            "127.0.0.1.evil.example",
            "localhost:80@evil.example",
            "[::1].evil.example",
        ] {
            assert_error(&with(&method, path, "host", host).await, 403, "forbidden", host);
        }
        for origin in [
            "https://evil.example",
            "http://localhost:80@evil.example",
            "http://localhost.evil.example:80",
            "null",
            "",
            "file://",
            "http://10.0.0.1",
        ] {
            assert_error(&with(&method, path, "origin", origin).await, 403, "forbidden", origin);
        }
    }
    assert_eq!(app.rows.count("threads").await, 0);
    for host in ["localhost", "LOCALHOST:1", "127.0.0.1", "127.0.0.1:1", "[::1]:1", "[::1]"] {
        assert_eq!(with(&Method::GET, "/threads", "host", host).await.status, 200, "{host}");
    }
    for origin in ["http://localhost:3000", "http://127.0.0.1", "https://[::1]:3000"] {
        assert_eq!(with(&Method::GET, "/threads", "origin", origin).await.status, 200, "{origin}");
    }
}

#[tokio::test]
async fn tools_and_models_are_listed() {
    let app = Embedded::start().await;
    let tools = app.client.get("/tools").await.body;
    let names: Vec<&Value> = tools.list("results").iter().map(|tool| &tool["tool_name"]).collect();
    assert_eq!(
        names,
        ["break", "dawdle", "look", "mumble", "pay", "refuse", "restock", "tidy", "wait_for_me"]
    );
    let pay = app.client.get("/tools/pay").await;
    let schema = &pay.body["input_schema"];
    let expected = json!({ "tool_name": "pay", "description": "A probe.", "hil": true, "idempotent": false,
                           "risk_level": "high", "preview": false, "input_schema": schema, "can_accept": false });
    assert_eq!((pay.status, &pay.body), (200, &expected));
    assert_eq!((&schema["type"], &schema["required"]), (&json!("object"), &json!(["note"])));
    assert_eq!(schema["additionalProperties"], false);
    assert_eq!(app.client.get("/tools/look").await.body["hil"], false);
    assert_eq!(tools["results"][4], pay.body);
    for name in ["PAY", "steal", "pay%20"] {
        assert_error(&app.client.get(&format!("/tools/{name}")).await, 404, "not_found", name);
    }
    let models = app.client.get("/qa/models").await;
    let expected = json!({ "results": [{ "id": "scene", "provider": "test", "default": true }] });
    assert_eq!((models.status, models.body), (200, expected));
}
