//! Permissions: who may create, see and revoke a grant, and the effect of changed rules on a grant.

use super::{granted, grants, made, remember, revoke, state_of};
use holdpoint::config::{Config, ToolRules};
use holdpoint_testkit::token::with_tokens;
use holdpoint_testkit::{Client, Embedded, JsonFields, probes};
use serde_json::{Value, json};

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// Users with one of these roles approve calls of `pay`. With `other_person` the requester may not.
fn office(config: &mut Config, approve: &[&str], other_person: bool) {
    with_tokens(config);
    config.auth.operator_roles = names(&["admin"]);
    let rules = ToolRules { approve_roles: names(approve), other_person, ..ToolRules::default() };
    config.tools.rules.insert("pay".to_owned(), rules);
}

/// A server with a client for `alice` of `acme`. A `chief` may approve her calls of `pay`.
async fn open() -> Embedded {
    let mut app = Embedded::with(|config| office(config, &["chief"], false)).await;
    app.client = alice(&app);
    app
}

fn alice(app: &Embedded) -> Client {
    app.client.as_user("acme", "alice", &[])
}

/// Restarts the server on the same database with other rules.
async fn under(app: Embedded, approve: &[&str], other_person: bool) -> Embedded {
    let tools = probes(&app.ledger);
    let mut app = app.redeploy_with(tools, |config| office(config, approve, other_person)).await;
    app.client = alice(&app);
    app
}

#[tokio::test]
async fn an_approvers_grant_covers_the_session_of_the_requester() {
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
    let source = json!(format!("remembered:{}", grant.text("grant_id")));
    assert_eq!(state_of(&used), [&json!("succeeded"), &json!("system:policy"), &source]);
    // The grant covers neither another user's sessions nor the approver's own.
    let mut other = app;
    other.client = other.client.as_user("acme", "bob", &[]);
    let elsewhere = other.client.thread().await;
    assert_eq!(made(&other, &elsewhere, "pay", "4").await["state"], "pending");
    other.client = carol;
    let hers = other.client.thread().await;
    assert_eq!(made(&other, &hers, "pay", "5").await["state"], "pending");
}

#[tokio::test]
async fn users_see_and_revoke_their_own_grants_and_other_users_get_404() {
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
    for other_user in [
        app.client.as_user("acme", "bob", &[]),
        app.client.as_user("acme", "dave", &["chief"]),
        app.client.as_user("globex", "alice", &[]),
        app.client.as_user("globex", "carol", &["chief"]),
        app.client.as_user("globex", "root", &["admin"]),
    ] {
        let theirs = other_user.get(&format!("/sessions/{thread}/grants")).await;
        let nobodys = other_user.get(&format!("/sessions/{first}/grants")).await;
        assert_eq!((theirs.status, &theirs.body), (404, &nobodys.body));
        for grant in &all {
            assert_eq!(revoke(&other_user, &thread, grant).await, 404);
        }
    }
    assert_eq!(revoke(&carol, &thread, of_alice).await, 404, "not hers");
    assert_eq!(grants(&app.client, &thread).await, all);
    assert_eq!(revoke(&carol, &thread, of_carol).await, 204);
    assert_eq!(revoke(&admin, &thread, of_alice).await, 204);
    assert_eq!(grants(&app.client, &thread).await, Vec::<Value>::new());
}

#[tokio::test]
async fn a_user_without_the_right_to_approve_creates_no_grant() {
    let app = under(open().await, &["chief"], true).await;
    let (thread, first) = app.held("pay", "1").await;
    let refused = remember(&app.client, &first).await;
    refused.failed_with(403, "forbidden");
    let bob = app.client.as_user("acme", "bob", &[]);
    remember(&bob, &first).await.has_status(404);
    assert_eq!(app.rows.count("grants").await, 0);
    assert_eq!(app.client.call(&first).await["state"], "pending");
    let carol = app.client.as_user("acme", "carol", &["chief"]);
    granted(&carol, &first).await;
    assert_eq!(made(&app, &thread, "pay", "2").await["state"], "succeeded", "the approver's grant covers it");
}

#[tokio::test]
async fn a_grant_counts_only_while_its_grantor_may_approve() {
    let app = open().await;
    let (thread, first) = app.held("pay", "1").await;
    granted(&app.client, &first).await;
    let app = under(app, &["chief"], true).await;
    let requested = made(&app, &thread, "pay", "2").await;
    assert_eq!(requested["state"], "pending", "the rules now require another person");
    let carol = app.client.as_user("acme", "carol", &["chief"]);
    granted(&carol, requested.text("tool_call_id")).await;
    assert_eq!(made(&app, &thread, "pay", "3").await["state"], "succeeded");
    let app = under(app, &["boss"], true).await;
    let requested = made(&app, &thread, "pay", "4").await;
    assert_eq!(requested["state"], "pending", "a chief approves nothing any more");
    // The approver has another role now, and approves for the session again.
    let carol = app.client.as_user("acme", "carol", &["boss"]);
    granted(&carol, requested.text("tool_call_id")).await;
    assert_eq!(made(&app, &thread, "pay", "5").await["state"], "succeeded");
    let by_carol = grants(&carol, &thread).await;
    assert_eq!(by_carol.len(), 1, "the new grant replaces the old one: {by_carol:?}");
    assert_eq!(app.ledger.lines(), ["pay 1", "pay 2", "pay 3", "pay 4", "pay 5"]);
}

#[tokio::test]
async fn a_user_without_the_run_role_gets_no_grant() {
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
    assert_eq!(refused.failure(), (403, "forbidden"), "no approver can grant it");
    assert_eq!(app.rows.count("grants").await, 0);
    assert_eq!(app.client.call(&waits).await["state"], "pending");
}

#[tokio::test]
async fn a_tool_that_needs_several_approvals_takes_no_grant() {
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
    let requested = made(&app, &thread, "pay", "2").await;
    assert_eq!(requested["state"], "pending", "the grant is from the time of one approval");
    let id = requested.text("tool_call_id");
    for client in [alice(&app), app.client.as_user("acme", "carol", &["chief"])] {
        let refused = remember(&client, id).await;
        refused.failed_with(422, "not_remembered");
        assert_eq!(refused.message(), "remember: expected a tool whose calls one person approves");
    }
    assert_eq!(app.client.approve(id).await.body["state"], "pending");
    assert_eq!(app.rows.count("grants").await, 1);
    assert_eq!(app.rows.count("decisions WHERE NOT final").await, 1, "a refused approval does not count");
}
