//! What the card shows around a call: the words before it, earlier decisions, the other deciders, and previews.

use super::{office, play, roles};
use holdpoint::config::{Config, ShareContext, ToolRules};
use holdpoint_testkit::previews::{World, server};
use holdpoint_testkit::{Embedded, JsonFields, call, eventually, token};
use serde_json::json;
use std::time::Duration;

const MARKUP: &str = r#"<img src=x onerror="alert(1)">"#;

#[tokio::test]
async fn f12_the_card_shows_the_words_the_policy_the_others_and_the_history_as_text() {
    let mut app = Embedded::with(|config: &mut Config| {
        token::with_tokens(config);
        config.approval.share_context = ShareContext::Approvers;
        let approved =
            ToolRules { approve_roles: roles(&["chief", "boss"]), approvals: 2, ..ToolRules::default() };
        config.tools.rules.insert("pay".to_owned(), approved);
    })
    .await;
    let chief = |user: &str| token::token("acme", user, &["chief"]);
    app.client = app.client.as_user("acme", "alice", &[]);
    let (_, earlier) = app.held("pay", "1").await;
    let dave = app.client.with_token(&chief("dave"));
    let denied =
        json!({ "toolCallId": earlier, "isValidated": false, "reason": format!("Too much. {MARKUP}") });
    dave.validate(&denied).await.has_status(200);
    let title = format!("Rent {MARKUP}");
    let thread = app.client.post("/threads", &json!({ "title": title })).await.body;
    let thread = thread.text("thread_id");
    app.scene.calls(&[call("p", "pay", &json!({ "note": "2" }))]);
    let words = format!("Pay {MARKUP}\u{202e} {}", "w".repeat(3000));
    let id = app.client.send_message(thread, &words).await.pending().remove(0);
    dave.approve(&id).await;
    let facts = json!({ "carol": chief("carol"), "earlier": earlier, "id": id, "markup": MARKUP });
    play("around", &app.client.base, facts).await;
}

#[tokio::test]
async fn words_that_are_not_shared_are_not_on_the_card() {
    let mut app = office(1).await;
    app.client = app.client.as_user("acme", "alice", &[]);
    app.held("pay", "10").await;
    let facts = json!({
        "carol": token::token("acme", "carol", &["chief"]),
        "alice": token::token("acme", "alice", &[]),
    });
    play("unshared", &app.client.base, facts).await;
}

#[tokio::test]
async fn an_edit_is_approved_with_the_preview_that_was_shown() {
    let world = World::that_reports("Wipes {note}.");
    let app = server(&world, |_| {}).await;
    let (_, id) = app.held("wipe", "old").await;
    play("preview", &app.client.base, json!({ "markup": MARKUP })).await;
    let call = app.client.call(&id).await;
    assert_eq!(app.ledger.lines(), [format!("wipe {MARKUP}")]);
    assert_eq!(call["validated_preview"], json!({ "text": format!("Wipes {MARKUP}.") }));
}

#[tokio::test]
async fn an_operator_resolves_an_interrupted_call_by_the_keyboard() {
    let mut app = Embedded::with(|config: &mut Config| {
        token::with_tokens(config);
        config.auth.operator_roles = roles(&["admin"]);
    })
    .await;
    app.client = app.client.as_user("acme", "alice", &[]);
    for note in ["1", "2"] {
        let (_, id) = app.held("break", note).await;
        app.client.approve(&id).await;
    }
    let facts = json!({
        "alice": token::token("acme", "alice", &[]),
        "oscar": token::token("acme", "oscar", &["admin"]),
        "markup": MARKUP,
    });
    play("resolve", &app.client.base, facts).await;
    let calls = app.rows.all("SELECT state, result FROM tool_calls ORDER BY tool_call_id").await;
    assert_eq!([&calls[0]["state"], &calls[1]["state"]], ["succeeded", "failed"]);
    let of = |n: usize| calls[n].text("result");
    assert!(of(0).contains("12345678901234567890"), "{calls:?}");
    assert!(of(1).contains(MARKUP), "{calls:?}");
}

#[tokio::test]
async fn the_card_extends_the_time_to_decide_and_shows_refused_decisions() {
    let mut app = office(1).await;
    app.client = app.client.as_user("acme", "alice", &[]);
    let (_, id) = app.held("pay", "10").await;
    let stale = json!({ "toolCallId": id, "isValidated": true, "inputHash": "0".repeat(64) });
    assert_eq!(app.client.validate(&stale).await.code(), "stale");
    play("extend", &app.client.base, json!({ "carol": token::token("acme", "carol", &["chief"]) })).await;
    assert_eq!(app.rows.count("events WHERE type = 'tool.extended'").await, 1);
    assert_eq!(app.client.call(&id).await["state"], "pending");
}

#[tokio::test]
async fn a_search_finds_calls_by_their_words_and_opens_a_call_by_its_id() {
    let app = Embedded::start().await;
    let (_, flour) = app.held("pay", "Flour from \"Müller\"").await;
    app.held("pay", "coal").await;
    let (_, denied) = app.held("pay", "old flour").await;
    let body = json!({ "toolCallId": denied, "isValidated": false, "reason": "Spoilt." });
    app.client.validate(&body).await.has_status(200);
    play("search", &app.client.base, json!({ "flour": flour })).await;
}

#[tokio::test]
async fn f12_the_card_delegates_the_call_and_the_delegate_decides_in_place_of_the_approver() {
    let mut app = office(1).await;
    app.client = app.client.as_user("acme", "alice", &[]);
    app.held("pay", "9").await;
    let (_, id) = app.held("pay", "10").await;
    let facts = json!({
        "carol": token::token("acme", "carol", &["chief"]),
        "bob": token::token("acme", "bob", &[]),
        "markup": MARKUP,
    });
    play("delegate", &app.client.base, facts).await;
    let decision = app.client.call(&id).await["decision"].clone();
    assert_eq!((&decision["by"], &decision["on_behalf_of"]), (&json!("user:bob"), &json!("user:carol")));
}

#[tokio::test]
async fn the_card_shows_the_reminder_and_the_escalation() {
    let mut app = Embedded::with(|config: &mut Config| {
        token::with_tokens(config);
        config.approval.sweep = Duration::from_millis(20);
        config.approval.escalate_after = Some(Duration::from_millis(1));
        config.approval.escalate_to = roles(&["boss"]);
        let approved = ToolRules { approve_roles: roles(&["chief"]), ..ToolRules::default() };
        config.tools.rules.insert("pay".to_owned(), approved);
    })
    .await;
    app.client = app.client.as_user("acme", "alice", &[]);
    app.held("pay", "10").await;
    let escalated = "events WHERE type = 'tool.escalated'";
    eventually("the escalation", async || (app.rows.count(escalated).await == 1).then_some(())).await;
    play("notices", &app.client.base, json!({ "erin": token::token("acme", "erin", &["boss"]) })).await;
    assert_eq!(app.ledger.lines(), ["pay 10"]);
}

#[tokio::test]
async fn an_operator_finds_the_sessions_of_the_tenant_and_a_user_their_own() {
    let mut app = office(1).await;
    app.client = app.client.as_user("acme", "bob", &[]);
    for n in 0..51 {
        let made = app.client.post("/threads", &json!({ "title": format!("Mail {n}") })).await;
        made.has_status(201);
    }
    app.client = app.client.as_user("acme", "alice", &[]);
    let title = format!("Rent {MARKUP}\u{202e}");
    let thread = app.client.post("/threads", &json!({ "title": title })).await.body;
    app.hold_in(thread.text("thread_id"), "pay", "1").await;
    let facts = json!({
        "operator": token::token("acme", "olga", &["admin"]),
        "user": token::token("acme", "alice", &[]),
        "markup": MARKUP,
    });
    play("sessions", &app.client.base, facts).await;
}
