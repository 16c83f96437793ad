//! Deploys while a call waits: the tool is gone, or takes something else now.

use crate::support::{ChangedPay, Embedded};
use holdpoint::tools::ToolRegistry;
use serde_json::json;

#[tokio::test]
async fn a_tool_that_is_gone_cannot_be_approved_but_rejected() {
    let app = Embedded::start().await;
    let (_, first) = app.held("pay", "1").await;
    let (_, second) = app.held("pay", "2").await;
    let app = app.redeploy(ToolRegistry::new()).await;
    let answer = app.client.approve(&first).await;
    assert_eq!((answer.status, answer.code()), (409, "tool_unavailable"));
    assert_eq!(app.client.call(&first).await["state"], "pending");
    assert_eq!(app.client.reject(&second).await.body["state"], "rejected");
    assert_eq!(app.ledger.lines(), Vec::<String>::new());
}

#[tokio::test]
async fn what_was_shown_is_stale_once_the_tool_takes_something_else() {
    let app = Embedded::start().await;
    let (_, short) = app.held("pay", "1").await;
    let (_, long) = app.held("pay", "a long note").await;
    let shown = app.client.call(&short).await;
    let mut tools = ToolRegistry::new();
    tools.register(ChangedPay(app.ledger.clone())).unwrap();
    let app = app.redeploy(tools).await;

    let decide =
        |hash: &serde_json::Value| json!({ "toolCallId": short, "isValidated": true, "inputHash": hash });
    let stale = app.client.validate(&decide(&shown["input_hash"])).await;
    assert_eq!((stale.status, stale.code()), (409, "stale"));
    let now = app.client.call(&short).await;
    assert_eq!(now["input_hash"], stale.body["error"]["details"]["input_hash"]);
    assert_eq!(now["schema_hash"], shown["schema_hash"], "the schema it was asked for with");
    assert_eq!(app.client.validate(&decide(&now["input_hash"])).await.body["state"], "succeeded");
    assert_eq!(app.ledger.lines(), ["changed pay 1"]);

    // Without a hash the inputs still have to fit what would run.
    let unfit = app.client.approve(&long).await;
    assert_eq!((unfit.status, unfit.code()), (422, "invalid_inputs"));
    assert_eq!(app.client.call(&long).await["state"], "pending");
}
