//! Edits follow the number rule of held calls, on every surface that accepts them.

use super::{allow, edit, held, server};
use holdpoint_testkit::{Embedded, Socket};
use serde_json::{Value, json};

/// The answers of each surface that accepts inputs to an approval with these inputs, given as text.
async fn answers(app: &Embedded, id: &str, inputs: &str) -> Vec<(u64, Value)> {
    let run = app.client.run_of(id).await;
    let body = format!(r#"{{"toolCallId":"{id}","isValidated":true,"validatedInputs":{inputs}}}"#);
    let one = app.client.post_raw("/qa/validate_tool", body).await;
    let body = format!(r#"{{"tool_call_id":"{id}","validated_inputs":{inputs}}}"#);
    let of_run = app.client.post_raw(&format!("/runs/{run}/approve"), body).await;
    let mut socket = Socket::open(&app.client, "/ws", &[]).await.unwrap();
    let decide = format!(r#"{{"tool_call_id":"{id}","decision":"approve","validated_inputs":{inputs}}}"#);
    socket.send(&format!(r#"{{"id":1,"decide":{decide}}}"#)).await;
    let (status, message) = socket.answer(&json!(1)).await;
    vec![(u64::from(one.status), one.body), (u64::from(of_run.status), of_run.body), (status, message)]
}

#[tokio::test]
async fn an_edit_with_an_integer_that_a_page_cannot_show_is_refused_by_its_pointer() {
    let (app, ran) = server(|_| {}).await;
    let (_, id) = held(&app, "transfer", r#"{"to":[1]}"#).await;
    for n in ["9007199254740993", "18446744073709551616", "-99999999999999999999"] {
        for (status, body) in answers(&app, &id, &format!(r#"{{"to":[1,{{"a/b":{n}}}]}}"#)).await {
            assert_eq!((status, &body["error"]["code"]), (422, &json!("invalid_inputs")), "{n}: {body}");
            assert_eq!(body["error"]["details"]["errors"][0]["pointer"], "/to/1/a~1b", "{n}: {body}");
        }
    }
    // A body with several decisions is refused as a whole, with the field.
    let several = format!(
        r#"{{"decisions":[{{"toolCallId":"{id}","isValidated":true,"validatedInputs":{{"to":99999999999999999999}}}}]}}"#
    );
    let refused = app.client.post_raw("/qa/validate_tools", several).await;
    refused.failed_with(400, "bad_request");
    assert!(refused.message().starts_with("decisions[0].validatedInputs.to:"), "{}", refused.message());
    assert_eq!(app.client.call(&id).await["state"], "pending");
    assert_eq!(app.client.approve(&id).await.body["state"], "succeeded");
    assert_eq!(ran.last(), r#"{"to":[1]}"#);
}

#[tokio::test]
async fn an_edit_may_contain_large_integers_if_they_are_allowed() {
    let (app, ran) = server(allow).await;
    let (_, id) = held(&app, "transfer", r#"{"to":1}"#).await;
    let edited = app.client.validate(&edit(&id, r#"{"to":9007199254740993}"#)).await;
    assert_eq!(edited.body["state"], "succeeded");
    assert_eq!(ran.last(), r#"{"to":9007199254740993}"#);
}

#[tokio::test]
async fn a_large_double_that_a_page_writes_as_an_integer_is_not_an_edit() {
    let (app, ran) = server(|_| {}).await;
    let (_, id) = held(&app, "transfer", r#"{"grams":1e16,"to":1}"#).await;
    let same = edit(&id, r#"{"grams":10000000000000000,"to":1.0}"#);
    assert_eq!(app.client.validate(&same).await.body["state"], "succeeded");
    assert_eq!(ran.last(), r#"{"grams":1e+16,"to":1}"#);
    assert_eq!(app.client.call(&id).await["decision"]["edited"], false);

    let (_, id) = held(&app, "transfer", r#"{"grams":1e16,"to":1}"#).await;
    let other = edit(&id, r#"{"grams":10000000000000000,"to":2}"#);
    assert_eq!(
        app.client.validate(&other).await.body["state"],
        "succeeded",
        "the page was shown this number"
    );
    assert_eq!(ran.last(), r#"{"grams":10000000000000000,"to":2}"#);
    let (_, id) = held(&app, "transfer", r#"{"grams":1e16,"to":1}"#).await;
    let other = edit(&id, r#"{"grams":10000000000000002,"to":1}"#);
    assert_eq!(app.client.validate(&other).await.code(), "invalid_inputs");
}
