//! A turn that is stopped, or whose process dies, just before and just after its hold: what a page was shown is there,
//! what is there is shown, nothing runs that nobody was asked about, and the thread goes on. `gone` has pages that
//! leave.

use crate::support::ui::{ui_submit, ui_user};
use crate::support::{Client, Embedded, Place, Process, Rows, UNKNOWN, call, eventually};
use holdpoint::llm::{FinishReason, ModelEvent};
use serde_json::{Value, json};
use std::time::Duration;

/// A server whose leases are so long that none is renewed within a test, unless somebody is told to look.
async fn patient() -> Embedded {
    Embedded::with(|config| config.approval.lease = Duration::from_secs(3600)).await
}

fn begins(index: usize, tool: &str) -> ModelEvent {
    ModelEvent::CallStarted { index, provider_call_id: format!("p-{tool}"), tool_name: tool.to_owned() }
}

fn arguments(index: usize, delta: &str) -> ModelEvent {
    ModelEvent::CallArguments { index, delta: delta.to_owned() }
}

/// Words, a call that would run at once, and one about which a person would be asked.
const EVENTS: usize = 8;

fn both_calls() -> [ModelEvent; EVENTS] {
    [
        ModelEvent::Text("I will.".to_owned()),
        begins(0, "look"),
        arguments(0, "{\"note\":\"1\"}"),
        ModelEvent::CallFinished { index: 0 },
        begins(1, "pay"),
        arguments(1, "{\"note\":\"2\"}"),
        ModelEvent::CallFinished { index: 1 },
        ModelEvent::Finished { reason: FinishReason::ToolCalls, usage: None, provider_state: None },
    ]
}

async fn running(app: &Embedded) -> String {
    let found = async || app.rows.all("SELECT run_id FROM runs WHERE status = 'running'").await.pop();
    eventually("the turn runs", found).await["run_id"].as_str().unwrap().to_owned()
}

async fn cancel(client: &Client, run: &str) -> crate::support::Answer {
    client.post(&format!("/runs/{run}/cancel"), &Value::Null).await
}

/// Nothing of the calls is there, in rows or on a page that is loaded anew, and the thread goes on.
async fn no_call_is_left(app: &Embedded, thread: &str) {
    assert_eq!(app.rows.count("tool_calls").await, 0);
    assert_eq!(app.ledger.lines(), Vec::<String>::new());
    for format in ["", "?format=v4", "?format=ui-v5", "?format=ui-v6"] {
        let shown = app.client.get(&format!("/threads/{thread}/messages{format}")).await.body;
        let answer = shown["results"].as_array().unwrap().last().unwrap().to_string();
        assert!(answer.contains("I will.") && !answer.contains("pay"), "{format}: {answer}");
    }
    assert_eq!(app.client.get(&format!("/threads/{thread}")).await.body["pending_count"], 0);
    assert_eq!(app.client.go_on(thread).await.refused(), (409, "nothing_to_continue".to_owned()));
    let gate = app.scene.gate();
    gate.add_permits(2);
    app.scene.says("Never mind.");
    assert_eq!(app.client.say(thread, "leave it").await.text(), "Never mind.");
    assert_eq!(app.scene.requests().pop().unwrap().messages.len(), 2, "what broke off is not sent");
}

#[tokio::test]
async fn cancelled_while_the_arguments_are_written_a_call_was_never_there() {
    let app = patient().await;
    let thread = app.client.thread().await;
    app.scene.then(both_calls().map(Ok).to_vec());
    let gate = app.scene.gate();
    gate.add_permits(6);
    let stop = async {
        let run = running(&app).await;
        eventually("the model speaks", async || (gate.available_permits() == 0).then_some(())).await;
        cancel(&app.client, &run).await
    };
    let (turn, stopped) = tokio::join!(app.client.say(&thread, "pay"), stop);
    assert_eq!((stopped.status, &stopped.body["status"]), (200, &json!("cancelled")));
    assert_eq!(turn.codes(), "f0bcbcd", "{}", turn.raw);
    assert_eq!(turn.one('d')["finishReason"], "other");
    no_call_is_left(&app, &thread).await;
}

#[tokio::test]
async fn cancelled_between_the_end_of_the_model_and_the_commit_a_call_was_never_there() {
    let app = patient().await;
    let thread = app.client.thread().await;
    app.scene.then(both_calls().map(Ok).to_vec());
    let gate = app.scene.gate();
    gate.add_permits(EVENTS - 1);
    let stop = async {
        running(&app).await;
        eventually("the model speaks", async || (gate.available_permits() == 0).then_some(())).await;
        // As another process says it: this one has not seen it when the model ends.
        assert_eq!(app.rows.change("UPDATE runs SET cancel_requested_at = created_at").await, Ok(1));
        gate.add_permits(1);
    };
    let (turn, ()) = tokio::join!(app.client.say(&thread, "pay"), stop);
    assert_eq!(turn.codes(), "f0bcbcd", "{}", turn.raw);
    assert_eq!(turn.one('d')["finishReason"], "other");
    let runs = app.rows.all("SELECT status FROM runs").await;
    assert_eq!(runs, [json!({ "status": "cancelled" })]);
    no_call_is_left(&app, &thread).await;
}

/// Has the database refuse that a turn ends at its hold.
async fn forbid_the_end(rows: &Rows) {
    let forbid = if rows.is_postgres() {
        "CREATE FUNCTION not_now() RETURNS trigger LANGUAGE plpgsql AS $$
             BEGIN RAISE EXCEPTION 'not now'; END $$;
         CREATE TRIGGER not_now BEFORE UPDATE ON runs FOR EACH ROW
             WHEN (NEW.status = 'waiting') EXECUTE FUNCTION not_now()"
    } else {
        "CREATE TRIGGER not_now BEFORE UPDATE ON runs WHEN NEW.status = 'waiting'
             BEGIN SELECT RAISE(ABORT, 'not now'); END"
    };
    rows.change(forbid).await.unwrap();
}

async fn allow_the_end(rows: &Rows) {
    let on = if rows.is_postgres() { " ON runs" } else { "" };
    rows.change(&format!("DROP TRIGGER not_now{on}")).await.unwrap();
}

/// Reads on until this was heard; all that was.
async fn hears(response: &mut reqwest::Response, text: &str) -> String {
    let mut heard = String::new();
    while !heard.contains(text) {
        let chunk = response.chunk().await.unwrap().unwrap_or_else(|| panic!("no {text} in {heard}"));
        heard.push_str(std::str::from_utf8(&chunk).unwrap());
    }
    heard
}

#[tokio::test]
async fn cancelled_between_the_hold_and_the_end_of_its_stream_what_was_shown_is_cancelled() {
    for dialect in ["data-v1", "ui-v5", "ui-v6"] {
        let app = patient().await;
        forbid_the_end(&app.rows).await;
        let thread = app.client.thread().await;
        app.scene.calls(&[call("p", "pay", &json!({ "note": "10" }))]);
        let body = ui_submit(&thread, &[ui_user("u", "pay")]);
        let path = app.client.url(&format!("/qa/chat_streamed/{thread}"));
        let request = app.client.http.post(path).json(&body).header("x-stream-protocol", dialect);
        let mut turn = request.send().await.unwrap();
        let asks = match dialect {
            "data-v1" => "8:[",
            "ui-v5" => "data-tool-validation",
            _ => "tool-approval-request",
        };
        hears(&mut turn, asks).await;
        let calls = app.rows.all("SELECT tool_call_id, state FROM tool_calls").await;
        let [shown] = &calls[..] else { panic!("{dialect}: {calls:?}") };
        assert_eq!(shown["state"], "pending", "{dialect}: it was told after its commit");
        let id = shown["tool_call_id"].as_str().unwrap();
        let stopped = cancel(&app.client, &running(&app).await).await;
        assert_eq!((stopped.status, &stopped.body["status"]), (200, &json!("cancelled")), "{dialect}");
        assert_eq!(stopped.body["pending"], json!([]), "{dialect}");
        turn.text().await.unwrap();

        assert_eq!(app.client.call(id).await["state"], "cancelled", "{dialect}: it is not missing");
        let late = app.client.approve(id).await;
        assert_eq!((late.status, late.code()), (409, "cancelled"), "{dialect}");
        let again = app.client.go_on(&thread).await;
        assert_eq!(again.refused(), (409, "nothing_to_continue".to_owned()), "{dialect}");
        app.scene.says("Never mind.");
        assert_eq!(app.client.say(&thread, "leave it").await.text(), "Never mind.", "{dialect}");
        assert_eq!(app.ledger.lines(), Vec::<String>::new());
    }
}

/// Begins a turn of its own connection.
async fn begin(client: &Client, thread: &str, words: &str) -> reqwest::Response {
    client.begin(thread, &json!({ "content": words })).await
}

/// The next server on the same database, once it has closed the turn that the dead one left.
async fn next_server(place: &Place, rows: &Rows) -> Process {
    let server = place.start("30s");
    let over = async || (rows.count("runs WHERE status = 'running'").await == 0).then_some(());
    eventually("the turn is closed", over).await;
    server
}

/// The one call that waits, and is shown so everywhere.
async fn the_pending_one(client: &Client, rows: &Rows, thread: &str) -> String {
    let pending = rows.all("SELECT tool_call_id FROM tool_calls WHERE state = 'pending'").await;
    let [pending] = &pending[..] else { panic!("{pending:?}") };
    let id = pending["tool_call_id"].as_str().unwrap();
    let again = client.go_on(thread).await;
    assert_eq!(again.pending(), [id], "{}", again.raw);
    assert_eq!(again.all('f').len(), 0, "no model is asked: {}", again.raw);
    for (format, shown) in [("v4", "pending"), ("ui-v5", "pending"), ("ui-v6", "approval-requested")] {
        let page = client.get(&format!("/threads/{thread}/messages?format={format}")).await.body.to_string();
        assert!(page.contains(id) && page.contains(shown), "{format}: {page}");
    }
    id.to_owned()
}

/// The thread goes on: the call runs once on a yes, and the model reads how it went.
async fn goes_on(place: &Place, client: &Client, thread: &str, id: &str, before: &[&str]) {
    assert_eq!(client.approve(id).await.body["state"], "succeeded");
    assert_eq!(client.go_on(thread).await.text(), "{\"transferred\":\"10\"}");
    assert_eq!(client.say(thread, "thanks").await.text(), "thanks");
    let effects: Vec<_> = before.iter().copied().chain(["transfer 10", "transfer 10 done"]).collect();
    assert_eq!(place.ledger(), effects);
}

#[tokio::test]
async fn k4_killed_while_the_arguments_are_written_no_call_is_there_and_the_answer_is_written_anew() {
    let place = Place::new().await;
    let mut server = place.start("30s");
    let rows = place.rows().await;
    let thread = server.client.thread().await;
    let mut turn = begin(&server.client, &thread, "slowly 10").await;
    let heard = hears(&mut turn, "c:{").await;
    assert!(heard.contains("b:{") && !heard.contains("9:{"), "{heard}");
    place.wait_begun(&["slowly"]).await;
    server.kill();

    let server = next_server(&place, &rows).await;
    assert_eq!(rows.count("tool_calls").await, 0);
    let broken = server.client.messages(&thread).await.pop().unwrap();
    assert_eq!(broken["status"], "interrupted");
    assert!(!broken.to_string().contains("tool_call"), "{broken}");
    place.go();
    let again = server.client.go_on(&thread).await;
    assert_eq!(again.codes(), "fbc98ed", "{}", again.raw);
    let id = the_pending_one(&server.client, &rows, &thread).await;
    let said = ["slowly", "slowly", "all is said"];
    goes_on(&place, &server.client, &thread, &id, &said).await;
}

#[tokio::test]
async fn k5_killed_between_the_end_of_the_model_and_the_commit_nothing_was_shown_and_nothing_is_there() {
    let place = Place::new().await;
    let mut server = place.start("30s");
    let rows = place.rows().await;
    let thread = server.client.thread().await;
    let turn = begin(&server.client, &thread, "slowly 10").await;
    place.wait_begun(&["slowly"]).await;
    let lock = if rows.is_postgres() { "BEGIN; SELECT 1 FROM threads FOR UPDATE" } else { "BEGIN IMMEDIATE" };
    rows.change(lock).await.unwrap();
    place.go();
    place.wait_begun(&["slowly", "all is said"]).await;
    server.kill();
    rows.change("ROLLBACK").await.unwrap();
    // What was under way when the process died breaks off.
    let mut turn = turn;
    let mut heard = String::new();
    while let Ok(Some(chunk)) = turn.chunk().await {
        heard.push_str(std::str::from_utf8(&chunk).unwrap());
    }
    assert!(!heard.contains("9:{") && !heard.contains("8:["), "{heard}");

    let server = next_server(&place, &rows).await;
    assert_eq!(rows.count("tool_calls").await, 0);
    assert_eq!(server.client.go_on(&thread).await.codes(), "fbc98ed");
    let id = the_pending_one(&server.client, &rows, &thread).await;
    let said = ["slowly", "all is said", "slowly", "all is said"];
    goes_on(&place, &server.client, &thread, &id, &said).await;
}

#[tokio::test]
async fn k6_killed_between_the_commit_and_the_annotation_the_card_is_there_and_what_ran_is_unknown() {
    let place = Place::new().await;
    let mut server = place.start("30s");
    let rows = place.rows().await;
    let thread = server.client.thread().await;
    let mut turn = begin(&server.client, &thread, "both 10").await;
    place.wait_begun(&["sync 10"]).await;
    let heard = hears(&mut turn, "\"toolName\":\"transfer\",\"args\"").await;
    assert!(!heard.contains("8:["), "{heard}");
    server.kill();

    let server = next_server(&place, &rows).await;
    let settled = async || (rows.count("tool_calls WHERE state = 'executing'").await == 0).then_some(());
    eventually("nobody runs the other any more", settled).await;
    place.go();
    let id = the_pending_one(&server.client, &rows, &thread).await;
    let answer = server.client.messages(&thread).await.pop().unwrap();
    let ran =
        answer["parts"].as_array().unwrap().iter().find(|part| part["tool_call"]["tool_name"] == "sync");
    let ran = &ran.unwrap()["tool_call"];
    assert_eq!((&ran["state"], &ran["result"]), (&json!("interrupted"), &json!(UNKNOWN)));
    goes_on(&place, &server.client, &thread, &id, &["sync 10"]).await;
}

#[tokio::test]
async fn k7_killed_between_the_annotation_and_the_end_of_the_stream_the_card_is_there() {
    let place = Place::new().await;
    let mut server = place.start("30s");
    let rows = place.rows().await;
    let thread = server.client.thread().await;
    forbid_the_end(&rows).await;
    let mut turn = begin(&server.client, &thread, "transfer 10").await;
    let heard = hears(&mut turn, "e:{").await;
    assert!(heard.contains("8:[") && !heard.contains("d:{"), "{heard}");
    server.kill();
    allow_the_end(&rows).await;

    let server = next_server(&place, &rows).await;
    place.go();
    let id = the_pending_one(&server.client, &rows, &thread).await;
    assert!(heard.contains(&id), "{heard}");
    goes_on(&place, &server.client, &thread, &id, &[]).await;
}
