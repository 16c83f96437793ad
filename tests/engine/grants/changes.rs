//! Changes after a grant: the tool, the policy, the session.

use super::{child, granted, grants, made, remember, state_of};
use holdpoint::config::{ApprovalRule, RuleCondition, RuleEffect};
use holdpoint::tools::ToolRegistry;
use holdpoint_testkit::{ChangedPay, Deployment, Embedded, JsonFields, eventually, probes};
use serde_json::{Value, json};

#[tokio::test]
async fn a_tool_whose_schema_changed_needs_a_new_approval() {
    let app = Embedded::start().await;
    let (thread, first) = app.held("pay", "1").await;
    granted(&app.client, &first).await;
    let old = app.hold_in(&app.client.thread().await, "pay", "old").await;
    let mut changed = ToolRegistry::new();
    changed.register(ChangedPay(app.ledger.clone())).unwrap();
    let app = app.redeploy(changed).await;
    let waits = made(&app, &thread, "pay", "2").await;
    assert_eq!(waits["state"], "pending");
    // An approval of a call from before the change covers the tool as it was then.
    let shown = app.client.call(&old).await["input_hash"].clone();
    let yes = json!({ "toolCallId": old, "isValidated": true, "remember": "session", "inputHash": shown });
    assert_eq!(app.client.validate(&yes).await.body["state"], "succeeded");
    let of_old = app.client.call(&old).await;
    let session = of_old.text("session_id");
    assert_eq!(grants(&app.client, session).await[0]["schema_hash"], of_old["schema_hash"]);
    assert_eq!(made(&app, session, "pay", "3").await["state"], "pending");
    let tools = probes(&app.ledger);
    let app = app.redeploy(tools).await;
    let waits = waits.text("tool_call_id");
    assert_eq!(app.client.call(waits).await["state"], "pending", "a deploy approves nothing");
    assert_eq!(made(&app, &thread, "pay", "4").await["state"], "succeeded", "the tool is what it was");
    // A grant approves only pending calls of the tool version that it covers.
    let next = app.hold_in(&thread, "refuse", "5").await;
    assert_eq!(remember(&app.client, &next).await.body["state"], "failed");
    assert_eq!(app.client.call(waits).await["state"], "pending");
    assert_eq!(app.ledger.lines(), ["pay 1", "changed pay old", "pay 4", "refuse 5"]);
}

fn rule(effect: RuleEffect) -> ApprovalRule {
    let matches = Some("big*".to_owned());
    ApprovalRule {
        name: "big".to_owned(),
        effect,
        tools: vec!["pay".to_owned()],
        when: vec![RuleCondition { argument: "/note".to_owned(), matches, ..RuleCondition::default() }],
        roles: Vec::new(),
        unless_roles: Vec::new(),
        escalate_after: None,
        escalate_to: Vec::new(),
        reason: None,
    }
}

#[tokio::test]
async fn the_operators_rules_take_precedence_over_grants() {
    let app = Embedded::with(|config| config.approval.rules = vec![rule(RuleEffect::Ask)]).await;
    let (thread, first) = app.held("pay", "1").await;
    let big = app.hold_in(&thread, "pay", "big 2").await;
    granted(&app.client, &first).await;
    assert_eq!(app.client.call(&big).await["state"], "pending", "a rule asks about it");
    let more = made(&app, &thread, "pay", "big 3").await;
    assert_eq!((&more["state"], &more["held"]), (&json!("pending"), &json!(true)));
    assert_eq!(made(&app, &thread, "pay", "4").await["state"], "succeeded");

    let tools = probes(&app.ledger);
    let app = app.redeploy_with(tools, |config| config.approval.rules = vec![rule(RuleEffect::Deny)]).await;
    let denied = made(&app, &thread, "pay", "big 5").await;
    assert_eq!(state_of(&denied)[2], "rule:big");
    let tools = probes(&app.ledger);
    let app = app.redeploy_with(tools, |config| config.approval.always_deny = vec!["pay".to_owned()]).await;
    assert_eq!(state_of(&made(&app, &thread, "pay", "6").await)[2], "always_deny");
    let tools = probes(&app.ledger);
    let app = app.redeploy(tools).await;
    let url = app.client.url(&format!("/sessions/{thread}/policy"));
    let policy = json!({ "tools": { "pay": "deny" } });
    app.client.send(app.client.http.put(url).json(&policy)).await.has_status(200);
    assert_eq!(state_of(&made(&app, &thread, "pay", "7").await)[2], "session");
    assert_eq!(app.ledger.lines(), ["pay 1", "pay 4"]);
}

#[tokio::test]
async fn deleting_the_root_thread_revokes_the_grants_of_the_session() {
    let app = Embedded::start().await;
    let (root, first) = app.held("pay", "1").await;
    let below = child(&app.client, &root).await;
    granted(&app.client, &first).await;
    let beside = child(&app.client, &root).await;
    app.client.delete(&format!("/threads/{beside}")).await.has_status(204);
    assert_eq!(
        made(&app, &below, "pay", "2").await["state"],
        "succeeded",
        "the thread belongs to the session"
    );
    app.client.delete(&format!("/threads/{root}")).await.has_status(204);
    let requested = made(&app, &below, "pay", "3").await;
    assert_eq!(requested["state"], "pending");
    let rows = app.rows.all("SELECT revoked_by FROM grants WHERE revoked_at IS NOT NULL").await;
    assert_eq!(rows, [json!({ "revoked_by": "user:local" })], "the revoked grant stays on record");
    app.client.get(&format!("/sessions/{root}/grants")).await.has_status(404);
    // A new grant in this session could not be revoked any more.
    let refused = remember(&app.client, requested.text("tool_call_id")).await;
    refused.failed_with(422, "not_remembered");
    let expected = "remember: expected a session whose root thread is not deleted";
    assert_eq!(refused.message(), expected);
    assert_eq!(app.client.call(requested.text("tool_call_id")).await["state"], "pending");
}

#[tokio::test]
async fn a_restore_revokes_all_grants() {
    let mut deployment = Deployment::new().await;
    deployment.release();
    let server = deployment.start("30s");
    let thread = server.client.thread().await;
    let id = deployment.hold(&server.client, &thread, "1").await;
    granted(&server.client, &id).await;
    server.finish();
    let backup = deployment.copied().await;
    let server = deployment.start("30s");
    let grant = grants(&server.client, &thread).await.remove(0);
    assert_eq!(super::revoke(&server.client, &thread, &grant).await, 204);
    server.finish();

    deployment.restore(backup);
    let output = deployment.operate(&["fence", "--by", "mel"]).stdout_of_success();
    assert!(output.contains("1 remembered approvals are revoked"), "{output}");
    let server = deployment.start("30s");
    assert_eq!(grants(&server.client, &thread).await, Vec::<Value>::new());
    let requested = deployment.hold(&server.client, &thread, "2").await;
    assert_eq!(server.client.call(&requested).await["state"], "pending");
}

#[tokio::test]
async fn an_idempotent_call_is_retried_only_while_its_grant_is_in_force() {
    let app = Embedded::with(|config| {
        config.approval.sweep = std::time::Duration::from_millis(50);
        config.approval.lease = std::time::Duration::from_secs(1);
        config.approval.wait = std::time::Duration::ZERO;
    })
    .await;
    let (thread, first) = app.held("restock", "1").await;
    remember(&app.client, &first).await.has_status(202);
    app.ledger.release.add_permits(1);
    app.client.becomes(&first, "succeeded").await;
    app.ledger.wait_started().await;
    for (note, revoked) in [("kept", false), ("revoked", true)] {
        app.scene
            .calls(&[holdpoint_testkit::call(note, "restock", &json!({ "note": note }))])
            .answers("I see.");
        let turn = app.client.begin(&thread, &json!({ "content": note })).await;
        app.ledger.wait_started().await;
        let found = app.rows.all("SELECT tool_call_id FROM tool_calls WHERE state = 'executing'").await;
        let id = found[0].text("tool_call_id").to_owned();
        if revoked {
            let grant = grants(&app.client, &thread).await.remove(0);
            assert_eq!(super::revoke(&app.client, &thread, &grant).await, 204);
        }
        // Puts the call back to `approved`, as the sweeper does after its process died.
        let deadline = if revoked { "created_at + 1" } else { "created_at + 1000000000" };
        let lost = format!(
            "UPDATE tool_calls SET state = 'approved', lease_until = NULL, start_deadline = {deadline}
             WHERE tool_call_id = '{id}'"
        );
        assert_eq!(app.rows.change(&lost).await, Ok(1));
        if revoked {
            app.client.becomes(&id, "interrupted").await;
            app.ledger.release.add_permits(1);
        } else {
            app.ledger.wait_started().await;
            app.ledger.release.add_permits(2);
            eventually("it ends", async || {
                Some(app.client.call(&id).await).filter(|call| call["state"] == "succeeded")
            })
            .await;
        }
        drop(app.client.read_on(turn).await);
    }
    let started: Vec<String> =
        app.ledger.lines().iter().map(|line| line.split(" key").next().unwrap().to_owned()).collect();
    let expected = [
        "restock 1 attempt 1",
        "restock kept attempt 1",
        "restock kept attempt 2",
        "restock revoked attempt 1",
    ];
    assert_eq!(started, expected);
}
