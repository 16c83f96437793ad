//! Answers of pages of AI SDK 6 and 7 that are not the first, are late, or belong to an earlier message: the
//! page shows the effective decision and does not post again.

use super::native_approval::{PAY, held_call};
use super::output::read;
use super::page::{CHAT, Page, native};
use holdpoint_testkit::Embedded;
use serde_json::{Value, json};

/// Lets the approval deadline of a call pass.
async fn overdue(app: &Embedded, call: &str) {
    let end = format!("UPDATE tool_calls SET expires_at = created_at WHERE tool_call_id = '{call}'");
    assert_eq!(app.rows.change(&end).await, Ok(1));
}

#[tokio::test]
async fn an_approval_followed_by_a_new_message_takes_effect() {
    for version in native() {
        let (app, mut page) = held_call(version, &PAY, &["--automatically", "never"]).await;
        let call = page.first();
        page.approve(&call).await;
        page.posted_times(1);
        page.send("and thanks").await;
        page.posted_times(2);
        assert_eq!((page.messages.len(), page.text().as_str()), (4, "Done."));
        // The SDK's own server fails at this state.
        assert_eq!(page.states(), ["approval-responded"]);
        app.client.becomes(&call, "succeeded").await;
        assert_eq!(app.ledger.lines(), ["pay 10"]);
        page.equals_reload_but_for(&app, &page.call_ids()).await;
        let reloaded = Page::load(&app, version).await;
        assert_eq!(reloaded.states(), ["output-available"]);
    }
}

#[tokio::test]
async fn an_answer_for_an_earlier_message_is_shown_there_and_sent_with_the_next_turn() {
    for (version, yes) in native().into_iter().flat_map(|version| [(version, true), (version, false)]) {
        let (app, mut page) = held_call(version, &PAY, &["--automatically", "any"]).await;
        let call = page.first();
        page.send("never mind").await;
        page.posted_times(2);
        app.scene.answers("I see.");
        page.answer(&call, yes).await;
        page.posted_times(3);
        assert_eq!(page.posted()["messageId"], page.messages[1]["id"]);
        assert_eq!(page.messages.len(), 4);
        let (state, word) = if yes { ("output-available", "paid") } else { ("output-denied", "rejected") };
        assert_eq!(page.states(), [state]);
        assert_eq!(app.scene.requests().len(), 2, "no run resumes after a later message");
        page.equals_reload(&app).await;
        page.send("well?").await;
        page.posted_times(4);
        assert_eq!(page.text(), "I see.");
        assert!(read(&app).contains("[tool outcome]") && read(&app).contains(word), "{}", read(&app));
        page.equals_reload(&app).await;
    }
}

#[tokio::test]
async fn the_first_answer_of_two_tabs_is_effective() {
    for (version, first, later) in native().into_iter().flat_map(|version| {
        [(version, true, true), (version, true, false), (version, false, true), (version, false, false)]
    }) {
        let (app, mut page) = held_call(version, &PAY, &[]).await;
        let call = page.first();
        let body = json!({ "toolCallId": call, "isValidated": first });
        app.client.validate(&body).await.has_status(200);
        page.answer(&call, later).await;
        page.posted_times(2);
        assert_eq!(page.states(), [if first { "output-available" } else { "output-denied" }]);
        assert_eq!(page.text(), "I will pay. Done.");
        // The page keeps the note of its own answer.
        page.equals_reload_but_for(&app, if first == later { &[] } else { std::slice::from_ref(&call) })
            .await;
        assert_eq!(app.ledger.lines().len(), usize::from(first));
    }
}

#[tokio::test]
async fn a_tab_that_answers_a_call_after_another_client_resumed_gets_the_whole_message() {
    for version in native() {
        let (app, mut page) = held_call(version, &PAY, &[]).await;
        app.client.approve(&page.first()).await;
        let elsewhere = app.client.turn_by_id(&json!({ "id": CHAT })).await;
        assert_eq!(elsewhere.text(), "Done.");
        page.approve(&page.first()).await;
        page.posted_times(2);
        assert_eq!(page.text(), "I will pay. Done.");
        assert_eq!(app.scene.requests().len(), 2, "the model gets no further request");
        page.equals_reload(&app).await;
    }
}

#[tokio::test]
async fn two_tabs_that_answer_one_after_the_other_both_get_the_whole_message() {
    for version in native() {
        let (app, mut page) = held_call(version, &PAY, &[]).await;
        let mut other = Page::load(&app, version).await;
        let call = page.first();
        page.approve(&call).await;
        other.approve(&call).await;
        page.posted_times(2);
        other.posted_times(1);
        for page in [&page, &other] {
            assert_eq!(page.text(), "I will pay. Done.");
            page.equals_reload(&app).await;
        }
        assert_eq!((app.ledger.lines().len(), app.scene.requests().len()), (1, 2));
    }
}

#[tokio::test]
async fn two_tabs_that_answer_at_once_run_a_call_once_and_both_get_the_whole_message() {
    for version in native() {
        let (app, mut page) = held_call(version, &PAY, &[]).await;
        let mut other = Page::load(&app, version).await;
        let call = page.first();
        futures::join!(page.approve(&call), other.approve(&call));
        page.posted_times(2);
        other.posted_times(1);
        for page in [&page, &other] {
            assert_eq!(page.text(), "I will pay. Done.");
            page.equals_reload(&app).await;
        }
        assert_eq!((app.ledger.lines().len(), app.scene.requests().len()), (1, 2));
    }
}

#[tokio::test]
async fn one_tab_approves_and_the_other_rejects_and_both_show_the_effective_decision() {
    for version in native() {
        let (app, mut page) = held_call(version, &PAY, &[]).await;
        let mut other = Page::load(&app, version).await;
        let call = page.first();
        futures::join!(page.approve(&call), other.deny(&call));
        page.posted_times(2);
        other.posted_times(1);
        assert_eq!(page.states(), other.states());
        let ran = app.ledger.lines().len();
        assert_eq!(page.states(), [if ran == 1 { "output-available" } else { "output-denied" }]);
        for page in [&page, &other] {
            assert_eq!(page.text(), "I will pay. Done.");
            page.equals_reload_but_for(&app, &page.call_ids()).await;
        }
        assert_eq!(app.scene.requests().len(), 2);
    }
}

#[tokio::test]
async fn inputs_that_another_tab_edited_are_shown_before_the_output() {
    for version in native() {
        let (app, mut page) = held_call(version, &PAY, &[]).await;
        let edited = json!({ "note": "7" });
        let body = json!({ "toolCallId": page.first(), "validatedInputs": edited, "isValidated": true });
        app.client.validate(&body).await.has_status(200);
        page.approve(&page.first()).await;
        page.posted_times(2);
        page.looks_like("d-approve.2");
        let [call] = &page.calls()[..] else { panic!("{page:#?}") };
        assert_eq!((&call.input, &call.output), (&edited, &json!({ "paid": "7" })));
        page.equals_reload(&app).await;
    }
}

#[tokio::test]
async fn an_answer_after_the_deadline_is_shown_as_failed() {
    for (version, yes) in native().into_iter().flat_map(|version| [(version, true), (version, false)]) {
        let (app, mut page) = held_call(version, &PAY, &[]).await;
        let call = page.first();
        overdue(&app, &call).await;
        page.answer(&call, yes).await;
        page.posted_times(2);
        assert_eq!(page.states(), [if yes { "output-error" } else { "output-denied" }]);
        assert_eq!(app.client.call(&call).await["state"], "expired");
        // After a reload the card does not have the approval.
        page.equals_reload_but_for(&app, &[call]).await;
        assert!(app.ledger.lines().is_empty());
    }
}

#[tokio::test]
async fn an_answer_to_a_cancelled_call_is_shown_as_failed() {
    for (version, yes) in native().into_iter().flat_map(|version| [(version, true), (version, false)]) {
        for whole_run in [false, true] {
            let (app, mut page) = held_call(version, &PAY, &[]).await;
            let call = page.first();
            let path = if whole_run {
                let run = app.client.run_of(&call).await;
                format!("/runs/{run}/cancel")
            } else {
                format!("/tool_calls/{call}/cancel")
            };
            app.client.post(&path, &Value::Null).await.has_status(200);
            page.answer(&call, yes).await;
            page.posted_times(2);
            assert_eq!(page.states(), [if yes { "output-error" } else { "output-denied" }]);
            page.equals_reload_but_for(&app, &[call]).await;
            assert!(app.ledger.lines().is_empty());
        }
    }
}
