//! Integers beyond 2^53 that are equal as doubles.

use super::{allow, call_of, calls, edit, held, server};
use holdpoint::config::{RememberInputs, ToolRules};
use holdpoint_testkit::JsonFields;
use holdpoint_testkit::token::with_tokens;
use serde_json::json;

const ASKED: &str = r#"{"account":9007199254740993}"#;
const NEIGHBOUR: &str = r#"{"account":9007199254740992}"#;

#[tokio::test]
async fn an_edit_of_the_last_digit_counts_as_an_edit_and_runs() {
    let (app, ran) = server(allow).await;
    let (_, id) = held(&app, "transfer", ASKED).await;
    let answer = app.client.validate(&edit(&id, NEIGHBOUR)).await;
    answer.has(200, "state", "succeeded");
    assert_eq!(ran.last(), NEIGHBOUR);
    let call = app.client.call(&id).await;
    assert_eq!(call["decision"]["edited"], true);
    assert_eq!(call["input"].to_string(), ASKED);
    assert_eq!(call["validated_inputs"].to_string(), NEIGHBOUR);
    assert!(answer.body.text("result").contains("A person changed the inputs"));
}

#[tokio::test]
async fn an_approval_with_another_last_digit_is_another_decision() {
    let (app, ran) = server(allow).await;
    let (_, id) = held(&app, "transfer", ASKED).await;
    assert_eq!(app.client.approve(&id).await.body["state"], "succeeded");
    let other = app.client.validate(&edit(&id, NEIGHBOUR)).await;
    other.failed_with(409, "already_decided");
    let same = app.client.validate(&edit(&id, ASKED)).await;
    assert_eq!((same.status, same.header("idempotent-replayed")), (200, Some("true")));
    assert_eq!(ran.count(), 1);
}

#[tokio::test]
async fn a_call_for_another_account_is_no_duplicate() {
    let (app, _) = server(allow).await;
    let (thread, _) = held(&app, "transfer", ASKED).await;
    let turn = calls(&app, &thread, "transfer", NEIGHBOUR).await;
    assert_eq!(turn.pending().len(), 1, "{}", turn.raw);
    let turn = calls(&app, &thread, "transfer", ASKED).await;
    assert_eq!(call_of(&app, &turn).await["state"], "cancelled");
}

#[tokio::test]
async fn a_grant_for_equal_inputs_covers_the_same_account_only() {
    let (app, ran) = server(|config| {
        allow(config);
        config.approval.remember_inputs = RememberInputs::Equal;
    })
    .await;
    let (thread, id) = held(&app, "transfer", r#"{"account":1234567890123456789}"#).await;
    let mut granted = edit(&id, r#"{"account":1234567890123456789}"#);
    granted["remember"] = json!("session");
    assert_eq!(app.client.validate(&granted).await.body["state"], "succeeded");
    let turn = calls(&app, &thread, "transfer", r#"{"account":1234567890123456700}"#).await;
    assert_eq!(turn.pending().len(), 1, "{}", turn.raw);
    assert_eq!(ran.count(), 1);
    let turn = calls(&app, &thread, "transfer", r#"{"account":1234567890123456789}"#).await;
    assert_eq!(call_of(&app, &turn).await["state"], "succeeded");
}

#[tokio::test]
async fn two_people_who_approve_different_accounts_do_not_agree() {
    let (mut app, ran) = server(|config| {
        allow(config);
        with_tokens(config);
        let approve_roles = vec!["chief".to_owned()];
        let rules = ToolRules { approve_roles, approvals: 2, ..ToolRules::default() };
        config.tools.rules.insert("transfer".to_owned(), rules);
    })
    .await;
    let chief = |user: &str| app.client.as_user("acme", user, &["chief"]);
    let (one, other, third) = (chief("boss-1"), chief("boss-2"), chief("boss-3"));
    app.client = app.client.as_user("acme", "alice", &[]);
    let (_, id) = held(&app, "transfer", r#"{"account":1}"#).await;
    let [first, second] =
        ["1234567890123456789", "1234567890123456700"].map(|n| format!(r#"{{"account":{n}}}"#));
    assert_eq!(one.validate(&edit(&id, &first)).await.body["state"], "pending");
    assert_eq!(other.validate(&edit(&id, &second)).await.body["state"], "pending");
    assert_eq!(ran.count(), 0);
    assert_eq!(third.validate(&edit(&id, &first)).await.body["state"], "succeeded");
    assert_eq!(ran.last(), first);
}

#[tokio::test]
async fn the_hash_of_a_neighbour_is_stale() {
    let (app, _) = server(allow).await;
    let (_, id) = held(&app, "transfer", ASKED).await;
    let (_, neighbour) = held(&app, "transfer", NEIGHBOUR).await;
    let other = app.client.call(&neighbour).await["input_hash"].clone();
    let stale = json!({ "toolCallId": id, "isValidated": true, "inputHash": other });
    assert_eq!(app.client.validate(&stale).await.code(), "stale");
}
