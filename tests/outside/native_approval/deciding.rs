//! Answers that arrive in time, from one page.

use super::{Page, RESUMES, no, row, run_status, sent, yes};
use holdpoint_testkit::ui::{recorded, ui_assistant, ui_submit, ui_user};
use holdpoint_testkit::{Embedded, call};
use serde_json::json;

#[tokio::test]
async fn an_approval_in_a_post_runs_the_call_once_and_continues_the_same_message() {
    let app = Embedded::start().await;
    let page = Page::holding(&app, &[("pay", "10")]).await;
    app.scene.answers("Paid.");
    let names = [
        ("chat-d-approve", page.thread.as_str()),
        ("msg-1", &page.message),
        ("approval-1.2", &page.calls[0]),
    ];
    let turn = app.client.ui_turn(&recorded("v6/d-approve.2", &names)).await;
    assert_eq!((turn.status, turn.kinds()), (200, RESUMES.to_vec()), "{}", turn.raw);
    assert_eq!((turn.message_id(), turn.text().as_str()), (page.message.as_str(), "Paid."));
    let output = json!({ "type": "tool-output-available", "toolCallId": page.calls[0],
                         "output": { "paid": "10" } });
    assert_eq!(turn.one("tool-output-available"), &output);
    assert_eq!(turn.one("finish")["finishReason"], "stop");
    assert_eq!(row(&app, &page.calls[0]).await, ["succeeded", "approve", "user:local", "stream"]);
    assert_eq!(app.client.call(&page.calls[0]).await["decision"]["surface"], "stream");
    assert_eq!(
        (app.ledger.lines(), sent(&app)),
        (vec!["pay 10".to_owned()], vec![r#"{"paid":"10"}"#.to_owned()])
    );
    assert_eq!(run_status(&app, &page.thread).await, "completed");
}

#[tokio::test]
async fn answers_in_the_conversation_beside_the_last_message_are_read_in_both() {
    let app = Embedded::start().await;
    let page = Page::holding(&app, &[("pay", "1"), ("pay", "2")]).await;
    app.scene.answers("Done.");
    let [first, second] = &page.calls[..] else { panic!("{:?}", page.calls) };
    let mut body = page.body(&[yes(first)]);
    body["message"] = ui_assistant(&page.message, &json!([no(second, None)]));
    let turn = app.client.ui_turn_in(&page.thread, &body).await;
    assert_eq!(turn.text(), "Done.", "{}", turn.raw);
    assert_eq!(row(&app, first).await[0], "succeeded");
    assert_eq!(row(&app, second).await[0], "rejected");
}

#[tokio::test]
async fn a_rejection_in_a_post_streams_a_denial_and_the_model_reads_the_reason() {
    let app = Embedded::start().await;
    let page = Page::holding(&app, &[("pay", "10")]).await;
    app.scene.answers("As you like.");
    let names =
        [("chat-d-deny", page.thread.as_str()), ("msg-1", &page.message), ("approval-1.2", &page.calls[0])];
    let turn = app.client.ui_turn(&recorded("v6/d-deny.2", &names)).await;
    let mut kinds = RESUMES;
    kinds[1] = "tool-output-denied";
    assert_eq!((turn.kinds(), turn.text().as_str()), (kinds.to_vec(), "As you like."), "{}", turn.raw);
    let denied = json!({ "type": "tool-output-denied", "toolCallId": page.calls[0] });
    assert_eq!(turn.one("tool-output-denied"), &denied);
    assert_eq!(row(&app, &page.calls[0]).await, ["rejected", "reject", "user:local", "stream"]);
    assert_eq!(app.client.call(&page.calls[0]).await["decision"]["reason"], "not that file");
    assert_eq!(sent(&app), ["Tool execution rejected by user. Reason: not that file"]);
    assert_eq!(app.ledger.lines(), Vec::<String>::new());
}

#[tokio::test]
async fn of_two_calls_the_denied_one_is_streamed_first() {
    let app = Embedded::start().await;
    let page = Page::holding(&app, &[("pay", "a"), ("pay", "b")]).await;
    app.scene.answers("Paid a, kept b.");
    let names = [
        ("chat-i-two-approvals", page.thread.as_str()),
        ("msg-1", &page.message),
        ("approval-1.2", &page.calls[0]),
        ("approval-1.3", &page.calls[1]),
    ];
    let turn = app.client.ui_turn(&recorded("v6/i-two-approvals.2", &names)).await;
    let mut kinds = RESUMES.to_vec();
    kinds.insert(1, "tool-output-denied");
    assert_eq!(turn.kinds(), kinds, "{}", turn.raw);
    assert_eq!(turn.one("tool-output-denied")["toolCallId"], page.calls[1]);
    assert_eq!(turn.one("tool-output-available")["toolCallId"], page.calls[0]);
    assert_eq!(row(&app, &page.calls[0]).await, ["succeeded", "approve", "user:local", "stream"]);
    assert_eq!(row(&app, &page.calls[1]).await, ["rejected", "reject", "user:local", "stream"]);
    assert_eq!(sent(&app), [r#"{"paid":"a"}"#, "Tool execution rejected by user. Reason: keep b"]);
    assert_eq!(app.ledger.lines(), ["pay a"]);
}

#[tokio::test]
async fn the_stream_settles_the_held_call_and_repeats_the_output_of_the_call_that_ran_unheld() {
    let app = Embedded::start().await;
    let page = Page::holding(&app, &[("look", "a"), ("pay", "b")]).await;
    assert_eq!(page.calls.len(), 1);
    app.scene.answers("Both.");
    let names = [
        ("chat-j-auto-and-approval", page.thread.as_str()),
        ("msg-1", &page.message),
        ("approval-1.2", &page.calls[0]),
    ];
    let turn = app.client.ui_turn(&recorded("v6/j-auto-and-approval.2", &names)).await;
    assert_eq!((turn.kinds(), turn.text().as_str()), (RESUMES.to_vec(), "Both."), "{}", turn.raw);
    // A page that left during the turn has not seen the output of the other call.
    let outputs: Vec<_> = turn.all("tool-output-available").into_iter().map(|it| &it["output"]).collect();
    assert_eq!(outputs, [&json!({ "seen": "a" }), &json!({ "paid": "b" })]);
    assert_eq!(sent(&app), [r#"{"seen":"a"}"#, r#"{"paid":"b"}"#]);
    assert_eq!(app.ledger.lines(), ["look a", "pay b"]);
}

#[tokio::test]
async fn the_stream_that_settles_the_first_hold_asks_about_the_second() {
    let app = Embedded::start().await;
    let page = Page::holding(&app, &[("pay", "a")]).await;
    app.scene.calls(&[call("b", "pay", &json!({ "note": "b" }))]);
    let names = [
        ("chat-j2-two-rounds", page.thread.as_str()),
        ("msg-1", &page.message),
        ("approval-1.2", &page.calls[0]),
    ];
    let turn = app.client.ui_turn(&recorded("v6/j2-two-rounds.2", &names)).await;
    let kinds = [
        "start",
        "tool-output-available",
        "start-step",
        "tool-input-start",
        "tool-input-delta",
        "tool-input-available",
        "tool-approval-request",
        "finish-step",
        "finish",
    ];
    assert_eq!(turn.kinds(), kinds, "{}", turn.raw);
    let [second] = &turn.pending()[..] else { panic!("{}", turn.raw) };
    assert_eq!(run_status(&app, &page.thread).await, "waiting");

    app.scene.answers("Both paid.");
    let names = [names[0], names[1], ("approval-2.2", second.as_str())];
    let turn = app.client.ui_turn(&recorded("v6/j2-two-rounds.3", &names)).await;
    assert_eq!((turn.kinds(), turn.text().as_str()), (RESUMES.to_vec(), "Both paid."), "{}", turn.raw);
    assert_eq!(turn.one("tool-output-available")["toolCallId"], *second);
    assert_eq!(app.ledger.lines(), ["pay a", "pay b"]);
    for id in [&page.calls[0], second] {
        assert_eq!(row(&app, id).await, ["succeeded", "approve", "user:local", "stream"]);
    }
}

#[tokio::test]
async fn an_unanswered_call_is_asked_again_and_the_model_is_not_called() {
    let app = Embedded::start().await;
    let page = Page::holding(&app, &[("pay", "a"), ("pay", "b")]).await;
    let turn = page.posts(&[no(&page.calls[0], None)]).await;
    assert_eq!(
        turn.kinds(),
        ["start", "tool-output-denied", "tool-input-available", "tool-approval-request", "finish"]
    );
    assert_eq!(turn.pending(), [page.calls[1].clone()]);
    assert_eq!(turn.one("finish")["finishReason"], "tool-calls");
    assert_eq!(app.scene.requests().len(), 1);
    assert_eq!(row(&app, &page.calls[1]).await, ["pending", "-", "-", "-"]);
    // The page posts the first answer again as a part of its history.
    app.scene.answers("Paid b.");
    let turn = page.posts(&[no(&page.calls[0], None), yes(&page.calls[1])]).await;
    assert_eq!((turn.all("tool-output-denied").len(), turn.text().as_str()), (1, "Paid b."), "{}", turn.raw);
    assert_eq!(turn.one("tool-output-available")["toolCallId"], page.calls[1]);
    assert_eq!(app.ledger.lines(), ["pay b"]);
    assert_eq!(app.rows.count("decisions").await, 2);
}

#[tokio::test]
async fn an_answer_posted_with_a_new_message_is_decided_first_and_reaches_the_model() {
    let app = Embedded::start().await;
    let page = Page::holding(&app, &[("pay", "10")]).await;
    app.scene.answers("I see.");
    let mut messages = page.body(&[no(&page.calls[0], Some("too much"))])["messages"].clone();
    messages.as_array_mut().unwrap().push(ui_user("next", "never mind"));
    let body = ui_submit(&page.thread, messages.as_array().unwrap());
    let turn = app.client.ui_turn(&body).await;
    let kinds: Vec<_> = RESUMES.into_iter().filter(|kind| *kind != "tool-output-available").collect();
    assert_eq!((turn.kinds(), turn.text().as_str()), (kinds, "I see."), "{}", turn.raw);
    assert_ne!(turn.message_id(), page.message, "the stream of another message shows no call");
    assert_eq!(row(&app, &page.calls[0]).await, ["rejected", "reject", "user:local", "stream"]);
    assert_eq!(sent(&app), ["Tool execution rejected by user. Reason: too much"]);
}

#[tokio::test]
async fn an_answer_for_an_earlier_message_settles_that_message_without_a_model_call() {
    let app = Embedded::start().await;
    for (answer, state, settled) in [
        (yes as fn(&str) -> _, "succeeded", "tool-output-available"),
        (|id: &str| no(id, None), "rejected", "tool-output-denied"),
    ] {
        let page = Page::holding(&app, &[("pay", state)]).await;
        app.scene.answers("Later, then.");
        let later = ui_submit(&page.thread, &[ui_user("later", "and now?")]);
        assert_eq!(app.client.ui_turn(&later).await.text(), "Later, then.");
        let requested = app.scene.requests().len();
        assert_eq!(page.posts(&[]).await.pending(), page.calls, "the call of the earlier message waits");
        assert_eq!(app.scene.requests().len(), requested);

        let turn = page.posts(&[answer(&page.calls[0])]).await;
        assert_eq!(turn.kinds(), ["start", settled, "finish"], "{}", turn.raw);
        assert_eq!(turn.message_id(), page.message);
        assert_eq!(turn.one("finish")["finishReason"], "stop");
        assert_eq!(row(&app, &page.calls[0]).await[0], state);
        assert_eq!(app.scene.requests().len(), requested);
        let runs = format!("runs WHERE thread_id = '{}' AND status = 'completed'", page.thread);
        assert_eq!(app.rows.count(&runs).await, 2, "neither waits");
        // The model reads the real outcome in a note, because an earlier request had another text for the
        // call.
        app.scene.answers("I see.");
        let next = ui_submit(&page.thread, &[ui_user("next", "so?")]);
        app.client.ui_turn(&next).await;
        let last = app.scene.requests().pop().unwrap();
        assert!(format!("{:?}", last.messages).contains("[tool outcome] pay"), "{last:?}");
    }
    assert_eq!(app.ledger.lines(), ["pay succeeded"]);
}
