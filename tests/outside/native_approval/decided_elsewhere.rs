//! Calls that were decided, ended or continued elsewhere without the page.

use super::{Page, RESUMES, no, row, run_status, sent, yes};
use futures::future::join_all;
use holdpoint::llm::ModelEvent;
use holdpoint_testkit::ui::{UiTurn, ui_submit, ui_user};
use holdpoint_testkit::{Deployment, Embedded, JsonFields, call};
use serde_json::{Value, json};

/// The chunks of a turn that settle its calls, without the chunks that only a live reader gets.
fn settled(turn: &UiTurn) -> Vec<&Value> {
    let live = ["tool-input-start", "tool-input-delta"];
    turn.chunks.iter().filter(|chunk| !live.contains(&chunk.text("type"))).collect()
}

#[tokio::test]
async fn inputs_edited_elsewhere_are_streamed_before_the_output() {
    let app = Embedded::start().await;
    let page = Page::holding(&app, &[("pay", "10")]).await;
    let edit =
        json!({ "toolCallId": page.calls[0], "isValidated": true, "validatedInputs": { "note": "9" } });
    app.client.validate(&edit).await.has_status(200);
    app.scene.answers("Paid 9.");
    let turn = page.posts(&page.yes()).await;
    let mut kinds = RESUMES.to_vec();
    kinds.insert(1, "tool-input-available");
    assert_eq!(turn.kinds(), kinds, "{}", turn.raw);
    assert_eq!(turn.one("tool-input-available")["input"], json!({ "note": "9" }));
    assert_eq!(turn.one("tool-output-available")["output"], json!({ "paid": "9" }));
    assert_eq!(row(&app, &page.calls[0]).await, ["succeeded", "approve", "user:local", "rest"]);
    assert_eq!(app.ledger.lines(), ["pay 9"]);
}

#[tokio::test]
async fn inputs_edited_elsewhere_while_the_page_waits_are_streamed_too() {
    let app = Embedded::start().await;
    let page = Page::holding(&app, &[("wait_for_me", "a"), ("pay", "b")]).await;
    let started = page.begins(&page.yes()).await;
    app.ledger.wait_started().await;
    let edit =
        json!({ "toolCallId": page.calls[1], "isValidated": true, "validatedInputs": { "note": "c" } });
    app.client.validate(&edit).await.has_status(200);
    app.scene.answers("Both.");
    app.ledger.release.add_permits(1);
    let turn = app.client.read_ui_on(started).await;
    assert_eq!(
        (turn.text().as_str(), turn.one("tool-input-available")["input"].clone()),
        ("Both.", json!({ "note": "c" })),
        "{}",
        turn.raw
    );
    let outputs: Vec<_> = turn.all("tool-output-available").iter().map(|it| it["output"].clone()).collect();
    assert_eq!(outputs, [json!({ "waited": "a" }), json!({ "paid": "c" })]);
    assert_eq!(turn.all("start-step").len(), 1);
    assert_eq!(app.ledger.lines(), ["wait_for_me a", "pay c"]);
}

#[tokio::test]
async fn a_late_contrary_answer_gets_the_decision_that_was_made() {
    let app = Embedded::start().await;
    let page = Page::holding(&app, &[("pay", "1")]).await;
    app.client.reject(&page.calls[0]).await.has_status(200);
    app.scene.answers("No.");
    let turn = page.posts(&page.yes()).await;
    let mut kinds = RESUMES;
    kinds[1] = "tool-output-denied";
    assert_eq!((turn.kinds(), turn.text().as_str()), (kinds.to_vec(), "No."), "{}", turn.raw);
    assert_eq!(row(&app, &page.calls[0]).await, ["rejected", "reject", "user:local", "rest"]);

    let page = Page::holding(&app, &[("pay", "2")]).await;
    app.client.approve(&page.calls[0]).await.has_status(200);
    app.scene.answers("Yes.");
    let turn = page.posts(&[no(&page.calls[0], Some("late"))]).await;
    assert_eq!((turn.kinds(), turn.text().as_str()), (RESUMES.to_vec(), "Yes."), "{}", turn.raw);
    assert_eq!(row(&app, &page.calls[0]).await, ["succeeded", "approve", "user:local", "rest"]);
    assert_eq!((app.ledger.lines(), app.rows.count("decisions").await), (vec!["pay 2".to_owned()], 2));
}

#[tokio::test]
async fn a_late_approval_is_shown_as_an_error_and_a_late_rejection_as_a_denial() {
    for (says_yes, expected) in [(true, "tool-output-error"), (false, "tool-output-denied")] {
        for over in ["expired", "cancelled"] {
            let app = Embedded::start().await;
            let page = Page::holding(&app, &[("pay", "10")]).await;
            let id = &page.calls[0];
            if over == "expired" {
                let overdue =
                    format!("UPDATE tool_calls SET expires_at = created_at WHERE tool_call_id = '{id}'");
                assert_eq!(app.rows.change(&overdue).await, Ok(1));
            } else {
                app.client.post(&format!("/tool_calls/{id}/cancel"), &json!({})).await;
            }
            app.scene.answers("Too late.");
            let answer = if says_yes { yes(id) } else { no(id, None) };
            let turn = page.posts(&[answer]).await;
            let mut kinds = RESUMES;
            kinds[1] = expected;
            assert_eq!(
                (turn.kinds(), turn.text().as_str()),
                (kinds.to_vec(), "Too late."),
                "{over} {}",
                turn.raw
            );
            assert_eq!(row(&app, id).await[0], over);
            assert!(sent(&app)[0].contains("did not run"), "{:?}", sent(&app));
            assert_eq!(app.ledger.lines(), Vec::<String>::new());
        }
    }
}

#[tokio::test]
async fn a_stale_tab_catches_up_with_another_tab() {
    let app = Embedded::start().await;
    let page = Page::holding(&app, &[("pay", "1")]).await;
    // The other tab continues the run, up to another hold.
    app.client.approve(&page.calls[0]).await.has_status(200);
    app.scene.calls(&[call("2", "pay", &json!({ "note": "2" }))]);
    let other = page.posts(&[]).await;
    let second = other.pending();
    assert_eq!(second.len(), 1, "{}", other.raw);
    let stale = page.posts(&page.yes()).await;
    // After the missed chunks, the stale tab gets the pending call again, like a page that returns to a hold.
    let (other_end, same) = settled(&other).split_last().map(|(end, same)| (*end, same.to_vec())).unwrap();
    let again = vec![other.one("tool-input-available"), other.one("tool-approval-request")];
    let (end, sent) = stale.chunks.split_last().unwrap();
    assert_eq!(sent.iter().collect::<Vec<_>>(), [same, again].concat(), "{}", stale.raw);
    assert_eq!(end["type"], other_end["type"]);
    assert_eq!(app.scene.requests().len(), 2);

    // Then the run completes.
    let yes_to_both = [yes(&page.calls[0]), yes(&second[0])];
    app.client.approve(&second[0]).await;
    app.scene.answers("Both paid.");
    let end = page.posts(&[]).await;
    assert_eq!(end.text(), "Both paid.");
    for answers in [&yes_to_both[1..], &yes_to_both[..]] {
        let stale = page.posts(answers).await;
        assert_eq!(stale.chunks, end.chunks, "{}", stale.raw);
    }
    let from_the_first = page.posts(&page.yes()).await;
    let kinds = [
        "start",
        "tool-output-available",
        "start-step",
        "tool-input-available",
        "tool-approval-request",
        "tool-output-available",
        "finish-step",
        "start-step",
        "text-start",
        "text-delta",
        "text-end",
        "finish-step",
        "finish",
    ];
    assert_eq!((from_the_first.kinds(), from_the_first.text().as_str()), (kinds.to_vec(), "Both paid."));
    assert_eq!(from_the_first.chunks.last(), end.chunks.last());
    assert_eq!((app.scene.requests().len(), app.ledger.lines().len()), (3, 2));
    let states = page.posts(&[]).await;
    states.assert_states_only();
    assert_eq!((app.scene.requests().len(), app.ledger.lines().len()), (3, 2));
}

#[tokio::test]
async fn a_stale_tab_attaches_to_the_running_turn_from_its_own_position() {
    let app = Embedded::start().await;
    let page = Page::holding(&app, &[("pay", "1")]).await;
    app.client.approve(&page.calls[0]).await;
    app.scene.calls(&[call("2", "pay", &json!({ "note": "2" }))]);
    let second = page.posts(&[]).await.pending();
    app.client.approve(&second[0]).await;
    app.scene.answers("Both paid.");
    let gate = app.scene.gate();
    let first = page.begins(&[yes(&second[0])]).await;
    let stale = page.begins(&page.yes()).await;
    let same = page.begins(&[yes(&second[0])]).await;
    gate.add_permits(10);
    let [first, stale, same] =
        join_all([first, stale, same].map(|it| app.client.read_ui_on(it))).await.try_into().unwrap();
    assert_eq!((first.kinds(), first.text().as_str()), (RESUMES.to_vec(), "Both paid."));
    assert_eq!(same.chunks, first.chunks);
    let kinds = [
        "start",
        "tool-output-available",
        "start-step",
        "tool-input-available",
        "tool-approval-request",
        "tool-output-available",
        "finish-step",
    ];
    assert_eq!(stale.kinds()[..kinds.len()], kinds, "{}", stale.raw);
    assert_eq!(
        stale.kinds()[kinds.len()..],
        RESUMES[2..],
        "the outcome at the start of the turn is not told again"
    );
    assert_eq!((stale.text().as_str(), app.scene.requests().len()), ("Both paid.", 3));
}

#[tokio::test]
async fn two_tabs_that_answer_at_once_run_the_call_once_and_are_both_settled() {
    let app = Embedded::start().await;
    for round in 0..5 {
        let page = Page::holding(&app, &[("pay", &round.to_string())]).await;
        let requested = app.scene.requests().len();
        app.scene.answers("Paid.");
        let answers = page.yes();
        let turns = join_all((0..4).map(|_| page.posts(&answers))).await;
        for turn in &turns {
            assert_eq!((turn.kinds(), turn.text().as_str()), (RESUMES.to_vec(), "Paid."), "{}", turn.raw);
        }
        assert_eq!(app.scene.requests().len(), requested + 1, "one continuation");
        assert_eq!(row(&app, &page.calls[0]).await, ["succeeded", "approve", "user:local", "stream"]);
        // Simulates a network retry.
        let again = page.posts(&answers).await;
        assert_eq!((again.kinds(), again.text().as_str()), (RESUMES.to_vec(), "Paid."), "{}", again.raw);
        assert_eq!(again.chunks.last(), turns[0].chunks.last());
    }
    assert_eq!(app.ledger.lines(), ["pay 0", "pay 1", "pay 2", "pay 3", "pay 4"]);
    assert_eq!(app.rows.count("decisions").await, 5);
}

#[tokio::test]
async fn a_concurrent_approval_and_rejection_both_get_the_decision_that_was_made() {
    let app = Embedded::start().await;
    for round in 0..5 {
        let page = Page::holding(&app, &[("pay", &round.to_string())]).await;
        app.scene.answers("So be it.");
        let [one, other] = [yes(&page.calls[0]), no(&page.calls[0], None)].map(|answer| [answer]);
        let (one, other) = futures::join!(page.posts(&one), page.posts(&other));
        let settled = match row(&app, &page.calls[0]).await[0].as_str() {
            "succeeded" => "tool-output-available",
            _ => "tool-output-denied",
        };
        for turn in [one, other] {
            assert_eq!((turn.kinds()[1], turn.text().as_str()), (settled, "So be it."), "{}", turn.raw);
        }
    }
    let yeses = app.rows.count("decisions WHERE verdict = 'approve'").await;
    assert_eq!(i64::try_from(app.ledger.lines().len()).unwrap(), yeses);
}

#[tokio::test]
async fn an_answer_in_a_cancelled_run_is_settled_and_nothing_resumes() {
    let app = Embedded::start().await;
    let page = Page::holding(&app, &[("pay", "1")]).await;
    let run = app.rows.all("SELECT run_id FROM runs").await[0].text("run_id").to_owned();
    app.client.post(&format!("/runs/{run}/cancel"), &json!({})).await.has_status(200);
    let turn = page.posts(&page.yes()).await;
    assert_eq!(turn.kinds(), ["start", "tool-output-error", "finish"], "{}", turn.raw);
    assert_eq!((row(&app, &page.calls[0]).await[0].as_str(), app.ledger.lines().len()), ("cancelled", 0));
    assert_eq!(run_status(&app, &page.thread).await, "cancelled");
}

#[tokio::test]
async fn a_page_of_5_gets_the_outcomes_in_data_parts_that_replace_the_first_ones() {
    let app = Embedded::start().await;
    let thread = app.client.thread().await;
    app.scene.calls(&[call("1", "pay", &json!({ "note": "1" })), call("2", "pay", &json!({ "note": "2" }))]);
    let body = ui_submit(&thread, &[ui_user("u", "pay")]);
    let turn = app.client.ui_turn_as("ui-v5", &body).await;
    let ids = turn.pending();
    let page = Page { client: app.client.clone(), thread, message: turn.message_id().to_owned(), calls: ids };
    let parts = |turn: &UiTurn| -> Vec<(Value, Value)> {
        let parts = turn.all("data-tool-validation");
        parts.iter().map(|part| (part["id"].clone(), part["data"]["validated"].clone())).collect()
    };
    let [first, second] = &page.calls[..] else { panic!("{}", turn.raw) };
    app.client.approve(first).await;
    let half = app.client.ui_turn_as("ui-v5", &page.body(&[])).await;
    let kinds = ["start", "tool-output-available", "tool-input-available", "data-tool-validation", "finish"];
    // The server streams the pending call again. A page with an output of its own there would post again
    // without end.
    assert_eq!(
        (half.kinds(), half.one("tool-input-available")["toolCallId"].clone()),
        (kinds.to_vec(), json!(second))
    );
    assert_eq!(parts(&half), [(json!(first), json!("approved")), (json!(second), json!("pending"))]);
    app.client.reject(second).await;
    app.scene.answers("Half paid.");
    let whole = app.client.ui_turn_as("ui-v5", &page.body(&[])).await;
    assert_eq!(parts(&whole), [(json!(first), json!("approved")), (json!(second), json!("rejected"))]);
    assert_eq!(whole.one("tool-output-error")["toolCallId"], json!(second));
    assert_eq!((whole.text().as_str(), whole.message_id()), ("Half paid.", page.message.as_str()));
    assert_eq!(row(&app, first).await, ["succeeded", "approve", "user:local", "rest"]);
}

#[tokio::test]
async fn edited_inputs_are_not_streamed_again_after_an_answer_that_broke_off() {
    let app = Embedded::start().await;
    let page = Page::holding(&app, &[("pay", "10")]).await;
    let edit =
        json!({ "toolCallId": page.calls[0], "isValidated": true, "validatedInputs": { "note": "9" } });
    app.client.validate(&edit).await.has_status(200);
    app.scene.then(vec![Ok(ModelEvent::Text("Pa".to_owned())), Err("gone".to_owned())]);
    let broken = page.posts(&page.yes()).await;
    assert_eq!((broken.all("tool-input-available").len(), broken.text().as_str()), (1, "Pa"));
    assert!(broken.error().unwrap().starts_with("upstream_error: "), "{}", broken.raw);
    // The page would take repeated inputs for those of another call.
    app.scene.answers("Paid 9.");
    let again = page.posts(&[]).await;
    assert_eq!((again.kinds(), again.text().as_str()), (RESUMES.to_vec(), "Paid 9."), "{}", again.raw);
    assert_eq!(app.ledger.lines(), ["pay 9"]);
}

#[tokio::test]
async fn tabs_at_two_processes_run_the_call_once_and_are_both_settled_on_postgres() {
    let deployment = Deployment::on_postgres().await;
    let (one, other) = (deployment.start("0s"), deployment.start("0s"));
    let thread = one.client.thread().await;
    let id = deployment.hold(&one.client, &thread, "10").await;
    let message = one.client.messages(&thread).await[1].text("message_id").to_owned();
    let page = Page { client: one.client.clone(), thread, message, calls: vec![id.clone()] };
    let body = page.body(&page.yes());
    let (first, second) =
        futures::join!(one.client.begin(&page.thread, &body), other.client.begin(&page.thread, &body));
    deployment.wait_started(&["transfer 10"]).await;
    deployment.release();
    let (first, second) = futures::join!(one.client.read_ui_on(first), other.client.read_ui_on(second));
    for turn in [first, second, page.posts(&page.yes()).await] {
        assert_eq!(
            (turn.kinds(), turn.text().as_str()),
            (RESUMES.to_vec(), r#"{"transferred":"10"}"#),
            "{}",
            turn.raw
        );
    }
    assert_eq!(deployment.ledger(), ["transfer 10", "transfer 10 done"]);
    let decision = one.client.call(&id).await["decision"].clone();
    assert_eq!((&decision["surface"], &decision["by"]), (&json!("stream"), &json!("user:local")));
}

#[tokio::test]
async fn a_stored_decision_that_a_page_loads_and_posts_is_not_a_late_answer() {
    let decision =
        |call: &str, data: Value| json!({ "type": "data-tool-decision", "id": call, "data": data });
    for (shown, late) in [(None, true), (Some(json!({})), false), (Some(json!({ "late": true })), true)] {
        let app = Embedded::start().await;
        let page = Page::holding(&app, &[("pay", "10")]).await;
        let call = &page.calls[0];
        app.client.approve(call).await;
        app.scene.answers("Paid.");
        let shown_parts = shown.iter().map(|data| decision(call, data.clone()));
        let parts: Vec<Value> = page.yes().into_iter().chain(shown_parts).collect();
        let turn = page.posts(&parts).await;
        assert_eq!(turn.raw.matches("data-tool-decision").count(), 1, "{}", turn.raw);
        assert_eq!(turn.raw.contains(r#""late":true"#), late, "{shown:?}: {}", turn.raw);
    }
}
