//! A page that edits a message, or requests another answer.

use super::output::{Piece, read, step};
use super::page::{CHAT, Page, all, native, thread, ui, words};
use holdpoint_testkit::ui::{ui_submit, ui_user};
use holdpoint_testkit::{Embedded, JsonFields};
use serde_json::json;

#[tokio::test]
async fn a_page_that_regenerates_has_only_the_second_answer() {
    for version in all() {
        let app = Embedded::start().await;
        app.scene.answers("first").answers("second");
        let mut page = Page::open(&app, version).await;
        page.send("hi").await;
        page.regenerate().await;
        page.looks_like("m-regenerate.2");
        assert_eq!(page.text(), "second");
        page.equals_reload(&app).await;
    }
}

#[tokio::test]
async fn a_page_may_regenerate_an_answer_by_its_id() {
    for version in ui() {
        let app = Embedded::start().await;
        app.scene.answers("first").answers("second");
        let mut page = Page::open(&app, version).await;
        page.send("hi").await;
        let old = page.last().text("id").to_owned();
        page.regenerate_by_id(&old).await;
        page.looks_like("m2-regenerate-by-id.2");
        assert_eq!(page.text(), "second");
        assert_ne!(page.last()["id"], old);
        page.equals_reload(&app).await;
    }
}

#[tokio::test]
async fn regenerating_an_earlier_answer_removes_the_messages_after_it() {
    for version in ui() {
        let app = Embedded::start().await;
        app.scene.answers("One.").answers("Two.").answers("Another one.");
        let mut page = Page::open(&app, version).await;
        page.send("a").await;
        let first = page.last().text("id").to_owned();
        page.send("b").await;
        page.regenerate_by_id(&first).await;
        let output: Vec<String> = page.messages.iter().map(words).collect();
        assert_eq!(output, ["a", "Another one."]);
        page.equals_reload(&app).await;
        assert!(!read(&app).contains("Two."), "{}", read(&app));
    }
}

#[tokio::test]
async fn a_page_edits_a_user_message() {
    for version in ui() {
        let app = Embedded::start().await;
        app.scene.answers("first").answers("second");
        let mut page = Page::open(&app, version).await;
        page.send("hi").await;
        let question = page.messages[0].text("id").to_owned();
        page.edit(&question, "hi again").await;
        page.looks_like("m3-edit-user-message.2");
        assert_eq!(page.messages[0]["id"], question);
        assert_eq!(page.text(), "second");
        assert_eq!(app.client.questions(&thread(&app).await).await, ["hi again"]);
        page.equals_reload(&app).await;
        // The second edit uses the same message id.
        app.scene.answers("third");
        page.edit(&question, "hi once more").await;
        assert_eq!(app.client.questions(&thread(&app).await).await, ["hi once more"]);
        page.equals_reload(&app).await;
    }
}

#[tokio::test]
async fn a_reloaded_page_edits_and_regenerates_the_messages_that_it_loaded() {
    for version in ui() {
        let app = Embedded::start().await;
        app.scene.answers("One.").answers("Two.").answers("Another two.").answers("Three.");
        let mut page = Page::open(&app, version).await;
        page.send("a").await;
        page.send("b").await;
        drop(page);
        let mut page = Page::load(&app, version).await;
        page.regenerate().await;
        assert_eq!(page.text(), "Another two.");
        page.equals_reload(&app).await;
        let question = page.messages[2].text("id").to_owned();
        page.edit(&question, "c").await;
        let output: Vec<String> = page.messages.iter().map(words).collect();
        assert_eq!(output, ["a", "One.", "c", "Three."]);
        page.equals_reload(&app).await;
    }
}

#[tokio::test]
async fn a_page_that_missed_the_answer_to_its_post_gets_the_whole_answer_when_it_retries() {
    for version in ui() {
        let app = Embedded::start().await;
        app.scene.then(step(&[Piece::Text("I will pay. "), Piece::Call("pay", "10")])).answers("Paid.");
        let held_call = ui_user("u1", "pay");
        // The page never receives the answer to this post.
        let missed = ui_submit(CHAT, std::slice::from_ref(&held_call));
        let missed = app.client.ui_turn_as(&version.dialect().name, &missed).await;
        let held = json!([held_call]).to_string();
        let mut page = Page::open_with(&app, version, &["--messages", &held]).await;
        page.send_nothing().await;
        assert_eq!((page.error.as_deref(), page.text().as_str()), (None, "I will pay. "));
        assert_eq!(page.call_ids(), missed.pending());
        page.equals_reload(&app).await;
        drop(page);

        app.client.approve(&missed.pending()[0]).await;
        let mut page = Page::open_with(&app, version, &["--messages", &held]).await;
        page.send_nothing().await;
        assert_eq!((page.error.as_deref(), page.text().as_str()), (None, "I will pay. Paid."));
        page.equals_reload(&app).await;
        assert_eq!(app.client.questions(&thread(&app).await).await, ["pay"]);
    }
}

#[tokio::test]
async fn a_call_after_an_edited_message_is_cancelled() {
    for version in ui() {
        let app = Embedded::start().await;
        app.scene.then(step(&[Piece::Call("pay", "10")])).answers("Fine.");
        let mut page = Page::open(&app, version).await;
        page.send("pay").await;
        let call = page.call_ids()[0].clone();
        let question = page.messages[0].text("id").to_owned();
        page.edit(&question, "do not pay").await;
        assert_eq!((page.error.as_deref(), page.text().as_str()), (None, "Fine."));
        assert_eq!(page.requests.len(), 2);
        assert_eq!(app.client.call(&call).await["state"], "cancelled");
        assert_eq!(page.call_ids(), Vec::<String>::new());
        page.equals_reload(&app).await;
    }
}

#[tokio::test]
async fn the_outcome_of_a_call_after_an_edited_message_is_sent_to_the_model_once() {
    for version in native() {
        let app = Embedded::start().await;
        app.scene
            .then(step(&[Piece::Call("pay", "10")]))
            .answers("Paid.")
            .answers("Too late.")
            .answers("Sorry.");
        let mut page = Page::open(&app, version).await;
        page.send("pay").await;
        page.approve(&page.call_ids()[0]).await;
        let question = page.messages[0].text("id").to_owned();
        page.edit(&question, "do not pay").await;
        assert_eq!((page.text().as_str(), page.requests.len()), ("Too late.", 3));
        assert_eq!(read(&app).matches("[tool outcome]").count(), 1, "{}", read(&app));
        page.equals_reload(&app).await;
        page.regenerate().await;
        page.equals_reload(&app).await;
        assert_eq!(app.ledger.lines(), ["pay 10"]);
    }
}
