//! Reminders of the deadline, and escalations to further roles.

use super::{acme, chief, names, office_with, staff};
use holdpoint::config::{ApprovalRule, Config, RuleEffect};
use holdpoint_testkit::{Client, Embedded, JsonFields, Rows, Sse, eventually, postgres};
use serde_json::{Value, json};
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3600);

/// The sweeper looks often. A call of `pay` is escalated to a `boss` after a moment, any other call after a day.
fn hurried(config: &mut Config) {
    config.approval.sweep = Duration::from_millis(20);
    config.approval.escalate_after = Some(24 * HOUR);
    config.approval.escalate_to = names(&["director"]);
    config.approval.rules = vec![ApprovalRule {
        name: "payments".to_owned(),
        effect: RuleEffect::Ask,
        tools: names(&["pay"]),
        when: Vec::new(),
        roles: Vec::new(),
        unless_roles: Vec::new(),
        escalate_after: Some(Duration::from_millis(1)),
        escalate_to: names(&["boss", "owner", "boss"]),
        reason: None,
    }];
}

async fn count(app: &Embedded, kind: &str, id: &str) -> i64 {
    app.rows.count(&format!("events WHERE type = '{kind}' AND tool_call_id = '{id}'")).await
}

async fn seen(app: &Embedded, kind: &str, id: &str, times: i64) {
    eventually(kind, async || (count(app, kind, id).await == times).then_some(())).await;
}

async fn detail(client: &Client, id: &str) -> Value {
    client.get(&format!("/approvals/{id}")).await.body
}

/// Makes the reminder of a call due.
async fn remind_now(app: &Embedded, id: &str) {
    let due = format!("UPDATE tool_calls SET remind_at = created_at WHERE tool_call_id = '{id}'");
    assert_eq!(app.rows.change(&due).await, Ok(1));
}

/// Completes when the sweeper has looked for reminders again: it has found one of another call.
async fn sweep(app: &Embedded, note: &str) {
    let (_, other) = app.held("refuse", note).await;
    remind_now(app, &other).await;
    seen(app, "tool.reminded", &other, 1).await;
}

#[tokio::test]
async fn people_are_reminded_once_of_each_deadline() {
    let app = office_with(|config| config.approval.sweep = Duration::from_millis(20)).await;
    let (carol, (_, id)) = (chief(&app), app.held("pay", "1").await);
    let before = detail(&carol, &id).await;
    assert!(before["remind_at"].as_str() < before["expires_at"].as_str(), "{before}");
    assert!(before["remind_at"].as_str() > before["created_at"].as_str(), "{before}");
    assert_eq!(count(&app, "tool.reminded", &id).await, 0);
    remind_now(&app, &id).await;
    seen(&app, "tool.reminded", &id, 1).await;
    sweep(&app, "a").await;
    assert_eq!(count(&app, "tool.reminded", &id).await, 1);
    assert_eq!(detail(&carol, &id).await.get("remind_at"), None);

    let later = json!({ "expires_in": 172_800 });
    carol.post(&format!("/tool_calls/{id}/extend"), &later).await.has_status(200);
    let after = detail(&carol, &id).await;
    assert!(after["remind_at"].as_str() > before["expires_at"].as_str(), "an hour before: {after}");
    remind_now(&app, &id).await;
    seen(&app, "tool.reminded", &id, 2).await;
    let events = app.client.get(&format!("/tool_calls/{id}/events")).await.body;
    let reminded: Vec<&Value> =
        events.list("results").iter().filter(|it| it["type"] == "tool.reminded").collect();
    assert_eq!(reminded[0]["actor"], "system:sweeper");
    assert_eq!(reminded[0]["data"]["expires_at"], before["expires_at"]);
    assert_eq!(reminded[1]["data"]["expires_at"], after["expires_at"]);
    assert_eq!(after["state"], "pending");

    // A decided call has no reminder.
    let (_, decided) = app.held("pay", "2").await;
    carol.reject(&decided).await;
    let late = format!("UPDATE tool_calls SET remind_at = 1 WHERE tool_call_id = '{decided}'");
    let refused = app.rows.change(&late);
    assert!(refused.await.unwrap_err().contains("a pending call is escalated once"));
    sweep(&app, "b").await;
    assert_eq!(count(&app, "tool.reminded", &decided).await, 0);
}

#[tokio::test]
async fn a_call_that_waits_no_longer_than_the_reminder_is_early_has_none() {
    for (before, ttl) in [(Duration::ZERO, 24 * HOUR), (2 * HOUR, HOUR), (HOUR, HOUR)] {
        let app = office_with(|config| {
            config.approval.remind_before = before;
            config.approval.pending_ttl = ttl;
        })
        .await;
        let (_, id) = app.held("pay", "1").await;
        assert_eq!(detail(&app.client, &id).await.get("remind_at"), None, "{before:?} {ttl:?}");
    }
}

#[tokio::test]
async fn an_escalated_call_is_seen_and_decided_by_the_further_roles_too() {
    let app = office_with(hurried).await;
    let boss = acme(&app, "erin", &["boss"]);
    let (_, waiting) = app.held("refuse", "1").await;
    let (_, id) = app.held("pay", "2").await;
    seen(&app, "tool.escalated", &id, 1).await;
    let found = detail(&boss, &id).await;
    assert_eq!(found["escalation"]["roles"], json!(["boss", "owner", "boss"]));
    assert!(found["escalation"]["escalated_at"].as_str() >= found["escalation"]["due_at"].as_str());
    assert_eq!((&found["can_decide"], &found["can_reject"]), (&json!(true), &json!(true)));
    let listed = boss.get("/approvals").await.body;
    let listed: Vec<&Value> = listed.list("results").iter().map(|call| &call["tool_call_id"]).collect();
    assert_eq!(listed, [&json!(id)], "only the escalated call");
    acme(&app, "erin", &["clerk"]).get(&format!("/approvals/{id}")).await.has_status(404);
    app.client.as_user("other", "erin", &["boss"]).get(&format!("/approvals/{id}")).await.has_status(404);
    let events = boss.get(&format!("/tool_calls/{id}/events")).await.body;
    let escalated = events.list("results").iter().find(|it| it["type"] == "tool.escalated").unwrap();
    assert_eq!(escalated["data"]["roles"], json!(["boss", "owner", "boss"]));

    // A call that was not escalated is invisible, with the roles of the configuration in it.
    let other = detail(&chief(&app), &waiting).await;
    assert_eq!(other["escalation"]["roles"], json!(["director"]));
    assert_eq!(other["escalation"].get("escalated_at"), None);
    for client in [&boss, &acme(&app, "dan", &["director"])] {
        client.get(&format!("/approvals/{waiting}")).await.has_status(404);
        client.approve(&waiting).await.has_status(404);
    }
    let remembered = json!({ "toolCallId": id, "isValidated": true, "remember": "session" });
    assert_eq!(boss.validate(&remembered).await.code(), "not_remembered");
    boss.approve(&id).await.has_status(200);
    assert_eq!(app.client.call(&id).await["decision"]["by"], "user:erin");
    assert_eq!(count(&app, "tool.escalated", &id).await, 1);
    for forged in [
        format!("UPDATE tool_calls SET escalated_at = NULL WHERE tool_call_id = '{id}'"),
        format!("UPDATE tool_calls SET escalate_to = '[\"me\"]' WHERE tool_call_id = '{waiting}'"),
    ] {
        let refused = app.rows.change(&forged).await.unwrap_err();
        assert!(refused.contains("a pending call is escalated once, to the roles of its hold"), "{refused}");
    }
    let forged = format!(
        "INSERT INTO escalations (tool_call_id, tenant_id, role, state)
             VALUES ('{waiting}', 'acme', 'me', 'pending')"
    );
    let refused = app.rows.change(&forged).await.unwrap_err();
    assert!(refused.contains("the roles of an escalation are those of an escalated call"), "{refused}");
}

#[tokio::test]
async fn the_stream_of_all_events_has_a_call_from_its_escalation_on_and_no_other_call() {
    let app = office_with(hurried).await;
    let boss = acme(&app, "erin", &["boss"]);
    let mut stream = Sse::open(&boss, "/events/stream").await;
    let (_, waiting) = app.held("refuse", "1").await;
    let (_, id) = app.held("pay", "2").await;
    let mut events = stream.until("tool.escalated").await;
    chief(&app).reject(&waiting).await.has_status(200);
    boss.approve(&id).await.has_status(200);
    events.extend(stream.until("tool.succeeded").await);
    for event in &events {
        assert_eq!(event["tool_call_id"], json!(id), "{event}");
    }
}

#[tokio::test]
async fn an_escalation_gives_the_requester_no_right() {
    let app = office_with(|config| {
        hurried(config);
        config.tools.rules.get_mut("pay").unwrap().other_person = true;
    })
    .await;
    let (_, id) = app.held("pay", "1").await;
    seen(&app, "tool.escalated", &id, 1).await;
    acme(&app, "alice", &["boss"]).approve(&id).await.has_status(403);
    acme(&app, "erin", &["owner"]).approve(&id).await.has_status(200);
}

#[tokio::test]
async fn on_postgres_several_processes_remind_and_escalate_once() {
    let url = postgres().await;
    let start = async || {
        let mut app = Embedded::with(|config| {
            staff(config);
            hurried(config);
            config.database.url = url.clone().into();
        })
        .await;
        app.client = acme(&app, "alice", &[]);
        app
    };
    let servers = [start().await, start().await, start().await];
    let rows = Rows::open(&url).await;
    let mut ids = Vec::new();
    for n in 0..12 {
        ids.push(servers[n % 3].held("pay", &n.to_string()).await.1);
    }
    let due = rows.change("UPDATE tool_calls SET remind_at = created_at WHERE state = 'pending'").await;
    assert_eq!(due, Ok(12));
    for id in &ids {
        seen(&servers[0], "tool.reminded", id, 1).await;
        seen(&servers[0], "tool.escalated", id, 1).await;
    }
    sweep(&servers[1], "later").await;
    assert_eq!(rows.count("events WHERE type = 'tool.escalated'").await, 12);
    assert_eq!(rows.count("events WHERE type = 'tool.reminded'").await, 13);
    assert_eq!(rows.count("escalations").await, 24);
}
