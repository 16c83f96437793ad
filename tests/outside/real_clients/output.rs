//! The output of a model, as a page shows it.

use super::page::{POST, Page, Version, all, reload, thread, ui, words};
use holdpoint::llm::{FinishReason, ModelEvent, Usage};
use holdpoint::tools::{Permit, Tool, ToolError};
use holdpoint_testkit::{Embedded, JsonFields, call, eventually, probes};
use serde_json::{Value, json};

/// A piece of a step.
pub(super) enum Piece {
    Text(&'static str),
    Thought(&'static str),
    /// A call of this tool, with a note.
    Call(&'static str, &'static str),
}

/// One step of a model, its arguments in two deltas.
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

/// The last request to the model.
pub(super) fn read(app: &Embedded) -> String {
    let requests = app.scene.requests();
    let messages = requests.last().unwrap().messages.iter().map(|message| format!("{message:?}"));
    messages.collect::<Vec<_>>().join("\n")
}

#[tokio::test]
async fn a_page_shows_text_that_arrives_in_deltas() {
    for version in all() {
        let app = Embedded::start().await;
        let output = [Piece::Text("Hel"), Piece::Text("lo \u{2028}"), Piece::Text("\"world\"\n")];
        app.scene.then(step(&output));
        let mut page = Page::open(&app, version).await;
        page.send("hello").await;
        page.looks_like("a-text.1");
        assert_eq!(page.text(), "Hello \u{2028}\"world\"\n");
        assert_eq!(page.requests(), [POST]);
        page.equals_reload(&app).await;
    }
}

#[tokio::test]
async fn a_page_gets_the_usage_and_the_finish_reason() {
    for version in all() {
        let app = Embedded::start().await;
        let reason = FinishReason::Length;
        let usage = Some(Usage { input_tokens: 120, output_tokens: 8 });
        app.scene.then(vec![
            Ok(ModelEvent::Text("cut of".to_owned())),
            Ok(ModelEvent::Finished { reason, usage, provider_state: None }),
        ]);
        let mut page = Page::open(&app, version).await;
        page.send("hello").await;
        page.looks_like("g-finish-length-usage.1");
        let (held, spent) = match version {
            Version::V4 => (
                &page.finishes[0]["usage"],
                json!({ "promptTokens": 120, "completionTokens": 8, "totalTokens": 128 }),
            ),
            _ => (&page.last()["metadata"], json!({ "usage": { "inputTokens": 120, "outputTokens": 8 } })),
        };
        assert_eq!(held, &spent);
        page.equals_reload(&app).await;
    }
}

#[tokio::test]
async fn a_page_shows_a_call_and_the_next_step_of_the_model() {
    for version in all() {
        let app = Embedded::start().await;
        app.scene.then(step(&[Piece::Text("Let me look. "), Piece::Call("look", "18C")]));
        app.scene.answers("It is 18C.");
        let mut page = Page::open(&app, version).await;
        page.send("hello").await;
        page.looks_like("b-tool-two-steps.1");
        assert_eq!(page.calls()[0].output, json!({ "seen": "18C" }));
        page.equals_reload(&app).await;
    }
}

#[tokio::test]
async fn the_usage_of_all_steps_is_sent_as_one_sum() {
    for version in all() {
        let app = Embedded::start().await;
        app.scene.then(step(&[Piece::Call("look", "18C")])).answers("It is 18C.");
        let mut page = Page::open(&app, version).await;
        page.send("hello").await;
        let usage = match version {
            Version::V4 => &page.finishes[0]["usage"]["promptTokens"],
            _ => &page.last()["metadata"]["usage"]["inputTokens"],
        };
        assert_eq!(usage, 20);
    }
}

#[tokio::test]
async fn a_page_shows_calls_side_by_side() {
    for version in all() {
        let app = Embedded::start().await;
        app.scene.then(step(&[Piece::Call("look", "Paris"), Piece::Call("look", "Oslo")]));
        app.scene.answers("18C and 7C.");
        let mut page = Page::open(&app, version).await;
        page.send("hello").await;
        page.looks_like("c-parallel-tools.1");
        page.equals_reload(&app).await;
    }
}

#[tokio::test]
async fn a_page_shows_reasoning() {
    for version in all() {
        let app = Embedded::start().await;
        app.scene.then(step(&[Piece::Thought("I "), Piece::Thought("think"), Piece::Text("So: yes.")]));
        let mut page = Page::open(&app, version).await;
        page.send("hello").await;
        page.looks_like("f-reasoning.1");
        assert_eq!(page.last()["parts"][1][if !version.is_ui() { "reasoning" } else { "text" }], "I think");
        page.equals_reload(&app).await;
    }
}

/// Reasoning, text and calls in turn.
const MIXED: [Piece; 7] = [
    Piece::Thought("First "),
    Piece::Text("Look: "),
    Piece::Call("look", "1"),
    Piece::Thought("then."),
    Piece::Text("done."),
    Piece::Call("look", "2"),
    Piece::Text(""),
];

/// The types of the parts of the last message.
fn kinds(page: &Page) -> Vec<&str> {
    let parts = page.last().list("parts").iter();
    parts.map(|part| part.text("type")).collect()
}

#[tokio::test]
async fn a_page_of_4_has_one_part_for_the_text_of_a_step_and_one_for_its_reasoning() {
    let app = Embedded::start().await;
    app.scene.then(step(&MIXED)).then(step(&MIXED)).answers("That was all.");
    let mut page = Page::open(&app, Version::V4).await;
    page.send("hello").await;
    let one = ["step-start", "reasoning", "text", "tool-invocation", "tool-invocation"];
    assert_eq!(kinds(&page), [&one[..], &one[..], &["step-start", "text"]].concat());
    assert_eq!(page.last()["parts"][2]["text"], "Look: done.");
    page.equals_reload(&app).await;
}

#[tokio::test]
async fn a_page_of_5_and_later_has_the_parts_in_order_of_arrival() {
    for version in ui() {
        let app = Embedded::start().await;
        app.scene.then(step(&MIXED)).then(step(&MIXED)).answers("That was all.");
        let mut page = Page::open(&app, version).await;
        page.send("hello").await;
        let one = ["step-start", "reasoning", "text", "tool-look", "reasoning", "text", "tool-look"];
        assert_eq!(kinds(&page), [&one[..], &one[..], &["step-start", "text"]].concat());
        page.equals_reload(&app).await;
    }
}

#[tokio::test]
async fn a_page_shows_turn_after_turn() {
    for version in all() {
        let app = Embedded::start().await;
        app.scene.answers("One.").then(step(&[Piece::Call("look", "2")])).answers("Two.").answers("Three.");
        let mut page = Page::open(&app, version).await;
        for question in ["a", "b", "c"] {
            page.send(question).await;
        }
        let output: Vec<String> = page.messages.iter().map(words).collect();
        assert_eq!(output, ["a", "One.", "b", "Two.", "c", "Three."]);
        assert_eq!(app.client.questions(&thread(&app).await).await, ["a", "b", "c"]);
        page.equals_reload(&app).await;
    }
}

#[tokio::test]
async fn a_page_may_post_its_last_message_alone() {
    for version in all() {
        let app = Embedded::start().await;
        app.scene.answers("One.").answers("Two.");
        let mut page = Page::open_with(&app, version, &["--posts", "last"]).await;
        page.send("a").await;
        page.send("b").await;
        assert_eq!(page.posted().get("messages"), None);
        assert_eq!((page.error.as_deref(), page.text().as_str()), (None, "Two."));
        assert_eq!(app.client.questions(&thread(&app).await).await, ["a", "b"]);
        page.equals_reload(&app).await;
    }
}

#[tokio::test]
async fn a_page_that_stops_reading_does_not_stop_the_turn() {
    for version in all() {
        let app = Embedded::start().await;
        let gate = app.scene.gate();
        app.scene.then(step(&[
            Piece::Text("Once "),
            Piece::Text("upon "),
            Piece::Text("a time."),
            Piece::Call("look", "x"),
        ]));
        app.scene.answers("The end.");
        gate.add_permits(2);
        let mut page = Page::open(&app, version).await;
        page.send_until_shown("tell a story", "upon ").await;
        page.stop().await;
        page.stopped_like("h2-abort-client.1");
        gate.add_permits(100);
        let thread = thread(&app).await;
        let whole = async || {
            let found = app.client.messages(&thread).await.pop();
            found.filter(|message| message["status"] == "complete")
        };
        eventually("the turn comes to its end", whole).await;
        let reloaded = reload(&app, version).await;
        assert_eq!(words(&reloaded[1]), "Once upon a time.The end.");
        assert_eq!(reloaded[1]["id"], page.last()["id"]);
        assert_eq!(app.ledger.lines(), ["look x"]);
    }
}

#[tokio::test]
async fn a_call_that_cannot_run_is_shown_with_its_error() {
    for version in all() {
        let app = Embedded::start().await;
        let broken = [
            call("a", "look", &json!({ "wrong": 1 })),
            call("b", "steal", &json!({})),
            ("c".to_owned(), "look".to_owned(), "{\"note\":".to_owned()),
            call("d", "look", &json!({ "note": "fine" })),
        ];
        app.scene.calls(&broken).answers("Sorry.");
        let mut page = Page::open(&app, version).await;
        page.send("hello").await;
        let calls = page.calls();
        let went: Vec<bool> = calls.iter().map(|call| call.error.is_some()).collect();
        assert_eq!(went, [true, true, true, false]);
        assert!(calls[..3].iter().all(|call| call.input == json!({})), "{calls:?}");
        assert_eq!(page.text(), "Sorry.");
        page.equals_reload(&app).await;
    }
}

#[tokio::test]
async fn invalid_inputs_look_as_recorded() {
    // The SDK's own server of 4 cuts its response off here.
    for version in ui() {
        let app = Embedded::start().await;
        app.scene.calls(&[call("a", "look", &json!({ "wrong": 1 }))]).answers("Sorry.");
        let mut page = Page::open(&app, version).await;
        page.send("hello").await;
        page.looks_like("e3-invalid-tool-input.1");
        page.equals_reload(&app).await;
    }
}

/// A tool that runs without an approval, and fails.
struct Stumble;

impl Tool for Stumble {
    const NAME: &'static str = "stumble";
    const DESCRIPTION: &'static str = "Fails.";
    const HIL: bool = false;
    type Input = holdpoint_testkit::Probe;
    type Output = Value;

    async fn execute(&self, input: Self::Input, _permit: Permit<Self>) -> Result<Value, ToolError> {
        Err(ToolError::new(format!("no such city: {}", input.note)))
    }
}

#[tokio::test]
async fn a_tool_that_fails_is_shown_with_its_error_and_the_model_continues() {
    for version in all() {
        let app = Embedded::start().await;
        let mut tools = probes(&app.ledger);
        tools.register(Stumble).unwrap();
        let app = app.redeploy(tools).await;
        app.scene.then(step(&[Piece::Call("stumble", "Nowhere")])).answers("No such city.");
        let mut page = Page::open(&app, version).await;
        page.send("hello").await;
        // The SDK's own server of 4 cuts its response off here.
        if version.is_ui() {
            page.looks_like("e2-tool-error.1");
        }
        let why = page.calls()[0].error.clone().unwrap();
        assert!(why.contains("no such city: Nowhere"), "{why}");
        assert_eq!((page.error.as_deref(), page.text().as_str()), (None, "No such city."));
        page.equals_reload(&app).await;
    }
}
