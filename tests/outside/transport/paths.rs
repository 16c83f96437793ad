//! Paths and methods that try to be read as others, and the security headers of every response.

use super::RawConnection;
use holdpoint_testkit::{Embedded, call, token};
use reqwest::Method;
use serde_json::json;

#[tokio::test]
async fn e14_a_path_is_matched_literally_on_sqlite() {
    for jwt in [false, true] {
        let app = Embedded::with(|config| {
            if jwt {
                token::with_tokens(config)
            }
        })
        .await;
        let id = "01890a5d-ac96-774b-bcce-b302099a8057";
        let nowhere = if jwt { (401, "unauthenticated") } else { (404, "not_found") };
        for path in [
            "//threads".to_owned(),
            "//qa/validate_tool".to_owned(),
            "/qa//validate_tool".to_owned(),
            "/qa/validate_tool/".to_owned(),
            "/%71a/validate_tool".to_owned(),
            "/qa/%2e%2e/threads".to_owned(),
            "/qa/../threads".to_owned(),
            "/healthz/../threads".to_owned(),
            "/docs/../threads".to_owned(),
            "/docs/%2e%2e/threads".to_owned(),
            "/healthz/".to_owned(),
            "/healthz/threads".to_owned(),
            "/THREADS".to_owned(),
            "/api/api/threads".to_owned(),
            "/api/healthz".to_owned(),
            "/threads;x=y".to_owned(),
            "/threads%00".to_owned(),
            "/threads%2f".to_owned(),
            format!("/tool_calls/{id}/"),
            format!("/%61pi/tool_calls/{id}"),
        ] {
            for method in ["GET", "POST"] {
                let mut other_user = RawConnection::to(&app.client).await;
                let lines = ["content-type: application/json", "content-length: 2"];
                other_user.writes(other_user.head(&format!("{method} {path}"), &lines)).await;
                other_user.writes("{}").await;
                let reply = other_user.answer().await;
                let found = (reply.status, reply.code());
                assert_eq!((found.0, found.1.as_str()), nowhere, "{method} {path}, jwt {jwt}");
            }
        }
        assert_eq!(app.rows.count("threads").await, 0);
    }
}

#[tokio::test]
async fn e14_a_method_cannot_be_overridden() {
    let app = Embedded::start().await;
    let (thread, id) = app.held("pay", "10").await;
    app.client.approve(&id).await;
    // The thread has an answer that the model has not read, so attaching would resume the turn.
    let chat = format!("/qa/chat_streamed/{thread}");
    for method in ["HEAD", "OPTIONS", "TRACE", "PUT", "PATCH", "DELETE", "CONNECT", "BREW"] {
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        for path in [chat.as_str(), &format!("/api{chat}"), "/qa/validate_tool", "/qa/chat_streamed?chatId=x"]
        {
            let mut other_user = RawConnection::to(&app.client).await;
            other_user.writes(other_user.head(&format!("{method} {path}"), &["connection: close"])).await;
            let received = other_user.receives_all().await;
            assert!(received.starts_with("HTTP/1.1 405 "), "{method} {path}: {received}");
        }
    }
    // CONNECT asks for a tunnel to another server, which is no resource of this server.
    let mut other_user = RawConnection::to(&app.client).await;
    other_user.writes(other_user.head("CONNECT localhost:80", &["connection: close"])).await;
    let received = other_user.receives_all().await;
    assert!(received.starts_with("HTTP/1.1 404 "), "{received}");
    for name in ["x-http-method-override", "x-http-method", "x-method-override"] {
        let request = app.client.http.get(app.client.url("/threads")).header(name, "POST");
        assert_eq!(app.client.send(request).await.status, 200, "{name}");
        let request =
            app.client.http.post(app.client.url(&format!("/threads/{thread}"))).header(name, "DELETE");
        assert_eq!(app.client.send(request).await.status, 405, "{name}");
    }
    assert_eq!((app.rows.count("threads").await, app.scene.requests().len()), (1, 1));
    app.scene.answers("Paid.");
    assert_eq!(app.client.resume(&thread).await.text(), "Paid.", "the turn could still be continued");
}

#[tokio::test]
async fn e13_every_response_has_security_headers_on_sqlite() {
    let app = Embedded::with(|config| config.limits.requests_per_minute = Some(6)).await;
    let thread = app.client.thread().await;
    app.scene.calls(&[call("a", "pay", &json!({ "note": "1" }))]);
    let refused = app.client.http.get(app.client.url("/threads")).header("host", "evil.example");
    let answers = [
        (200, app.client.get("/openapi.json").await),
        (200, app.client.get("/docs").await),
        (200, app.client.get("/healthz").await),
        (200, app.client.get("/threads").await),
        (404, app.client.get("/nowhere").await),
        (405, app.client.post("/tools", &json!({})).await),
        (400, app.client.post_raw("/threads", "{").await),
        (403, app.client.send(refused).await),
        (200, app.client.post(&format!("/qa/chat_streamed/{thread}"), &json!({ "content": "pay" })).await),
        (429, app.client.get("/threads").await),
    ];
    for (status, answer) in &answers {
        assert_eq!(answer.status, *status, "{answer:?}");
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"), "{answer:?}");
        assert_eq!(answer.header("x-frame-options"), Some("DENY"), "{answer:?}");
        assert_eq!(answer.header("referrer-policy"), Some("no-referrer"), "{answer:?}");
        assert_eq!(answer.header("server"), None, "{answer:?}");
        let policies = answer.headers.get_all("content-security-policy").iter().count();
        assert_eq!(policies, 1, "{answer:?}");
        let policy = answer.header("content-security-policy").unwrap();
        assert!(policy.starts_with("default-src 'none'"), "{policy}");
        assert!(policy.contains("frame-ancestors 'none'"), "{policy}");
        // Only the documentation page may run a script.
        let is_page = answer.header("content-type").is_some_and(|found| found.starts_with("text/html"));
        assert_eq!(policy.contains("script-src 'unsafe-inline'"), is_page, "{answer:?}");
    }
}
