//! B: the contents of a decision request.

use super::{FORGED, assert_server_works, echo, everything, held_echo, last_request, with_echo};
use holdpoint::llm::ModelMessage;
use holdpoint::tools::{RegistryError, ToolRegistry};
use holdpoint_testkit::{Embedded, JsonFields, call};
use serde_json::{Value, json};
use std::net::TcpListener;

fn taking() -> Value {
    json!({ "type": "object", "additionalProperties": false, "required": ["path"], "properties": {
        "path": { "type": "string", "minLength": 1, "maxLength": 20 },
        "count": { "type": "integer", "minimum": 0, "maximum": 10 },
        "when": { "type": "string", "format": "date-time" },
        "flags": { "type": "array", "maxItems": 2, "items": { "type": "boolean" } },
        "mode": { "enum": ["fast", "slow"] },
        "simple": { "type": "string", "pattern": "^(a+)+$" },
        "looks_back": { "type": "array", "items": { "type": "string", "pattern": r"^(a|a)*\1b" } },
    }})
}

#[tokio::test]
async fn b4_edited_inputs_that_do_not_fit_the_schema_are_refused_and_the_call_is_unchanged() {
    let (app, ran) = with_echo(taking()).await;
    let (_, _, id) = held_echo(&app, &json!({ "path": "a" })).await;
    let before = everything(&app).await;
    let edit = |inputs: &Value| json!({ "toolCallId": id, "isValidated": true, "validatedInputs": inputs });
    // Texts that make a backtracking regex restart: each text exceeds the length limit, and the body holds as
    // many as fit.
    let costly = |n: usize| format!("{}!", "a".repeat(40 + n % 7));
    let cases = [
        (json!({}), ""),
        (json!({ "count": 1 }), ""),
        (json!({ "path": "a", "more": 1 }), ""),
        (json!({ "path": "a", "$ref": "http://127.0.0.1:9/x" }), ""),
        (json!({ "path": null }), "/path"),
        (json!({ "path": ["a"] }), "/path"),
        (json!({ "path": "" }), "/path"),
        (json!({ "path": "x".repeat(21) }), "/path"),
        (json!({ "path": "a", "count": "1" }), "/count"),
        (json!({ "path": "a", "count": 11 }), "/count"),
        (json!({ "path": "a", "count": 1.5 }), "/count"),
        (json!({ "path": "a", "count": 1e300 }), "/count"),
        (json!({ "path": "a", "count": true }), "/count"),
        (json!({ "path": "a", "when": "yesterday" }), "/when"),
        (json!({ "path": "a", "flags": [true, true, true] }), "/flags"),
        (json!({ "path": "a", "flags": [true, "true"] }), "/flags/1"),
        (json!({ "path": "a", "mode": "FAST" }), "/mode"),
        (json!({ "path": "a", "simple": costly(100_000) }), "/simple"),
        (json!({ "path": "a", "looks_back": [costly(0)] }), "/looks_back/0"),
        (json!({ "path": "a", "looks_back": (0..4000).map(costly).collect::<Vec<_>>() }), "/looks_back/0"),
        (json!({ "path": "x".repeat(200_000) }), "/path"),
    ];
    for (inputs, pointer) in cases {
        let answer = app.client.validate(&edit(&inputs)).await;
        let body_text = answer.body.to_string();
        assert_eq!(answer.failure(), (422, "invalid_inputs"), "{inputs:.200}: {body_text}");
        assert!(body_text.len() < 12_000, "{}", body_text.len());
        let errors = answer.body["error"]["details"].list("errors");
        assert!(errors.len() <= 16 && errors[0]["pointer"] == pointer, "{inputs:.200}: {body_text}");
    }
    let deep = (0..31).fold(json!(1), |inner, _| json!([inner]));
    for inputs in [json!({ "path": "a", "flags": deep }), json!({ "path": "a", "count": 1, "x": [[deep]] })] {
        let answer = app.client.validate(&edit(&inputs)).await;
        answer.failed_with(422, "invalid_inputs");
    }
    let long = app.client.validate(&edit(&json!({ "path": "x".repeat(1 << 20) }))).await;
    long.failed_with(413, "body_too_large");
    assert_eq!(everything(&app).await, before);
    assert_eq!(*ran.lock().unwrap(), [] as [Value; 0]);

    let fits = json!({ "path": "b", "count": 10, "when": "2026-01-01T00:00:00Z", "flags": [true], "mode": "slow",
        "simple": "aaa", "looks_back": ["aab"] });
    assert_eq!(app.client.validate(&edit(&fits)).await.body["state"], "succeeded");
    assert_eq!(*ran.lock().unwrap(), [fits]);
}

#[tokio::test]
async fn b4_proposed_inputs_that_are_too_costly_to_validate_are_refused() {
    let (app, ran) = with_echo(taking()).await;
    let thread = app.client.thread().await;
    let costly: Vec<String> = (0..4000).map(|n| format!("{}!", "a".repeat(40 + n % 7))).collect();
    app.scene.calls(&[call("e", "echo", &json!({ "path": "a", "looks_back": costly }))]).answers("I see.");
    assert_eq!(app.client.send_message(&thread, "echo").await.text(), "I see.");
    let requested = last_request(&app);
    let Some(ModelMessage::Tool { text, .. }) = requested.last() else { panic!("{requested:?}") };
    assert!(text.contains("/looks_back/0") && text.ends_with("the tool did not run."), "{text}");
    assert!(ran.lock().unwrap().is_empty());
    assert_server_works(&app).await;
}

#[test]
fn b4_a_schema_with_an_external_reference_is_refused() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    listener.set_nonblocking(true).unwrap();
    let url = format!("http://{}/schema.json", listener.local_addr().unwrap());
    for elsewhere in [url.as_str(), "https://example.com/schema.json", "file:///etc/passwd", "schema.json"] {
        for schema in [
            json!({ "type": "object", "$ref": elsewhere }),
            json!({ "type": "object", "properties": { "a": { "$ref": elsewhere } } }),
            json!({ "type": "object", "$defs": { "a": { "$ref": elsewhere } }, "properties": { "a": { "$ref": "#/$defs/a" } } }),
            json!({ "type": "object", "properties": { "a": { "$dynamicRef": elsewhere } } }),
            json!({ "type": "object", "$schema": elsewhere }),
        ] {
            let refused = echo(&mut ToolRegistry::new(), schema.clone());
            assert!(matches!(refused, Err(RegistryError::Schema(..))), "{schema}");
        }
    }
    assert_eq!(listener.accept().unwrap_err().kind(), std::io::ErrorKind::WouldBlock, "no client connected");
    let at_home =
        json!({ "type": "object", "$defs": { "a": {} }, "properties": { "a": { "$ref": "#/$defs/a" } } });
    assert!(echo(&mut ToolRegistry::new(), at_home).is_ok());
}

#[tokio::test]
async fn b5_missing_inputs_mean_the_proposed_ones_and_an_empty_object_is_an_edit() {
    // Absent and null inputs both mean the proposed inputs.
    for none in ["", r#","validatedInputs":null"#] {
        let app = Embedded::start().await;
        let (_, id) = app.held("pay", "10").await;
        let body = format!(r#"{{"toolCallId":"{id}","isValidated":true{none}}}"#);
        let answer = app.client.post_raw("/qa/validate_tool", body).await;
        assert_eq!((answer.status, answer.body.get("validatedInputs")), (200, None), "{none}");
        assert_eq!(app.ledger.lines(), ["pay 10"]);
        assert_eq!(app.client.call(&id).await["decision"]["edited"], false);
    }
    // An empty object is an edit, whether or not it fits the schema.
    let (app, ran) =
        with_echo(json!({ "type": "object", "properties": { "path": { "type": "string" } } })).await;
    let (_, _, id) = held_echo(&app, &json!({ "path": "a" })).await;
    let edit = |id: &str, inputs: &Value| json!({ "toolCallId": id, "isValidated": true, "validatedInputs": inputs });
    for other in [json!([]), json!("{}"), json!(""), json!(0), json!(false), json!(true), json!([{}])] {
        let answer = app.client.validate(&edit(&id, &other)).await;
        assert_eq!(answer.failure(), (400, "bad_request"), "{other}");
        assert!(answer.message().contains("validatedInputs"), "{}", answer.message());
    }
    assert_eq!(app.client.call(&id).await["state"], "pending");
    let answer = app.client.validate(&edit(&id, &json!({}))).await;
    assert_eq!((&answer.body["state"], &answer.body["validatedInputs"]), (&json!("succeeded"), &json!({})));
    assert_eq!(*ran.lock().unwrap(), [json!({})]);
    let call = app.client.call(&id).await;
    assert_eq!((&call["decision"]["edited"], &call["input"]), (&json!(true), &json!({ "path": "a" })));

    let (_, pay) = app.held("pay", "10").await;
    let answer = app.client.validate(&edit(&pay, &json!({}))).await;
    answer.failed_with(422, "invalid_inputs");
    assert_eq!(app.client.call(&pay).await["state"], "pending");
}

#[tokio::test]
async fn b6_a_verdict_is_a_json_boolean() {
    let app = Embedded::start().await;
    let (_, id) = app.held("pay", "10").await;
    let before = everything(&app).await;
    for verdict in [
        json!("false"),
        json!("true"),
        json!("yes"),
        json!(""),
        json!(0),
        json!(1),
        json!(-1),
        json!(1.0),
        json!(null),
        json!([]),
        json!([true]),
        json!({}),
        json!({ "value": true }),
    ] {
        let answer = app.client.validate(&json!({ "toolCallId": id, "isValidated": verdict })).await;
        assert_eq!(answer.failure(), (400, "bad_request"), "{verdict}");
        assert!(answer.message().contains("isValidated"), "{}", answer.message());
    }
    for body in
        [json!({ "toolCallId": id }), json!({ "toolCallId": id, "isvalidated": true }), json!([id, true])]
    {
        assert_eq!(app.client.validate(&body).await.status, 400, "{body}");
    }
    for body in [
        "True",
        "{\"toolCallId\":\"ID\",\"isValidated\":True}",
        "{\"toolCallId\":\"ID\",\"isValidated\":true,}",
    ] {
        let answer = app.client.post_raw("/qa/validate_tool", body.replace("ID", &id)).await;
        assert_eq!(answer.failure(), (400, "bad_request"), "{body}");
    }
    assert_eq!(everything(&app).await, before);
    assert_eq!(app.ledger.lines(), Vec::<String>::new());
}

#[tokio::test]
async fn b7_a_decision_with_repeated_keys_or_a_second_value_is_refused() {
    let app = Embedded::start().await;
    let (_, id) = app.held("pay", "10").await;
    let before = everything(&app).await;
    for body in [
        r#"{"toolCallId":"ID","isValidated":false,"isValidated":true}"#,
        r#"{"toolCallId":"ID","isValidated":true,"isValidated":true}"#,
        r#"{"toolCallId":"ID","isValidated":false,"isV\u0061lidated":true}"#,
        r#"{"toolCallId":"x","toolCallId":"ID","isValidated":true}"#,
        r#"{"toolCallId":"ID","isValidated":true,"validatedInputs":{"note":"1","note":"2"}}"#,
        r#"{"toolCallId":"ID","isValidated":true,"validatedInputs":{"note":"1","n\u006fte":"2"}}"#,
        r#"{"toolCallId":"ID","isValidated":true,"validatedInputs":null,"validatedInputs":{"note":"2"}}"#,
        r#"{"toolCallId":"ID","isValidated":true,"validatedInputs":{"note":[{"a":1,"a":2}]}}"#,
        r#"{"toolCallId":"ID","isValidated":true}{"toolCallId":"ID","isValidated":false}"#,
    ] {
        let answer = app.client.post_raw("/qa/validate_tool", body.replace("ID", &id)).await;
        assert_eq!(answer.failure(), (400, "bad_request"), "{body}");
    }
    assert_eq!(everything(&app).await, before);
    assert_eq!(app.ledger.lines(), Vec::<String>::new());
}

#[tokio::test]
async fn b8_a_rejection_ignores_edited_inputs() {
    let app = Embedded::start().await;
    for inputs in [json!({ "note": FORGED }), json!({}), json!({ "note": 7 }), json!({ "more": [FORGED] })] {
        let (thread, id) = app.held("pay", "10").await;
        let body = json!({ "toolCallId": id, "isValidated": false, "validatedInputs": inputs });
        let answer = app.client.validate(&body).await;
        assert_eq!((answer.status, &answer.body["state"]), (200, &json!("rejected")), "{inputs}");
        assert_eq!(answer.body.get("validatedInputs"), None);
        let call = app.client.call(&id).await;
        assert_eq!((&call["decision"]["edited"], call.get("validated_inputs")), (&json!(false), None));
        app.scene.answers("Then not.");
        assert_eq!(app.client.resume(&thread).await.text(), "Then not.");
    }
    assert_eq!(app.rows.count("tool_calls WHERE validated_inputs IS NOT NULL").await, 0);
    assert!(!format!("{:?}", everything(&app).await).contains(FORGED));
    assert!(!format!("{:?}", app.scene.requests()).contains(FORGED));
    assert_eq!(app.ledger.lines(), Vec::<String>::new());
}
