//! What lists, cards and streams say about an approval is what the decision does, also after the policy changed.

use holdpoint::config::Config;
use holdpoint::tools::ToolRegistry;
use holdpoint_testkit::ui::{ui_submit, ui_user};
use holdpoint_testkit::{Client, Embedded, JsonFields, call, probes};
use serde_json::{Value, json};
use std::time::Duration;

async fn detail(client: &Client, id: &str) -> Value {
    let found = client.get(&format!("/approvals/{id}")).await;
    found.has_status(200);
    found.body
}

/// Asserts that every surface names this obstacle of an approval of the call, and that the decision agrees.
async fn nobody_can_approve(app: &Embedded, id: &str, code: &str, words: &str) {
    let listed = app.client.get("/approvals").await.body.list("results").clone();
    let listed = listed.into_iter().find(|item| item["tool_call_id"] == id).unwrap();
    let detail = detail(&app.client, id).await;
    for item in [&listed, &detail] {
        assert_eq!(item["can_decide"], false, "{item}");
        assert_eq!((&item["can_edit"], &item["can_remember"]), (&json!(false), &json!(false)), "{item}");
        assert_eq!(item["can_reject"], true, "{item}");
        assert_eq!(item["cannot_approve"]["code"], code, "{item}");
        assert!(item["cannot_approve"].text("message").contains(words), "{item}");
    }
    assert_eq!(detail.get("extendable_until"), None);
    let refused = app.client.approve(id).await;
    assert!(refused.status == 403 || refused.code() == code, "{}", refused.body);
    let longer = app.client.post(&format!("/tool_calls/{id}/extend"), &json!({ "expires_in": 90_000 })).await;
    assert!((400..500).contains(&longer.status), "{}", longer.body);
    assert_eq!(app.client.call(id).await["state"], "pending");
}

#[tokio::test]
async fn a_tool_that_the_operator_forbids_later_cannot_be_approved_on_any_surface() {
    let app = Embedded::start().await;
    let (thread, id) = app.held("pay", "1").await;
    let before = detail(&app.client, &id).await;
    assert_eq!((&before["can_decide"], before.get("cannot_approve")), (&json!(true), None));
    assert_eq!((&before["can_edit"], &before["can_remember"]), (&json!(true), &json!(true)));
    let tools = probes(&app.ledger);
    let app = app.redeploy_with(tools, |config| config.approval.always_deny = vec!["pay".to_owned()]).await;
    nobody_can_approve(&app, &id, "blocked", "pay").await;
    let messages = app.client.get(&format!("/threads/{thread}/messages?format=ui-v6")).await.body;
    let parts = messages["results"][1].list("parts");
    let card = &parts.iter().find(|part| part["type"] == "data-tool-hold").unwrap()["data"];
    assert_eq!((&card["canEdit"], &card["canRemember"]), (&json!(false), &json!(false)), "{card}");
    assert_eq!(card["cannotApprove"]["code"], "blocked", "{card}");
    // An operator's rule settles nothing.
    assert_eq!(app.client.reject(&id).await.body["state"], "rejected");
    assert_eq!(app.ledger.lines(), Vec::<String>::new());
}

#[tokio::test]
async fn a_mode_that_refuses_calls_says_so_unless_the_session_has_a_mode_of_its_own() {
    let app = Embedded::start().await;
    let (_, plain) = app.held("pay", "1").await;
    let (thread, own) = app.held("pay", "2").await;
    let set = app.client.put(&format!("/sessions/{thread}/policy"), &json!({ "mode": "manual" })).await;
    set.has_status(200);
    let tools = probes(&app.ledger);
    let app = app
        .redeploy_with(tools, |config| config.approval.mode = holdpoint::config::ApprovalMode::AutoDeny)
        .await;
    nobody_can_approve(&app, &plain, "blocked", "pay").await;
    assert_eq!(detail(&app.client, &own).await["can_decide"], true);
    assert_eq!(app.client.approve(&own).await.body["state"], "succeeded");
}

#[tokio::test]
async fn a_call_without_its_tool_says_so() {
    let app = Embedded::start().await;
    let (_, id) = app.held("pay", "1").await;
    let app = app.redeploy(ToolRegistry::new()).await;
    nobody_can_approve(&app, &id, "tool_unavailable", "not available").await;
}

#[tokio::test]
async fn a_call_with_unreadable_inputs_says_so() {
    let app = Embedded::start().await;
    let (_, id) = app.held("pay", "1").await;
    app.rows.drop_guards("tool_calls").await;
    let spoilt = format!("UPDATE tool_calls SET arguments = 'x' WHERE tool_call_id = '{id}'");
    assert_eq!(app.rows.change(&spoilt).await, Ok(1));
    nobody_can_approve(&app, &id, "unreadable", "cannot be read").await;
}

#[tokio::test]
async fn a_session_that_forbids_a_tool_rejects_its_waiting_calls_at_once() {
    let app = Embedded::with(|config: &mut Config| config.approval.sweep = Duration::from_millis(20)).await;
    let thread = app.client.thread().await;
    let (first, second) = (json!({ "note": "1" }), json!({ "note": "2" }));
    app.scene.calls(&[call("a", "pay", &first), call("b", "refuse", &second)]);
    let turn = app.client.send_message(&thread, "please").await;
    let pending = turn.pending();
    app.scene.answers("I see.");
    let policy = format!("/sessions/{thread}/policy");
    let set = app.client.put(&policy, &json!({ "tools": { "pay": "deny", "refuse": "ask" } })).await;
    assert_eq!((&set.body["rejected"], &set.body["allowed"]), (&json!([pending[0]]), &json!([])));
    let settled = app.client.call(&pending[0]).await;
    assert_eq!((&settled["state"], &settled["validated"]), (&json!("rejected"), &json!(false)));
    let decision = &settled["decision"];
    assert_eq!((&decision["by"], &decision["source"]), (&json!("user:local"), &json!("session")));
    assert!(decision.text("reason").contains("pay"), "{decision}");
    assert_eq!(app.client.call(&pending[1]).await["state"], "pending");
    assert_eq!(app.rows.count("events WHERE type = 'tool.rejected'").await, 1);

    // The page resumes the run, and the model reads both.
    assert_eq!(app.client.reject(&pending[1]).await.body["state"], "rejected");
    app.client.turn(&thread, &json!({})).await;
    let sent = format!("{:?}", app.scene.requests().last().unwrap().messages);
    assert!(sent.contains("The policy of this server forbids the call"), "{sent}");
    assert_eq!(app.ledger.lines(), Vec::<String>::new());
}

#[tokio::test]
async fn the_last_call_that_a_session_forbids_lets_the_run_go_on() {
    let app = Embedded::start().await;
    let (thread, id) = app.held("pay", "1").await;
    app.scene.answers("Then not.");
    let set =
        app.client.put(&format!("/sessions/{thread}/policy"), &json!({ "tools": { "pay": "deny" } })).await;
    assert_eq!(set.body["rejected"], json!([id]));
    let run = app.client.run_of(&id).await;
    app.client.run_becomes(&run, "completed").await;
}

#[tokio::test]
async fn a_session_that_allows_a_tool_offers_its_waiting_calls_and_runs_none() {
    let app = Embedded::with(|config: &mut Config| config.auth.operator_roles = vec!["ops".to_owned()]).await;
    let (thread, id) = app.held("pay", "1").await;
    let set = app.client.put(&format!("/sessions/{thread}/policy"), &json!({ "mode": "auto-approve" })).await;
    match set.status {
        // Without authentication the one user may not loosen.
        403 => assert_eq!(app.client.call(&id).await["state"], "pending"),
        _ => assert_eq!(set.body["allowed"], json!([id])),
    }
    assert_eq!(app.ledger.lines(), Vec::<String>::new());
}

#[tokio::test]
async fn the_card_of_a_new_hold_lists_the_parts_of_a_complete_card() {
    let app = Embedded::start().await;
    let thread = app.client.thread().await;
    app.scene.calls(&[call("a", "pay", &json!({ "note": "1" }))]);
    let turn = app.client.ui_turn_in(&thread, &ui_submit(&thread, &[ui_user("u", "pay")])).await;
    let card = &turn.parts[0]["data"];
    assert_eq!(card["cardParts"], json!(["inputs"]), "{card}");
    assert_eq!(card.get("cannotApprove"), None);
    let detail = detail(&app.client, &turn.pending()[0]).await;
    assert_eq!(detail["card_parts"], json!(["inputs"]));
}
