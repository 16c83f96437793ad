//! Bodies that are posted while a turn runs.

use super::{CHAT, assert_last_request, names, regenerate, regenerate_at, talked};
use holdpoint_testkit::ui::{ui_assistant, ui_submit, ui_submit_at, ui_user};
use holdpoint_testkit::{Embedded, JsonFields};
use serde_json::json;

#[tokio::test]
async fn a_repeated_post_attaches_to_the_running_turn_and_does_not_interrupt_it() {
    let app = Embedded::start().await;
    let talk = talked(&app, &["one"]).await;
    let gate = app.scene.gate();
    app.scene.answers("A2");
    let mut posted = talk.held.clone();
    posted.push(ui_user("u2", "two"));
    let new = ui_submit(CHAT, &posted);
    let first = app.client.begin(&talk.thread, &new).await;
    assert_eq!(first.status(), 200);

    let refused = (409, "turn_in_progress".to_owned());
    let mut more = posted.clone();
    more.push(ui_user("u3", "three"));
    for body in [
        ui_submit(CHAT, &more),
        ui_submit_at(CHAT, &[ui_user("u1", "eins")], "u1"),
        ui_submit_at(CHAT, &[talk.held[0].clone(), talk.held[1].clone(), ui_user("u2", "zwei")], "u2"),
        regenerate(&posted),
        regenerate(&posted[..1]),
        regenerate_at(&posted[..1], &talk.answers[0]),
        // The server does not know these messages, so they are new.
        ui_submit_at(CHAT, &[ui_user("u4", "four")], "u4"),
        regenerate(&[ui_user("u4", "four")]),
    ] {
        assert_eq!(app.client.ui_turn(&body).await.refused(), refused, "{body}");
    }

    // The same body again, as a network retry and with the message's name, and a continuation by the page.
    let messages = app.client.messages(&talk.thread).await;
    let writing = messages.last().unwrap().text("message_id").to_owned();
    let named = ui_submit_at(CHAT, &posted, "u2");
    posted.push(ui_assistant(&writing, &json!([])));
    let retried = app.client.begin(&talk.thread, &new).await;
    let named = app.client.begin(&talk.thread, &named).await;
    let goes_on = app.client.begin(&talk.thread, &ui_submit_at(CHAT, &posted, &writing)).await;
    gate.add_permits(100);
    for response in [first, retried, named, goes_on] {
        let turn = app.client.read_ui_on(response).await;
        assert_eq!((turn.text().as_str(), turn.message_id()), ("A2", writing.as_str()), "{}", turn.raw);
        assert_eq!(turn.error(), None);
    }
    assert_eq!(app.scene.requests().len(), 2);
    assert_last_request(&app, &["one", "A1", "two"]);
    assert_eq!(names(&app, &talk.thread).await, ["u1", "u2"]);
    assert_eq!(app.rows.count("messages").await, 4);
}
