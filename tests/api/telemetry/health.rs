//! Probes for orchestrators and log lines for operators.

use holdpoint_testkit::{Embedded, JsonFields, WatchedServer, token};
use serde_json::Value;

#[tokio::test]
async fn probes_are_answered_in_every_auth_mode_without_a_token_for_any_host() {
    let alone = Embedded::start().await;
    let with_users = Embedded::with(token::with_tokens).await;
    for app in [&alone, &with_users] {
        for path in ["/healthz", "/readyz"] {
            let probe = app.client.http.get(app.client.url(path)).header("host", "10.1.2.3:8080");
            let response = probe.send().await.unwrap();
            assert_eq!(response.status(), 200, "{path}");
            assert_eq!(response.text().await.unwrap(), "ok", "{path}");
        }
    }
    // No path below the names of the probes is exempt from the checks.
    for path in ["/healthz/", "/healthz/x", "/readyz?x", "/api/healthz", "/openapi.json", "/tools"] {
        let foreign = alone.client.http.get(alone.client.url(path)).header("host", "evil.example");
        let status = alone.client.send(foreign).await.status;
        assert_eq!(status == 200, path == "/readyz?x", "{path}: {status}");
    }
}

#[tokio::test]
async fn on_postgres_a_server_without_its_database_is_live_and_not_ready() {
    let cluster = holdpoint_testkit::Cluster::start();
    let url = cluster.database().await;
    let app = Embedded::with(|config| config.database.url = url.into()).await;
    app.client.get("/readyz").await.has_status(200);
    cluster.stop_now();
    let unready = app.client.get("/readyz").await;
    unready.failed_with(503, "unavailable");
    app.client.get("/healthz").await.has_status(200);
}

/// Has one turn fail and one call panic. Returns all log lines.
async fn logged(format: &str) -> (String, String) {
    let settings = [("HOLDPOINT_LOG__FORMAT", format), ("HOLDPOINT_LOG__LEVEL", "info")];
    let watched = WatchedServer::start(&settings).await;
    let ann = watched.server.client.as_user("acme", "ann", &[]);
    let thread = ann.thread().await;
    let request = ann.http.post(ann.url(&format!("/qa/chat_streamed/{thread}")));
    let request =
        request.header("x-request-id", "my-own-id").json(&serde_json::json!({ "content": "refuse me" }));
    assert!(ann.read(request).await.raw.contains("upstream_error"));
    let turn = ann.send_message(&thread, "call break now").await;
    let [id] = &turn.pending()[..] else { panic!("{}", turn.raw) };
    assert_eq!(ann.approve(id).await.body["state"], "interrupted");
    (watched.finish(), id.clone())
}

#[tokio::test]
async fn json_log_lines_contain_the_user_and_the_ids() {
    let (printed, id) = logged("json").await;
    let lines: Vec<Value> = printed
        .lines()
        .filter(|line| line.starts_with('{'))
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let find = |message: &str| lines.iter().find(|line| line["message"] == message).unwrap();
    let failed = find("a model call failed");
    assert_eq!((&failed["request_id"], &failed["level"]), (&"my-own-id".into(), &"WARN".into()));
    assert_eq!((&failed["tenant"], &failed["user"]), (&"acme".into(), &"ann".into()));
    assert!(failed["run_id"].is_string() && failed["thread_id"].is_string(), "{failed}");
    let broke = find("something panicked");
    assert_eq!((&broke["tool_call_id"], &broke["tool"]), (&id.as_str().into(), &"break".into()));
    assert_eq!(broke["path"], "/qa/validate_tool");
    assert!(broke.text("at").contains("kit/src/tools.rs"), "{broke}");
    assert!(!printed.contains("secret now"), "{printed}");
    let answered = find("answered");
    assert_eq!((&answered["status"], &answered["method"]), (&201.into(), &"POST".into()));
}

#[tokio::test]
async fn text_log_lines_are_one_per_event_whatever_the_provider_returns() {
    let (printed, id) = logged("text").await;
    let lines: Vec<&str> = printed.lines().filter(|line| line.starts_with("20")).collect();
    let failed = lines.iter().find(|line| line.contains("a model call failed")).unwrap();
    for part in [" WARN holdpoint::", "request_id=my-own-id", "user=ann", "status 401"] {
        assert!(failed.contains(part), "{part} in {failed}");
    }
    assert!(!printed.contains('\u{1b}'), "{printed}");
    assert!(lines.iter().any(|line| line.contains("something panicked") && line.contains(&id)), "{printed}");
}

#[tokio::test]
async fn the_level_of_a_span_counts_for_the_lines_within_it() {
    let settings = [("HOLDPOINT_LOG__FORMAT", "json"), ("HOLDPOINT_LOG__LEVEL", "warn,[request]=info")];
    let watched = WatchedServer::start(&settings).await;
    watched.server.client.as_user("acme", "ann", &[]).get("/tools").await.has_status(200);
    let printed = watched.finish();
    assert!(printed.contains(r#""message":"answered""#), "{printed}");
}
