//! Edits: a user message gets other words, and all later messages are replaced.

use super::{CHAT, MAJORS, assert_last_request, cut, held, names, talked, talked_in, thread_named};
use holdpoint_testkit::ui::{recorded, ui_submit, ui_submit_at, ui_user};
use holdpoint_testkit::{Embedded, JsonFields};
use serde_json::{Value, json};

#[tokio::test]
async fn an_edit_as_every_major_posts_it() {
    for major in MAJORS {
        let app = Embedded::start().await;
        let names = [("chat-m3-edit-user-message", CHAT), ("client-1", "u1")];
        let talk = talked(&app, &["hi"]).await;
        app.scene.answers("Again.");
        let body = recorded(&format!("{major}/m3-edit-user-message.2"), &names);
        let turn = app.client.ui_turn(&body).await;
        assert_eq!(turn.text(), "Again.", "{major}: {}", turn.raw);
        assert_last_request(&app, &["hi again"]);
        let messages = app.client.messages(&talk.thread).await;
        assert_eq!(messages.len(), 2, "{messages:#?}");
        assert_eq!(messages[0]["client_id"], "u1", "the message keeps the page's name");
        assert_eq!(messages[1]["message_id"], turn.message_id());
        assert_ne!(turn.message_id(), talk.answers[0]);
        assert_eq!(cut(&app).await, 2);
    }
}

#[tokio::test]
async fn an_edit_of_an_earlier_message_supersedes_the_later_ones_and_keeps_the_rest() {
    let app = Embedded::start().await;
    let talk = talked(&app, &["one", "two", "three"]).await;
    let before = app.client.messages(&talk.thread).await;
    app.scene.answers("A2 anew");
    let posted = [talk.held[0].clone(), talk.held[1].clone(), ui_user("u2", "zwei")];
    assert_eq!(app.client.ui_turn(&ui_submit_at(CHAT, &posted, "u2")).await.text(), "A2 anew");
    assert_last_request(&app, &["one", "A1", "zwei"]);
    let after = app.client.messages(&talk.thread).await;
    assert_eq!((after.len(), &after[..2]), (4, &before[..2]));
    let stands = |row: &Value| (row["role"].clone(), row["client_id"].clone());
    let gone = app
        .rows
        .all("SELECT role, client_id FROM messages WHERE superseded_at IS NOT NULL ORDER BY ordinal")
        .await;
    let [user, assistant] = [json!("user"), json!("assistant")];
    let expected = [
        (user.clone(), json!("u2")),
        (assistant.clone(), Value::Null),
        (user, json!("u3")),
        (assistant, Value::Null),
    ];
    assert_eq!(gone.iter().map(stands).collect::<Vec<_>>(), expected, "superseded messages are kept");

    // The page edits the edited message again, and continues after it.
    app.scene.answers("A2 once more").answers("A3");
    let posted = [talk.held[0].clone(), talk.held[1].clone(), ui_user("u2", "deux")];
    app.client.ui_turn(&ui_submit_at(CHAT, &posted, "u2")).await;
    app.client.ui_turn(&ui_submit(CHAT, &[ui_user("u2", "deux"), ui_user("u3", "trois")])).await;
    assert_last_request(&app, &["one", "A1", "deux", "A2 once more", "trois"]);
    assert_eq!(names(&app, &talk.thread).await, ["u1", "u2", "u3"]);
    app.rows.assert_counted().await;
}

#[tokio::test]
async fn an_edit_works_with_the_servers_id_and_the_message_alone() {
    let app = Embedded::start().await;
    app.scene.answers("A1").answers("A1 anew").answers("A1 once more");
    let thread = app.client.thread().await;
    app.client.send_message(&thread, "one").await;
    let id = app.client.messages(&thread).await[0].text("message_id").to_owned();
    for words in ["eins", "un"] {
        let body = json!({ "message": ui_user(&id, words), "trigger": "submit-message", "messageId": id });
        app.client.ui_turn_in(&thread, &body).await;
        assert_last_request(&app, &[words]);
        assert_eq!(names(&app, &thread).await, [json!(id)], "the page's name for the message");
    }
    assert_eq!(cut(&app).await, 4);
    app.rows.assert_counted().await;
}

#[tokio::test]
async fn an_edit_of_an_unknown_message_is_a_new_message() {
    let app = Embedded::start().await;
    app.scene.answers("A1").answers("A2");
    let first = ui_submit_at(CHAT, &[ui_user("u1", "one")], "u1");
    assert_eq!(app.client.ui_turn(&first).await.text(), "A1");
    let second = ui_submit_at(CHAT, &[ui_user("u1", "one"), ui_user("u2", "two")], "u2");
    assert_eq!(app.client.ui_turn(&second).await.text(), "A2");
    assert_last_request(&app, &["one", "A1", "two"]);
    let thread = thread_named(&app, CHAT).await;
    assert_eq!(names(&app, &thread).await, ["u1", "u2"]);
    assert_eq!(cut(&app).await, 0);
    app.rows.assert_counted().await;
}

#[tokio::test]
async fn an_edit_that_changes_no_word_supersedes_nothing() {
    let app = Embedded::start().await;
    let talk = talked(&app, &["one", "two"]).await;
    let before = app.client.messages(&talk.thread).await;
    for (posted, name, answer) in [(&talk.held[..1], "u1", "A1"), (&talk.held[..3], "u2", "A2")] {
        let turn = app.client.ui_turn(&ui_submit_at(CHAT, posted, name)).await;
        assert_eq!((turn.status, turn.text().as_str()), (200, answer), "{name}: {}", turn.raw);
    }
    assert_eq!(app.client.messages(&talk.thread).await, before);
    assert_eq!(cut(&app).await, 0);
    app.rows.assert_counted().await;
}

#[tokio::test]
async fn an_edit_cancels_the_held_calls_after_it() {
    let app = Embedded::start().await;
    let (talk, id) = held(&app, "please pay 10").await;
    app.scene.answers("Never mind.");
    let turn = app.client.ui_turn(&ui_submit_at(CHAT, &[ui_user("u1", "leave it")], "u1")).await;
    assert_eq!(turn.text(), "Never mind.", "{}", turn.raw);
    assert_last_request(&app, &["leave it"]);
    let call = app.client.call(&id).await;
    assert_eq!((&call["state"], &call["validated"]), (&json!("cancelled"), &json!(false)));
    assert_eq!(call["decision"]["by"], "user:local");
    let late = app.client.approve(&id).await;
    late.failed_with(409, "cancelled");
    let run = app.client.get(&format!("/runs/{}", call.text("run_id"))).await.body;
    assert_eq!(run["status"], "cancelled");
    assert_eq!(app.client.get(&format!("/threads/{}", talk.thread)).await.body["pending_count"], 0);
    assert_eq!(app.ledger.lines(), Vec::<String>::new());
    app.rows.assert_counted().await;
}

#[tokio::test]
async fn an_edit_keeps_the_held_calls_before_it() {
    let app = Embedded::start().await;
    let (talk, id) = held(&app, "please pay 10").await;
    app.scene.answers("It waits.").answers("It still waits.");
    let mut posted = talk.held.clone();
    posted.push(ui_user("u2", "so?"));
    assert_eq!(app.client.ui_turn(&ui_submit(CHAT, &posted)).await.text(), "It waits.");
    posted[2] = ui_user("u2", "and now?");
    assert_eq!(app.client.ui_turn(&ui_submit_at(CHAT, &posted, "u2")).await.text(), "It still waits.");
    assert_eq!(app.client.call(&id).await["state"], "pending");
    assert_eq!(app.client.approve(&id).await.body["state"], "succeeded");
    assert_eq!(app.ledger.lines(), ["pay 10"]);
    app.rows.assert_counted().await;
}

#[tokio::test]
async fn an_effect_after_an_edited_message_reaches_the_model_once_as_a_note() {
    let app = Embedded::start().await;
    let (_, id) = held(&app, "please pay 10").await;
    app.client.approve(&id).await;
    app.scene.answers("Edited.").answers("As I said.");
    let edited = ui_user("u1", "please do not pay");
    let turn = app.client.ui_turn(&ui_submit_at(CHAT, std::slice::from_ref(&edited), "u1")).await;
    assert_eq!(turn.text(), "Edited.", "{}", turn.raw);
    let note = r#"[tool outcome] pay, call p-10: {"paid":"10"}"#;
    assert_last_request(&app, &[note, "please do not pay"]);
    assert_eq!(app.client.call(&id).await["state"], "succeeded");
    app.client.ui_turn(&ui_submit(CHAT, &[edited, ui_user("u2", "sure?")])).await;
    assert_last_request(&app, &[note, "please do not pay", "Edited.", "sure?"]);
    assert_eq!(app.ledger.lines(), ["pay 10"]);
    app.rows.assert_counted().await;
}

#[tokio::test]
async fn an_edit_with_a_name_of_another_thread_is_a_new_message_in_this_thread() {
    let app = Embedded::start().await;
    let other = talked_in(&app, "other", &["theirs"]).await;
    let untouched = app.client.messages(&other.thread).await;
    let talk = talked(&app, &["one"]).await;
    let question = untouched[0].text("message_id");
    for (name, words) in [(question, "two"), (other.answers[0].as_str(), "three"), (&other.thread, "four")] {
        app.scene.answers("ok");
        let turn = app.client.ui_turn(&ui_submit_at(CHAT, &[ui_user(name, words)], name)).await;
        assert_eq!(turn.text(), "ok", "{}", turn.raw);
    }
    assert_eq!(app.client.questions(&talk.thread).await, ["one", "two", "three", "four"]);
    assert_eq!(app.client.messages(&other.thread).await, untouched);
    assert_eq!(cut(&app).await, 0);
    app.rows.assert_counted().await;
}
