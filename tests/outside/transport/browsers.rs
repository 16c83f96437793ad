//! Pages in browsers: which origins may call, which CORS headers they get, and which requests they may not
//! cause.

use super::RawConnection;
use holdpoint::app::App;
use holdpoint::config::Config;
use holdpoint::handlers::Deferred;
use holdpoint_testkit::dialects::protocol_headers;
use holdpoint_testkit::{Answer, Embedded, Scene, WatchedServer, token};
use reqwest::Method;
use reqwest::header::HeaderValue;
use serde_json::json;
use std::sync::Arc;

const PAGE: &str = "https://app.example";
/// The headers that a page may read, beside those that announce the protocols of streams.
const READ: &str =
    "idempotent-replayed, retry-after, www-authenticate, x-left-out, x-request-id, x-run-id, x-thread-id";

async fn with_page(jwt: bool) -> Embedded {
    Embedded::with(|config| {
        config.server.cors_origins = vec![PAGE.to_owned(), "http://localhost:3000".to_owned()];
        if jwt {
            token::with_tokens(config);
        }
    })
    .await
}

/// The CORS headers of a response.
fn cors_headers(answer: &Answer) -> Vec<(String, String)> {
    let of_cors = |name: &str| name.starts_with("access-control-");
    let headers = answer.headers.iter().filter(|(name, _)| of_cors(name.as_str()));
    headers.map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned())).collect()
}

fn varies_by_origin(answer: &Answer) -> bool {
    let all = answer.headers.get_all("vary").iter();
    all.flat_map(|value| value.to_str().unwrap().split(','))
        .any(|name| name.trim().eq_ignore_ascii_case("origin"))
}

#[tokio::test]
async fn e12_a_preflight_lists_the_allowed_methods_and_headers_on_sqlite() {
    for jwt in [false, true] {
        let app = with_page(jwt).await;
        let preflight = |origin: &str, path: &str| {
            let request = app.client.http.request(Method::OPTIONS, app.client.url(path));
            let request = request.header("origin", origin).header("access-control-request-method", "POST");
            app.client.send(request.header("access-control-request-headers", "authorization,content-type"))
        };
        for path in ["/qa/chat_streamed", "/qa/validate_tool", "/api/threads", "/threads/x"] {
            let answer = preflight(PAGE, path).await;
            assert_eq!(answer.status, 204, "{path}");
            assert_eq!(answer.header("access-control-allow-origin"), Some(PAGE), "{path}");
            let methods = answer.header("access-control-allow-methods").unwrap();
            for method in ["GET", "POST", "PUT", "PATCH", "DELETE"] {
                assert!(methods.split(", ").any(|allowed| allowed == method), "{methods}");
            }
            let headers = answer.header("access-control-allow-headers").unwrap();
            for header in [
                "authorization",
                "content-type",
                "idempotency-key",
                "x-stream-protocol",
                "x-request-id",
                "user-agent",
            ] {
                assert!(headers.split(", ").any(|allowed| allowed == header), "{headers}");
            }
            assert_eq!(answer.header("access-control-max-age"), Some("600"));
            assert_eq!(answer.header("access-control-allow-credentials"), None, "nothing rides on cookies");
            assert!(varies_by_origin(&answer) && answer.header("x-request-id").is_some(), "{answer:?}");

            let other_user = preflight("https://evil.example", path).await;
            assert_eq!(
                (other_user.status, cors_headers(&other_user)),
                (if jwt { 401 } else { 403 }, vec![]),
                "{path}"
            );
            assert!(varies_by_origin(&other_user), "{path}");
        }
        assert_eq!(app.rows.count("threads").await, 0);
    }
}

#[tokio::test]
async fn a_refused_preflight_is_logged_with_its_origin_and_the_key_on_sqlite() {
    let settings = [
        ("HOLDPOINT_LOG__LEVEL", "warn"),
        ("HOLDPOINT_LOG__FORMAT", "json"),
        ("HOLDPOINT_SERVER__CORS_ORIGINS", PAGE),
    ];
    let watched = WatchedServer::start(&settings).await;
    let client = &watched.server.client;
    let from = |method: Method, origin: &str| {
        let request = client.http.request(method, client.url("/qa/chat_streamed")).header("origin", origin);
        client.send(request.header("access-control-request-method", "POST"))
    };
    from(Method::OPTIONS, PAGE).await.has_status(204);
    let other_user = from(Method::OPTIONS, "http://localhost:5106").await;
    from(Method::GET, "http://localhost:5107").await;
    let output = watched.finish();
    let lines = output.lines().filter(|line| line.contains("server.cors_origins"));
    let lines: Vec<serde_json::Value> = lines.map(|line| serde_json::from_str(line).unwrap()).collect();
    let [line] = &lines[..] else { panic!("{output}") };
    assert_eq!((&line["level"], &line["origin"]), (&json!("WARN"), &json!("http://localhost:5106")));
    assert_eq!(line["request_id"].as_str(), other_user.header("x-request-id"));
}

#[tokio::test]
async fn e12_an_allowed_page_can_read_every_response_and_failure_on_sqlite() {
    let app = with_page(true).await;
    let page = app.client.as_user("acme", "ada", &[]);
    let from = |request: reqwest::RequestBuilder| page.send(request.header("origin", PAGE));
    let long = vec![b' '; 300 << 10];
    let json = |path: &str, body: Vec<u8>| {
        page.http.post(page.url(path)).header("content-type", "application/json").body(body)
    };
    let answers = [
        (200, from(page.http.get(page.url("/threads"))).await),
        (201, from(json("/threads", b"{}".to_vec())).await),
        (400, from(json("/threads", b"{".to_vec())).await),
        (404, from(page.http.get(page.url("/threads/x"))).await),
        (404, from(page.http.get(page.url("/nowhere"))).await),
        (405, from(page.http.put(page.url("/threads"))).await),
        (413, from(json("/threads", long)).await),
        (415, from(page.http.post(page.url("/threads")).body("{}")).await),
        (401, app.client.send(app.client.http.get(app.client.url("/threads")).header("origin", PAGE)).await),
    ];
    for (status, answer) in &answers {
        assert_eq!(answer.status, *status, "{answer:?}");
        let read = format!("{READ}, {}", protocol_headers().join(", "));
        let expected =
            [("access-control-allow-origin", PAGE), ("access-control-expose-headers", read.as_str())];
        let mut cors_headers = cors_headers(answer);
        cors_headers.sort();
        assert_eq!(
            cors_headers,
            expected.map(|(name, value)| (name.to_owned(), value.to_owned())),
            "{answer:?}"
        );
        assert!(varies_by_origin(answer), "{answer:?}");
    }
    app.rows.change("ALTER TABLE threads RENAME TO hidden").await.unwrap();
    let broken = from(page.http.get(page.url("/threads"))).await;
    assert_eq!((broken.status, broken.header("access-control-allow-origin")), (500, Some(PAGE)));
    // Without an origin, the response has no CORS headers.
    let plain = page.get("/nowhere").await;
    assert_eq!((plain.status, cors_headers(&plain), varies_by_origin(&plain)), (404, vec![], true));
}

#[tokio::test]
async fn e12_other_origins_get_no_cors_headers_on_sqlite() {
    for jwt in [false, true] {
        let app = with_page(jwt).await;
        let page = if jwt { app.client.as_user("acme", "ada", &[]) } else { app.client.clone() };
        let others: [&[u8]; 12] = [
            b"https://evil.example",
            b"https://app.example.evil.example",
            b"https://evil-app.example",
            b"https://app.example:443",
            b"https://app.example:8443",
            b"http://app.example",
            b"HTTPS://APP.EXAMPLE",
            b"https://app.example/",
            b"https://app.example, https://evil.example",
            b"null",
            b"*",
            b"",
        ];
        for origin in others {
            let origin_text = String::from_utf8_lossy(origin).into_owned();
            let request = page.http.get(page.url("/threads"));
            let answer = page.send(request.header("origin", HeaderValue::from_bytes(origin).unwrap())).await;
            // Without tokens, a page of a foreign origin would act as the operator, so its request is
            // refused.
            assert_eq!(answer.status, if jwt { 200 } else { 403 }, "{origin_text}");
            assert_eq!(cors_headers(&answer), [], "{origin_text}");
            assert!(varies_by_origin(&answer), "{origin_text}");
        }
        let twice = page
            .http
            .get(page.url("/threads"))
            .header("origin", PAGE)
            .header("origin", "https://evil.example");
        let twice = page.send(twice).await;
        assert_eq!((twice.status, cors_headers(&twice)), (if jwt { 200 } else { 403 }, vec![]));
    }
}

#[tokio::test]
async fn e11_an_origin_that_is_not_text_breaks_nothing_on_sqlite() {
    for jwt in [false, true] {
        let app = with_page(jwt).await;
        for (method, more) in [("GET", ""), ("OPTIONS", "access-control-request-method: \u{ff}\r\n")] {
            for origin in [&b"\xff"[..], b"https://\xe9.example", b"\x80\x81"] {
                let mut other_user = RawConnection::to(&app.client).await;
                let head =
                    format!("{method} /threads HTTP/1.1\r\nhost: {}\r\n{more}origin: ", other_user.host);
                other_user.writes([head.as_bytes(), origin, b"\r\n\r\n"].concat()).await;
                let reply = other_user.answer().await;
                assert_eq!(reply.status, if jwt { 401 } else { 403 }, "{method} {origin:?}: {}", reply.body);
                assert!(!reply.head.contains("access-control-"), "{}", reply.head);
            }
        }
    }
}

#[tokio::test]
async fn without_configured_origins_responses_have_no_cors_headers_on_sqlite() {
    let app = Embedded::start().await;
    let own = app.client.http.post(app.client.url("/threads")).header("origin", app.client.base.clone());
    let own = app.client.send(own.header("sec-fetch-site", "same-origin")).await;
    assert_eq!(
        (own.status, cors_headers(&own), varies_by_origin(&own)),
        (201, vec![], false),
        "its own pages post"
    );
}

#[tokio::test]
async fn configured_origins_and_loopback_origins_are_allowed_on_sqlite() {
    let app = with_page(false).await;
    for (origin, site, status) in [
        (PAGE, "cross-site", 201),
        ("http://localhost:3000", "same-site", 201),
        ("http://127.0.0.1:5173", "cross-site", 201),
        ("https://evil.example", "cross-site", 403),
        ("http://app.example", "cross-site", 403),
    ] {
        let request = app.client.http.post(app.client.url("/threads"));
        let answer = app.client.send(request.header("origin", origin).header("sec-fetch-site", site)).await;
        assert_eq!(answer.status, status, "{origin}");
    }
    // The `host` check stays independent: an allowed origin does not allow its host name.
    let request = app.client.http.post(app.client.url("/threads")).header("origin", PAGE);
    app.client.send(request.header("host", "app.example")).await.has_status(403);
    assert_eq!(app.rows.count("threads").await, 3);
}

#[tokio::test]
async fn e12_an_origin_that_no_browser_sends_is_refused_in_the_configuration() {
    let build = async |origin: &str| {
        let mut config = Config::default();
        config.database.url = "sqlite::memory:".into();
        config.database.max_connections = 1;
        config.server.cors_origins = vec![PAGE.to_owned(), origin.to_owned()];
        App::builder(config)
            .model(Arc::new(Scene::new()))
            .handler(Deferred)
            .build()
            .await
            .map_err(|error| error.to_string())
    };
    for origin in [
        "",
        "*",
        "null",
        "app.example",
        "//app.example",
        "https://",
        "https://*.example",
        "https://app.example/",
        "https://app.example/x",
        "https://app.example?",
        "https://app.example#",
        "https://ada@app.example",
        "https://app.example:",
        "https://app.example:0",
        "https://app.example:443",
        "http://app.example:80",
        "https://app.example:65536",
        "https://app.example:08443",
        "https://App.example",
        "HTTPS://app.example",
        "https://app.example https://b.example",
        " https://app.example",
        "https://[::1",
        "https://[::1]x",
        "https://[0:0:0:0:0:0:0:1]",
        "https://bücher.example",
        "1https://app.example",
    ] {
        let refused = build(origin).await.unwrap_err();
        assert!(refused.contains("server.cors_origins: expected origins"), "{origin:?}: {refused}");
        assert!(refused.contains(&format!("found {origin:?}")), "{origin:?}: {refused}");
    }
    for origin in [
        "http://localhost",
        "http://localhost:3000",
        "http://127.0.0.1",
        "https://[::1]:8443",
        "http://[2001:db8::1]",
        "https://app.example:80",
        "https://xn--bcher-kva.example",
        "chrome-extension://abcdefghijklmnop",
        "capacitor://localhost",
        "tauri://localhost",
    ] {
        assert!(build(origin).await.is_ok(), "{origin}");
    }
}

/// A GET may start a turn, and browsers send images, scripts and links as GETs without an origin.
#[tokio::test]
async fn a_page_of_another_site_cannot_start_anything_by_an_image_or_a_link() {
    let app = Embedded::start().await;
    let (thread, id) = app.held("pay", "10").await;
    app.client.approve(&id).await;
    let get = |path: &str, site: &str, mode: &str| {
        let request = app.client.http.get(app.client.url(path));
        app.client
            .send(request.header("sec-fetch-site", site.to_owned()).header("sec-fetch-mode", mode.to_owned()))
    };
    let chat = format!("/qa/chat_streamed/{thread}");
    for site in ["cross-site", "same-site", "", "CROSS-SITE", "none, cross-site"] {
        for mode in ["no-cors", "navigate", "cors"] {
            for path in [chat.as_str(), "/qa/chat_streamed?chatId=x", "/threads", "/openapi.json", "/docs/x"]
            {
                let answer = get(path, site, mode).await;
                assert_eq!(answer.failure(), (403, "forbidden"), "{path} {site} {mode}");
                assert!(answer.message().starts_with("Sec-Fetch-Site: "), "{}", answer.message());
            }
        }
        assert_eq!(get("/docs", site, "no-cors").await.status, 403, "{site}");
        assert_eq!(get("/docs", site, "navigate").await.status, 200, "a link to the documentation");
    }
    assert_eq!(app.scene.requests().len(), 1, "no turn was resumed");
    for (site, mode) in [("same-origin", "cors"), ("none", "navigate")] {
        assert_eq!(get("/threads", site, mode).await.status, 200, "{site}");
    }
    app.scene.answers("Paid.");
    assert_eq!(app.client.resume(&thread).await.text(), "Paid.");
}

#[tokio::test]
async fn a_remote_request_through_a_local_proxy_is_not_treated_as_loopback() {
    for jwt in [false, true] {
        let app = with_page(jwt).await;
        let client = if jwt { app.client.as_user("acme", "ada", &[]) } else { app.client.clone() };
        for (name, value, status) in [
            ("x-forwarded-host", "localhost:3000", 200),
            ("x-forwarded-host", "127.0.0.1", 200),
            ("x-forwarded-for", "::1", 200),
            ("x-forwarded-for", "::ffff:127.0.0.1", 200),
            ("x-forwarded-for", "127.0.0.1, ::1", 200),
            ("x-forwarded-host", "evil.example", 403),
            ("x-forwarded-host", "localhost.evil.example", 403),
            ("x-forwarded-host", "localhost, evil.example", 403),
            ("x-forwarded-for", "192.0.2.7", 403),
            ("x-forwarded-for", "127.0.0.1, 192.0.2.7", 403),
            ("x-forwarded-for", "192.0.2.7, 127.0.0.1", 403),
            ("x-forwarded-for", "2001:db8::1", 403),
            ("x-forwarded-for", "unknown", 403),
            ("x-forwarded-for", "", 403),
            ("forwarded", "for=127.0.0.1", 403),
        ] {
            for page in [None, Some(PAGE)] {
                let mut request = client.http.get(client.url("/threads")).header(name, value);
                if let Some(page) = page {
                    request = request.header("origin", page);
                }
                let answer = client.send(request).await;
                let expected = if jwt { 200 } else { status };
                assert_eq!(answer.status, expected, "{name}: {value}, jwt {jwt}: {answer:?}");
            }
        }
        let twice = client.http.get(client.url("/threads")).header("x-forwarded-for", "::1");
        let twice = client.send(twice.header("x-forwarded-for", "192.0.2.7")).await;
        assert_eq!(twice.status, if jwt { 200 } else { 403 });
    }
}

#[tokio::test]
async fn a_caller_with_a_token_may_come_from_another_site_on_sqlite() {
    let app = with_page(true).await;
    let page = app.client.as_user("acme", "ada", &[]);
    let request = page.http.post(page.url("/threads")).header("sec-fetch-site", "cross-site");
    page.send(request.header("origin", "https://evil.example").json(&json!({}))).await.has_status(201);
}
