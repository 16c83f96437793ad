//! Regenerates: another answer to a user message.

use super::{
    CHAT, MAJORS, assert_last_request, cut, held, names, regenerate, regenerate_at, talked, talked_in,
    thread_named,
};
use holdpoint_testkit::ui::{recorded, ui_submit, ui_user};
use holdpoint_testkit::{Embedded, JsonFields};
use serde_json::{Value, json};

#[tokio::test]
async fn a_regenerate_as_every_major_posts_it() {
    for major in MAJORS {
        for recording in ["m-regenerate", "m2-regenerate-by-id"] {
            let app = Embedded::start().await;
            let talk = talked(&app, &["hi"]).await;
            let mut names = vec![("client-1", "u1")];
            let chat = format!("chat-{recording}");
            names.push((&chat, CHAT));
            if recording == "m2-regenerate-by-id" {
                names.push(("msg-1", &talk.answers[0]));
            }
            app.scene.answers("Anew.");
            let turn = app.client.ui_turn(&recorded(&format!("{major}/{recording}.2"), &names)).await;
            assert_eq!(turn.text(), "Anew.", "{major} {recording}: {}", turn.raw);
            assert_last_request(&app, &["hi"]);
            let messages = app.client.messages(&talk.thread).await;
            assert_eq!(messages.len(), 2);
            assert_eq!(messages[1]["message_id"], turn.message_id());
            assert_ne!(turn.message_id(), talk.answers[0], "another answer is another message");
            let old =
                format!("messages WHERE message_id = '{}' AND superseded_at IS NOT NULL", talk.answers[0]);
            assert_eq!((app.rows.count(&old).await, cut(&app).await), (1, 1));
            let question = messages[0].text("message_id");
            let runs = format!("runs WHERE user_message_id = '{question}'");
            assert_eq!(app.rows.count(&runs).await, 2, "both runs belong to the same user message");
        }
    }
}

#[tokio::test]
async fn an_earlier_answer_is_regenerated_by_each_of_its_names() {
    let app = Embedded::start().await;
    let talk = talked(&app, &["one", "two", "three"]).await;
    let question = app.client.messages(&talk.thread).await[2].text("message_id").to_owned();
    // A page cuts its history to these messages for each of the bodies.
    let requested = &talk.held[..3];
    app.scene.answers("1");
    let first = app.client.ui_turn(&regenerate_at(requested, &talk.answers[1])).await;
    assert_last_request(&app, &["one", "A1", "two"]);
    for (n, body) in [
        regenerate_at(requested, first.message_id()),
        regenerate_at(requested, "u2"),
        regenerate_at(requested, &question),
        regenerate(requested),
        // This answer is already superseded: the page missed the new one.
        regenerate_at(requested, &talk.answers[1]),
        regenerate_at(&[], "u2"),
        json!({ "id": CHAT, "message": talk.held[2], "trigger": "regenerate-message" }),
    ]
    .iter()
    .enumerate()
    {
        app.scene.answers(&format!("{n}"));
        let turn = app.client.ui_turn(body).await;
        assert_eq!(turn.text(), format!("{n}"), "{body}: {}", turn.raw);
        assert_last_request(&app, &["one", "A1", "two"]);
        assert_eq!(app.client.questions(&talk.thread).await, ["one", "two"]);
    }
    assert_eq!(names(&app, &talk.thread).await, ["u1", "u2"]);
    app.rows.assert_counted().await;
}

#[tokio::test]
async fn a_failed_answer_is_regenerated() {
    let app = Embedded::start().await;
    let requested = [ui_user("u1", "hi")];
    let failed = app.client.ui_turn(&ui_submit(CHAT, &requested)).await;
    assert!(failed.error().is_some(), "the scene is over: {}", failed.raw);
    app.scene.answers("Hello.");
    let turn = app.client.ui_turn(&regenerate(&requested)).await;
    assert_eq!((turn.text().as_str(), turn.error()), ("Hello.", None), "{}", turn.raw);
    assert_last_request(&app, &["hi"]);
    assert_ne!(turn.message_id(), failed.message_id());
    let thread = thread_named(&app, CHAT).await;
    assert_eq!(names(&app, &thread).await, ["u1"]);
    assert_eq!(app.client.messages(&thread).await.len(), 2);
    app.rows.assert_counted().await;
}

#[tokio::test]
async fn a_regenerate_with_an_unknown_message_posts_the_message() {
    let app = Embedded::start().await;
    app.scene.answers("A1").answers("A2");
    let first = ui_user("u1", "one");
    assert_eq!(app.client.ui_turn(&regenerate(std::slice::from_ref(&first))).await.text(), "A1");
    let thread = thread_named(&app, CHAT).await;
    // The answer to an earlier message is not an answer to the new one.
    let body = regenerate(&[first, ui_user("u2", "two")]);
    assert_eq!(app.client.ui_turn(&body).await.text(), "A2");
    assert_last_request(&app, &["one", "A1", "two"]);
    assert_eq!(names(&app, &thread).await, ["u1", "u2"]);
    assert_eq!(cut(&app).await, 0);
    app.rows.assert_counted().await;
}

#[tokio::test]
async fn a_regenerate_with_an_unknown_message_posts_it_even_if_its_words_repeat_an_earlier_one() {
    let app = Embedded::start().await;
    let talk = talked(&app, &["ok"]).await;
    app.scene.answers("A2");
    let mut posted = talk.held.clone();
    posted.push(ui_user("u2", "ok"));
    assert_eq!(app.client.ui_turn(&regenerate(&posted)).await.text(), "A2");
    assert_last_request(&app, &["ok", "A1", "ok"]);
    assert_eq!(names(&app, &talk.thread).await, ["u1", "u2"]);
    assert_eq!(cut(&app).await, 0);
    app.rows.assert_counted().await;
}

#[tokio::test]
async fn a_regenerate_with_changed_words_is_an_edit() {
    let app = Embedded::start().await;
    let talk = talked(&app, &["one", "two"]).await;
    app.scene.answers("Edited.");
    let posted = [talk.held[0].clone(), talk.held[1].clone(), ui_user("u2", "zwei")];
    assert_eq!(app.client.ui_turn(&regenerate(&posted)).await.text(), "Edited.");
    assert_last_request(&app, &["one", "A1", "zwei"]);
    assert_eq!(app.client.questions(&talk.thread).await, ["one", "zwei"]);
    assert_eq!(names(&app, &talk.thread).await, ["u1", "u2"]);
    assert_eq!(cut(&app).await, 2);
    app.rows.assert_counted().await;
}

#[tokio::test]
async fn a_regenerate_without_a_known_name_replaces_the_last_answer() {
    let app = Embedded::start().await;
    let talk = talked(&app, &["one", "two"]).await;
    let mut nameless = ui_user("", "two");
    nameless.as_object_mut().unwrap().remove("id");
    for (n, body) in [
        regenerate(&[]),
        regenerate_at(&[], "nobody"),
        json!({ "id": CHAT, "trigger": "regenerate-message" }),
        regenerate(&[nameless]),
    ]
    .iter()
    .enumerate()
    {
        app.scene.answers(&format!("{n}"));
        let turn = app.client.ui_turn(body).await;
        assert_eq!(turn.text(), format!("{n}"), "{body}: {}", turn.raw);
        assert_last_request(&app, &["one", "A1", "two"]);
    }
    assert_eq!(names(&app, &talk.thread).await, ["u1", "u2"]);
    app.rows.assert_counted().await;
}

#[tokio::test]
async fn a_regenerate_without_a_message_to_answer_creates_nothing() {
    let app = Embedded::start().await;
    let empty = json!({ "id": "u9", "role": "user", "parts": [{ "type": "step-start" }] });
    let refused = (409, "nothing_to_continue".to_owned());
    assert_eq!(app.client.ui_turn(&regenerate(&[])).await.refused(), refused);
    assert_eq!(app.client.ui_turn(&regenerate(std::slice::from_ref(&empty))).await.refused(), refused);
    assert_eq!(app.rows.count("threads").await, 0);
    // The server never stored a message without words, and the answer to the message before it is not its
    // answer.
    let talk = talked(&app, &["one"]).await;
    let before = app.client.messages(&talk.thread).await;
    let mut posted = talk.held.clone();
    posted.push(empty);
    assert_eq!(app.client.ui_turn(&regenerate(&posted)).await.refused(), refused);
    assert_eq!(app.client.messages(&talk.thread).await, before);
    app.rows.assert_counted().await;
}

#[tokio::test]
async fn a_regenerate_cancels_the_holds_of_the_old_answer_and_reports_its_effects() {
    let app = Embedded::start().await;
    let (talk, id) = held(&app, "please pay 10").await;
    app.scene.calls(&[holdpoint_testkit::call("p-11", "pay", &json!({ "note": "11" }))]);
    let turn = app.client.ui_turn(&regenerate_at(&talk.held[..1], &talk.answers[0])).await;
    let [second] = &turn.pending()[..] else { panic!("{}", turn.raw) };
    assert_eq!(app.client.call(&id).await["state"], "cancelled");
    assert_last_request(&app, &["please pay 10"]);

    app.client.approve(second).await;
    app.scene.answers("Rather not.");
    let turn = app.client.ui_turn(&regenerate(&talk.held[..1])).await;
    assert_eq!(turn.text(), "Rather not.", "{}", turn.raw);
    assert_last_request(&app, &[r#"[tool outcome] pay, call p-11: {"paid":"11"}"#, "please pay 10"]);
    assert_eq!(app.ledger.lines(), ["pay 11"]);
    app.rows.assert_counted().await;
}

#[tokio::test]
async fn names_of_another_thread_are_unknown_in_this_thread() {
    let app = Embedded::start().await;
    let other = talked_in(&app, "other", &["theirs"]).await;
    let untouched = app.client.messages(&other.thread).await;
    let talk = talked(&app, &["one", "two"]).await;
    let question = untouched[0].text("message_id");
    for name in [question, &other.answers[0], &other.thread] {
        app.scene.answers("ok");
        let turn = app.client.ui_turn(&regenerate_at(&talk.held[..1], name)).await;
        assert_eq!(turn.text(), "ok", "{}", turn.raw);
        assert_last_request(&app, &["one"]);
    }
    assert_eq!(names(&app, &talk.thread).await, [Value::from("u1")]);
    assert_eq!(app.client.messages(&other.thread).await, untouched);
    app.rows.assert_counted().await;
}
