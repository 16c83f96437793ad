//! Whose yes is remembered, who sees and revokes it, and what it is worth when the rules change.

use super::{granted, grants, made, remember, revoke, stands};
use crate::support::token::with_tokens;
use crate::support::{Client, Embedded, probes};
use holdpoint::config::{Config, ToolRules};
use serde_json::{Value, json};

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// Calls of `pay` are approved by who has one of these roles, besides who asked for them or instead.
fn office(config: &mut Config, approve: &[&str], other_person: bool) {
    with_tokens(config);
    config.auth.operator_roles = names(&["admin"]);
    let rules = ToolRules { approve_roles: names(approve), other_person, ..ToolRules::default() };
    config.tools.rules.insert("pay".to_owned(), rules);
}

/// A server that speaks for `alice` of `acme`, where a `chief` approves what she would `pay`.
async fn open() -> Embedded {
    let mut app = Embedded::with(|config| office(config, &["chief"], false)).await;
    app.client = alice(&app);
    app
}

fn alice(app: &Embedded) -> Client {
    app.client.as_user("acme", "alice", &[])
}

/// The same rows under other rules.
async fn under(app: Embedded, approve: &[&str], other_person: bool) -> Embedded {
    let tools = probes(&app.ledger);
    let mut app = app.redeploy_with(tools, |config| office(config, approve, other_person)).await;
    app.client = alice(&app);
    app
}

#[tokio::test]
async fn an_approvers_yes_is_remembered_in_the_session_of_who_asked() {
    let app = open().await;
    let carol = app.client.as_user("acme", "carol", &["chief"]);
    let (thread, first) = app.held("pay", "1").await;
    let second = app.hold_in(&thread, "pay", "2").await;
    granted(&carol, &first).await;
    let freed = app.client.becomes(&second, "succeeded").await;
    assert_eq!(freed["decision"]["by"], "user:carol");
    let used = made(&app, &thread, "pay", "3").await;
    let grant = grants(&app.client, &thread).await.remove(0);
    assert_eq!(grant["granted_by"], "user:carol");
    let source = json!(format!("remembered:{}", grant["grant_id"].as_str().unwrap()));
    assert_eq!(stands(&used), [&json!("succeeded"), &json!("system:policy"), &source]);
    // Of nobody else's, nor of hers.
    let mut other = app;
    other.client = other.client.as_user("acme", "bob", &[]);
    let elsewhere = other.client.thread().await;
    assert_eq!(made(&other, &elsewhere, "pay", "4").await["state"], "pending");
    other.client = carol;
    let hers = other.client.thread().await;
    assert_eq!(made(&other, &hers, "pay", "5").await["state"], "pending");
}

#[tokio::test]
async fn each_sees_and_revokes_what_is_theirs_and_to_others_it_is_not_there() {
    let app = open().await;
    let carol = app.client.as_user("acme", "carol", &["chief"]);
    let admin = app.client.as_user("acme", "root", &["admin"]);
    let (thread, first) = app.held("pay", "1").await;
    granted(&carol, &first).await;
    let second = app.hold_in(&thread, "mumble", "2").await;
    granted(&app.client, &second).await;
    let all = grants(&app.client, &thread).await;
    assert_eq!(all.len(), 2);
    let [of_alice, of_carol] = all.as_slice() else { panic!("{all:?}") };
    assert_eq!(grants(&carol, &thread).await, std::slice::from_ref(of_carol));
    assert_eq!(grants(&admin, &thread).await, all);
    for stranger in [
        app.client.as_user("acme", "bob", &[]),
        app.client.as_user("acme", "dave", &["chief"]),
        app.client.as_user("globex", "alice", &[]),
        app.client.as_user("globex", "carol", &["chief"]),
        app.client.as_user("globex", "root", &["admin"]),
    ] {
        let theirs = stranger.get(&format!("/sessions/{thread}/grants")).await;
        let nobodys = stranger.get(&format!("/sessions/{first}/grants")).await;
        assert_eq!((theirs.status, &theirs.body), (404, &nobodys.body));
        for grant in &all {
            assert_eq!(revoke(&stranger, &thread, grant).await, 404);
        }
    }
    assert_eq!(revoke(&carol, &thread, of_alice).await, 404, "not hers");
    assert_eq!(grants(&app.client, &thread).await, all);
    assert_eq!(revoke(&carol, &thread, of_carol).await, 204);
    assert_eq!(revoke(&admin, &thread, of_alice).await, 204);
    assert_eq!(grants(&app.client, &thread).await, Vec::<Value>::new());
}

#[tokio::test]
async fn who_may_not_say_yes_has_none_remembered() {
    let app = under(open().await, &["chief"], true).await;
    let (thread, first) = app.held("pay", "1").await;
    let refused = remember(&app.client, &first).await;
    assert_eq!((refused.status, refused.code()), (403, "forbidden"));
    let bob = app.client.as_user("acme", "bob", &[]);
    assert_eq!(remember(&bob, &first).await.status, 404);
    assert_eq!(app.rows.count("grants").await, 0);
    assert_eq!(app.client.call(&first).await["state"], "pending");
    let carol = app.client.as_user("acme", "carol", &["chief"]);
    granted(&carol, &first).await;
    assert_eq!(made(&app, &thread, "pay", "2").await["state"], "succeeded", "that is what she said");
}

#[tokio::test]
async fn a_grant_is_worth_what_its_givers_yes_would_be_now() {
    let app = open().await;
    let (thread, first) = app.held("pay", "1").await;
    granted(&app.client, &first).await;
    let app = under(app, &["chief"], true).await;
    let asked = made(&app, &thread, "pay", "2").await;
    assert_eq!(asked["state"], "pending", "another person is wanted by now");
    let carol = app.client.as_user("acme", "carol", &["chief"]);
    granted(&carol, asked["tool_call_id"].as_str().unwrap()).await;
    assert_eq!(made(&app, &thread, "pay", "3").await["state"], "succeeded");
    let app = under(app, &["boss"], true).await;
    let asked = made(&app, &thread, "pay", "4").await;
    assert_eq!(asked["state"], "pending", "a chief approves nothing any more");
    // She has another role since, and says it again.
    let carol = app.client.as_user("acme", "carol", &["boss"]);
    granted(&carol, asked["tool_call_id"].as_str().unwrap()).await;
    assert_eq!(made(&app, &thread, "pay", "5").await["state"], "succeeded");
    let by_carol = grants(&carol, &thread).await;
    assert_eq!(by_carol.len(), 1, "in place of what she said before: {by_carol:?}");
    assert_eq!(app.ledger.lines(), ["pay 1", "pay 2", "pay 3", "pay 4", "pay 5"]);
}

#[tokio::test]
async fn who_may_not_have_the_tool_run_gets_nothing_by_a_grant() {
    let app = open().await;
    let (thread, first) = app.held("pay", "1").await;
    let waits = app.hold_in(&thread, "pay", "2").await;
    let tools = probes(&app.ledger);
    let mut app = app
        .redeploy_with(tools, |config| {
            office(config, &["chief"], false);
            config.tools.rules.get_mut("pay").unwrap().run_roles = names(&["clerk"]);
        })
        .await;
    app.client = alice(&app);
    let carol = app.client.as_user("acme", "carol", &["chief"]);
    let refused = remember(&carol, &first).await;
    assert_eq!((refused.status, refused.code()), (403, "forbidden"), "whoever says yes");
    assert_eq!(app.rows.count("grants").await, 0);
    assert_eq!(app.client.call(&waits).await["state"], "pending");
}

#[tokio::test]
async fn where_several_have_to_say_yes_nothing_is_remembered() {
    let app = open().await;
    let (thread, first) = app.held("pay", "1").await;
    granted(&app.client, &first).await;
    let tools = probes(&app.ledger);
    let mut app = app
        .redeploy_with(tools, |config| {
            office(config, &["chief"], false);
            config.tools.rules.get_mut("pay").unwrap().approvals = 2;
        })
        .await;
    app.client = alice(&app);
    let asked = made(&app, &thread, "pay", "2").await;
    assert_eq!(asked["state"], "pending", "one said yes when one was enough");
    let id = asked["tool_call_id"].as_str().unwrap();
    for client in [alice(&app), app.client.as_user("acme", "carol", &["chief"])] {
        let refused = remember(&client, id).await;
        assert_eq!((refused.status, refused.code()), (422, "not_remembered"));
        assert_eq!(refused.message(), "remember: expected a tool whose calls one person approves");
    }
    assert_eq!(app.client.approve(id).await.body["state"], "pending");
    assert_eq!(app.rows.count("grants").await, 1);
    assert_eq!(app.rows.count("decisions WHERE NOT final").await, 1, "a yes that is refused is none");
}
