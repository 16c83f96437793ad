//! `GET /approvals/{tool_call_id}`: the policy, the earlier decisions and the other deciders.

use super::{acme, chief, office, office_with};
use holdpoint::config::{ApprovalRule, RuleEffect, ToolRules};
use holdpoint_testkit::{Client, Embedded, JsonFields, call};
use serde_json::{Value, json};

async fn detail(client: &Client, id: &str) -> Value {
    let answer = client.get(&format!("/approvals/{id}")).await;
    answer.has_status(200);
    answer.body
}

/// The ids of the earlier calls in the detail of a call.
async fn history(client: &Client, id: &str) -> Vec<String> {
    let detail = detail(client, id).await;
    let earlier = detail.list("history").iter();
    earlier.map(|earlier| earlier.text("tool_call_id").to_owned()).collect()
}

#[tokio::test]
async fn the_detail_is_the_item_of_the_list_with_what_surrounds_the_call() {
    let app = office().await;
    let thread = app.client.post("/threads", &json!({ "title": "Rent of May" })).await.body;
    let id = app.hold_in(thread.text("thread_id"), "pay", "10").await;
    for client in [chief(&app), app.client.clone()] {
        let list = client.get("/approvals").await.body;
        let mut expected = list["results"][0].clone();
        assert_eq!(expected["thread_title"], "Rent of May");
        expected["policy"] = json!({ "source": "tool", "reason": expected["reason"] });
        expected["history"] = json!([]);
        expected["others"] =
            json!({ "approve_roles": ["chief"], "other_person": false, "votes": [], "delegations": [] });
        expected["can_delegate"] = json!(true);
        expected["can_resolve"] = json!(false);
        let mut found = detail(&client, &id).await;
        expected["extendable_until"] = found["extendable_until"].clone();
        found.as_object_mut().unwrap().remove("context");
        assert_eq!(found, expected);
    }
}

#[tokio::test]
async fn the_policy_names_the_rule_that_asks() {
    let app = office_with(|config| {
        config.approval.rules = vec![ApprovalRule {
            name: "every-look".to_owned(),
            effect: RuleEffect::Ask,
            tools: vec!["look".to_owned()],
            when: Vec::new(),
            roles: Vec::new(),
            unless_roles: Vec::new(),
            escalate_after: None,
            escalate_to: Vec::new(),
            reason: Some("Looks are counted.".to_owned()),
        }];
    })
    .await;
    let (_, id) = app.held("look", "1").await;
    let found = detail(&app.client, &id).await;
    assert_eq!(found["policy"], json!({ "source": "rule:every-look", "reason": "Looks are counted." }));
    assert_eq!(found["others"]["approve_roles"], json!([]));
}

#[tokio::test]
async fn a_call_that_is_not_held_or_not_visible_has_no_detail() {
    let app = office().await;
    let (_, id) = app.held("pay", "1").await;
    let thread = app.client.thread().await;
    app.scene.calls(&[call("l", "look", &json!({ "note": "2" }))]).answers("Seen.");
    app.client.send_message(&thread, "look").await;
    let ran = app.rows.all("SELECT tool_call_id FROM tool_calls WHERE name = 'look'").await;
    let ran = ran[0].text("tool_call_id");
    let status = async |client: &Client, id: &str| client.get(&format!("/approvals/{id}")).await.status;
    assert_eq!(status(&app.client, ran).await, 404, "no person was asked");
    assert_eq!(status(&acme(&app, "bob", &[]), &id).await, 404);
    assert_eq!(status(&app.client.as_user("other", "carol", &["chief"]), &id).await, 404);
    assert_eq!(status(&acme(&app, "oscar", &["admin"]), &id).await, 200);
    assert_eq!(status(&app.client, "no-id").await, 404);
}

#[tokio::test]
async fn the_history_has_the_last_decisions_about_the_same_tool_and_requester() {
    let app = office().await;
    let chief = chief(&app);
    let (_, approved) = app.held("pay", "1").await;
    chief.approve(&approved).await;
    let (_, rejected) = app.held("pay", "2").await;
    let reject = json!({ "toolCallId": rejected, "isValidated": false, "reason": "Too much." });
    chief.validate(&reject).await;
    let (_, other_tool) = app.held("refuse", "3").await;
    chief.reject(&other_tool).await;
    let (deleted, gone) = app.held("pay", "4").await;
    chief.reject(&gone).await;
    app.client.delete(&format!("/threads/{deleted}")).await.has_status(204);
    let (_, cancelled) = app.held("pay", "5").await;
    app.client.post(&format!("/tool_calls/{cancelled}/cancel"), &json!({})).await;
    let mut app = app;
    app.client = acme(&app, "dan", &[]);
    let (_, of_dan) = app.held("pay", "6").await;
    chief.reject(&of_dan).await;
    app.client = acme(&app, "alice", &[]);
    let (_, id) = app.held("pay", "7").await;
    let found = detail(&chief, &id).await;
    let [second, first] = &found.list("history")[..] else { panic!("{found}") };
    assert_eq!(
        (&second["tool_call_id"], &second["state"], &second["decision"]["reason"], &second["decision"]["by"]),
        (&json!(rejected), &json!("rejected"), &json!("Too much."), &json!("user:carol"))
    );
    assert_eq!(
        (&first["tool_call_id"], &first["state"], &first["decision"]["decision"]),
        (&json!(approved), &json!("succeeded"), &json!("approve"))
    );
    assert_eq!(history(&app.client, &id).await, [rejected.clone(), approved]);
    let of_dan_s = detail(&chief, &of_dan).await;
    assert_eq!(of_dan_s["history"], json!([]), "a call is no history of itself");
    chief.reject(&id).await;
    assert_eq!(history(&chief, &rejected).await[0], id);
}

#[tokio::test]
async fn the_history_has_at_most_ten_decisions() {
    let app = office().await;
    let mut decided = Vec::new();
    for n in 0..12 {
        let (_, id) = app.held("pay", &n.to_string()).await;
        app.client.reject(&id).await;
        decided.insert(0, id);
    }
    let (_, id) = app.held("pay", "last").await;
    assert_eq!(history(&chief(&app), &id).await, decided[..10]);
}

#[tokio::test]
async fn the_votes_name_each_person_and_whether_the_inputs_were_edited() {
    let app = office_with(|config| {
        let rules = ToolRules {
            approve_roles: super::names(&["chief", "boss"]),
            approvals: 2,
            other_person: true,
            ..ToolRules::default()
        };
        config.tools.rules.insert("pay".to_owned(), rules);
    })
    .await;
    let (_, id) = app.held("pay", "1").await;
    let (carol, dave) = (chief(&app), acme(&app, "dave", &["boss"]));
    carol.approve(&id).await;
    let edit = json!({ "toolCallId": id, "isValidated": true, "validatedInputs": { "note": "2" } });
    dave.validate(&edit).await.has_status(202);
    let found = detail(&app.client, &id).await;
    let others = &found["others"];
    assert_eq!(
        (&others["approve_roles"], &others["other_person"]),
        (&json!(["chief", "boss"]), &json!(true))
    );
    let votes = others.list("votes");
    let reported: Vec<_> = votes.iter().map(|vote| (&vote["by"], &vote["edited"])).collect();
    assert_eq!(reported, [(&json!("user:carol"), &json!(false)), (&json!("user:dave"), &json!(true))]);
    assert_eq!(votes[0]["input_hash"], found["input_hash"]);
    assert_ne!(votes[1]["input_hash"], found["input_hash"]);
    assert_eq!(found["approved_by"], json!(["user:carol"]), "they do not agree");
}

#[tokio::test]
async fn a_decided_call_keeps_its_detail() {
    let app: Embedded = office().await;
    let (_, id) = app.held("pay", "1").await;
    chief(&app).approve(&id).await;
    let found = detail(&app.client, &id).await;
    assert_eq!((&found["state"], &found["policy"]["source"]), (&json!("succeeded"), &json!("tool")));
    assert_eq!(found["others"]["votes"][0]["by"], "user:carol");
}
