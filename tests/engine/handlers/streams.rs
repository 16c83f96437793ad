//! The stream while a handler decides: it stays open, reports that calls wait, and then reports their
//! outcomes.

use super::{office, pays};
use holdpoint::handlers::HandlerAnswer;
use holdpoint_testkit::ui::{UiTurn, ui_submit, ui_user};
use holdpoint_testkit::{Embedded, JsonFields};
use reqwest::Response;
use serde_json::{Value, json};
use std::time::Duration;

/// Reads a stream until these words arrive, which is before the end of the stream.
async fn read_until(response: &mut Response, words: &str) -> String {
    let mut read = Vec::new();
    while !String::from_utf8_lossy(&read).contains(words) {
        let piece = tokio::time::timeout(Duration::from_secs(30), response.chunk()).await;
        let piece = piece.unwrap_or_else(|_| panic!("no {words:?} in {}", String::from_utf8_lossy(&read)));
        read.extend_from_slice(&piece.unwrap().expect("the stream is open"));
    }
    String::from_utf8(read).unwrap()
}

#[tokio::test]
async fn the_stream_stays_open_reports_the_pending_call_and_sends_keep_alives() {
    let (desk, questions) = super::desk();
    let app =
        Embedded::with_handler(desk, |config| config.stream.keep_alive = Duration::from_millis(50)).await;
    let thread = app.client.thread().await;
    pays(&app, &["10"], "Paid.");
    let mut response = app.client.begin(&thread, &json!({ "content": "pay" })).await;
    // After the annotation only keep-alives follow until the handler answers. A keep-alive is an empty line, and a
    // slow server also sends some before the annotation.
    let mut waits = read_until(&mut response, "\ne:").await;
    waits += &read_until(&mut response, "\n\n\n").await;
    let question = questions.next().await;
    let reported: String = waits.lines().filter_map(|line| line.chars().next()).collect();
    assert!(reported.ends_with("928e"), "{waits}");
    question.answer(HandlerAnswer::approved());
    let rest = response.text().await.unwrap();
    let codes: String = rest.lines().filter_map(|line| line.chars().next()).collect();
    assert_eq!(codes, "a82ef0ed", "{waits}{rest}");
}

/// Runs a turn in this dialect in which the desk gives this answer to every call.
async fn turn(dialect: &str, notes: &[&str], answer: HandlerAnswer) -> (UiTurn, Vec<String>) {
    let (app, questions) = office().await;
    pays(&app, notes, "I see.");
    let body = ui_submit("chat-1", &[ui_user("m-1", "pay")]);
    let answers = async {
        let mut ids = Vec::new();
        for _ in notes {
            ids.push(questions.answer(answer.clone()).await);
        }
        ids
    };
    tokio::join!(app.client.ui_turn_as(dialect, &body), answers)
}

#[tokio::test]
async fn a_page_of_6_or_7_reads_the_approval_request_and_then_the_outcome() {
    let (turn, ids) = turn("ui-v6", &["10"], HandlerAnswer::approved()).await;
    let expected = [
        "start",
        "start-step",
        "tool-input-start",
        "tool-input-delta",
        "tool-input-available",
        "tool-approval-request",
        "finish-step",
        "tool-output-available",
        "start-step",
        "text-start",
        "text-delta",
        "text-end",
        "finish-step",
        "finish",
    ];
    assert_eq!(turn.kinds(), expected, "{}", turn.raw);
    assert_eq!(turn.one("tool-output-available")["output"], json!({ "paid": "10" }));
    assert_eq!(turn.one("tool-approval-request")["approvalId"], json!(ids[0]));
    assert_eq!(turn.one("finish")["finishReason"], "stop");

    let (turn, ids) = self::turn("ui-v6", &["10"], HandlerAnswer::denied("no")).await;
    assert_eq!(turn.one("tool-output-denied")["toolCallId"], json!(ids[0]), "{}", turn.raw);
    let inputs = Some(json!({ "note": "5" }).as_object().unwrap().clone());
    let (turn, _) = self::turn("ui-v6", &["10"], HandlerAnswer::Approved { inputs, remember: None }).await;
    let shown: Vec<&Value> = turn.all("tool-input-available").iter().map(|chunk| &chunk["input"]).collect();
    assert_eq!(shown, [&json!({ "note": "10" }), &json!({ "note": "5" })], "{}", turn.raw);
    let between = "\"tool-input-available\"";
    let (_, behind) = turn.raw.rsplit_once(between).unwrap();
    let (behind, _) = behind.split_once("tool-output-available").unwrap();
    assert!(!behind.contains("start-step"), "{behind}");
}

#[tokio::test]
async fn a_page_of_5_reads_both_values_of_its_data_part() {
    let (turn, ids) = turn("ui-v5", &["10"], HandlerAnswer::approved()).await;
    let parts = turn.all("data-tool-validation");
    let reported: Vec<(&Value, &Value)> =
        parts.iter().map(|part| (&part["id"], &part["data"]["validated"])).collect();
    let id = json!(ids[0]);
    assert_eq!(reported, [(&id, &json!("pending")), (&id, &json!("approved"))], "{}", turn.raw);
    assert_eq!(turn.one("tool-output-available")["output"], json!({ "paid": "10" }));
    assert_eq!(turn.text(), "I see.");
}

#[tokio::test]
async fn an_attached_reader_gets_the_same_stream_from_the_beginning() {
    let (app, questions) = office().await;
    let thread = app.client.thread().await;
    pays(&app, &["10"], "Paid.");
    let path = app.client.url(&format!("/qa/chat_streamed/{thread}"));
    let reads = async {
        let question = questions.next().await;
        let started = app.client.http.get(&path).send().await.unwrap();
        assert_eq!(started.status(), 200);
        // A continuation attaches too, because the turn is running.
        let going_on = app.client.begin_resume(&thread).await;
        question.answer(HandlerAnswer::approved());
        tokio::join!(app.client.read_on(started), app.client.read_on(going_on))
    };
    let (turn, (read, other)) = tokio::join!(app.client.send_message(&thread, "pay"), reads);
    assert_eq!(read.merged_lines(), turn.merged_lines());
    assert_eq!(other.merged_lines(), turn.merged_lines());
    assert_eq!(turn.codes(), "fbc98ea8ef0ed", "{}", turn.raw);
    for format in ["v4", "ui-v5", "ui-v6"] {
        let page = app.client.get(&format!("/threads/{thread}/messages?format={format}")).await.body;
        assert!(page["results"][1].to_string().contains("{\"paid\":\"10\"}"), "{page}");
    }
}

#[tokio::test]
async fn a_hold_streams_the_same_with_a_deferring_handler_as_without_a_handler() {
    let leaves_all = holdpoint::handlers::Closure::new("desk", async |_| Ok(HandlerAnswer::Deferred));
    let mut reported = Vec::new();
    for app in [Embedded::start().await, Embedded::with_handler(leaves_all, |_| {}).await] {
        let thread = app.client.thread().await;
        pays(&app, &["1", "2"], "Never said.");
        let mut raw = app.client.send_message(&thread, "pay").await.raw;
        for message in app.client.messages(&thread).await {
            raw = raw.replace(message.text("message_id"), "message");
            for part in message.list("parts") {
                if let Some(id) = part["tool_call"]["tool_call_id"].as_str() {
                    raw = raw.replace(id, "call");
                    raw = raw.replace(part["tool_call"].text("expires_at"), "deadline");
                }
            }
        }
        reported.push(raw);
    }
    assert_eq!(reported[0], reported[1]);
}
