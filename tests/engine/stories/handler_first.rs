//! A tool is confirmed before it runs by the frontend of the app, through a handler that is given when the
//! app is built. The handler approves, denies or cancels the call within its timeout, and a choice that it
//! remembers is not requested again in the session. In manual mode without a handler the app does not start.

use super::{asks_for, cards};
use holdpoint::app::App;
use holdpoint::config::{ApprovalMode, Config};
use holdpoint::handlers::{HandlerAnswer, Remember};
use holdpoint_testkit::handlers::{desk, pays};
use holdpoint_testkit::{Embedded, Scene, Turn, sqlite};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// Has the model request one payment in a new thread.
async fn pay(app: &Embedded, note: &str) -> (String, Turn) {
    asks_for(app, &[("pay", json!({ "note": note }))]).await
}

#[tokio::test]
async fn manual_mode_without_a_handler_is_an_error_at_the_start() {
    let dir = tempfile::tempdir().unwrap();
    let build = async |mode| {
        let mut config = Config::default();
        config.database.url = sqlite(&dir).into();
        config.approval.mode = mode;
        let parts = App::builder(config).model(Arc::new(Scene::new()));
        Box::pin(parts.build()).await.err().map(|error| error.to_string())
    };
    assert!(build(ApprovalMode::Manual).await.unwrap().contains("approval.mode"));
    assert_eq!(build(ApprovalMode::AutoApprove).await, None);
}

#[tokio::test]
async fn a_tool_is_confirmed_by_the_handler_and_other_tabs_close_their_card() {
    let (desk, questions) = desk();
    let app = Embedded::with_handler(desk, |_| {}).await;
    app.scene.answers("Never said.");
    app.scene.forget();
    let confirms = async {
        let question = questions.next().await;
        app.scene.answers("Paid.");
        // A tab that is loaded meanwhile shows the card.
        let thread = question.request.session_id.to_string();
        let inbox = app.client.get(&format!("/sessions/{thread}/approvals")).await.body;
        assert_eq!(inbox["results"][0]["tool_call_id"], json!(question.id()), "{inbox}");
        let [tool, note] = [question.request.tool_name.as_str(), question.note()];
        assert_eq!([tool, note], ["pay", "10"]);
        question.answer(HandlerAnswer::approved());
    };
    let ((thread, turn), ()) = tokio::join!(pay(&app, "10"), confirms);
    assert_eq!(turn.text(), "Paid.", "the run continues by itself");
    let inbox = app.client.get(&format!("/sessions/{thread}/approvals?state=pending")).await.body;
    assert_eq!(inbox["results"], json!([]), "no card is left open");
    assert_eq!(cards(&app.client, &thread).await[0]["state"], "output-available");
    let output = "SELECT type, actor FROM events WHERE actor LIKE 'handler:%' AND type = 'tool.approved'";
    let received = app.rows.all(output).await;
    assert_eq!(
        received,
        [json!({ "type": "tool.approved", "actor": "handler:desk" })],
        "every tab receives the event"
    );
}

#[tokio::test]
async fn the_model_distinguishes_denied_cancelled_and_timed_out_calls() {
    let (desk, questions) = desk();
    let hurry = |config: &mut Config| config.approval.handler_timeout = Duration::from_secs(2);
    let app = Embedded::with_handler(desk, hurry).await;
    let answers = [
        (Some(HandlerAnswer::denied("too dangerous")), "rejected", "rejected by user. Reason: too dangerous"),
        (Some(HandlerAnswer::Cancelled { reason: None }), "cancelled", "Cancelled, the tool did not run."),
        (None, "cancelled", "Cancelled, the tool did not run. Reason: timeout"),
    ];
    for (answer, state, read) in answers {
        let confirms = async {
            let question = questions.next().await;
            app.scene.answers("I see.");
            let id = question.id();
            match answer {
                Some(answer) => question.answer(answer),
                None => question.until_over().await,
            }
            id
        };
        let ((_, turn), id) = tokio::join!(pay(&app, "10"), confirms);
        assert_eq!((turn.text().as_str(), &app.client.call(&id).await["state"]), ("I see.", &json!(state)));
        let reported = format!("{:?}", app.scene.requests().pop().unwrap());
        assert!(reported.contains(read), "{read} in {reported}");
    }
    assert_eq!(app.ledger.lines(), Vec::<String>::new());
}

#[tokio::test]
async fn a_remembered_choice_applies_to_matching_calls_of_its_session_only() {
    let (desk, questions) = desk();
    let app = Embedded::with_handler(desk, |_| {}).await;
    // Two calls of one tool and one call of another are pending at once.
    let requested = [
        ("pay", json!({ "note": "1" })),
        ("pay", json!({ "note": "2" })),
        ("refuse", json!({ "note": "3" })),
    ];
    let remember = HandlerAnswer::Approved { inputs: None, remember: Some(Remember::Session) };
    let confirms = async {
        let mut questions = [questions.next().await, questions.next().await, questions.next().await];
        questions.sort_by_key(|question| question.note().to_owned());
        let [first, second, other] = questions;
        app.scene.answers("Paid.");
        first.answer(remember.clone());
        second.until_over().await;
        other.answer(HandlerAnswer::denied("not this"));
    };
    let ((thread, turn), ()) = tokio::join!(asks_for(&app, &requested), confirms);
    assert_eq!(turn.text(), "Paid.");
    let mut ran = app.ledger.lines();
    ran.sort();
    assert_eq!(ran, ["pay 1", "pay 2"]);
    let states: Vec<Value> =
        cards(&app.client, &thread).await.iter().map(|card| card["state"].clone()).collect();
    assert_eq!(states, ["output-available", "output-available", "output-denied"]);

    // In the same session, no confirmation is requested.
    pays(&app, &["4"], "Paid again.");
    assert_eq!(app.client.send_message(&thread, "and 4").await.text(), "Paid again.");
    assert!(questions.is_empty().await);
    // In another session, a confirmation is requested.
    let confirms = async {
        let question = questions.next().await;
        app.scene.answers("No.");
        question.answer(HandlerAnswer::denied("who are you?"));
    };
    let ((_, turn), ()) = tokio::join!(pay(&app, "5"), confirms);
    assert_eq!(turn.text(), "No.");
}
