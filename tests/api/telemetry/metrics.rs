//! Metrics, as a scraper reads them: the numbers, and the rule that no client-supplied value is a label.

use holdpoint::llm::ModelEvent;
use holdpoint_testkit::{
    Client, DisconnectKind, Embedded, Leaver, Process, call, eventually, postgres_if_chosen, token,
};
use serde_json::json;
use std::net::{Ipv4Addr, TcpListener};
use std::process::Command;
use std::time::Duration;

/// A scrape of a server.
struct Scrape(String);

impl Scrape {
    async fn of(client: &Client) -> Self {
        let response = client.http.get(client.url("/metrics")).send().await.unwrap();
        assert_eq!(response.status(), 200);
        let kind = response.headers()["content-type"].to_str().unwrap();
        assert_eq!(kind, "application/openmetrics-text; version=1.0.0; charset=utf-8");
        let text = response.text().await.unwrap();
        assert!(text.ends_with("# EOF\n"), "{text}");
        Self(text)
    }

    /// The value of this sample, or `None` if the scrape does not contain the sample.
    fn get(&self, sample: &str) -> Option<f64> {
        let line = self.0.lines().find_map(|line| line.strip_prefix(sample)?.strip_prefix(' '));
        line.map(|number| number.parse().unwrap())
    }

    #[track_caller]
    fn has(&self, sample: &str, number: f64) {
        assert_eq!(self.get(sample), Some(number), "{sample} in {}", self.0);
    }
}

#[tokio::test]
async fn turns_tokens_calls_holds_and_decisions_are_counted() {
    let app = Embedded::start().await;
    let (thread, id) = app.held("pay", "10").await;
    let scrape = Scrape::of(&app.client).await;
    scrape.has("holdpoint_holds_pending", 1.0);
    assert!(scrape.get("holdpoint_holds_pending_oldest_age_seconds").unwrap() < 60.0);
    scrape.has("holdpoint_turns_total{end=\"waiting\",code=\"\"}", 1.0);
    scrape.has("holdpoint_turns_running", 0.0);

    app.client.approve(&id).await.has_status(200);
    app.client.approve(&id).await.has_status(200);
    app.client.reject(&id).await.has_status(409);
    app.scene.answers("Paid.");
    assert_eq!(app.client.resume(&thread).await.text(), "Paid.");
    let (_, refused) = app.held("pay", "11").await;
    app.client.reject(&refused).await.has_status(200);
    let broken = app.client.thread().await;
    assert!(app.client.send_message(&broken, "there is no scene").await.raw.contains("upstream_error"));

    let scrape = Scrape::of(&app.client).await;
    for (sample, number) in [
        ("holdpoint_turns_total{end=\"waiting\",code=\"\"}", 2.0),
        ("holdpoint_turns_total{end=\"completed\",code=\"\"}", 1.0),
        ("holdpoint_turns_total{end=\"failed\",code=\"upstream_error\"}", 1.0),
        ("holdpoint_model_tokens_total{model=\"scene\",direction=\"input\"}", 30.0),
        ("holdpoint_model_tokens_total{model=\"scene\",direction=\"output\"}", 15.0),
        ("holdpoint_holds_total{tool=\"pay\"}", 2.0),
        ("holdpoint_tool_calls_total{tool=\"pay\",state=\"pending\"}", 2.0),
        ("holdpoint_tool_calls_total{tool=\"pay\",state=\"approved\"}", 1.0),
        ("holdpoint_tool_calls_total{tool=\"pay\",state=\"executing\"}", 1.0),
        ("holdpoint_tool_calls_total{tool=\"pay\",state=\"succeeded\"}", 1.0),
        ("holdpoint_tool_calls_total{tool=\"pay\",state=\"rejected\"}", 1.0),
        ("holdpoint_tool_duration_seconds_count{tool=\"pay\"}", 1.0),
        ("holdpoint_decisions_total{verdict=\"approve\",surface=\"rest\",outcome=\"decided\"}", 1.0),
        ("holdpoint_decisions_total{verdict=\"approve\",surface=\"rest\",outcome=\"replayed\"}", 1.0),
        ("holdpoint_decisions_total{verdict=\"reject\",surface=\"rest\",outcome=\"already_decided\"}", 1.0),
        ("holdpoint_decisions_total{verdict=\"reject\",surface=\"rest\",outcome=\"decided\"}", 1.0),
        ("holdpoint_decision_age_seconds_count{verdict=\"approve\"}", 1.0),
        ("holdpoint_decision_age_seconds_bucket{le=\"604800.0\",verdict=\"reject\"}", 1.0),
        ("holdpoint_model_first_byte_seconds_count{provider=\"test\"}", 3.0),
        ("holdpoint_model_request_duration_seconds_count{provider=\"test\",outcome=\"completed\"}", 3.0),
        ("holdpoint_model_request_duration_seconds_count{provider=\"test\",outcome=\"upstream_error\"}", 1.0),
        ("holdpoint_leases_lost_total{work=\"turn\"}", 0.0),
        ("holdpoint_leases_lost_total{work=\"call\"}", 0.0),
        ("holdpoint_streams_open", 0.0),
        ("holdpoint_build_info{version=\"0.1.0\"}", 1.0),
    ] {
        scrape.has(sample, number);
    }
    assert!(scrape.get("process_start_time_seconds").unwrap() > 1.7e9);
    assert!(scrape.get("holdpoint_database_wait_seconds_count{pool=\"chat\"}").unwrap() > 0.0);
    // The server queries the database at intervals.
    let none =
        async || (Scrape::of(&app.client).await.get("holdpoint_holds_pending") == Some(0.0)).then_some(());
    eventually("no hold is pending", none).await;
}

#[tokio::test]
async fn requests_are_counted_by_route_and_no_client_value_is_a_label() {
    let app = Embedded::start().await;
    let (thread, id) = app.held("pay", "10").await;
    app.scene.calls(&[call("p-1", "drop_all_tables_\u{1b}[31m", &json!({}))]).answers("No such tool.");
    app.client.send_message(&thread, "make one up").await;
    for path in ["/made/up", "/api/made/up", "/tools/made-up", "/threads/made-up", "/tool_calls/made-up"] {
        app.client.get(path).await.has_status(404);
    }
    app.client.get(&format!("/api/tool_calls/{id}")).await.has_status(200);
    app.client.get(&format!("/tool_calls/{id}")).await.has_status(200);
    let odd = reqwest::Method::from_bytes(b"MADEUP").unwrap();
    app.client.send(app.client.http.request(odd, app.client.url("/tools"))).await;

    let scrape = Scrape::of(&app.client).await;
    for (sample, number) in [
        ("holdpoint_tool_calls_total{tool=\"other\",state=\"invalid\"}", 1.0),
        ("holdpoint_http_requests_total{route=\"other\",method=\"GET\",status=\"4xx\"}", 2.0),
        ("holdpoint_http_requests_total{route=\"/tools\",method=\"other\",status=\"4xx\"}", 1.0),
        ("holdpoint_http_requests_total{route=\"/threads\",method=\"POST\",status=\"2xx\"}", 1.0),
        ("holdpoint_http_requests_total{route=\"/tool_calls/:param0\",method=\"GET\",status=\"2xx\"}", 2.0),
        ("holdpoint_http_requests_total{route=\"/tool_calls/:param0\",method=\"GET\",status=\"4xx\"}", 1.0),
        ("holdpoint_http_request_duration_seconds_count{route=\"/tool_calls/:param0\",method=\"GET\"}", 3.0),
    ] {
        scrape.has(sample, number);
    }
    for made_up in ["drop_all", "made", "MADEUP", &thread, &id, "local", "default"] {
        assert!(!scrape.0.contains(made_up), "{made_up} in {}", scrape.0);
    }
}

#[tokio::test]
async fn a_request_whose_client_disconnected_is_counted_when_it_completes() {
    let app = Embedded::start().await;
    for how in DisconnectKind::ALL {
        let (_, id) = app.held("wait_for_me", &format!("{how:?}")).await;
        let decision = json!({ "toolCallId": id, "isValidated": true });
        let client = Leaver::sends(&app.client, how, "/qa/validate_tool", &decision).await;
        app.ledger.wait_started().await;
        let _connection = client.leaves().await;
        app.ledger.release.add_permits(1);
        app.client.becomes(&id, "succeeded").await;
    }
    let sample = "holdpoint_http_requests_total{route=\"/qa/validate_tool\",method=\"POST\",status=\"2xx\"}";
    let counted = async || (Scrape::of(&app.client).await.get(sample) == Some(5.0)).then_some(());
    eventually("all of them are counted", counted).await;
}

#[tokio::test]
async fn running_turns_and_open_streams_are_gauges() {
    let app = Embedded::start().await;
    let thread = app.client.thread().await;
    let gate = app.scene.gate();
    app.scene.answers("Slowly.");
    let started = app.client.begin(&thread, &json!({ "content": "slowly" })).await;
    let scrape = Scrape::of(&app.client).await;
    scrape.has("holdpoint_turns_running", 1.0);
    scrape.has("holdpoint_streams_open", 1.0);
    gate.add_permits(2);
    assert_eq!(app.client.read_on(started).await.text(), "Slowly.");
    let over = async || {
        let scrape = Scrape::of(&app.client).await;
        let now = |name| scrape.get(name).unwrap();
        (now("holdpoint_turns_running") + now("holdpoint_streams_open") == 0.0).then_some(())
    };
    eventually("nothing is under way", over).await;
}

#[tokio::test]
async fn a_reaped_turn_is_counted_as_a_lost_lease_and_as_a_sweeper_action() {
    let app = Embedded::with(|config| {
        config.approval.sweep = Duration::from_millis(20);
        config.approval.lease = Duration::from_secs(3);
    })
    .await;
    let thread = app.client.thread().await;
    let gate = app.scene.gate();
    app.scene.then(vec![Ok(ModelEvent::Text("Half an ".to_owned())), Ok(ModelEvent::Alive)]);
    let started = app.client.begin(&thread, &json!({ "content": "slowly" })).await;
    gate.add_permits(1);
    app.wait_for_model_requests(1).await;
    let closed = async || {
        let lapse = "UPDATE runs SET lease_until = 1000000 WHERE status = 'running'";
        app.rows.change(lapse).await.unwrap();
        app.rows.all("SELECT error_code FROM runs WHERE status = 'failed'").await.pop()
    };
    eventually("the turn is closed", closed).await;
    drop(started);
    let counted = async || {
        let scrape = Scrape::of(&app.client).await;
        let samples = [
            "holdpoint_leases_lost_total{work=\"turn\"}",
            "holdpoint_sweeper_actions_total{action=\"turn_closed\"}",
            "holdpoint_model_request_duration_seconds_count{provider=\"test\",outcome=\"cancelled\"}",
        ];
        samples.iter().all(|sample| scrape.get(sample) == Some(1.0)).then_some(scrape)
    };
    let scrape = eventually("all is counted", counted).await;
    scrape.has("holdpoint_leases_lost_total{work=\"call\"}", 0.0);
}

#[tokio::test]
async fn a_call_that_expires_is_counted_and_ends_its_hold() {
    let app = Embedded::with(|config| config.approval.sweep = Duration::from_millis(20)).await;
    let (_, id) = app.held("pay", "10").await;
    let lapse = format!("UPDATE tool_calls SET expires_at = created_at WHERE tool_call_id = '{id}'");
    assert_eq!(app.rows.change(&lapse).await, Ok(1));
    app.client.becomes(&id, "expired").await;
    assert_eq!(app.client.approve(&id).await.code(), "expired");
    let scrape = Scrape::of(&app.client).await;
    scrape.has("holdpoint_sweeper_actions_total{action=\"expired\"}", 1.0);
    scrape.has("holdpoint_tool_calls_total{tool=\"pay\",state=\"expired\"}", 1.0);
    scrape.has("holdpoint_decisions_total{verdict=\"approve\",surface=\"rest\",outcome=\"expired\"}", 1.0);
    scrape.has("holdpoint_holds_pending", 0.0);
}

#[tokio::test]
async fn on_postgres_unnumbered_events_are_counted_until_they_are_numbered() {
    let url = holdpoint_testkit::postgres().await;
    let app = Embedded::with(|config| config.database.url = url.into()).await;
    for hold in ["BEGIN", "UPDATE event_sequence SET last = last"] {
        app.rows.change(hold).await.unwrap();
    }
    app.held("pay", "10").await;
    let scrape = Scrape::of(&app.client).await;
    assert!(scrape.get("holdpoint_events_unnumbered").unwrap() >= 4.0, "{}", scrape.0);
    app.rows.change("ROLLBACK").await.unwrap();
    let numbered = async || {
        (Scrape::of(&app.client).await.get("holdpoint_events_unnumbered") == Some(0.0)).then_some(())
    };
    eventually("all have their number", numbered).await;
}

#[tokio::test]
async fn on_postgres_a_scrape_without_the_database_omits_the_samples_of_the_database() {
    let cluster = holdpoint_testkit::Cluster::start();
    let url = cluster.database().await;
    let app = Embedded::with(|config| config.database.url = url.into()).await;
    app.held("pay", "10").await;
    Scrape::of(&app.client).await.has("holdpoint_holds_pending", 1.0);
    cluster.stop_now();
    let gone = async || {
        let scrape = Scrape::of(&app.client).await;
        scrape.get("holdpoint_holds_pending").is_none().then_some(scrape)
    };
    let scrape = eventually("the number is left out", gone).await;
    assert_eq!(scrape.get("holdpoint_holds_pending_oldest_age_seconds"), None);
    scrape.has("holdpoint_holds_total{tool=\"pay\"}", 1.0);
}

#[tokio::test]
async fn metrics_are_served_to_this_machine_alone() {
    let app = Embedded::start().await;
    let foreign = app.client.http.get(app.client.url("/metrics")).header("host", "evil.example");
    app.client.send(foreign).await.has_status(403);
    app.client.get("/api/metrics").await.has_status(404);
    assert!(!app.client.get("/openapi.json").await.body.to_string().contains("/metrics"));

    let open = Embedded::with(|config| {
        config.server.bind = (Ipv4Addr::UNSPECIFIED, 0).into();
        config.auth.allow_insecure = true;
    })
    .await;
    // A server that requires tokens is behind a proxy, which may run on this machine.
    let known = Embedded::with(token::with_tokens).await;
    for app in [open, known] {
        app.client.get("/healthz").await.has_status(200);
        app.client.get("/metrics").await.has_status(404);
    }
}

fn holdpoint(dir: &tempfile::TempDir) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_holdpoint"));
    command.env_clear().current_dir(dir.path());
    command
}

#[tokio::test]
async fn a_metrics_listener_serves_metrics_and_health_and_no_other_route() {
    let dir = tempfile::tempdir().unwrap();
    let mut command = holdpoint(&dir);
    if let Some(url) = postgres_if_chosen().await {
        command.env("HOLDPOINT_DATABASE__URL", url);
    }
    let server = Process::spawn_captured(command.env("HOLDPOINT_SERVER__METRICS_BIND", "127.0.0.1:0"));
    let beside = server.operators().await;
    let thread = server.client.thread().await;
    Scrape::of(&beside)
        .await
        .has("holdpoint_http_requests_total{route=\"/threads\",method=\"POST\",status=\"2xx\"}", 1.0);
    server.client.get("/metrics").await.has_status(404);
    // A listener on loopback belongs to this machine, as the routes do.
    let foreign = beside.http.get(beside.url("/metrics")).header("host", "evil.example");
    beside.send(foreign).await.has_status(403);
    let answer = beside.get("/metrics").await;
    assert!(answer.header("x-request-id").is_some(), "{answer:?}");
    assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
    for path in ["/healthz", "/readyz"] {
        assert_eq!(beside.get(path).await.status, 200, "{path}");
    }
    for path in ["/threads", &format!("/threads/{thread}"), "/openapi.json", "/docs", "/"] {
        let refused = beside.get(path).await;
        assert_eq!(refused.failure(), (404, "not_found"), "{path}");
    }
    server.finish();
}

#[test]
fn a_metrics_address_in_use_is_an_error_that_names_its_setting() {
    let dir = tempfile::tempdir().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut command = holdpoint(&dir);
    command.args(["--bind", "127.0.0.1:0"]);
    command.env("HOLDPOINT_SERVER__METRICS_BIND", taken.local_addr().unwrap().to_string());
    let output = command.output().unwrap();
    assert!(!output.status.success());
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.contains(&format!("server.metrics_bind: {}", taken.local_addr().unwrap())), "{stderr}");
}
