//! Other activity while a handler decides: people decide, other threads talk, the server resumes its own
//! runs.

use super::{decided, office, pays, words};
use holdpoint::handlers::{HandlerAnswer, Remember};
use holdpoint_testkit::runs::{approve, events_of, last_words, run_becomes};
use holdpoint_testkit::{DisconnectKind, Embedded, JsonFields, Leaver, call};
use serde_json::{Value, json};
use std::time::Duration;

#[tokio::test]
async fn a_faster_person_decides_and_the_handlers_question_is_dropped() {
    let (app, questions) = office().await;
    let thread = app.client.thread().await;
    for (yes, word, state) in [(true, "approved", "succeeded"), (false, "rejected", "rejected")] {
        pays(&app, &["10"], "As you like.");
        let decides = async {
            let question = questions.next().await;
            let id = question.id();
            let answer = if yes { app.client.approve(&id).await } else { app.client.reject(&id).await };
            assert_eq!((answer.status, &answer.body["state"]), (200, &json!(state)));
            question.until_over().await;
            id
        };
        let (turn, id) = tokio::join!(app.client.send_message(&thread, "pay"), decides);
        assert_eq!((words(&turn), turn.text().as_str()), (vec!["pending", word], "As you like."));
        assert_eq!(decided(&app.client.call(&id).await)[..2], ["user:local", "rest"]);
    }
    assert_eq!(app.ledger.lines(), ["pay 10"]);
}

#[tokio::test]
async fn the_first_of_handler_and_person_decides_and_the_other_changes_nothing() {
    let (app, questions) = office().await;
    for n in 0..8 {
        let thread = app.client.thread().await;
        pays(&app, &[&n.to_string()], "One of you.");
        let race = async {
            let question = questions.next().await;
            let id = question.id();
            let (_, answer) = tokio::join!(
                async {
                    if n % 2 == 0 {
                        tokio::task::yield_now().await;
                    }
                    // The server has dropped the question if the person was faster.
                    drop(question.answer.send(Ok(HandlerAnswer::approved())));
                },
                app.client.reject(&id)
            );
            (id, answer)
        };
        let (turn, (id, answer)) = tokio::join!(app.client.send_message(&thread, "pay"), race);
        let call = app.client.call(&id).await;
        let by_handler = decided(&call)[0] == "handler:desk";
        assert_eq!(answer.status, if by_handler { 409 } else { 200 }, "{:?}", answer.body);
        assert_eq!(call["state"], if by_handler { "succeeded" } else { "rejected" });
        assert_eq!(app.ledger.lines().contains(&format!("pay {n}")), by_handler);
        assert_eq!(turn.text(), "One of you.");
        let count = app.rows.count(&format!("decisions WHERE tool_call_id = '{id}'")).await;
        assert_eq!(count, 1);
    }
}

#[tokio::test]
async fn a_person_decides_a_deferred_call_while_the_handler_decides_another() {
    let (app, questions) = office().await;
    let thread = app.client.thread().await;
    pays(&app, &["1", "2"], "All told.");
    let decides = async {
        let (first, second) = (questions.next().await, questions.next().await);
        let left = first.id();
        first.answer(HandlerAnswer::Deferred);
        assert_eq!(app.client.approve(&left).await.body["state"], "succeeded");
        second.answer(HandlerAnswer::approved());
    };
    let (turn, ()) = tokio::join!(app.client.send_message(&thread, "pay"), decides);
    assert_eq!(
        (turn.codes().as_str(), turn.text().as_str()),
        ("fbcbc998eaa8ef0ed", "All told."),
        "{}",
        turn.raw
    );
}

#[tokio::test]
async fn a_run_that_its_own_turn_resumes_has_no_second_resumer() {
    let (desk, questions) = super::desk();
    let app = Embedded::with_handler(desk, |config| config.approval.sweep = Duration::from_millis(20)).await;
    let thread = app.client.thread().await;
    app.scene.calls(&["1", "2"].map(|note| call(note, "pay", &json!({ "note": note }))));
    pays(&app, &["3"], "Paid.");
    let decides = async {
        let (first, second) = (questions.next().await, questions.next().await);
        let run = app.client.run_of(&first.id()).await;
        // After a decision at this route the server resumes the run.
        approve(&app.client, &first.id()).await.has_status(200);
        approve(&app.client, &second.id()).await.has_status(200);
        let third = questions.next().await;
        let row = format!("SELECT server_resumes, status FROM runs WHERE run_id = '{run}'");
        let stands = app.rows.all(&row).await;
        assert!([json!(false), json!(0)].contains(&stands[0]["server_resumes"]), "{stands:?}");
        assert_eq!(stands[0]["status"], "running");
        let id = third.id();
        third.answer(HandlerAnswer::Deferred);
        (run, id)
    };
    let (turn, (run, id)) = tokio::join!(app.client.send_message(&thread, "pay"), decides);
    assert_eq!(turn.codes(), "fbcbc998eaa8efbc98ed", "{}", turn.raw);
    let waits = app.client.get(&format!("/runs/{run}")).await.body;
    assert_eq!((&waits["status"], &waits["pending"]), (&json!("waiting"), &json!([id])));
    // Decisions about the first hold do not apply to this one: a page decides, and continues the run itself.
    assert_eq!(app.client.approve(&id).await.body["state"], "succeeded");
    let other = app.client.thread().await;
    app.scene.forget();
    pays(&app, &["4"], "Of another.");
    let (_, other) =
        tokio::join!(app.client.send_message(&other, "pay"), questions.answer(HandlerAnswer::Deferred));
    approve(&app.client, &other).await.has_status(200);
    run_becomes(&app.client, &app.client.run_of(&other).await, "completed").await;
    assert_eq!(app.client.get(&format!("/runs/{run}")).await.body["status"], "waiting");
    app.scene.answers("Paid.");
    assert_eq!(app.client.resume(&thread).await.text(), "Paid.");
    let events = events_of(&app.rows, &run).await;
    assert_eq!(events.iter().filter(|event| *event == "run.resumed").count(), 1, "{events:?}");
}

#[tokio::test]
async fn a_turn_of_another_thread_does_not_wait_for_the_handler() {
    let (app, questions) = office().await;
    let (first, second) = (app.client.thread().await, app.client.thread().await);
    pays(&app, &["1"], "One.");
    let thinks = async {
        let question = questions.next().await;
        app.scene.forget();
        // The second thread talks, holds a call and gets its decision while the handler decides the first.
        pays(&app, &["2"], "Two.");
        let (turn, _) = tokio::join!(
            app.client.send_message(&second, "pay"),
            questions.answer(HandlerAnswer::approved())
        );
        assert_eq!(turn.text(), "Two.");
        app.scene.answers("One.");
        question.answer(HandlerAnswer::approved());
    };
    let (turn, ()) = tokio::join!(app.client.send_message(&first, "pay"), thinks);
    assert_eq!(turn.text(), "One.");
}

#[tokio::test]
async fn waiting_handlers_of_many_threads_hold_no_database_connection() {
    let (desk, questions) = super::desk();
    let app = Embedded::with_handler(desk, |config| config.database.max_connections = 2).await;
    let turns = (0..20).map(async |_| {
        let thread = app.client.thread().await;
        app.client.send_message(&thread, "pay").await
    });
    for n in 0..20 {
        app.scene.calls(&[call("p", "pay", &json!({ "note": n.to_string() }))]);
    }
    let thinks = async {
        let mut requested = Vec::new();
        for _ in 0..20 {
            requested.push(questions.next().await);
        }
        app.client.get("/threads").await.has_status(200);
        for _ in 0..20 {
            app.scene.answers("Done.");
        }
        requested.into_iter().for_each(|question| question.answer(HandlerAnswer::denied("no")));
    };
    let (turns, ()) = tokio::join!(futures::future::join_all(turns), thinks);
    assert!(turns.iter().all(|turn| turn.text() == "Done."), "{turns:?}");
}

#[tokio::test]
async fn a_client_disconnect_does_not_affect_the_handler() {
    let (app, questions) = office().await;
    for how in DisconnectKind::ALL {
        let thread = app.client.thread().await;
        pays(&app, &["10"], "Paid.");
        let path = format!("/qa/chat_streamed/{thread}");
        let leaver = Leaver::sends(&app.client, how, &path, &json!({ "content": "pay" })).await;
        let question = questions.next().await;
        let run = app.client.run_of(&question.id()).await;
        leaver.leaves().await;
        assert_eq!(app.client.get(&format!("/runs/{run}")).await.body["status"], "running");
        question.answer(HandlerAnswer::approved());
        run_becomes(&app.client, &run, "completed").await;
        assert_eq!(last_words(&app.client, &thread).await, "Paid.");
    }
}

#[tokio::test]
async fn a_message_while_a_handler_decides_gets_turn_in_progress() {
    let (app, questions) = office().await;
    let thread = app.client.thread().await;
    pays(&app, &["10"], "Paid.");
    let thinks = async {
        let question = questions.next().await;
        let refused = app.client.send_message(&thread, "and now?").await;
        assert_eq!(refused.refused(), (409, "turn_in_progress".to_owned()));
        question.answer(HandlerAnswer::approved());
    };
    let (turn, ()) = tokio::join!(app.client.send_message(&thread, "pay"), thinks);
    assert_eq!(turn.text(), "Paid.");
}

#[tokio::test]
async fn a_handlers_grant_covers_later_calls_and_approves_pending_ones() {
    let (app, questions) = office().await;
    let thread = app.client.thread().await;
    pays(&app, &["1", "2"], "Paid.");
    let remember = HandlerAnswer::Approved { inputs: None, remember: Some(Remember::Session) };
    let decides = async {
        let (first, second) = (questions.next().await, questions.next().await);
        first.answer(remember.clone());
        second.until_over().await;
    };
    let (turn, ()) = tokio::join!(app.client.send_message(&thread, "pay"), decides);
    assert_eq!(
        (words(&turn), turn.text().as_str()),
        (vec!["pending", "pending", "approved", "approved"], "Paid.")
    );
    let grants = app.client.get(&format!("/sessions/{thread}/grants")).await.body;
    let [grant] = &grants.list("results")[..] else { panic!("{grants}") };
    assert_eq!(grant["granted_by"], "handler:desk");
    // The server asks no handler about the next call.
    pays(&app, &["3"], "Paid too.");
    let turn = app.client.send_message(&thread, "pay").await;
    assert_eq!((turn.codes().as_str(), turn.text().as_str()), ("fbc9aef0ed", "Paid too."));
    let id = turn.one('9').text("toolCallId").to_owned();
    let source = app.client.call(&id).await["decision"]["source"].clone();
    assert_eq!(source, json!(format!("remembered:{}", grant.text("grant_id"))));
    // A client can revoke the grant like any other.
    let path = format!("/sessions/{thread}/grants/{}", grant.text("grant_id"));
    app.client.delete(&path).await.has_status(204);
    pays(&app, &["4"], "No.");
    let (_, requested) =
        tokio::join!(app.client.send_message(&thread, "pay"), questions.answer(HandlerAnswer::denied("no")));
    assert_eq!(app.client.call(&requested).await["state"], "rejected");
}

#[tokio::test]
async fn a_grant_of_another_handler_is_ignored() {
    let (app, questions) = office().await;
    let thread = app.client.thread().await;
    pays(&app, &["1"], "Paid.");
    let remember = HandlerAnswer::Approved { inputs: None, remember: Some(Remember::Session) };
    tokio::join!(app.client.send_message(&thread, "pay"), questions.answer(remember));
    let tools = holdpoint_testkit::probes(&app.ledger);
    // A handler with another name replaces the first. Then the first returns.
    let (other, others) = super::named("counter");
    let app = app.redeploy_with_handler(other, tools, |_| {}).await;
    pays(&app, &["2"], "No.");
    let (_, id) =
        tokio::join!(app.client.send_message(&thread, "pay"), others.answer(HandlerAnswer::denied("no")));
    assert_eq!(app.client.call(&id).await["state"], "rejected");
    let tools = holdpoint_testkit::probes(&app.ledger);
    let app = app.redeploy_with_handler(super::desk().0, tools, |_| {}).await;
    pays(&app, &["3"], "Paid.");
    let turn = app.client.send_message(&thread, "pay").await;
    assert_eq!(app.client.call(turn.one('9').text("toolCallId")).await["state"], "succeeded");
    assert_eq!(turn.all('8'), Vec::<&Value>::new());
}
