//! Stream parts other than text, as a page shows them: sources, files and keep-alives.

use super::page::{Page, all, thread};
use holdpoint::llm::{FinishReason, ModelEvent};
use holdpoint_testkit::{Embedded, JsonFields, call};
use serde_json::json;
use std::time::Duration;

fn words(text: &str) -> ModelEvent {
    ModelEvent::Text(text.to_owned())
}

fn source(url: &str) -> ModelEvent {
    ModelEvent::Source { url: url.to_owned(), title: Some("Example".to_owned()) }
}

fn file() -> ModelEvent {
    ModelEvent::File { media_type: "image/png".to_owned(), data: b"\x89PNG".to_vec() }
}

fn ends(reason: FinishReason) -> ModelEvent {
    ModelEvent::Finished { reason, usage: None, provider_state: None }
}

#[tokio::test]
async fn a_page_shows_the_source_of_a_text() {
    for version in all() {
        let app = Embedded::start().await;
        let output = [words("See "), source("https://example.com/"), ends(FinishReason::Stop)];
        app.scene.then(output.map(Ok).into());
        let mut page = Page::open(&app, version).await;
        page.send("hello").await;
        page.looks_like("f2-source.1");
        assert!(page.last()["parts"][2].to_string().contains("https://example.com/"));
        page.equals_reload(&app).await;
    }
}

#[tokio::test]
async fn a_page_shows_sources_and_files_at_their_position_in_every_step() {
    for version in all() {
        let app = Embedded::start().await;
        let (provider_call_id, tool_name, delta) = call("a", "look", &json!({ "note": "1" }));
        let first = [
            source("https://a.example/"),
            ModelEvent::Reasoning("Hm, ".to_owned()),
            source("https://b.example/"),
            ModelEvent::Reasoning("so.".to_owned()),
            words("A "),
            source("https://c.example/"),
            words("cat: "),
            file(),
            words("and its "),
            source("https://a.example/"),
            ModelEvent::Source { url: "https://d.example/".to_owned(), title: None },
            words("dog:"),
            file(),
            ModelEvent::CallStarted { index: 0, provider_call_id, tool_name },
            ModelEvent::CallArguments { index: 0, delta },
            ModelEvent::CallFinished { index: 0 },
            ends(FinishReason::ToolCalls),
        ];
        app.scene.then(first.map(Ok).into());
        let second = [source("https://a.example/"), words("Seen."), ends(FinishReason::Stop)];
        app.scene.then(second.map(Ok).into());
        let mut page = Page::open(&app, version).await;
        page.send("draw").await;
        let parts = page.last().list("parts");
        let kinds: Vec<_> = parts.iter().map(|part| part.text("type")).collect();
        let count = |kind: &str| kinds.iter().filter(|it| it.starts_with(kind)).count();
        assert_eq!((count("source"), count("file")), (5, 2), "{parts:#?}");
        assert_eq!(page.text(), "A cat: and its dog:Seen.");
        page.equals_reload(&app).await;
    }
}

#[tokio::test]
async fn a_page_ignores_keep_alives() {
    for version in all() {
        let app = Embedded::with(|config| config.stream.keep_alive = Duration::from_millis(20)).await;
        let gate = app.scene.gate();
        app.scene.then([words("Half "), words("an answer."), ends(FinishReason::Stop)].map(Ok).into());
        gate.add_permits(1);
        let mut page = Page::open(&app, version).await;
        page.send_until_shown("hello", "Half ").await;
        // A second stream, opened after the page's own: keep-alives reach the page's stream first.
        let path = format!("/qa/chat_streamed/{}", thread(&app).await);
        let mut beside = app.client.http.get(app.client.url(&path)).send().await.unwrap();
        let mut signs = 0;
        while signs < 5 {
            signs += usize::from(&beside.chunk().await.unwrap().unwrap()[..] == b"\n");
        }
        gate.add_permits(2);
        page.settles().await;
        assert_eq!((page.error.as_deref(), page.text().as_str()), (None, "Half an answer."));
        page.equals_reload(&app).await;
    }
}
