//! Only the token selects the caller's rows, and no response is cached for another caller.

use super::assert_unknown;
use holdpoint_testkit::token::with_tokens;
use holdpoint_testkit::{Client, Embedded, JsonFields};
use reqwest::Method;
use serde_json::{Value, json};

async fn listed(client: &Client, path: &str) -> Vec<String> {
    let answer = client.get(path).await;
    assert_eq!(answer.status, 200, "{path}: {:?}", answer.body);
    let results = answer.body.list("results");
    results.iter().map(|thread| thread.text("thread_id").to_owned()).collect()
}

#[tokio::test]
async fn c3_a_list_holds_only_the_callers_rows_whatever_its_parameters() {
    let app = Embedded::with(with_tokens).await;
    let (ann, bob) = (app.client.as_user("acme", "ann", &[]), app.client.as_user("other", "bob", &[]));
    let (first, theirs) = (ann.thread().await, bob.thread().await);
    let (second, newest) = (ann.thread().await, bob.thread().await);
    for query in [
        "tenantId=acme",
        "tenant_id=acme&user_id=ann",
        "userId=ann",
        "user=ann&owner=ann",
        "filter[tenant]=acme",
        "filter=%7B%22tenant%22%3A%22acme%22%7D",
        "session_id=",
        "all=true",
        "admin=1",
    ] {
        let refused = bob.get(&format!("/threads?{query}")).await;
        assert_eq!(refused.failure(), (400, "bad_request"), "{query}");
    }
    assert_eq!(listed(&bob, "/threads").await, [newest.clone(), theirs.clone()]);
    // A cursor is a position in the caller's own list, even if it is the id of a foreign thread.
    assert_eq!(listed(&bob, &format!("/threads?cursor={second}")).await, std::slice::from_ref(&theirs));
    assert_eq!(listed(&bob, &format!("/threads?cursor={first}")).await, Vec::<String>::new());
    assert_eq!(listed(&ann, &format!("/threads?cursor={newest}")).await, [second, first.clone()]);
    for cursor in ["x", "'", "%00", "0", "-1", "%27%20OR%201=1--", "1e3", &"9".repeat(400), "[]", "null"] {
        let answer = bob.get(&format!("/threads?cursor={cursor}")).await;
        assert_eq!(answer.failure(), (400, "bad_request"), "{cursor}");
    }
    app.scene.answers("hello");
    let turn = bob.send_message(&theirs, "hi").await;
    turn.has_status(200);
    for cursor in ["0", "1", "2", "99999", "-1", "-9223372036854775808", "9223372036854775807"] {
        let path = format!("/threads/{theirs}/messages?cursor={cursor}");
        let answer = bob.get(&path).await;
        assert_eq!(answer.status, 200, "{cursor}");
        let of_mine = |message: &Value| message["thread_id"] == theirs.as_str();
        assert!(answer.body.list("results").iter().all(of_mine), "{cursor}");
        assert_eq!(bob.get(&path.replace(&theirs, &first)).await.status, 404, "{cursor}");
    }
    for cursor in ["x", "1.5", "9223372036854775808", "%00", "1'"] {
        let answer = bob.get(&format!("/threads/{theirs}/messages?cursor={cursor}")).await;
        assert_eq!(answer.failure(), (400, "bad_request"), "{cursor}");
    }
}

#[tokio::test]
async fn c9_only_the_token_identifies_the_caller() {
    let app = Embedded::with(with_tokens).await;
    let ann = app.client.as_user("acme", "ann", &["reader"]);
    let thread = ann.thread().await;
    let bob = app.client.as_user("other", "bob", &[]);
    for (name, value) in [
        ("x-tenant-id", "acme"),
        ("x-user-id", "ann"),
        ("x-user", "ann"),
        ("x-roles", "approver"),
        ("x-forwarded-user", "ann"),
        ("x-forwarded-for", "127.0.0.1"),
        ("x-forwarded-host", "localhost"),
        ("x-real-ip", "127.0.0.1"),
        ("forwarded", "for=127.0.0.1;host=localhost;proto=https"),
        ("x-original-url", "/healthz"),
        ("x-rewrite-url", "/healthz"),
        ("x-http-method-override", "GET"),
        ("cookie", "token=x; user=ann"),
        ("host", "localhost"),
    ] {
        let asks =
            |client: &Client| client.http.get(client.url(&format!("/threads/{thread}"))).header(name, value);
        assert_eq!(bob.send(asks(&bob)).await.status, 404, "{name}");
        assert_unknown(&app.client.send(asks(&app.client)).await, name);
        let made = bob.http.post(bob.url("/threads")).header(name, value);
        assert_eq!(bob.send(made).await.status, 201, "{name}");
    }
    let owners = "SELECT DISTINCT tenant_id, user_id FROM threads WHERE user_id <> 'ann'";
    assert_eq!(app.rows.all(owners).await, [json!({ "tenant_id": "other", "user_id": "bob" })]);
}

#[tokio::test]
async fn c10_no_response_is_cached_for_another_caller() {
    let app = Embedded::with(with_tokens).await;
    let ann = app.client.as_user("acme", "ann", &[]);
    let thread = ann.thread().await;
    let run = format!("/qa/chat_streamed/{thread}");
    for (client, method, path, status) in [
        (&ann, Method::GET, "/threads", 200),
        (&ann, Method::GET, "/tools", 200),
        (&ann, Method::GET, "/qa/models", 200),
        (&ann, Method::GET, "/api/threads", 200),
        (&ann, Method::GET, run.as_str(), 200),
        (&ann, Method::POST, run.as_str(), 409),
        (&ann, Method::GET, "/threads/x", 404),
        (&ann, Method::GET, "/nowhere", 404),
        (&ann, Method::DELETE, "/threads", 405),
        (&app.client, Method::GET, "/threads", 401),
    ] {
        let answer = client.send(client.http.request(method, client.url(path))).await;
        assert_eq!(answer.status, status, "{path}");
        let cached =
            if answer.header("x-accel-buffering").is_some() { "no-store, no-transform" } else { "no-store" };
        assert_eq!(answer.header("cache-control"), Some(cached), "{path}");
        let vary = answer.header("vary").unwrap_or_default().to_ascii_lowercase();
        assert!(vary.split(',').any(|name| name.trim() == "authorization"), "{path}: {vary}");
        assert!(answer.header("etag").is_none() && answer.header("last-modified").is_none(), "{path}");
    }
    app.scene.answers("hello");
    let turn = ann.send_message(&thread, "hi").await;
    assert_eq!(turn.headers["cache-control"], "no-store, no-transform");
    // Responses that are the same for all callers may be cached.
    for path in ["/healthz", "/readyz", "/openapi.json"] {
        assert_eq!(app.client.get(path).await.header("cache-control"), None, "{path}");
    }
}
