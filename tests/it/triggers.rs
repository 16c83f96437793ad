//! What pages of AI SDK 5 to 7 post, and what it means: a new message, an edit, another answer, going on.

use crate::support::Embedded;
use crate::support::ui::recorded;
use holdpoint::llm::ModelMessage;

const MAJORS: [&str; 3] = ["v5", "v6", "v7"];

/// The model was asked last with these words, users' and its own in turn.
fn assert_last_told(app: &Embedded, expected: &[&str]) {
    let requests = app.scene.requests();
    let told = requests.last().unwrap().messages.iter().map(|message| match message {
        ModelMessage::User(text) | ModelMessage::Assistant { text, .. } => text.as_str(),
        ModelMessage::Tool { text, .. } => text.as_str(),
    });
    assert_eq!(told.collect::<Vec<_>>(), expected);
}

#[tokio::test]
async fn a_new_message_as_every_major_posts_it() {
    for major in MAJORS {
        let app = Embedded::start().await;
        app.scene.says("Hello.");
        let turn = app.client.ui_turn(&recorded(&format!("{major}/a-text.1"), &[])).await;
        assert_eq!((turn.status, turn.text().as_str()), (200, "Hello."), "{major}: {}", turn.raw);
        assert_last_told(&app, &["hello"]);
        let threads = app.client.get("/threads").await.body;
        assert_eq!(threads["results"][0]["client_id"], "chat-a-text");
        let messages = app.client.messages(threads["results"][0]["thread_id"].as_str().unwrap()).await;
        assert_eq!(messages[0]["client_id"], "client-1");
        assert_eq!(messages[1]["message_id"], turn.message_id());
    }
}
