//! Clients that go away: what they began goes on without them.

use crate::support::{Embedded, call, eventually};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// How a client goes away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Leave {
    /// It closes its end; the server is told once there is nothing left to read.
    Fin,
    /// It vanishes, and says so at once.
    Rst,
}

/// A connection with this request sent, nothing read.
async fn send(app: &Embedded, path: &str, body: &Value) -> TcpStream {
    let address = app.client.base.trim_start_matches("http://");
    let body = body.to_string();
    let request = format!(
        "POST {path} HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut socket = TcpStream::connect(address).await.unwrap();
    socket.write_all(request.as_bytes()).await.unwrap();
    socket
}

/// Reads until there is this text.
async fn read_until(socket: &mut TcpStream, text: &str) {
    let mut read = Vec::new();
    while !String::from_utf8_lossy(&read).contains(text) {
        let count = socket.read_buf(&mut read).await.unwrap();
        assert_ne!(count, 0, "the server ended before {text:?}: {}", String::from_utf8_lossy(&read));
    }
}

/// Goes away. After a FIN, waits until the server has let go of the connection too.
async fn leave(mut socket: TcpStream, how: Leave) {
    match how {
        Leave::Fin => {
            socket.shutdown().await.unwrap();
            let mut rest = Vec::new();
            // An error would mean that the server let go even harder.
            let _read = socket.read_to_end(&mut rest).await;
            assert_eq!(String::from_utf8_lossy(&rest), "", "it is not told more");
        }
        Leave::Rst => {
            socket.set_zero_linger().unwrap();
            drop(socket);
        }
    }
}

async fn answer(app: &Embedded, thread: &str) -> Value {
    let messages = app.client.get(&format!("/threads/{thread}/messages")).await.body;
    messages["results"].as_array().unwrap().last().unwrap().clone()
}

async fn ended(app: &Embedded, thread: &str) -> Value {
    let over = async || Some(answer(app, thread).await).filter(|answer| answer["status"] != "streaming");
    eventually("the turn ends", over).await
}

async fn words_go_on_without(how: Leave) {
    let app = Embedded::start().await;
    let thread = app.client.thread().await;
    app.scene.says("Nobody hears this.").says("Still here.");
    let gate = app.scene.gate();
    let path = format!("/qa/chat_streamed/{thread}");
    let mut socket = send(&app, &path, &json!({ "content": "hi" })).await;
    read_until(&mut socket, "f:{").await;
    leave(socket, how).await;
    assert_eq!(answer(&app, &thread).await["status"], "streaming", "nothing was said yet");

    gate.add_permits(2);
    let whole = ended(&app, &thread).await;
    assert_eq!(whole["status"], "complete");
    assert_eq!(whole["parts"][1]["text"], "Nobody hears this.");
    let runs = app.rows.all("SELECT status, error_code FROM runs").await;
    assert_eq!(runs, [json!({ "status": "completed", "error_code": null })]);
    gate.add_permits(2);
    assert_eq!(app.client.say(&thread, "and now?").await.text(), "Still here.");
}

#[tokio::test]
async fn a_client_that_closes_in_mid_stream_does_not_stop_the_turn() {
    words_go_on_without(Leave::Fin).await;
}

#[tokio::test]
async fn a_client_that_is_cut_off_in_mid_stream_does_not_stop_the_turn() {
    words_go_on_without(Leave::Rst).await;
}

#[tokio::test]
async fn calls_asked_for_after_the_client_left_run_and_are_held_as_ever() {
    for how in [Leave::Fin, Leave::Rst] {
        let app = Embedded::start().await;
        let thread = app.client.thread().await;
        let two = [call("a", "look", &json!({ "note": "1" })), call("b", "pay", &json!({ "note": "2" }))];
        app.scene.calls(&two);
        let gate = app.scene.gate();
        let path = format!("/qa/chat_streamed/{thread}");
        let mut socket = send(&app, &path, &json!({ "content": "pay" })).await;
        read_until(&mut socket, "f:{").await;
        leave(socket, how).await;
        gate.add_permits(7);
        assert_eq!(ended(&app, &thread).await["status"], "complete", "held is complete");
        assert_eq!(app.ledger.lines(), ["look 1"]);

        let held = app.client.go_on(&thread).await;
        let [id] = &held.pending()[..] else { panic!("{}", held.raw) };
        assert_eq!(app.client.approve(id).await.body["state"], "succeeded");
        app.scene.says("Paid.");
        gate.add_permits(2);
        assert_eq!(app.client.go_on(&thread).await.text(), "Paid.");
        assert_eq!(app.ledger.lines(), ["look 1", "pay 2"]);
    }
}

#[tokio::test]
async fn a_decider_that_leaves_while_the_tool_runs_does_not_stop_it() {
    for how in [Leave::Fin, Leave::Rst] {
        let app = Embedded::start().await;
        let (thread, id) = app.held("wait_for_me", "10").await;
        let yes = json!({ "toolCallId": id, "isValidated": true });
        let socket = send(&app, "/qa/validate_tool", &yes).await;
        app.ledger.wait_begun().await;
        leave(socket, how).await;
        assert_eq!(app.client.call(&id).await["state"], "executing");

        app.ledger.go.add_permits(1);
        let stored = app.client.approve(&id).await;
        assert_eq!((stored.status, stored.header("idempotent-replayed")), (200, Some("true")));
        assert_eq!(stored.body["state"], "succeeded");
        app.scene.says("Waited.");
        assert_eq!(app.client.go_on(&thread).await.text(), "Waited.");
        assert_eq!(app.ledger.lines(), ["wait_for_me 10"]);
    }
}

#[tokio::test]
async fn a_decider_that_leaves_at_once_has_decided_wholly_or_not_at_all() {
    let app = Embedded::start().await;
    let thread = app.client.thread().await;
    let notes: Vec<String> = (0..16).map(|n| n.to_string()).collect();
    let calls: Vec<_> = notes.iter().map(|note| call(note, "pay", &json!({ "note": note }))).collect();
    app.scene.calls(&calls);
    let ids = app.client.say(&thread, "pay").await.pending();
    assert_eq!(ids.len(), 16);
    for (n, id) in ids.iter().enumerate() {
        let how = if n % 2 == 0 { Leave::Fin } else { Leave::Rst };
        let yes = json!({ "toolCallId": id, "isValidated": true });
        let socket = send(&app, "/qa/validate_tool", &yes).await;
        if how == Leave::Rst {
            socket.set_zero_linger().unwrap();
        }
        drop(socket);
        // One look at one moment: the move, its decision and its event are there together or not at all.
        let decided = "EXISTS (SELECT 1 FROM decisions d WHERE d.tool_call_id = c.tool_call_id)";
        let told = "EXISTS (SELECT 1 FROM events e
                            WHERE e.tool_call_id = c.tool_call_id AND e.type = 'tool.approved')";
        let half = format!("tool_calls c WHERE ((state <> 'pending') <> {decided}) OR ({decided} <> {told})");
        assert_eq!(app.rows.count(&half).await, 0);
    }
    // Who says the same again gets the outcome, whether the first yes arrived or not.
    for id in &ids {
        let answer = app.client.approve(id).await;
        assert_eq!((answer.status, &answer.body["state"]), (200, &json!("succeeded")));
    }
    let mut lines = app.ledger.lines();
    lines.sort_unstable();
    let mut expected: Vec<String> = notes.iter().map(|note| format!("pay {note}")).collect();
    expected.sort_unstable();
    assert_eq!(lines, expected, "each ran once");
    assert_eq!(app.rows.count("decisions").await, 16);
    assert_eq!(app.rows.count("events WHERE type = 'tool.started'").await, 16);
}
