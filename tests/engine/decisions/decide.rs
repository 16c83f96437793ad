//! A decision: every row of the table of `validate_tool`.

use holdpoint_testkit::{Embedded, JsonFields, call};
use serde_json::{Value, json};
use std::time::Duration;

#[tokio::test]
async fn an_approved_tool_runs_once_and_the_response_is_its_outcome() {
    let app = Embedded::start().await;
    let (_, id) = app.held("pay", "10").await;
    let before = app.client.call(&id).await;
    assert_eq!((&before["state"], &before["validated"]), (&json!("pending"), &Value::Null));
    assert_eq!(app.ledger.lines(), Vec::<String>::new());

    let answer = app.client.approve(&id).await;
    answer.has_status(200);
    let expected = json!({ "success": true, "result": "{\"paid\":\"10\"}", "toolCallId": id,
                           "state": "succeeded", "waitsForPage": true });
    assert_eq!(answer.body, expected);
    assert_eq!(answer.header("idempotent-replayed"), None);
    assert_eq!(app.ledger.lines(), ["pay 10"]);

    let after = app.client.call(&id).await;
    assert_eq!(after["state"], "succeeded");
    assert_eq!(after["validated"], true);
    assert_eq!(after["output"], json!({ "paid": "10" }));
    assert_eq!(after["decision"]["by"], "user:local");
    assert_eq!(after["decision"]["decision"], "approve");
    assert_eq!(after["decision"]["edited"], false);
    assert_eq!(after["decision"]["surface"], "rest");
}

#[tokio::test]
async fn a_tool_failure_is_reported_as_failed() {
    let app = Embedded::start().await;
    let (_, id) = app.held("refuse", "10").await;
    let answer = app.client.approve(&id).await;
    answer.has_status(200);
    assert_eq!(answer.body["success"], false);
    assert_eq!(answer.body["state"], "failed");
    assert_eq!(answer.body["result"], "The tool failed: the account is closed");
}

#[tokio::test]
async fn a_panicking_tool_is_contained_and_leaks_no_internal_detail() {
    let app = Embedded::start().await;
    let (_, id) = app.held("break", "10").await;
    let answer = app.client.approve(&id).await;
    answer.has(200, "state", "interrupted");
    assert!(!answer.body.to_string().contains("secret"), "{}", answer.body);
    let (_, other) = app.held("pay", "11").await;
    assert_eq!(app.client.approve(&other).await.body["success"], true);
}

#[tokio::test]
async fn a_tool_that_takes_too_long_has_an_unknown_outcome() {
    let app = Embedded::with(|config| config.tools.timeout = Duration::from_millis(50)).await;
    let (_, id) = app.held("wait_for_me", "10").await;
    let answer = app.client.approve(&id).await;
    answer.has_status(200);
    assert_eq!((&answer.body["success"], &answer.body["state"]), (&json!(false), &json!("interrupted")));
    let result = answer.body.text("result");
    assert!(result.contains("may have run") && result.contains("Do not repeat"), "{result}");
}

#[tokio::test]
async fn a_rejected_tool_does_not_run_and_the_result_contains_the_reason() {
    let app = Embedded::start().await;
    let (_, plain) = app.held("pay", "1").await;
    let answer = app.client.reject(&plain).await;
    let expected = json!({ "success": true, "result": "Tool execution rejected by user.",
                           "toolCallId": plain, "state": "rejected", "waitsForPage": true });
    assert_eq!((answer.status, answer.body), (200, expected));

    let (_, id) = app.held("pay", "2").await;
    let body = json!({ "toolCallId": id, "isValidated": false, "reason": "not today",
                       "validatedInputs": { "note": "edited" } });
    let answer = app.client.validate(&body).await;
    assert_eq!(answer.body["result"], "Tool execution rejected by user. Reason: not today");
    assert_eq!(answer.body.get("validatedInputs"), None, "edits are ignored when rejecting");
    let row = app.rows.all(&format!("SELECT * FROM tool_calls WHERE tool_call_id = '{id}'")).await;
    assert_eq!((&row[0]["validated_inputs"], &row[0]["validated"]), (&Value::Null, &json!(false)));
    assert_eq!(app.client.call(&id).await["decision"]["reason"], "not today");
    assert_eq!(app.ledger.lines(), Vec::<String>::new());
}

#[tokio::test]
async fn the_response_is_202_while_the_tool_runs_and_a_repeat_waits_again() {
    let app = Embedded::with(|config| config.approval.wait = Duration::from_millis(100)).await;
    let (_, id) = app.held("wait_for_me", "10").await;
    let answer = app.client.approve(&id).await;
    answer.has_status(202);
    assert_eq!((&answer.body["success"], &answer.body["state"]), (&json!(false), &json!("executing")));

    let repeat = app.client.approve(&id).await;
    assert_eq!((repeat.status, repeat.header("idempotent-replayed")), (202, Some("true")));

    app.ledger.release.add_permits(1);
    let mut done = app.client.approve(&id).await;
    while done.status == 202 {
        done = app.client.approve(&id).await;
    }
    done.has(200, "state", "succeeded");
    assert_eq!(app.ledger.lines(), ["wait_for_me 10"]);
}

#[tokio::test]
async fn a_repeated_decision_returns_the_stored_outcome() {
    let app = Embedded::start().await;
    let (_, id) = app.held("pay", "10").await;
    let first = app.client.approve(&id).await;
    let again = app.client.approve(&id).await;
    assert_eq!((again.status, again.header("idempotent-replayed")), (200, Some("true")));
    assert_eq!(again.body, first.body);
    // Inputs that equal the proposed ones are the same decision as none.
    let spelt = json!({ "toolCallId": id, "isValidated": true, "validatedInputs": { "note": "10" } });
    assert_eq!(app.client.validate(&spelt).await.header("idempotent-replayed"), Some("true"));
    assert_eq!(app.ledger.lines(), ["pay 10"]);

    let (_, id) = app.held("pay", "11").await;
    app.client.reject(&id).await;
    let again = app.client.reject(&id).await;
    assert_eq!((again.status, again.header("idempotent-replayed")), (200, Some("true")));
}

#[tokio::test]
async fn a_conflicting_decision_is_refused_with_the_stored_decision() {
    let app = Embedded::start().await;
    let (_, id) = app.held("pay", "10").await;
    app.client.approve(&id).await;
    let edited = json!({ "toolCallId": id, "isValidated": true, "validatedInputs": { "note": "20" } });
    for other in [app.client.reject(&id).await, app.client.validate(&edited).await] {
        other.failed_with(409, "already_decided");
        assert_eq!(other.body["error"]["details"]["decision"]["decision"], "approve");
        assert_eq!(other.body["error"]["details"]["state"], "succeeded");
    }
    let (_, id) = app.held("pay", "11").await;
    app.client.reject(&id).await;
    assert_eq!(app.client.approve(&id).await.code(), "already_decided");
    assert_eq!(app.ledger.lines(), ["pay 10"]);
}

#[tokio::test]
async fn an_overdue_call_expires_at_the_click() {
    let app = Embedded::start().await;
    let (_, id) = app.held("pay", "10").await;
    let overdue = format!("UPDATE tool_calls SET expires_at = created_at WHERE tool_call_id = '{id}'");
    app.rows.change(&overdue).await.unwrap();
    let late = app.client.approve(&id).await;
    late.failed_with(409, "expired");
    assert_eq!(late.body["error"]["details"]["decision"]["by"], "system:expiry");
    assert_eq!(app.client.reject(&id).await.code(), "expired");
    let call = app.client.call(&id).await;
    assert_eq!((&call["state"], &call["validated"]), (&json!("expired"), &json!(false)));
    assert_eq!(app.ledger.lines(), Vec::<String>::new());
}

#[tokio::test]
async fn b9_a_shown_hash_that_differs_is_stale_and_the_call_stays_pending() {
    let app = Embedded::start().await;
    let (_, id) = app.held("pay", "10").await;
    let hash = app.client.call(&id).await.text("input_hash").to_owned();
    let mut body = json!({ "toolCallId": id, "isValidated": true, "inputHash": "0".repeat(64) });
    let stale = app.client.validate(&body).await;
    stale.failed_with(409, "stale");
    assert_eq!(stale.body["error"]["details"]["input_hash"], json!(hash));
    assert_eq!(app.client.call(&id).await["state"], "pending");
    body["inputHash"] = json!(hash);
    assert_eq!(app.client.validate(&body).await.body["state"], "succeeded");
}

#[tokio::test]
async fn edited_inputs_are_validated_run_and_reported() {
    let app = Embedded::start().await;
    let (_, id) = app.held("pay", "10").await;
    let edit = |inputs: Value| json!({ "toolCallId": id, "isValidated": true, "validatedInputs": inputs });
    for (inputs, pointer) in [
        (json!({ "note": 3 }), "/note"),
        (json!({}), ""),
        (json!({ "note": "x", "more": 1 }), ""),
        (json!({ "note": "x".repeat(101) }), "/note"),
    ] {
        let answer = app.client.validate(&edit(inputs)).await;
        answer.failed_with(422, "invalid_inputs");
        assert_eq!(answer.body["error"]["details"]["errors"][0]["pointer"], pointer);
    }
    for inputs in [json!([]), json!("{}"), json!(1)] {
        let answer = app.client.validate(&edit(inputs)).await;
        answer.failed_with(400, "bad_request");
        assert!(answer.body["error"].text("message").contains("validatedInputs"));
    }
    assert_eq!(app.client.call(&id).await["state"], "pending");

    let answer = app.client.validate(&edit(json!({ "note": "9" }))).await;
    assert_eq!(answer.body["state"], "succeeded");
    assert_eq!(answer.body["validatedInputs"], json!({ "note": "9" }));
    let result = answer.body.text("result");
    assert!(
        result.starts_with(r#"A person changed the inputs from {"note":"10"} to {"note":"9"}"#),
        "{result}"
    );
    assert_eq!(app.ledger.lines(), ["pay 9"]);
    let call = app.client.call(&id).await;
    assert_eq!((&call["input"], &call["validated_inputs"]), (&json!({"note": "10"}), &json!({"note": "9"})));
    assert_eq!(call["decision"]["edited"], true);
}

#[tokio::test]
async fn a_call_that_is_not_held_or_not_the_callers_is_not_found() {
    let app = Embedded::start().await;
    let thread = app.client.thread().await;
    app.scene.calls(&[call("p1", "look", &json!({ "note": "a" }))]).answers("done");
    let turn = app.client.send_message(&thread, "look at a").await;
    let ungated = turn.one('9').text("toolCallId").to_owned();
    let unknown = "01890a5d-ac96-774b-bcce-b302099a8057".to_owned();
    let mut bodies = Vec::new();
    for id in [ungated.clone(), unknown, "p1".to_owned(), String::new(), ungated.to_uppercase()] {
        let answer = app.client.approve(&id).await;
        assert_eq!(answer.status, 404, "{id}");
        bodies.push(answer.body);
    }
    bodies.dedup();
    assert_eq!(bodies.len(), 1, "one and the same body");
    assert_eq!(app.ledger.lines(), ["look a"]);
}

#[tokio::test]
async fn a_malformed_decision_is_refused_by_field_and_changes_nothing() {
    let app = Embedded::start().await;
    let (_, id) = app.held("pay", "10").await;
    let cases = [
        (format!(r#"{{"toolCallId":"{id}","isValidated":"true"}}"#), "isValidated"),
        (format!(r#"{{"toolCallId":"{id}","isValidated":1}}"#), "isValidated"),
        (format!(r#"{{"toolCallId":"{id}","isValidated":null}}"#), "isValidated"),
        (format!(r#"{{"toolCallId":"{id}"}}"#), "isValidated"),
        (r#"{"isValidated":true}"#.to_owned(), "toolCallId"),
        (r#"{"toolCallId":7,"isValidated":true}"#.to_owned(), "toolCallId"),
        (format!(r#"{{"toolCallId":"{id}","isValidated":false,"isValidated":true}}"#), "isValidated"),
        (format!(r#"{{"toolCallId":"{id}","isValidated":true,"state":"succeeded"}}"#), "state"),
        (
            format!(r#"{{"toolCallId":"{id}","isValidated":true,"validatedInputs":{{"note":"\u0000"}}}}"#),
            "U+0000",
        ),
        (
            format!(r#"{{"toolCallId":"{id}","isValidated":true,"reason":{}}}"#, json!("x".repeat(2001))),
            "reason",
        ),
        (String::new(), "body"),
        ("{".to_owned(), "body"),
        ("[]".to_owned(), "body"),
    ];
    for (body, named) in cases {
        let answer = app.client.post_raw("/qa/validate_tool", body.clone()).await;
        assert_eq!(answer.failure(), (400, "bad_request"), "{body}");
        let message = answer.body["error"].text("message");
        assert!(message.contains(named), "{body}: {message}");
    }
    let form = app.client.http.post(app.client.url("/qa/validate_tool")).body("{}");
    app.client.send(form).await.has_status(415);
    assert_eq!(app.client.call(&id).await["state"], "pending");
    assert_eq!(app.rows.count("decisions").await, 0);
}

#[tokio::test]
async fn of_many_concurrent_deciders_one_wins_and_all_receive_the_outcome() {
    let app = Embedded::start().await;
    let (_, id) = app.held("pay", "10").await;
    let deciders = (0..40).map(|n| {
        let (client, id) = (app.client.clone(), id.clone());
        async move {
            let body = match n % 3 {
                0 => json!({ "toolCallId": id, "isValidated": true }),
                1 => json!({ "toolCallId": id, "isValidated": false }),
                _ => json!({ "toolCallId": id, "isValidated": true, "validatedInputs": { "note": "7" } }),
            };
            client.validate(&body).await
        }
    });
    let answers = futures::future::join_all(deciders).await;
    let state = app.client.call(&id).await["state"].clone();
    for answer in &answers {
        match answer.status {
            200 => assert_eq!(answer.body["state"], state),
            409 => assert_eq!(answer.body["error"]["details"]["decision"]["by"], "user:local"),
            other => panic!("{other}: {}", answer.body),
        }
    }
    let fresh = answers.iter().filter(|a| a.status == 200 && a.header("idempotent-replayed").is_none());
    assert_eq!(fresh.count(), 1);
    assert_eq!(app.ledger.lines().len(), usize::from(state == "succeeded"));
    assert_eq!(app.rows.count("decisions").await, 1);
}
