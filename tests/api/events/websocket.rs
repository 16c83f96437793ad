//! The WebSocket: events, and decisions in the manner of `validate_tool`.

use super::types;
use futures::StreamExt;
use holdpoint::tools::ToolRegistry;
use holdpoint_testkit::token::with_tokens;
use holdpoint_testkit::{ChangedPay, Embedded, JsonFields, Socket, call};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_tungstenite::tungstenite::Message;

async fn open(app: &Embedded) -> Socket {
    Socket::open(&app.client, "/ws", &[]).await.unwrap_or_else(|status| panic!("{status}"))
}

/// A `decide` message of the WebSocket, translated to a body of `validate_tool`.
fn as_posted(decide: &Value) -> Value {
    let mut posted = json!({});
    for (name, value) in decide.as_object().unwrap() {
        let (name, value) = match name.as_str() {
            "tool_call_id" => ("toolCallId", value.clone()),
            "decision" => ("isValidated", json!(value == "approve")),
            "validated_inputs" => ("validatedInputs", value.clone()),
            "input_hash" => ("inputHash", value.clone()),
            "preview_hash" => ("previewHash", value.clone()),
            other => (other, value.clone()),
        };
        posted[name] = value;
    }
    posted
}

/// The body with one placeholder for the id, one for all times and one for the surface.
fn alike(body: &Value, id: &str) -> String {
    let text = body.to_string().replace(id, "id");
    let times = text.split('"').map(|word| match word.len() == 27 && word.ends_with('Z') {
        true => "time",
        false => word,
    });
    times.collect::<Vec<_>>().join("\"").replace("\"websocket\"", "\"rest\"")
}

#[tokio::test]
async fn a10_each_decision_is_answered_as_validate_tool_would() {
    let app = Embedded::start().await;
    let mut socket = open(&app).await;
    let mut n = 0;
    // Of two similar calls, the test decides one over the WebSocket and one over HTTP.
    let mut both = async |tool: &str, decisions: &[Value], expected: &[u64]| {
        n += 1;
        let (_, here) = app.held(tool, &format!("left-{n}")).await;
        let (_, there) = app.held(tool, &format!("right-{n}")).await;
        for (decide, expected) in decisions.iter().zip(expected) {
            let named = |id: &str| {
                let mut decide = decide.clone();
                decide["tool_call_id"] = json!(id);
                // The two surfaces have different defaults.
                decide["resume"] = json!(false);
                decide
            };
            let (status, body) = socket.ask(&json!(n), &named(&here)).await;
            let posted = app.client.validate(&as_posted(&named(&there))).await;
            assert_eq!((status, u64::from(posted.status)), (*expected, *expected), "{decide}: {body}");
            let same = |text: String, side: &str| text.replace(&format!("{side}-{n}"), "note");
            let (own, other) =
                (same(alike(&body, &here), "left"), same(alike(&posted.body, &there), "right"));
            // The hash covers the note, so the hashes differ.
            let without_hash = |text: &str| match text.split_once("\"input_hash\":\"") {
                Some((before, after)) => format!("{before}{}", &after[64..]),
                None => text.to_owned(),
            };
            assert_eq!(without_hash(&own), without_hash(&other));
        }
    };
    let yes = json!({ "decision": "approve" });
    let no = json!({ "decision": "reject", "reason": "not today" });
    let edit = json!({ "decision": "approve", "validated_inputs": { "note": "9" } });
    both("pay", &[yes.clone(), yes.clone(), no.clone()], &[200, 200, 409]).await;
    both("pay", &[edit.clone(), edit, yes.clone()], &[200, 200, 409]).await;
    both("pay", &[no.clone(), no.clone(), yes.clone()], &[200, 200, 409]).await;
    both("refuse", std::slice::from_ref(&yes), &[200]).await;
    let broken = json!({ "decision": "approve", "validated_inputs": { "note": 7 } });
    let stale = json!({ "decision": "approve", "input_hash": "0".repeat(64) });
    both("pay", &[broken, stale, yes.clone()], &[422, 409, 200]).await;
    let long = json!({ "decision": "reject", "reason": "x".repeat(2001) });
    both("pay", &[long, no], &[400, 200]).await;

    let unknown = json!({ "tool_call_id": "01890a5d-ac96-774b-bcce-b302099a8057", "decision": "approve" });
    let (status, body) = socket.ask(&json!("x"), &unknown).await;
    assert_eq!((status, &body), (404, &app.client.validate(&as_posted(&unknown)).await.body));
    let (_, late) = app.held("pay", "late").await;
    let overdue = format!("UPDATE tool_calls SET expires_at = created_at WHERE tool_call_id = '{late}'");
    app.rows.change(&overdue).await.unwrap();
    let decide = json!({ "tool_call_id": late, "decision": "approve" });
    let (status, body) = socket.ask(&json!("late"), &decide).await;
    let again = app.client.approve(&late).await;
    assert_eq!((status, &body), (409, &again.body));
    assert_eq!(body["error"]["code"], "expired");
    let surfaces = app.rows.all("SELECT DISTINCT surface FROM decisions ORDER BY surface").await;
    let surfaces: Vec<_> = surfaces.iter().map(|row| row.text("surface")).collect();
    assert_eq!(surfaces, ["rest", "sweeper", "websocket"]);
}

#[tokio::test]
async fn the_server_resumes_the_run_after_a_decision_over_a_websocket() {
    let app = Embedded::start().await;
    let mut socket = open(&app).await;
    let (thread, id) = app.held("pay", "1").await;
    app.scene.answers("Paid.");
    socket
        .send(&json!({ "id": 1, "decide": { "tool_call_id": id, "decision": "approve" } }).to_string())
        .await;
    loop {
        let output = socket.next().await.unwrap().unwrap();
        if output["event"]["type"] == "run.completed" {
            break;
        }
    }
    let answer = app.client.messages(&thread).await.pop().unwrap();
    assert!(answer["parts"].to_string().contains("Paid."), "{answer}");
}

#[tokio::test]
async fn a_decision_over_a_websocket_gets_202_while_a_slow_tool_runs() {
    let app = Embedded::with(|config| config.approval.wait = Duration::from_millis(10)).await;
    let (_, id) = app.held("wait_for_me", "1").await;
    let decide = json!({ "tool_call_id": id, "decision": "approve", "resume": false });
    let (status, body) = open(&app).await.ask(&json!(1), &decide).await;
    let again = app.client.approve(&id).await;
    assert_eq!((status, again.status, &body), (202, 202, &again.body));
}

#[tokio::test]
async fn a_malformed_decision_is_refused_by_its_field_and_decides_nothing() {
    let app = Embedded::start().await;
    let mut socket = open(&app).await;
    let (_, id) = app.held("pay", "1").await;
    let call = format!("\"tool_call_id\":\"{id}\"");
    for (text, field) in [
        ("{".to_owned(), "body"),
        ("[]".to_owned(), "body"),
        (r#"{"id":1}"#.to_owned(), "decide"),
        (format!(r#"{{"decide":{{{call},"decision":"approve"}}}}"#), "id"),
        (format!(r#"{{"id":1,"decide":{{{call}}}}}"#), "decision"),
        (format!(r#"{{"id":1,"decide":{{{call},"decision":"allow"}}}}"#), "decision"),
        (format!(r#"{{"id":1,"decide":{{{call},"decision":true}}}}"#), "decision"),
        (format!(r#"{{"id":1,"decide":{{{call},"decision":"approve","approved":true}}}}"#), "approved"),
        (format!(r#"{{"id":1,"decide":{{{call},"decision":"approve"}},"more":1}}"#), "more"),
        (format!(r#"{{"id":1,"decide":{{{call},{call},"decision":"approve"}}}}"#), "tool_call_id"),
        (format!(r#"{{"id":1,"decide":{{{call},"decision":"reject","decision":"approve"}}}}"#), "decision"),
        (
            format!(r#"{{"id":1,"decide":{{{call},"decision":"approve","validated_inputs":[]}}}}"#),
            "validated_inputs",
        ),
    ] {
        socket.send(&text).await;
        let output = loop {
            let output = socket.next().await.unwrap().unwrap();
            if output.get("event").is_none() {
                break output;
            }
        };
        assert_eq!(
            (&output["status"], &output["body"]["error"]["code"]),
            (&json!(400), &json!("bad_request"))
        );
        let message = output["body"]["error"].text("message");
        assert!(message.contains(field), "{text}: {message}");
    }
    assert_eq!(app.client.call(&id).await["state"], "pending");
}

#[tokio::test]
async fn a_websocket_delivers_answers_and_events_while_a_slow_tool_runs() {
    let app = Embedded::start().await;
    let mut socket = open(&app).await;
    let (_, slow) = app.held("wait_for_me", "1").await;
    let (_, quick) = app.held("pay", "2").await;
    let ask = |id: &str| {
        json!({ "id": id, "decide": { "tool_call_id": id, "decision": "approve", "resume": false } })
            .to_string()
    };
    socket.send(&ask(&slow)).await;
    app.ledger.wait_started().await;
    socket.send(&ask(&quick)).await;
    let (status, body) = socket.answer(&json!(quick)).await;
    assert_eq!((status, &body["state"]), (200, &json!("succeeded")));
    app.ledger.release.add_permits(1);
    let (status, body) = socket.answer(&json!(slow)).await;
    assert_eq!((status, &body["state"]), (200, &json!("succeeded")));

    let mut received = Vec::new();
    let mut other = open(&app).await;
    let (_, third) = app.held("pay", "3").await;
    while received.len() < 4 {
        received.push(other.next().await.unwrap().unwrap()["event"].clone());
    }
    assert_eq!(types(&received), ["run.started", "tool.called", "tool.requires_approval", "run.waiting"]);
    let page = app.client.get(&format!("/tool_calls/{third}/events")).await.body;
    assert_eq!(page["results"], json!(received[1..3]));
}

#[tokio::test]
async fn d9_a_page_of_another_origin_opens_no_websocket() {
    let app = Embedded::start().await;
    let opened = async |origin: &str| Socket::open(&app.client, "/ws", &[("origin", origin)]).await.err();
    assert_eq!(opened("https://evil.example").await, Some(403));
    assert_eq!(opened("null").await, Some(403));
    assert_eq!(opened("http://localhost:5173").await, None);

    let app = Embedded::with(|config| {
        with_tokens(config);
        config.server.cors_origins = vec!["https://page.example".to_owned()];
    })
    .await;
    let alice = app.client.as_user("acme", "alice", &[]);
    let own = app.client.base.clone();
    for (origin, refused) in [
        ("https://evil.example", Some(403)),
        ("null", Some(403)),
        ("https://page.example.evil.example", Some(403)),
        ("https://page.example", None),
        (own.as_str(), None),
    ] {
        let ticket = alice.post("/tickets", &json!({})).await.body.text("ticket").to_owned();
        let path = format!("/ws?ticket={ticket}");
        assert_eq!(Socket::open(&app.client, &path, &[("origin", origin)]).await.err(), refused, "{origin}");
    }
}

#[tokio::test]
async fn a_request_without_an_upgrade_is_refused_and_messages_have_a_size_limit() {
    let app = Embedded::with(|config| config.limits.body_bytes = 1024).await;
    let answer = app.client.get("/ws").await;
    answer.failed_with(400, "bad_request");
    app.client.get("/api/ws").await.has_status(400);
    let posted = app.client.post("/ws", &json!({})).await;
    assert_eq!((posted.status, posted.header("allow")), (405, Some("GET, HEAD")));

    let mut socket = Socket::open(&app.client, "/api/ws", &[]).await.ok().unwrap();
    socket.send(&"x".repeat(2000)).await;
    assert_eq!(socket.next().await, Some(Err(1009)));
}

#[tokio::test]
async fn a_stopping_server_closes_its_websockets_with_1001() {
    let app = Embedded::start().await;
    let mut socket = open(&app).await;
    let mut tools = ToolRegistry::new();
    tools.register(ChangedPay(app.ledger.clone())).unwrap();
    let (left, app) = tokio::join!(socket.next(), app.redeploy(tools));
    assert_eq!(left, Some(Err(1001)));
    app.scene.calls(&[call("a", "pay", &json!({ "note": "1" }))]);
    assert_eq!(app.client.send_message(&app.client.thread().await, "pay").await.pending().len(), 1);
}

#[tokio::test]
async fn a_client_with_as_many_decisions_in_flight_as_allowed_stays_connected() {
    let app = Embedded::with(|config| {
        config.stream.keep_alive = Duration::from_millis(50);
        config.approval.wait = Duration::from_mins(10);
    })
    .await;
    // Before the socket opens: a client that does not read for three pings is disconnected.
    let mut held = Vec::new();
    for n in 0..8 {
        held.push(app.held("wait_for_me", &n.to_string()).await.1);
    }
    let mut socket = open(&app).await;
    for (n, id) in held.iter().enumerate() {
        let decide = json!({ "tool_call_id": id, "decision": "approve" });
        socket.send(&json!({ "id": n, "decide": decide }).to_string()).await;
        loop {
            let message = socket.next().await.unwrap().unwrap();
            if message["event"]["type"] == "tool.started" && message["event"]["tool_call_id"] == **id {
                break;
            }
        }
    }
    // From here on the server reads no pong.
    let mut pings = 0;
    while pings < 6 {
        match socket.0.next().await.expect("the socket stays open").unwrap() {
            Message::Ping(_) => pings += 1,
            Message::Text(_) => {}
            other => panic!("{other:?}"),
        }
    }
    app.ledger.release.add_permits(8);
    let mut answers = 0;
    while answers < 8 {
        let message = socket.next().await.unwrap().unwrap();
        if message.get("event").is_none() {
            assert_eq!((&message["status"], &message["body"]["state"]), (&json!(200), &json!("succeeded")));
            answers += 1;
        }
    }
}

#[tokio::test]
async fn a_client_that_answers_no_ping_is_disconnected() {
    let app = Embedded::with(|config| config.stream.keep_alive = Duration::from_millis(50)).await;
    let address = app.client.base.strip_prefix("http://").unwrap();
    let mut raw = tokio::net::TcpStream::connect(address).await.unwrap();
    let head = format!(
        "GET /ws HTTP/1.1\r\nhost: {address}\r\nconnection: Upgrade\r\nupgrade: websocket\r\n\
         sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    );
    raw.write_all(head.as_bytes()).await.unwrap();
    // The client reads, and answers no ping.
    let mut all = Vec::new();
    raw.read_to_end(&mut all).await.unwrap();
    let output = String::from_utf8_lossy(&all);
    assert!(output.starts_with("HTTP/1.1 101 "), "{output}");
    assert!(output.contains("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="), "{output}");
}
