//! The answers of a handler and their effects.

use super::{answered, decided, office, pays, words};
use holdpoint::config::ToolRules;
use holdpoint::handlers::{Closure, HandlerAnswer, HandlerError, Remember, RiskLevel};
use holdpoint_testkit::runs::events_of;
use holdpoint_testkit::token::with_tokens;
use holdpoint_testkit::{Embedded, JsonFields, call};
use serde_json::{Value, json};
use std::time::Duration;

#[tokio::test]
async fn an_approval_runs_the_call_and_the_turn_resumes_in_the_same_stream() {
    let (app, questions) = office().await;
    let thread = app.client.thread().await;
    pays(&app, &["10"], "Paid.");
    let decides = async {
        let question = questions.next().await;
        let id = question.id();
        let waits = app.client.call(&id).await;
        assert_eq!(
            (&waits["state"], &waits["validated"]),
            (&json!("pending"), &Value::Null),
            "it is stored first"
        );
        let request = &question.request;
        let reported = [&request.thread_id.to_string(), &request.session_id.to_string()];
        assert_eq!(reported, [&thread, &thread]);
        assert_eq!(json!(request.run_id.to_string()), waits["run_id"]);
        assert_eq!((request.tool_name.as_str(), question.note()), ("pay", "10"));
        assert_eq!((request.risk, request.reason.as_deref()), (RiskLevel::High, waits["reason"].as_str()));
        assert_eq!((request.requester.tenant_id(), request.requester.user_id()), ("default", "local"));
        assert!(
            request.expires_at.unwrap()
                > std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000)
        );
        question.answer(HandlerAnswer::approved());
        id
    };
    let (turn, id) = tokio::join!(app.client.send_message(&thread, "pay"), decides);
    assert_eq!((turn.codes().as_str(), turn.text().as_str()), ("fbc98ea8ef0ed", "Paid."), "{}", turn.raw);
    assert_eq!(words(&turn), ["pending", "approved"]);
    assert_eq!(turn.one('a')["result"], json!({ "paid": "10" }));
    assert_eq!(turn.one('d')["finishReason"], "stop");
    let done = app.client.call(&id).await;
    assert_eq!(
        (&done["state"], decided(&done)),
        (&json!("succeeded"), ["handler:desk", "handler", "approve"])
    );
    assert_eq!(app.ledger.lines(), ["pay 10"]);
    let run = app.client.run_of(&id).await;
    let expected = [
        "run.started",
        "tool.called",
        "tool.requires_approval",
        "tool.approved",
        "tool.started",
        "tool.succeeded",
        "run.completed",
    ];
    assert_eq!(events_of(&app.rows, &run).await, expected);
    let read = format!("{:?}", app.scene.growing_requests().last().unwrap());
    assert!(read.contains(r#"{\"paid\":\"10\"}"#), "{read}");
}

#[tokio::test]
async fn a_denial_rejects_the_call_and_the_model_reads_the_reason() {
    let (app, questions) = office().await;
    let (turn, call) = answered(&app, &questions, HandlerAnswer::denied("it is\0 too much")).await;
    assert_eq!(
        (turn.codes().as_str(), words(&turn)),
        ("fbc98ea8ef0ed", vec!["pending", "rejected"]),
        "{}",
        turn.raw
    );
    let result = "Tool execution rejected by user. Reason: it is\u{fffd} too much";
    assert_eq!((&call["state"], &call["result"]), (&json!("rejected"), &json!(result)));
    assert_eq!(decided(&call), ["handler:desk", "handler", "reject"]);
    assert_eq!(app.ledger.lines(), Vec::<String>::new());
}

#[tokio::test]
async fn a_cancelled_call_does_not_run_and_is_not_rejected() {
    let (app, questions) = office().await;
    for (reason, result) in [
        (None, "Cancelled, the tool did not run."),
        (Some("the office is closed"), "Cancelled, the tool did not run. Reason: the office is closed"),
    ] {
        let answer = HandlerAnswer::Cancelled { reason: reason.map(str::to_owned) };
        let (turn, call) = answered(&app, &questions, answer).await;
        assert_eq!((turn.codes().as_str(), words(&turn)), ("fbc98ea8ef0ed", vec!["pending", "cancelled"]));
        assert_eq!((&call["state"], &call["result"]), (&json!("cancelled"), &json!(result)));
        assert_eq!(call["decision"].get("reason").and_then(Value::as_str), reason);
        assert_eq!(decided(&call), ["handler:desk", "handler", "cancel"]);
    }
    assert_eq!(app.ledger.lines(), Vec::<String>::new());
}

#[tokio::test]
async fn a_handler_that_exceeds_its_timeout_cancels_the_call() {
    let (desk, questions) = super::desk();
    let hurry = Duration::from_millis(50);
    let app = Embedded::with_handler(desk, |config| config.approval.handler_timeout = hurry).await;
    let thread = app.client.thread().await;
    pays(&app, &["10"], "Nobody was there.");
    let thinks = async {
        let question = questions.next().await;
        let id = question.id();
        question.until_over().await;
        id
    };
    let (turn, id) = tokio::join!(app.client.send_message(&thread, "pay"), thinks);
    assert_eq!((words(&turn), turn.text().as_str()), (vec!["pending", "cancelled"], "Nobody was there."));
    let call = app.client.call(&id).await;
    assert_eq!((&call["state"], &call["decision"]["reason"]), (&json!("cancelled"), &json!("timeout")));
    assert_eq!(call["result"], "Cancelled, the tool did not run. Reason: timeout");
    assert_eq!(decided(&call), ["handler:desk", "handler", "cancel"]);
    let counted = app.client.http.get(app.client.url("/metrics")).send().await.unwrap().text().await.unwrap();
    for sample in [
        "holdpoint_decisions_total{verdict=\"cancel\",surface=\"handler\",outcome=\"decided\"} 1\n",
        "holdpoint_decision_age_seconds_count{verdict=\"cancel\"} 1\n",
    ] {
        assert!(counted.contains(sample), "{sample} in {counted}");
    }
}

/// Answers of a handler that decide nothing.
async fn at_a_loss(how: &str) -> Result<HandlerAnswer, HandlerError> {
    let edited = |inputs: Value| HandlerAnswer::Approved {
        inputs: Some(inputs.as_object().unwrap().clone()),
        remember: None,
    };
    match how {
        "defers" => Ok(HandlerAnswer::Deferred),
        "fails" => Err("no connection to the office".into()),
        "panics" => panic!("the office burns"),
        "sends inputs that do not fit" => Ok(edited(json!({ "note": 5 }))),
        "sends inputs that are too deep" => {
            let deep = (0..40).fold(json!(1), |inner, _| json!([inner]));
            Ok(edited(json!({ "note": deep })))
        }
        other => panic!("{other}"),
    }
}

#[tokio::test]
async fn a_handler_that_decides_nothing_leaves_the_call_pending_and_the_turn_ends_as_a_hold() {
    let hows =
        ["defers", "fails", "panics", "sends inputs that do not fit", "sends inputs that are too deep"];
    for how in hows {
        let app = Embedded::with_handler(Closure::new("desk", move |_| at_a_loss(how)), |_| {}).await;
        let (thread, id) = app.held("pay", "10").await;
        let call = app.client.call(&id).await;
        assert_eq!((&call["state"], call.get("decision")), (&json!("pending"), None), "{how}");
        let run = app.client.run_of(&id).await;
        assert_eq!(app.client.get(&format!("/runs/{run}")).await.body["status"], "waiting", "{how}");
        // From here the call behaves as without a handler.
        assert_eq!(app.client.approve(&id).await.body["state"], "succeeded", "{how}");
        app.scene.answers("Paid.");
        let turn = app.client.resume(&thread).await;
        assert_eq!((turn.codes().as_str(), turn.text().as_str()), ("a8ef0ed", "Paid."), "{how}");
    }
}

#[tokio::test]
async fn a_panic_before_the_future_exists_leaves_the_call_pending() {
    let broken = Closure::new("desk", |_| -> std::future::Ready<Result<HandlerAnswer, HandlerError>> {
        panic!("the office burns")
    });
    let app = Embedded::with_handler(broken, |_| {}).await;
    let (_, id) = app.held("pay", "10").await;
    assert_eq!(app.client.call(&id).await["state"], "pending");
}

#[tokio::test]
async fn inputs_edited_by_a_handler_run_and_the_model_reads_the_change() {
    let (app, questions) = office().await;
    let inputs = Some(json!({ "note": "5" }).as_object().unwrap().clone());
    let (turn, call) = answered(&app, &questions, HandlerAnswer::Approved { inputs, remember: None }).await;
    assert_eq!(turn.one('9')["args"], json!({ "note": "10" }), "as it was asked for");
    assert_eq!(
        (&call["validated_inputs"], &call["decision"]["edited"]),
        (&json!({ "note": "5" }), &json!(true))
    );
    assert_eq!(app.ledger.lines(), ["pay 5"]);
    let read = format!("{:?}", app.scene.requests().last().unwrap());
    assert!(read.contains("A person changed the inputs from"), "{read}");
}

#[tokio::test]
async fn a_deferred_call_stays_pending_and_the_stream_shows_the_outcome_of_the_other() {
    let (app, questions) = office().await;
    let thread = app.client.thread().await;
    pays(&app, &["1", "2"], "All told.");
    let decides = async {
        // The server asks the handler about both calls at once.
        let (first, second) = (questions.next().await, questions.next().await);
        let (yes, later) = if first.note() == "1" { (first, second) } else { (second, first) };
        let ids = (yes.id(), later.id());
        later.answer(HandlerAnswer::Deferred);
        yes.answer(HandlerAnswer::approved());
        ids
    };
    let (turn, (yes, later)) = tokio::join!(app.client.send_message(&thread, "pay"), decides);
    assert_eq!(turn.codes(), "fbcbc998ea8ed", "{}", turn.raw);
    assert_eq!(words(&turn), ["pending", "pending", "approved"]);
    assert_eq!(turn.one('a')["toolCallId"], json!(yes));
    assert_eq!(turn.one('d')["finishReason"], "tool-calls");
    assert_eq!(app.client.call(&later).await["state"], "pending");
    assert_eq!(app.scene.requests().len(), 1, "the model is not called");

    app.client.reject(&later).await.has_status(200);
    let turn = app.client.resume(&thread).await;
    assert_eq!((words(&turn), turn.text().as_str()), (vec!["approved", "rejected"], "All told."));
    assert!(questions.is_empty().await, "the handler is not asked twice");
}

#[tokio::test]
async fn a_step_may_hold_again_and_the_handler_is_asked_again() {
    let (app, questions) = office().await;
    let thread = app.client.thread().await;
    app.scene.calls(&[call("1", "pay", &json!({ "note": "1" }))]);
    pays(&app, &["2"], "Both are paid.");
    let yes = async || questions.answer(HandlerAnswer::approved()).await;
    let decides = async { (yes().await, yes().await) };
    let (turn, _) = tokio::join!(app.client.send_message(&thread, "pay"), decides);
    assert_eq!((turn.codes().as_str(), turn.text().as_str()), ("fbc98ea8efbc98ea8ef0ed", "Both are paid."));
    assert_eq!(app.ledger.lines(), ["pay 1", "pay 2"]);
}

#[tokio::test]
async fn a_call_that_needs_no_approval_runs_without_a_question_to_the_handler() {
    let (app, questions) = office().await;
    let thread = app.client.thread().await;
    let note = json!({ "note": "10" });
    app.scene.calls(&[call("1", "look", &note), call("2", "pay", &note)]).answers("Done.");
    let (turn, _) =
        tokio::join!(app.client.send_message(&thread, "go"), questions.answer(HandlerAnswer::approved()));
    assert_eq!((turn.codes().as_str(), turn.text().as_str()), ("fbcbc99a8ea8ef0ed", "Done."), "{}", turn.raw);
    assert!(questions.is_empty().await);
}

#[tokio::test]
async fn a_handlers_approval_is_one_vote_of_a_quorum_and_its_denial_is_final() {
    let (desk, questions) = super::desk();
    let rules = |other_person| ToolRules {
        approve_roles: vec!["chief".to_owned()],
        approvals: 2,
        other_person,
        ..ToolRules::default()
    };
    let change = |config: &mut holdpoint::config::Config| {
        with_tokens(config);
        config.tools.rules.insert("pay".to_owned(), rules(true));
    };
    let mut app = Embedded::with_handler(desk, change).await;
    let chief = app.client.as_user("acme", "carol", &["chief"]);
    app.client = app.client.as_user("acme", "alice", &[]);
    let (turn, call) = answered(&app, &questions, HandlerAnswer::approved()).await;
    assert_eq!((turn.codes().as_str(), &call["state"]), ("fbc98ed", &json!("pending")), "{}", turn.raw);
    let id = call.text("tool_call_id");
    let inbox = chief.get("/approvals").await.body;
    assert_eq!(inbox["results"][0]["approved_by"], json!(["handler:desk"]));
    assert_eq!(chief.approve(id).await.body["state"], "succeeded");
    app.scene.forget();

    let (turn, call) = answered(&app, &questions, HandlerAnswer::denied("no")).await;
    assert_eq!((turn.text().as_str(), &call["state"]), ("I see.", &json!("rejected")));
    // One vote of several cannot create a grant.
    let remember = HandlerAnswer::Approved { inputs: None, remember: Some(Remember::Session) };
    let (_, call) = answered(&app, &questions, remember).await;
    assert_eq!(call["state"], "pending");
}

#[tokio::test]
async fn a_session_that_forbids_the_tool_rejects_the_call_and_ends_the_question_of_the_handler() {
    let (desk, questions) = super::desk();
    let app = Embedded::with_handler(desk, |_| {}).await;
    let thread = app.client.thread().await;
    pays(&app, &["10"], "Then not.");
    let decides = async {
        let question = questions.next().await;
        let id = question.id();
        let deny = json!({ "tools": { "pay": "deny" } });
        let policy = app.client.http.put(app.client.url(&format!("/sessions/{thread}/policy"))).json(&deny);
        app.client.send(policy).await.has_status(200);
        question.until_over().await;
        id
    };
    let (turn, id) = tokio::join!(app.client.send_message(&thread, "pay"), decides);
    assert_eq!((turn.codes().as_str(), turn.text().as_str()), ("fbc98ea8ef0ed", "Then not."), "{}", turn.raw);
    assert_eq!(app.client.call(&id).await["state"], "rejected");
    assert_eq!(app.ledger.lines(), Vec::<String>::new());
}
