//! A page that is loaded during a turn, or before the first message.

use super::output::{Piece, step};
use super::page::{CHAT, Page, Version, all, native, reload, thread, ui, words};
use holdpoint_testkit::{Embedded, eventually};
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::sync::Semaphore;

/// Loads a page and resumes the turn. Once the page reads the stream, the model continues.
async fn load_and_resume(app: &Embedded, version: Version, gate: &Arc<Semaphore>) -> (Vec<Value>, Page) {
    let mut page = Page::load(app, version).await;
    let loaded = page.messages.clone();
    page.begin_to_resume().await;
    gate.add_permits(100);
    page.settles().await;
    (loaded, page)
}

async fn begin(app: &Embedded, body: &Value) -> reqwest::Response {
    app.client.http.post(app.client.url("/qa/chat_streamed")).json(body).send().await.unwrap()
}

/// The status for a resume without a running turn: an empty stream, or no content.
fn nothing(version: Version) -> u16 {
    version.dialect().nothing_to_read
}

#[tokio::test]
async fn a_page_that_mounts_before_its_first_message_shows_nothing() {
    for version in all() {
        let app = Embedded::start().await;
        let mut page = Page::open(&app, version).await;
        page.resume().await;
        assert_eq!((page.error.as_deref(), &page.messages[..]), (None, &[][..]));
        assert_eq!(page.requests[0]["status"], nothing(version));
        assert_eq!(app.rows.count("threads").await, 0, "a resume creates no thread");
    }
}

#[tokio::test]
async fn a_page_that_is_loaded_after_the_answer_shows_it_once() {
    for version in all() {
        let app = Embedded::start().await;
        app.scene.then(step(&[Piece::Text("Look. "), Piece::Call("look", "1")])).answers("Seen.");
        app.client.turn_by_id(&json!({ "id": CHAT, "content": "hi" })).await;
        let mut page = Page::load(&app, version).await;
        page.resume().await;
        assert_eq!((page.error.as_deref(), &page.requests[0]["status"]), (None, &json!(nothing(version))));
        assert_eq!(page.text(), "Look. Seen.");
        page.equals_reload(&app).await;
        assert_eq!(app.scene.requests().len(), 2);
    }
}

#[tokio::test]
async fn a_page_that_is_loaded_during_the_first_turn_reads_it_from_its_beginning() {
    for version in all() {
        let app = Embedded::start().await;
        let gate = app.scene.gate();
        app.scene.then(step(&[Piece::Text("Look. "), Piece::Call("look", "1")])).answers("Seen.");
        // The gate opens until the second step, so that the first step is stored.
        gate.add_permits(7);
        let first = begin(&app, &json!({ "id": CHAT, "content": "hi" })).await;
        app.ledger.wait_started().await;
        let (loaded, page) = load_and_resume(&app, version, &gate).await;
        assert_eq!(loaded.len(), 1, "the turn sends the answer: {loaded:?}");
        assert_eq!(page.error, None);
        assert_eq!(page.text(), "Look. Seen.");
        page.equals_reload(&app).await;
        assert_eq!(app.client.read_on(first).await.text(), "Look. Seen.");
    }
}

#[tokio::test]
async fn a_page_that_is_loaded_during_a_text_looks_as_recorded() {
    for version in all() {
        let app = Embedded::start().await;
        let gate = app.scene.gate();
        app.scene.then(step(&[Piece::Text("Hel"), Piece::Text("lo "), Piece::Text("world")]));
        gate.add_permits(1);
        let first = begin(&app, &json!({ "id": CHAT, "content": "hello" })).await;
        let (_, page) = load_and_resume(&app, version, &gate).await;
        page.looks_like("n-resume.2");
        assert_eq!(page.text(), "Hello world");
        page.equals_reload(&app).await;
        assert_eq!(app.client.read_on(first).await.text(), "Hello world");
    }
}

#[tokio::test]
async fn a_page_of_4_that_is_loaded_during_a_continuation_appends_the_rest_of_the_message() {
    let app = Embedded::start().await;
    let (gate, running, before) = continued(&app, Version::V4).await;
    let (loaded, page) = load_and_resume(&app, Version::V4, &gate).await;
    assert_eq!(loaded, before, "as it was when the turn began");
    assert_eq!(page.error, None);
    assert_eq!(page.text(), "I will pay. Paid. All done.");
    page.equals_reload(&app).await;
    app.client.read_on(running).await;
}

/// A turn that was resumed after an approval and waits in its second step, and the messages from before it.
async fn continued(app: &Embedded, version: Version) -> (Arc<Semaphore>, reqwest::Response, Vec<Value>) {
    app.scene.then(step(&[Piece::Text("I will pay. "), Piece::Call("pay", "10")]));
    let held = app.client.turn_by_id(&json!({ "id": CHAT, "content": "pay" })).await;
    app.client.approve(&held.pending()[0]).await;
    let before = reload(app, version).await;
    let gate = app.scene.gate();
    app.scene.then(step(&[Piece::Text("Paid. "), Piece::Call("look", "1")])).answers("All done.");
    gate.add_permits(7);
    let running = begin(app, &json!({ "id": CHAT })).await;
    app.ledger.wait_started().await;
    app.ledger.wait_started().await;
    (gate, running, before)
}

#[tokio::test]
async fn a_thread_in_the_path_is_resumed_regardless_of_the_chat_id() {
    let app = Embedded::start().await;
    let id = app.client.thread().await;
    let path = format!("/qa/chat_streamed/{id}");
    app.scene.then(step(&[Piece::Call("pay", "10")])).answers("Paid.");
    let mut page = Page::open_with(&app, Version::V4, &["--path", &path]).await;
    page.send("pay").await;
    app.client.approve(&page.call_ids()[0]).await;
    page.resume().await;
    assert_eq!(page.requests()[1], format!("GET {path}?chatId={CHAT}"));
    assert_eq!((page.error.as_deref(), page.text().as_str()), (None, "Paid."));
    assert_eq!(thread(&app).await, id);
    page.equals_reload(&app).await;
}

#[tokio::test]
async fn a_page_that_is_loaded_during_a_retry_of_a_failed_turn_shows_the_earlier_steps() {
    for version in all() {
        let app = Embedded::with(|config| config.model.max_steps = 1).await;
        let look = [Piece::Text("Look. "), Piece::Call("look", "1")];
        app.scene.then(step(&look)).then(step(&look));
        let failed = app.client.turn_by_id(&json!({ "id": CHAT, "content": "hi" })).await;
        failed.failed_with("step_limit");
        let before = reload(&app, version).await;
        let gate = app.scene.gate();
        app.scene.then(step(&[Piece::Text("At "), Piece::Text("last.")]));
        gate.add_permits(1);
        let running = begin(&app, &json!({ "id": CHAT })).await;
        let opened = async || (app.rows.count("message_steps").await == 3).then_some(());
        eventually("the third step is open", opened).await;
        let (loaded, page) = load_and_resume(&app, version, &gate).await;
        match version {
            Version::V4 => assert_eq!(loaded, before),
            // The turn sends the whole message again.
            _ => assert_eq!(loaded, before[..1]),
        }
        assert_eq!((page.error.as_deref(), page.text().as_str()), (None, "Look. Look. At last."));
        assert_eq!(words(&page.messages[0]), "hi");
        page.equals_reload(&app).await;
        app.client.read_on(running).await;
    }
}

#[tokio::test]
async fn a_page_of_5_and_later_that_is_loaded_during_a_continuation_reads_the_whole_message() {
    for version in ui() {
        let app = Embedded::start().await;
        let (gate, running, before) = continued(&app, version).await;
        let (loaded, page) = load_and_resume(&app, version, &gate).await;
        assert_eq!(loaded, before[..1], "the turn sends the answer");
        assert_eq!((page.error.as_deref(), page.requests.len()), (None, 1));
        assert_eq!(page.text(), "I will pay. Paid. All done.");
        assert_eq!(page.states(), ["output-available"; 2]);
        page.equals_reload(&app).await;
        app.client.read_on(running).await;
    }
}

#[tokio::test]
async fn a_page_that_shows_half_of_a_turn_reads_the_turn_from_its_beginning() {
    for version in ui() {
        let app = Embedded::start().await;
        let gate = app.scene.gate();
        app.scene.then(step(&[Piece::Text("Hel"), Piece::Text("lo "), Piece::Text("world")]));
        gate.add_permits(1);
        let mut page = Page::open(&app, version).await;
        page.send_until_shown("hello", "Hel").await;
        page.stop().await;
        assert_eq!(page.text(), "Hel");
        page.begin_to_resume().await;
        gate.add_permits(10);
        page.settles().await;
        page.looks_like("n2-resume-half-shown.1");
        assert_eq!((page.text().as_str(), page.requests.len()), ("Hello world", 2));
        page.equals_reload(&app).await;
    }
}

#[tokio::test]
async fn pages_of_all_versions_read_one_turn_side_by_side() {
    let app = Embedded::start().await;
    let gate = app.scene.gate();
    app.scene.then(step(&[Piece::Thought("Hm. "), Piece::Text("Look. "), Piece::Call("look", "1")]));
    app.scene.answers("Seen.");
    gate.add_permits(2);
    let mut first = Page::open(&app, Version::V7).await;
    first.send_until_shown("hi", "Look. ").await;
    let mut pages = Vec::new();
    for version in all() {
        let mut page = Page::load(&app, version).await;
        page.begin_to_resume().await;
        pages.push(page);
    }
    gate.add_permits(100);
    first.settles().await;
    for page in &mut pages {
        page.settles().await;
        assert_eq!((page.error.as_deref(), page.text().as_str()), (None, "Look. Seen."));
        page.equals_reload(&app).await;
    }
    first.equals_reload(&app).await;
    assert_eq!(app.ledger.lines(), ["look 1"]);
}

#[tokio::test]
async fn a_tab_reads_the_turn_that_the_approval_of_another_tab_resumed() {
    for version in native() {
        let app = Embedded::start().await;
        app.scene.then(step(&[Piece::Text("I will pay. "), Piece::Call("pay", "10")]));
        let mut page = Page::open(&app, version).await;
        page.send("pay").await;
        let gate = app.scene.gate();
        app.scene.then(step(&[Piece::Text("Paid. "), Piece::Call("look", "1")])).answers("All done.");
        gate.add_permits(1);
        page.begin_to_approve(&page.call_ids()[0]).await;
        page.shows("Paid. ").await;
        let mut other = Page::load(&app, version).await;
        assert_eq!(other.messages.len(), 1, "the turn sends the answer");
        other.begin_to_resume().await;
        gate.add_permits(100);
        page.settles().await;
        other.settles().await;
        for page in [&page, &other] {
            assert_eq!(page.error, None);
            assert_eq!(page.text(), "I will pay. Paid. All done.");
            page.equals_reload(&app).await;
        }
        assert_eq!((page.requests.len(), other.requests.len()), (2, 1));
        assert_eq!(app.ledger.lines(), ["pay 10", "look 1"]);
    }
}

#[tokio::test]
async fn a_page_of_5_and_later_that_resumes_while_a_call_is_pending_gets_no_content() {
    for version in ui() {
        let app = Embedded::start().await;
        let id = app.client.thread().await;
        let path = format!("/qa/chat_streamed/{id}");
        app.scene.then(step(&[Piece::Call("pay", "10")]));
        let mut page = Page::open_with(&app, version, &["--path", &path]).await;
        page.send("pay").await;
        let before = page.messages.clone();
        page.resume().await;
        assert_eq!(page.requests()[1], format!("GET {path}/{CHAT}/stream"));
        assert_eq!((page.error.as_deref(), &page.requests[1]["status"]), (None, &json!(204)));
        assert_eq!(page.messages, before);
        page.equals_reload(&app).await;
    }
}
