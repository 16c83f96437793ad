//! `POST /approvals/{tool_call_id}/delegate`: another person decides one call in place of an approver.

use super::{acme, chief, names, office, office_with, reopened};
use futures::future::join_all;
use holdpoint::config::Config;
use holdpoint_testkit::{Answer, Client, Embedded, JsonFields, Sse};
use serde_json::{Value, json};
use std::time::UNIX_EPOCH;
use time::format_description::well_known::Rfc3339;
use time::{Duration, OffsetDateTime};

/// The time after this much more.
fn after(more: Duration) -> String {
    (OffsetDateTime::UNIX_EPOCH + UNIX_EPOCH.elapsed().unwrap() + more).format(&Rfc3339).unwrap()
}

/// The time in this many minutes.
fn in_minutes(minutes: i64) -> String {
    after(Duration::minutes(minutes))
}

async fn delegate(client: &Client, id: &str, to: &str) -> Answer {
    delegate_until(client, id, to, &in_minutes(60)).await
}

async fn delegate_until(client: &Client, id: &str, to: &str, until: &str) -> Answer {
    let body = json!({ "to": to, "until": until, "reason": "Away." });
    client.post(&format!("/approvals/{id}/delegate"), &body).await
}

/// `pay` needs the approvals of this many chiefs.
fn wanting(people: u8) -> impl FnOnce(&mut Config) {
    move |config| config.tools.rules.get_mut("pay").unwrap().approvals = people
}

/// The rows of the decisions about a call: the actor, the approver in whose place the actor decided, and whether the
/// row is final.
async fn votes(app: &Embedded, id: &str) -> Vec<(String, Option<String>, bool)> {
    let sql =
        format!("SELECT actor, on_behalf_of, final FROM decisions WHERE tool_call_id = '{id}' ORDER BY at");
    let read = |row: &Value| {
        let is_final = row["final"].as_bool().unwrap_or_else(|| row["final"] == 1);
        (row.text("actor").to_owned(), row["on_behalf_of"].as_str().map(str::to_owned), is_final)
    };
    app.rows.all(&sql).await.iter().map(read).collect()
}

fn vote(actor: &str, on_behalf_of: Option<&str>, is_final: bool) -> (String, Option<String>, bool) {
    (format!("user:{actor}"), on_behalf_of.map(|other| format!("user:{other}")), is_final)
}

async fn listed(client: &Client, id: &str) -> Option<Value> {
    let inbox = client.get("/approvals").await.body;
    inbox.list("results").iter().find(|call| call["tool_call_id"] == id).cloned()
}

#[tokio::test]
async fn a_delegate_sees_the_call_decides_it_in_place_of_the_approver_and_the_evidence_names_both() {
    let app = office().await;
    let (carol, bob, (_, id)) = (chief(&app), acme(&app, "bob", &[]), app.held("refuse", "1").await);
    let (_, other) = app.held("refuse", "2").await;
    assert_eq!(carol.get(&format!("/approvals/{id}")).await.body["can_delegate"], true);
    bob.get(&format!("/approvals/{id}")).await.has_status(404);
    assert!(listed(&bob, &id).await.is_none());

    let answer = delegate(&carol, &id, "bob").await;
    answer.has_status(200);
    assert_eq!(
        (&answer.body["from"], &answer.body["to"], &answer.body["reason"]),
        (&json!("user:carol"), &json!("user:bob"), &json!("Away."))
    );
    let detail = bob.get(&format!("/approvals/{id}")).await.body;
    assert_eq!(detail["others"]["delegations"], json!([answer.body]));
    assert_eq!((&detail["can_decide"], &detail["can_reject"]), (&json!(true), &json!(true)));
    assert_eq!((&detail["on_behalf_of"], &detail["can_delegate"]), (&json!("user:carol"), &json!(false)));
    let item = listed(&bob, &id).await.unwrap();
    assert_eq!((&item["can_decide"], &item["on_behalf_of"]), (&json!(true), &json!("user:carol")));
    bob.get(&format!("/tool_calls/{id}")).await.has_status(200);
    assert!(listed(&bob, &other).await.is_none(), "only that call");
    bob.get(&format!("/approvals/{other}")).await.has_status(404);
    bob.approve(&other).await.has_status(404);
    let thread = detail.text("thread_id");
    bob.get(&format!("/threads/{thread}")).await.has_status(404);

    let approved = bob.approve(&id).await;
    approved.has_status(200);
    assert_eq!(votes(&app, &id).await, [vote("bob", Some("carol"), true)]);
    let call = app.client.call(&id).await;
    assert_eq!(
        (&call["decision"]["by"], &call["decision"]["on_behalf_of"]),
        (&json!("user:bob"), &json!("user:carol"))
    );
    assert_eq!(bob.approve(&id).await.header("idempotent-replayed"), Some("true"));
    assert_eq!(carol.approve(&id).await.header("idempotent-replayed"), Some("true"));
    let events = bob.get(&format!("/tool_calls/{id}/events")).await.body;
    let events = events.list("results");
    let of = |kind: &str| events.iter().find(|event| event["type"] == kind).unwrap();
    let delegated = of("tool.delegated");
    assert_eq!(delegated["actor"], "user:carol");
    for (name, value) in [("from", "user:carol"), ("to", "user:bob"), ("reason", "Away.")] {
        assert_eq!(delegated["data"][name], value);
    }
    assert_eq!(delegated["data"]["until"], answer.body["until"]);
    let approved = of("tool.approved");
    assert_eq!(
        (&approved["actor"], &approved["data"]["decision"]["on_behalf_of"]),
        (&json!("user:bob"), &json!("user:carol"))
    );
}

#[tokio::test]
async fn the_approver_and_the_delegate_have_one_vote_together() {
    let app = office_with(wanting(2)).await;
    let (carol, bob) = (chief(&app), acme(&app, "bob", &[]));
    for delegate_first in [true, false] {
        let (_, id) = app.held("pay", &delegate_first.to_string()).await;
        delegate(&carol, &id, "bob").await.has_status(200);
        let (first, second) = if delegate_first { (&bob, &carol) } else { (&carol, &bob) };
        let voted = first.approve(&id).await;
        assert_eq!((voted.status, voted.header("idempotent-replayed")), (202, None));
        assert_eq!(listed(second, &id).await.unwrap()["can_decide"], false);
        let again = second.approve(&id).await;
        assert_eq!((again.status, again.header("idempotent-replayed")), (202, Some("true")));
        assert_eq!(votes(&app, &id).await.len(), 1);
        assert_eq!(delegate(&carol, &id, "erin").await.code(), "not_delegated", "the vote is used");
        let done = acme(&app, "dora", &["chief"]).approve(&id).await;
        done.has_status(200);
        let votes_then = carol.get(&format!("/approvals/{id}")).await.body["others"]["votes"].clone();
        let expected = if delegate_first { json!("user:carol") } else { Value::Null };
        assert_eq!(votes_then[0]["on_behalf_of"], expected);
    }
}

#[tokio::test]
async fn a_person_with_a_right_of_their_own_has_one_vote_whatever_is_delegated_to_them() {
    let app = office_with(wanting(3)).await;
    let (carol, dora) = (chief(&app), acme(&app, "dora", &["chief"]));
    let (_, id) = app.held("pay", "1").await;
    delegate(&carol, &id, "dora").await.has_status(200);
    assert_eq!(listed(&dora, &id).await.unwrap().get("on_behalf_of"), None);
    dora.approve(&id).await.has_status(202);
    assert_eq!(dora.approve(&id).await.header("idempotent-replayed"), Some("true"));
    assert_eq!(votes(&app, &id).await, [vote("dora", None, false)]);
    // Nor does one delegate of two approvers.
    let (bob, erin) = (acme(&app, "bob", &[]), acme(&app, "erin", &["chief"]));
    delegate(&carol, &id, "bob").await.has_status(200);
    delegate(&erin, &id, "bob").await.has_status(200);
    bob.approve(&id).await.has_status(202);
    assert_eq!(bob.approve(&id).await.header("idempotent-replayed"), Some("true"));
    assert_eq!(votes(&app, &id).await.len(), 2);
    // The other approver still has a vote.
    erin.approve(&id).await.has_status(200);
    assert_eq!(app.ledger.lines(), ["pay 1"]);
}

#[tokio::test]
async fn of_the_approver_and_the_delegate_at_once_one_vote_counts() {
    let app = office_with(wanting(2)).await;
    let (carol, bob) = (chief(&app), acme(&app, "bob", &[]));
    for n in 0..4 {
        let (_, id) = app.held("pay", &n.to_string()).await;
        delegate(&carol, &id, "bob").await.has_status(200);
        let voters = [&carol, &bob, &carol, &bob];
        let answers = join_all(voters.map(|client| client.approve(&id))).await;
        assert!(answers.iter().all(|answer| answer.status == 202), "{answers:?}");
        let counted = answers.iter().filter(|answer| answer.header("idempotent-replayed").is_none());
        assert_eq!(counted.count(), 1, "{answers:?}");
        assert_eq!(votes(&app, &id).await.len(), 1);
        assert_eq!(app.client.call(&id).await["state"], "pending");
    }
}

#[tokio::test]
async fn the_requester_is_never_a_delegate() {
    let app = office().await;
    let carol = chief(&app);
    for tool in ["refuse", "pay"] {
        let (_, id) = app.held(tool, "1").await;
        let answer = delegate(&carol, &id, "alice").await;
        answer.failed_with(422, "not_delegated");
        assert!(
            answer.message().starts_with("to: expected another user than the one"),
            "{}",
            answer.message()
        );
        let forged = format!(
            "INSERT INTO delegations (delegation_id, tool_call_id, tenant_id, delegator, delegate, roles, reason,
                 created_at, until)
             SELECT 'x', tool_call_id, tenant_id, 'carol', 'alice', '[\"chief\"]', 'x', created_at, expires_at
             FROM tool_calls WHERE tool_call_id = '{id}'"
        );
        let refused = app.rows.change(&forged).await.unwrap_err();
        assert!(
            refused.contains("a pending call is delegated, until its deadline, and not to its requester")
        );
    }
    let (_, id) = app.held("refuse", "2").await;
    app.client.approve(&id).await.has_status(403);
    // Under `other_person` the requester has nothing to delegate. Without it they have.
    delegate(&app.client, &id, "bob").await.has_status(403);
    let (_, own) = app.held("pay", "3").await;
    delegate(&app.client, &own, "bob").await.has_status(200);
    acme(&app, "bob", &[]).approve(&own).await.has_status(200);
    assert_eq!(votes(&app, &own).await, [vote("bob", Some("alice"), true)]);
}

#[tokio::test]
async fn a_delegate_of_the_requester_has_no_right_once_another_person_has_to_approve() {
    let app = office().await;
    let (_, id) = app.held("pay", "1").await;
    delegate(&app.client, &id, "bob").await.has_status(200);
    let app = reopened(app, |config| config.tools.rules.get_mut("pay").unwrap().other_person = true).await;
    let bob = acme(&app, "bob", &[]);
    assert_eq!(listed(&bob, &id).await.unwrap()["can_decide"], false);
    bob.approve(&id).await.has_status(403);
    bob.reject(&id).await.has_status(403);
}

#[tokio::test]
async fn another_delegation_replaces_the_first_and_an_ended_one_gives_nothing() {
    let app = office().await;
    let (carol, bob, erin) = (chief(&app), acme(&app, "bob", &[]), acme(&app, "erin", &[]));
    let (_, id) = app.held("pay", "1").await;
    delegate(&carol, &id, "bob").await.has_status(200);
    delegate(&carol, &id, "erin").await.has_status(200);
    bob.approve(&id).await.has_status(404);
    bob.get(&format!("/tool_calls/{id}/events")).await.has_status(404);
    delegate(&bob, &id, "dora").await.has_status(404);
    assert_eq!(delegate(&erin, &id, "dora").await.status, 403, "a delegate delegates nothing");
    let detail = carol.get(&format!("/approvals/{id}")).await.body;
    assert_eq!(detail["others"].list("delegations").len(), 1);
    assert_eq!(app.rows.count("delegations").await, 2);
    assert_eq!(app.rows.count("events WHERE type = 'tool.delegated'").await, 2);
    // The delegation of a moment.
    let soon = after(Duration::milliseconds(1500));
    delegate_until(&carol, &id, "erin", &soon).await.has_status(200);
    let over = async || (erin.get(&format!("/approvals/{id}")).await.status == 404).then_some(());
    holdpoint_testkit::eventually("the delegation is over", over).await;
    erin.approve(&id).await.has_status(404);
    assert!(listed(&erin, &id).await.is_none());
    let forged = format!(
        "INSERT INTO decisions (decision_id, tool_call_id, actor, on_behalf_of, verdict, final, edited, input_hash, surface, at)
         SELECT 'x', tool_call_id, 'user:erin', 'user:carol', 'approve', FALSE, FALSE, 'x', 'rest', expires_at
         FROM tool_calls WHERE tool_call_id = '{id}'"
    );
    let refused = app.rows.change(&forged).await.unwrap_err();
    assert!(refused.contains("a delegate decides under a delegation in force"), "{refused}");
    assert_eq!(votes(&app, &id).await, []);
    carol.approve(&id).await.has_status(200);
}

#[tokio::test]
async fn a_delegate_loses_the_right_with_the_tool_and_leaves_no_grant() {
    let app = office().await;
    let (carol, bob, (_, id)) = (chief(&app), acme(&app, "bob", &[]), app.held("pay", "1").await);
    delegate(&carol, &id, "bob").await.has_status(200);
    let remembered = json!({ "toolCallId": id, "isValidated": true, "remember": "session" });
    let answer = bob.validate(&remembered).await;
    answer.failed_with(422, "not_remembered");
    assert_eq!(app.rows.count("grants").await, 0);
    let app = reopened(app, |config| {
        config.tools.rules.get_mut("pay").unwrap().approve_roles = names(&["boss"]);
    })
    .await;
    let bob = acme(&app, "bob", &[]);
    assert_eq!(bob.approve(&id).await.status, 403, "carol had the role of a chief");
    assert_eq!(app.ledger.lines(), Vec::<String>::new());
}

#[tokio::test]
async fn only_a_pending_call_is_delegated_by_its_approvers_and_within_its_time() {
    let app = office().await;
    let (carol, (_, id)) = (chief(&app), app.held("pay", "1").await);
    for (client, status) in [
        (acme(&app, "oscar", &["admin"]), 403),
        (acme(&app, "bob", &[]), 404),
        (app.client.as_user("other", "carol", &["chief"]), 404),
    ] {
        assert_eq!(delegate(&client, &id, "erin").await.status, status);
    }
    delegate(&carol, "no-id", "bob").await.has_status(404);
    assert_eq!(delegate(&carol, &id, "carol").await.code(), "not_delegated");
    for minutes in [-1, 60 * 25] {
        let answer = delegate_until(&carol, &id, "bob", &in_minutes(minutes)).await;
        assert_eq!(answer.failure(), (422, "not_delegated"), "{minutes}");
        assert!(answer.message().starts_with("until: expected a time in the future, at most "));
    }
    let deadline = app.client.call(&id).await.text("expires_at").to_owned();
    delegate_until(&carol, &id, "bob", &deadline).await.has_status(200);
    let (until, to) = (in_minutes(60), "x".repeat(257));
    for body in [
        json!({}),
        json!({ "to": "bob", "until": until }),
        json!({ "to": "", "until": until, "reason": "x" }),
        json!({ "to": to, "until": until, "reason": "x" }),
        json!({ "to": "bob", "until": "tomorrow", "reason": "x" }),
        json!({ "to": "bob", "until": until, "reason": " " }),
        json!({ "to": "bob", "until": until, "reason": "x".repeat(2001) }),
        json!({ "to": "bob", "until": until, "reason": "x", "more": 1 }),
    ] {
        let answer = carol.post(&format!("/approvals/{id}/delegate"), &body).await;
        assert_eq!(answer.failure(), (400, "bad_request"), "{body}");
    }
    carol.reject(&id).await;
    assert_eq!(delegate(&carol, &id, "bob").await.code(), "already_decided");
    let other = acme(&app, "bob", &[]).as_user("other", "bob", &[]);
    assert_eq!(other.get(&format!("/approvals/{id}")).await.status, 404, "a user of another tenant");
}

#[tokio::test]
async fn the_stream_of_all_events_has_a_call_from_its_delegation_on_and_no_other_call() {
    let app = office().await;
    let (carol, bob) = (chief(&app), acme(&app, "bob", &[]));
    let mut stream = Sse::open(&bob, "/events/stream").await;
    let (_, hidden) = app.held("pay", "1").await;
    let (_, id) = app.held("pay", "2").await;
    delegate(&carol, &id, "bob").await.has_status(200);
    let mut events = stream.until("tool.delegated").await;
    carol.reject(&hidden).await.has_status(200);
    bob.approve(&id).await.has_status(200);
    events.extend(stream.until("tool.succeeded").await);
    let (_, later) = app.held("pay", "3").await;
    delegate(&carol, &later, "dave").await.has_status(200);
    delegate(&carol, &later, "bob").await.has_status(200);
    for event in &events {
        assert_eq!(event["tool_call_id"], json!(id), "{event}");
    }
    let of_later = stream.until("tool.delegated").await;
    assert!(of_later.iter().all(|event| event["tool_call_id"] == later), "{of_later:?}");
    // A reader that comes back gets the same, and another user nothing.
    let mut again = Sse::behind(&bob, "/events/stream", Some("0")).await;
    let all = again.until("tool.succeeded").await;
    assert!(all.iter().all(|event| event["tool_call_id"] == id), "{all:?}");
    let mut dave = Sse::behind(&acme(&app, "dave", &[]), "/events/stream", Some("0")).await;
    let (_, theirs) = app.held("pay", "4").await;
    delegate(&carol, &theirs, "dave").await.has_status(200);
    let of_dave = dave.until("tool.delegated").await;
    assert!(of_dave.iter().all(|event| event["tool_call_id"] == theirs), "{of_dave:?}");
}

#[tokio::test]
async fn the_stream_of_all_events_has_nothing_of_a_call_after_the_end_of_its_delegation() {
    let app = office().await;
    let (carol, bob) = (chief(&app), acme(&app, "bob", &[]));
    let (_, id) = app.held("pay", "1").await;
    delegate(&carol, &id, "bob").await.has_status(200);
    let mut stream = Sse::behind(&bob, "/events/stream", Some("0")).await;
    stream.until("tool.delegated").await;
    delegate(&carol, &id, "dave").await.has_status(200);
    carol.reject(&id).await.has_status(200);
    let (_, next) = app.held("pay", "2").await;
    delegate(&carol, &next, "bob").await.has_status(200);
    let events = stream.until("tool.delegated").await;
    assert!(events.iter().all(|event| event["tool_call_id"] == next), "{events:?}");
}
