//! The inbox: the calls that a user can see, and the actions that the user may take on each.

mod lists;
mod matrix;
mod search;

use holdpoint::config::{Config, ToolRules};
use holdpoint_testkit::token::with_tokens;
use holdpoint_testkit::{Answer, Client, Embedded, JsonFields};
use serde_json::Value;

/// An id that names nothing.
const UNKNOWN: &str = "01890a5d-ac96-774b-bcce-b302099a8057";

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// A server whose client is `alice` of `acme`. A `chief` approves calls of `pay` and `refuse`; `refuse`
/// requires an approver other than the requester. Only the user approves calls of `mumble`. An `admin`
/// operates the server.
async fn office() -> Embedded {
    let mut app = Embedded::with(|config: &mut Config| {
        with_tokens(config);
        config.auth.operator_roles = names(&["admin"]);
        let approved = ToolRules { approve_roles: names(&["chief"]), ..ToolRules::default() };
        config.tools.rules.insert("refuse".to_owned(), ToolRules { other_person: true, ..approved.clone() });
        config.tools.rules.insert("pay".to_owned(), approved);
    })
    .await;
    app.client = acme(&app, "alice", &[]);
    app
}

/// A client for this user of the tenant `acme`.
fn acme(app: &Embedded, user: &str, roles: &[&str]) -> Client {
    app.client.as_user("acme", user, roles)
}

/// The whole list at this path.
async fn list(client: &Client, path: &str) -> Vec<Value> {
    let answer = client.get(path).await;
    assert_eq!((answer.status, &answer.body["has_more"]), (200, &Value::Bool(false)), "{path}: {answer:?}");
    answer.body.list("results").clone()
}

/// The ids of the calls listed at this path.
async fn ids(client: &Client, path: &str) -> Vec<String> {
    list(client, path).await.iter().map(|call| call.text("tool_call_id").to_owned()).collect()
}

/// The notes of the calls in an answer.
fn notes(answer: &Answer) -> Vec<&str> {
    let results = answer.body.list("results");
    results.iter().map(|call| call["input"].text("note")).collect()
}
