//! Graceful shutdown: the server begins no work, lets running work finish, and leaves an accurate record.

use holdpoint::app::App;
use holdpoint::config::Config;
use holdpoint::handlers::Deferred;
use holdpoint_testkit::{
    Client, Deployment, Ledger, Process, Rows, Scene, UNKNOWN, asked_from, eventually, probes,
};
use poem::Endpoint;
use poem::http::Method;
use poem::web::RemoteAddr;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const SHORT: (&str, &str) = ("HOLDPOINT_SERVER__GRACE", "300ms");

/// Signals the server to stop and returns once it accepts no connections.
async fn stop(server: &Process) {
    server.terminate();
    let address = server.client.base.trim_start_matches("http://").to_owned();
    let refused = async || TcpStream::connect(&address).await.is_err().then_some(());
    eventually("no new connection is taken", refused).await;
}

async fn ended_well(mut server: Process) {
    assert!(eventually("the server ends", async || server.ended()).await, "and it ends well");
}

#[tokio::test]
async fn a_tool_that_outlasts_the_grace_period_is_written_as_interrupted_at_shutdown() {
    let deployment = Deployment::new().await;
    let server = deployment.start_with("30s", &[SHORT]);
    let client = server.client.clone();
    let thread = client.thread().await;
    let id = deployment.hold(&client, &thread, "10").await;
    let stopping = async {
        deployment.wait_started(&["transfer 10"]).await;
        stop(&server).await;
    };
    let (decided, ()) = tokio::join!(client.approve(&id), stopping);
    decided.has(200, "state", "interrupted");
    assert_eq!(decided.body["result"], UNKNOWN);
    ended_well(server).await;
    // No other process was running that could have written the row.
    let calls = deployment.rows().await.all("SELECT state, result, lease_until FROM tool_calls").await;
    assert_eq!(calls, [json!({ "state": "interrupted", "result": UNKNOWN, "lease_until": null })]);

    deployment.release();
    let next = deployment.start("30s");
    assert!(next.client.resume(&thread).await.text().starts_with("The outcome is unknown"));
    assert_eq!(deployment.ledger(), ["transfer 10"]);
}

#[tokio::test]
async fn a_turn_that_outlasts_the_grace_period_keeps_its_text_and_is_resumed_by_the_next_server() {
    let deployment = Deployment::new().await;
    let server = deployment.start_with("30s", &[SHORT]);
    let client = server.client.clone();
    let thread = client.thread().await;
    let stopping = async {
        deployment.wait_started(&["think"]).await;
        stop(&server).await;
    };
    let (turn, ()) = tokio::join!(client.send_message(&thread, "think"), stopping);
    assert_eq!((turn.codes().as_str(), turn.text().as_str()), ("f03", "Half an "), "{}", turn.raw);
    assert!(turn.error().starts_with("interrupted: The server stopped"), "{}", turn.raw);
    ended_well(server).await;
    let rows: Rows = deployment.rows().await;
    let runs = rows.all("SELECT status, error_code, owner FROM runs").await;
    assert_eq!(runs, [json!({ "status": "failed", "error_code": "interrupted", "owner": null })]);

    deployment.release();
    let next = deployment.start("30s");
    let broken = next.client.messages(&thread).await.pop().unwrap();
    assert_eq!((&broken["status"], &broken["parts"][1]["text"]), (&json!("interrupted"), &json!("Half an ")));
    let again = next.client.resume(&thread).await;
    assert_eq!(
        (again.text().as_str(), &again.one('f')["messageId"]),
        ("Half an answer.", &broken["message_id"])
    );
}

/// A request of which half has been sent.
struct HalfSentRequest {
    socket: TcpStream,
    rest: Vec<u8>,
}

impl HalfSentRequest {
    async fn send(client: &Client, path: &str, body: &Value) -> Self {
        let address = client.base.trim_start_matches("http://");
        let body = body.to_string();
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\n\
             expect: 100-continue\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        let (first, rest) = body.as_bytes().split_at(body.len() / 2);
        let mut socket = TcpStream::connect(address).await.unwrap();
        socket.write_all(head.as_bytes()).await.unwrap();
        // The `100 Continue` shows that the server is processing the request and does not close the
        // connection as idle.
        let mut waits = [0; b"HTTP/1.1 100 Continue\r\n\r\n".len()];
        socket.read_exact(&mut waits).await.unwrap();
        assert_eq!(waits, *b"HTTP/1.1 100 Continue\r\n\r\n");
        socket.write_all(first).await.unwrap();
        Self { socket, rest: rest.to_vec() }
    }

    /// Sends the rest. Returns the status and the body of the response.
    async fn finish(mut self) -> (u16, Value) {
        self.socket.write_all(&self.rest).await.unwrap();
        let mut answer = Vec::new();
        self.socket.read_to_end(&mut answer).await.unwrap();
        let answer = String::from_utf8(answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let status = head.split_whitespace().nth(1).unwrap().parse().unwrap();
        (status, serde_json::from_str(body).unwrap_or_default())
    }
}

#[tokio::test]
async fn a_stopping_server_accepts_a_decision_and_begins_neither_the_tool_nor_a_turn() {
    let deployment = Deployment::new().await;
    let server = deployment.start("30s");
    let client = &server.client;
    let first = client.thread().await;
    let running = deployment.hold(client, &first, "10").await;
    let id = deployment.hold(client, &client.thread().await, "20").await;
    let idle = client.thread().await;
    let stopping = async {
        // A running tool keeps the server from exiting.
        deployment.wait_started(&["transfer 10"]).await;
        let yes = json!({ "toolCallId": id, "isValidated": true });
        let decision = HalfSentRequest::send(client, "/qa/validate_tool", &yes).await;
        let path = format!("/qa/chat_streamed/{idle}");
        let turn = HalfSentRequest::send(client, &path, &json!({ "content": "hello there" })).await;
        stop(&server).await;
        let (status, refused) = turn.finish().await;
        assert_eq!((status, &refused["error"]["code"]), (503, &json!("unavailable")), "{refused}");
        // The call has no process that begins it, so the response comes while the other tool still runs.
        let (status, decided) = decision.finish().await;
        assert_eq!((status, &decided["state"]), (202, &json!("executing")), "{decided}");
        deployment.release();
    };
    let (approved, ()) = tokio::join!(client.approve(&running), stopping);
    assert_eq!(approved.body["state"], "succeeded");
    ended_well(server).await;
    let rows = deployment.rows().await;
    assert_eq!(rows.count("messages WHERE content = 'hello there'").await, 0);
    let standing = "SELECT state, exec_attempt FROM tool_calls ORDER BY tool_call_id";
    let expected = [
        json!({ "state": "succeeded", "exec_attempt": 1 }),
        json!({ "state": "approved", "exec_attempt": 0 }),
    ];
    assert_eq!(rows.all(standing).await, expected);

    let next = deployment.start("30s");
    next.client.becomes(&id, "succeeded").await;
    assert_eq!(next.client.call(&running).await["state"], "succeeded");
    let ran = ["transfer 10", "transfer 10 done", "transfer 20", "transfer 20 done"];
    assert_eq!(deployment.ledger(), ran);
}

#[tokio::test]
async fn on_postgres_a_request_that_awaits_another_process_does_not_delay_shutdown() {
    let deployment = Deployment::on_postgres().await;
    let (runs, _, id) = deployment.in_mid_tool().await;
    let leaves = deployment.start_with("1h", &[SHORT]);
    let yes = json!({ "toolCallId": id, "isValidated": true });
    let waits = HalfSentRequest::send(&leaves.client, "/qa/validate_tool", &yes).await;
    stop(&leaves).await;
    let (status, reported) = waits.finish().await;
    assert_eq!((status, &reported["state"]), (202, &json!("executing")), "{reported}");
    ended_well(leaves).await;
    deployment.release();
    runs.client.becomes(&id, "succeeded").await;
}

#[tokio::test]
async fn a_waiting_continuation_gets_the_outcome_at_shutdown_and_the_next_server_resumes() {
    let deployment = Deployment::new().await;
    let server = deployment.start("30s");
    let client = server.client.clone();
    let thread = client.thread().await;
    let id = deployment.hold(&client, &thread, "10").await;
    let stopping = async {
        deployment.wait_started(&["transfer 10"]).await;
        let waits = client.begin_resume(&thread).await;
        stop(&server).await;
        deployment.release();
        client.read_on(waits).await
    };
    let (decided, turn) = tokio::join!(client.approve(&id), stopping);
    assert_eq!(decided.body["state"], "succeeded");
    assert_eq!((turn.codes().as_str(), turn.text().as_str()), ("a8ed", ""), "{}", turn.raw);
    ended_well(server).await;
    let next = deployment.start("30s");
    assert_eq!(next.client.resume(&thread).await.text(), "{\"transferred\":\"10\"}");
    assert_eq!(deployment.ledger(), ["transfer 10", "transfer 10 done"]);
}

#[tokio::test]
async fn an_embedding_app_can_let_holdpoint_finish() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = Config::default();
    config.database.url = format!("sqlite://{}/holdpoint.db", dir.path().display()).into();
    config.server.grace = Duration::from_millis(100);
    let scene = Scene::new();
    let app = App::builder(config).tools(probes(&Ledger::new())).model(Arc::new(scene.clone()));
    let app = app.handler(Deferred).build().await.unwrap();
    let endpoint = app.endpoint();
    let ask = async |method: Method, path: &str| {
        let peer = RemoteAddr("127.0.0.1:1".parse::<SocketAddr>().unwrap().into());
        endpoint.get_response(asked_from(&peer, method, path)).await.status().as_u16()
    };
    assert_eq!(ask(Method::GET, "/readyz").await, 200);
    assert_eq!(ask(Method::POST, "/threads").await, 201);
    app.finish().await;
    assert_eq!(ask(Method::GET, "/readyz").await, 503);
    assert_eq!(ask(Method::GET, "/healthz").await, 200);
    assert_eq!(ask(Method::GET, "/threads").await, 200, "what is only read is answered");
    assert_eq!(ask(Method::POST, "/qa/chat_streamed/none").await, 503);
}
