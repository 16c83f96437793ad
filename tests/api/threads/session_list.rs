//! `GET /sessions`: the sessions of the caller, and for an operator those of the tenant.

use holdpoint::config::Config;
use holdpoint_testkit::token::with_tokens;
use holdpoint_testkit::{Answer, Client, Embedded, JsonFields};
use serde_json::{Value, json};

async fn office() -> Embedded {
    let mut app = Embedded::with(|config: &mut Config| {
        with_tokens(config);
        config.auth.operator_roles = vec!["admin".to_owned()];
    })
    .await;
    app.client = app.client.as_user("acme", "alice", &[]);
    app
}

async fn titled(client: &Client, body: &Value) -> String {
    client.post("/threads", body).await.body_of(201).text("thread_id").to_owned()
}

/// The title and the user of each session on this page.
fn shown(page: &Answer) -> Vec<(&str, &str)> {
    page.has_status(200);
    let sessions = page.body.list("results").iter();
    sessions.map(|session| (session.text("title"), session.text("user_id"))).collect()
}

#[tokio::test]
async fn an_operator_sees_the_sessions_of_the_tenant_and_a_user_their_own() {
    let app = office().await;
    titled(&app.client, &json!({ "title": "Rent" })).await;
    titled(&app.client.as_user("acme", "bob", &[]), &json!({ "title": "Mail" })).await;
    titled(&app.client.as_user("other", "alice", &[]), &json!({ "title": "Elsewhere" })).await;
    let deleted = titled(&app.client, &json!({ "title": "Deleted" })).await;
    app.client.delete(&format!("/threads/{deleted}")).await.has_status(204);

    let operator = app.client.as_user("acme", "olga", &["admin"]);
    assert_eq!(shown(&operator.get("/sessions").await), [("Mail", "bob"), ("Rent", "alice")]);
    assert_eq!(shown(&app.client.get("/sessions").await), [("Rent", "alice")]);
    let elsewhere = app.client.as_user("other", "olga", &["admin"]);
    assert_eq!(shown(&elsewhere.get("/sessions").await), [("Elsewhere", "alice")]);
}

#[tokio::test]
async fn a_session_counts_the_pending_calls_of_all_its_threads_and_says_whether_it_has_a_policy() {
    let app = office().await;
    let root = titled(&app.client, &json!({ "title": "Root" })).await;
    let child = titled(&app.client, &json!({ "title": "Child", "parent_id": root })).await;
    app.hold_in(&root, "pay", "1").await;
    let denied = app.hold_in(&child, "pay", "2").await;
    app.hold_in(&child, "pay", "3").await;
    let session = async || app.client.get("/sessions").await.body["results"].clone();
    let root_only = session().await;
    assert_eq!(root_only.as_array().unwrap().len(), 1, "a child thread is no session: {root_only}");
    assert_eq!((&root_only[0]["session_id"], &root_only[0]["pending_count"]), (&json!(root), &json!(3)));
    assert_eq!(root_only[0]["has_policy"], false);

    app.client.reject(&denied).await.has_status(200);
    let policy = json!({ "tools": { "refuse": "deny" } });
    let set = app.client.http.put(app.client.url(&format!("/sessions/{root}/policy"))).json(&policy);
    app.client.send(set).await.has_status(200);
    let later = session().await;
    assert_eq!((&later[0]["pending_count"], &later[0]["has_policy"]), (&json!(2), &json!(true)));
}

#[tokio::test]
async fn pages_of_sessions_follow_each_other_newest_first() {
    let app = office().await;
    for title in ["one", "two", "three"] {
        titled(&app.client, &json!({ "title": title })).await;
    }
    let operator = app.client.as_user("acme", "olga", &["admin"]);
    let first = operator.get("/sessions?page_size=2").await;
    assert_eq!(shown(&first), [("three", "alice"), ("two", "alice")]);
    let cursor = first.body.text("next_cursor");
    let second = operator.get(&format!("/sessions?page_size=2&cursor={cursor}")).await;
    assert_eq!((shown(&second), &second.body["has_more"]), (vec![("one", "alice")], &json!(false)));
    let refused = operator.get("/sessions?cursor=x").await;
    refused.has_status(400);
}
