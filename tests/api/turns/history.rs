//! The history that the model reads: every call is answered once, and text that was sent stays as it was
//! sent.

use holdpoint::llm::ModelMessage;
use holdpoint_testkit::{Embedded, call, is_id_for_all};
use serde_json::json;

fn user(text: &str) -> ModelMessage {
    ModelMessage::User(text.to_owned())
}

fn answers(messages: &[ModelMessage]) -> Vec<(&str, &str)> {
    let mut answers = Vec::new();
    for message in messages {
        if let ModelMessage::Tool { call_id, text, .. } = message {
            answers.push((call_id.as_str(), text.as_str()));
        }
    }
    answers
}

#[tokio::test]
async fn an_approved_call_is_answered_with_its_result() {
    let app = Embedded::start().await;
    let (thread, id) = app.held("pay", "10").await;
    app.client.approve(&id).await;
    app.scene.answers("Paid.");
    assert_eq!(app.client.resume(&thread).await.text(), "Paid.");
    let requests = app.scene.requests();
    assert_eq!(requests.len(), 2);
    assert_eq!(requests[1].messages.len(), 3);
    assert_eq!(answers(&requests[1].messages), [("p-10", "{\"paid\":\"10\"}")]);
}

#[tokio::test]
async fn a_placeholder_stays_and_the_outcome_follows_as_a_note() {
    let app = Embedded::start().await;
    let (thread, id) = app.held("pay", "10").await;
    app.scene.answers("It waits.");
    app.client.send_message(&thread, "and now?").await;
    let reported = app.scene.requests()[1].messages.clone();
    let (_, placeholder) = answers(&reported)[0];
    assert!(placeholder.contains("Awaiting approval"), "{placeholder}");

    let edit = json!({ "toolCallId": id, "isValidated": true, "validatedInputs": { "note": "9" } });
    app.client.validate(&edit).await;
    app.scene.answers("It is paid.").answers("As I said.");
    app.client.send_message(&thread, "is it done?").await;
    app.client.send_message(&thread, "sure?").await;

    let [third, fourth] = &app.scene.requests()[2..] else { panic!() };
    assert_eq!(third.messages[..reported.len()], reported[..], "no word that was sent has changed");
    let note = "[tool outcome] pay, call p-10: A person changed the inputs from {\"note\":\"10\"} to \
                {\"note\":\"9\"} before approving. {\"paid\":\"9\"}";
    let rest = &third.messages[reported.len()..];
    assert_eq!(rest[1..], [user(note), user("is it done?")]);
    assert_eq!(fourth.messages[..third.messages.len()], third.messages[..], "sent once, in the same place");
    let kinds = app.rows.all("SELECT kind FROM sent_answers ORDER BY n").await;
    assert_eq!(kinds, [json!({ "kind": "placeholder" }), json!({ "kind": "note" })]);
}

#[tokio::test]
async fn the_model_reads_a_rejection_and_its_reason() {
    let app = Embedded::start().await;
    let (thread, id) = app.held("pay", "10").await;
    app.client.validate(&json!({ "toolCallId": id, "isValidated": false, "reason": "too much" })).await;
    app.scene.answers("Then not.");
    app.client.resume(&thread).await;
    let reported = app.scene.requests()[1].messages.clone();
    assert_eq!(answers(&reported), [("p-10", "Tool execution rejected by user. Reason: too much")]);
}

#[tokio::test]
async fn repeated_or_missing_provider_ids_become_distinct() {
    let app = Embedded::start().await;
    let thread = app.client.thread().await;
    let note = |note: &str| json!({ "note": note });
    let step =
        [call("same", "look", &note("a")), call("same", "look", &note("b")), call("", "look", &note("c"))];
    app.scene.calls(&step).calls(&[call("same", "look", &note("d"))]).answers("done");
    let turn = app.client.send_message(&thread, "look").await;
    assert_eq!(turn.text(), "done");
    let reported = app.scene.requests()[2].messages.clone();
    let mut ids: Vec<&str> = answers(&reported).iter().map(|(id, _)| *id).collect();
    assert_eq!(ids[0], "same");
    assert!(ids[1..].iter().all(|id| is_id_for_all(id)), "{ids:?}");
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 4);
    for message in &reported {
        if let ModelMessage::Assistant { calls, .. } = message {
            assert!(calls.iter().all(|call| ids.contains(&call.id.as_str())));
        }
    }
}

#[tokio::test]
async fn an_invalid_call_is_answered_with_the_reason_and_never_held() {
    let app = Embedded::start().await;
    let thread = app.client.thread().await;
    let step = [
        ("a".to_owned(), "pay".to_owned(), "{\"note\":".to_owned()),
        ("b".to_owned(), "steal".to_owned(), "{}".to_owned()),
        call("c", "pay", &json!({ "note": 3 })),
        ("d".to_owned(), "pay".to_owned(), "{\"note\":\"x\",\"note\":\"y\"}".to_owned()),
        ("e".to_owned(), "pay".to_owned(), "[1]".to_owned()),
        ("f".to_owned(), "pay".to_owned(), "{\"note\":\"\\u0000\"}".to_owned()),
    ];
    app.scene.calls(&step).answers("I see.");
    let turn = app.client.send_message(&thread, "go").await;
    assert_eq!(turn.pending(), Vec::<String>::new());
    assert_eq!(turn.all('a').len(), 6);
    let args: Vec<_> = turn.all('9').iter().map(|call| call["args"].clone()).collect();
    assert_eq!(args, vec![json!({}); 6]);
    let reported = app.scene.requests()[1].messages.clone();
    let reported: Vec<&str> = answers(&reported).iter().map(|(_, text)| *text).collect();
    assert!(reported.iter().all(|text| text.ends_with("ot run.")), "{reported:#?}");
    assert!(
        reported[1].contains("no tool named \"steal\"") && reported[2].contains("/note"),
        "{reported:#?}"
    );
    assert_eq!(app.ledger.lines(), Vec::<String>::new());
    assert_eq!(app.rows.count("tool_calls WHERE state = 'invalid'").await, 6);
}

#[tokio::test]
async fn a_superseded_answer_is_not_sent_but_the_outcome_of_its_call_is() {
    let app = Embedded::start().await;
    let (thread, id) = app.held("pay", "10").await;
    app.client.approve(&id).await;
    let history = json!({ "messages": [{ "role": "user", "content": "please pay 10" }] });
    app.scene.answers("Again.");
    let turn = app.client.turn(&thread, &history).await;
    assert_eq!(turn.text(), "Again.");
    let reported = &app.scene.requests()[1].messages;
    let note = "[tool outcome] pay, call p-10: {\"paid\":\"10\"}";
    assert_eq!(reported[..], [user(note), user("please pay 10")]);
}

#[tokio::test]
async fn a_note_before_an_edited_message_is_sent_again() {
    let app = Embedded::start().await;
    let (thread, id) = app.held("pay", "10").await;
    app.scene.answers("It waits.").answers("It is paid.").answers("Edited.");
    app.client.send_message(&thread, "and now?").await;
    app.client.approve(&id).await;
    app.client.send_message(&thread, "is it done?").await;
    let texts = ["please pay 10", "and now?", "is it really done?"];
    let messages: Vec<_> = texts.iter().map(|text| json!({ "role": "user", "content": text })).collect();
    assert_eq!(app.client.turn(&thread, &json!({ "messages": messages })).await.text(), "Edited.");
    let reported = &app.scene.requests()[3].messages;
    let note = "[tool outcome] pay, call p-10: {\"paid\":\"10\"}";
    assert_eq!(reported[reported.len() - 2..], [user(note), user("is it really done?")]);
}

#[tokio::test]
async fn notes_keep_the_order_in_which_they_were_sent() {
    let app = Embedded::start().await;
    let (thread, first) = app.held("pay", "1").await;
    let second = app.hold_in(&thread, "pay", "2").await;
    app.scene.answers("Both wait.").answers("The second is paid.");
    app.client.send_message(&thread, "and now?").await;
    app.client.approve(&second).await;
    app.client.send_message(&thread, "the second?").await;
    app.client.approve(&first).await;
    // The answer is regenerated: the first call's outcome is sent now, after the note that is already there.
    let texts = ["please pay 1", "please pay 2", "and now?", "the second?"];
    let messages: Vec<_> = texts.iter().map(|text| json!({ "role": "user", "content": text })).collect();
    app.scene.calls(&[call("l", "look", &json!({ "note": "x" }))]).answers("Both are paid.");
    app.client.turn(&thread, &json!({ "messages": messages })).await;
    let requests = app.scene.requests();
    let [.., before, after] = &requests[..] else { panic!() };
    assert_eq!(after.messages[..before.messages.len()], before.messages[..]);
    let notes = ["2", "1"].map(|n| user(&format!("[tool outcome] pay, call p-{n}: {{\"paid\":\"{n}\"}}")));
    assert_eq!(before.messages[before.messages.len() - 3..before.messages.len() - 1], notes);
}

#[tokio::test]
async fn an_output_with_a_character_that_databases_refuse_is_stored_and_sent() {
    let app = Embedded::start().await;
    let (thread, id) = app.held("mumble", "a").await;
    let answer = app.client.approve(&id).await;
    assert_eq!(
        (&answer.body["state"], &answer.body["result"]),
        (&json!("succeeded"), &json!("\u{fffd}a\u{fffd}"))
    );
    app.scene.answers("Said.");
    assert_eq!(app.client.resume(&thread).await.text(), "Said.");
}

#[tokio::test]
async fn the_model_reads_its_own_arguments_and_a_short_validation_error() {
    let app = Embedded::start().await;
    let thread = app.client.thread().await;
    let wrong = json!({ "note": vec![7; 20_000] });
    app.scene.calls(&[call("a", "pay", &wrong)]).answers("I see.");
    app.client.send_message(&thread, "go").await;
    let reported = &app.scene.requests()[1].messages;
    let ModelMessage::Assistant { calls, .. } = &reported[1] else { panic!("{reported:?}") };
    assert_eq!(json!(calls[0].input), wrong);
    assert!(answers(reported)[0].1.len() < 5000);
}

#[tokio::test]
async fn a_turn_of_several_steps_reads_what_a_later_turn_reads_from_the_database() {
    let app = Embedded::start().await;
    let (thread, id) = app.held("pay", "10").await;
    app.client.approve(&id).await;
    let number = json!({ "note": 7 });
    app.scene.calls(&[call("a", "look", &json!({ "note": "\0" })), call("a", "nowhere", &json!({}))]);
    app.scene.calls(&[call("", "look", &number), call("b", "look", &json!({ "note": "2" }))]);
    app.scene.calls(&[call("b", "look", &json!({ "note": "3" }))]).answers("Seen.");
    assert_eq!(app.client.resume(&thread).await.text(), "Seen.");
    app.scene.answers("As I said.");
    app.client.send_message(&thread, "sure?").await;

    let requests = app.scene.growing_requests();
    let sizes: Vec<usize> = requests.iter().map(|request| request.messages.len()).collect();
    assert_eq!(sizes, [1, 3, 6, 9, 11, 13]);
    let last = &requests[5].messages;
    assert_eq!(answers(last).len(), 6);
    let sealed = app.rows.count("sent_answers").await;
    assert_eq!(sealed, 6, "each answer is recorded once");
}
