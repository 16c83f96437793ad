//! What a model says, as a page shows it.

use super::page::{drive, reload, thread};
use crate::support::{Embedded, call, eventually};
use holdpoint::llm::{FinishReason, ModelEvent, Usage};
use serde_json::{Value, json};

/// A piece of a step.
pub(super) enum Piece {
    Text(&'static str),
    Thought(&'static str),
    /// Of a tool, with a note.
    Call(&'static str, &'static str),
}

/// One step of a model, its arguments in two pieces.
pub(super) fn step(pieces: &[Piece]) -> Vec<Result<ModelEvent, String>> {
    let mut step = Vec::new();
    let mut calls = 0;
    for piece in pieces {
        match piece {
            Piece::Text(text) => step.push(Ok(ModelEvent::Text((*text).to_owned()))),
            Piece::Thought(text) => step.push(Ok(ModelEvent::Reasoning((*text).to_owned()))),
            Piece::Call(tool, note) => {
                let (index, arguments) = (calls, json!({ "note": note }).to_string());
                let (half, rest) = arguments.split_at(6);
                let provider_call_id = format!("p-{note}");
                let tool_name = (*tool).to_owned();
                step.push(Ok(ModelEvent::CallStarted { index, provider_call_id, tool_name }));
                step.push(Ok(ModelEvent::CallArguments { index, delta: half.to_owned() }));
                step.push(Ok(ModelEvent::CallArguments { index, delta: rest.to_owned() }));
                step.push(Ok(ModelEvent::CallFinished { index }));
                calls += 1;
            }
        }
    }
    let reason = if calls > 0 { FinishReason::ToolCalls } else { FinishReason::Stop };
    let usage = Some(Usage { input_tokens: 10, output_tokens: 5 });
    step.push(Ok(ModelEvent::Finished { reason, usage, provider_state: None }));
    step
}

#[tokio::test]
async fn a_page_shows_the_words_that_come_in_pieces() {
    let app = Embedded::start().await;
    app.scene.then(step(&[Piece::Text("Hel"), Piece::Text("lo \u{2028}"), Piece::Text("\"world\"\n")]));
    let page = drive(&app, "send", &[]).await;
    page.looks_like("a-text.1");
    assert_eq!(page.last()["content"], "Hello \u{2028}\"world\"\n");
    assert_eq!(
        page.finishes[0]["usage"],
        json!({ "promptTokens": 10, "completionTokens": 5, "totalTokens": 15 })
    );
    assert_eq!(page.asked(), ["POST /qa/chat_streamed"]);
    page.equals_reload(&app).await;
}

#[tokio::test]
async fn a_page_shows_a_call_and_what_the_model_said_next() {
    let app = Embedded::start().await;
    app.scene.then(step(&[Piece::Text("Let me look. "), Piece::Call("look", "18C")]));
    app.scene.says("It is 18C.");
    let page = drive(&app, "send", &[]).await;
    page.looks_like("b-tool-two-steps.1");
    assert_eq!(page.last()["toolInvocations"][0]["result"], json!({ "seen": "18C" }));
    assert_eq!(page.finishes[0]["usage"]["totalTokens"], 30);
    page.equals_reload(&app).await;
}

#[tokio::test]
async fn a_page_shows_calls_side_by_side() {
    let app = Embedded::start().await;
    app.scene.then(step(&[Piece::Call("look", "Paris"), Piece::Call("look", "Oslo")])).says("18C and 7C.");
    let page = drive(&app, "send", &[]).await;
    page.looks_like("c-parallel-tools.1");
    page.equals_reload(&app).await;
}

#[tokio::test]
async fn a_page_shows_thoughts() {
    let app = Embedded::start().await;
    app.scene.then(step(&[Piece::Thought("I "), Piece::Thought("think"), Piece::Text("So: yes.")]));
    let page = drive(&app, "send", &[]).await;
    page.looks_like("f-reasoning.1");
    assert_eq!(page.last()["reasoning"], "I think");
    page.equals_reload(&app).await;
}

#[tokio::test]
async fn a_page_has_one_part_for_the_words_of_a_step_and_one_for_its_thoughts() {
    let app = Embedded::start().await;
    let mixed = [
        Piece::Thought("First "),
        Piece::Text("Look: "),
        Piece::Call("look", "1"),
        Piece::Thought("then."),
        Piece::Text("done."),
        Piece::Call("look", "2"),
        Piece::Text(""),
    ];
    app.scene.then(step(&mixed)).then(step(&mixed)).says("That was all.");
    let page = drive(&app, "send", &[]).await;
    let types: Vec<&Value> =
        page.last()["parts"].as_array().unwrap().iter().map(|part| &part["type"]).collect();
    let one = ["step-start", "reasoning", "text", "tool-invocation", "tool-invocation"];
    assert_eq!(types, [&one[..], &one[..], &["step-start", "text"]].concat());
    assert_eq!(page.last()["parts"][2]["text"], "Look: done.");
    page.equals_reload(&app).await;
}

#[tokio::test]
async fn a_page_shows_turn_after_turn() {
    let app = Embedded::start().await;
    app.scene.says("One.").then(step(&[Piece::Call("look", "2")])).says("Two.").says("Three.");
    let page = drive(&app, "turns", &["--message", "a", "--message", "b", "--message", "c"]).await;
    let said: Vec<&Value> = page.messages.iter().map(|message| &message["content"]).collect();
    assert_eq!(said, ["a", "One.", "b", "Two.", "c", "Three."]);
    assert_eq!(app.client.questions(&thread(&app).await).await, ["a", "b", "c"]);
    page.equals_reload(&app).await;
}

#[tokio::test]
async fn a_page_that_regenerates_has_the_second_answer_alone() {
    let app = Embedded::start().await;
    app.scene.says("first").says("second");
    let page = drive(&app, "regenerate", &["--message", "hi"]).await;
    page.looks_like("m-regenerate.2");
    assert_eq!(page.last()["content"], "second");
    page.equals_reload(&app).await;
}

#[tokio::test]
async fn a_page_that_stops_reading_stops_nothing() {
    let app = Embedded::start().await;
    let gate = app.scene.gate();
    app.scene.then(step(&[
        Piece::Text("Once "),
        Piece::Text("upon "),
        Piece::Text("a time."),
        Piece::Call("look", "x"),
    ]));
    app.scene.says("The end.");
    gate.add_permits(2);
    let page = drive(&app, "abort", &["--message", "tell a story", "--abort-at", "upon "]).await;
    page.looks_like("h2-abort-client.1");
    gate.add_permits(100);
    let thread = thread(&app).await;
    let whole = async || {
        let found = app.client.messages(&thread).await.pop();
        found.filter(|message| message["status"] == "complete")
    };
    eventually("the turn comes to its end", whole).await;
    let reloaded = reload(&app).await;
    assert_eq!(reloaded[1]["content"], "Once upon a time.The end.");
    assert_eq!(reloaded[1]["id"], page.last()["id"]);
    assert_eq!(app.ledger.lines(), ["look x"]);
}

#[tokio::test]
async fn a_call_that_cannot_be_run_is_shown_with_why() {
    let app = Embedded::start().await;
    let broken = [
        call("a", "look", &json!({ "wrong": 1 })),
        call("b", "steal", &json!({})),
        ("c".to_owned(), "look".to_owned(), "{\"note\":".to_owned()),
        call("d", "look", &json!({ "note": "fine" })),
    ];
    app.scene.calls(&broken).says("Sorry.");
    let page = drive(&app, "send", &[]).await;
    let calls = page.last()["toolInvocations"].as_array().unwrap();
    let went: Vec<bool> = calls.iter().map(|call| call["result"]["error"].is_string()).collect();
    assert_eq!(went, [true, true, true, false]);
    assert!(calls[..3].iter().all(|call| call["args"] == json!({})), "{calls:?}");
    assert_eq!(page.last()["content"], "Sorry.");
    page.equals_reload(&app).await;
}
