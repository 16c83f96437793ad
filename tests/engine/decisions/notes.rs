//! Words that are kept: the note of an approval, and the votes of several people.

use holdpoint::config::{Config, ToolRules};
use holdpoint_testkit::token::with_tokens;
use holdpoint_testkit::ui::{ui_answer, ui_assistant, ui_submit, ui_submit_at, ui_user};
use holdpoint_testkit::{Embedded, JsonFields, call, eventually};
use serde_json::{Value, json};

/// What the model read last.
fn read_last(app: &Embedded) -> String {
    format!("{:?}", app.scene.requests().last().unwrap().messages.last().unwrap())
}

async fn events(app: &Embedded, id: &str, kind: &str) -> Vec<Value> {
    let found = || async {
        let page = app.client.get(&format!("/tool_calls/{id}/events")).await.body;
        let all = page.list("results").clone();
        let found: Vec<Value> = all.into_iter().filter(|event| event["type"] == kind).collect();
        (!found.is_empty()).then_some(found)
    };
    eventually(kind, found).await
}

#[tokio::test]
async fn a_note_with_an_approval_is_in_the_record_and_the_model_reads_it() {
    let app = Embedded::start().await;
    let (thread, id) = app.held("pay", "1").await;
    let yes = json!({ "toolCallId": id, "isValidated": true, "reason": "checked with the bank" });
    let decided = app.client.validate(&yes).await;
    assert_eq!(decided.body["state"], "succeeded", "{}", decided.body);
    let told = "A person approved the call and noted: checked with the bank\n{\"paid\":\"1\"}";
    assert_eq!(decided.body["result"], told);
    let call = app.client.call(&id).await;
    assert_eq!(
        (&call["decision"]["reason"], &call["result"]),
        (&json!("checked with the bank"), &json!(told))
    );
    assert_eq!(call["output"], json!({ "paid": "1" }));
    let approved = &events(&app, &id, "tool.approved").await[0];
    assert_eq!(approved["data"]["decision"]["reason"], "checked with the bank", "{approved}");
    app.scene.answers("Paid.");
    app.client.turn(&thread, &json!({})).await;
    assert!(read_last(&app).contains("noted: checked with the bank"), "{}", read_last(&app));
    // A later turn sends the same words.
    app.scene.answers("Yes.");
    app.client.send_message(&thread, "really?").await;
    app.scene.growing_requests();
}

#[tokio::test]
async fn each_route_keeps_the_note_of_an_approval() {
    let app = Embedded::start().await;
    for route in ["validate_tools", "session", "run"] {
        let (thread, id) = app.held("pay", route).await;
        let run = app.client.run_of(&id).await;
        app.scene.answers("Paid.");
        let (path, body) = match route {
            "validate_tools" => {
                let one = json!({ "toolCallId": id, "isValidated": true, "reason": "fine", "resume": true });
                ("/qa/validate_tools".to_owned(), json!({ "decisions": [one] }))
            }
            "session" => (
                format!("/sessions/{thread}/approvals/{id}"),
                json!({ "decision": "allow_once", "reason": "fine" }),
            ),
            _ => (format!("/runs/{run}/approve"), json!({ "tool_call_id": id, "reason": "fine" })),
        };
        let decided = app.client.post(&path, &body).await;
        assert_eq!(decided.status, 200, "{route}: {}", decided.body);
        app.client.run_becomes(&run, "completed").await;
        assert_eq!(app.client.call(&id).await["decision"]["reason"], "fine", "{route}");
        assert!(read_last(&app).contains("noted: fine"), "{route}: {}", read_last(&app));
    }
}

#[tokio::test]
async fn a_page_of_ai_sdk_6_can_approve_with_a_note() {
    let app = Embedded::start().await;
    let thread = app.client.thread().await;
    app.scene.calls(&[call("a", "pay", &json!({ "note": "1" }))]);
    let turn = app.client.ui_turn_in(&thread, &ui_submit(&thread, &[ui_user("u", "pay")])).await;
    let id = turn.pending()[0].clone();
    let mut answer = ui_answer(&id, "pay", true);
    answer["approval"]["reason"] = json!("checked");
    let messages = [ui_user("u", "pay"), ui_assistant(turn.message_id(), &json!([answer]))];
    app.scene.answers("Paid.");
    let next = app.client.ui_turn_in(&thread, &ui_submit_at(&thread, &messages, turn.message_id())).await;
    assert_eq!(next.text(), "Paid.", "{}", next.raw);
    assert_eq!(app.client.call(&id).await["decision"]["reason"], "checked");
    assert!(read_last(&app).contains("noted: checked"), "{}", read_last(&app));
}

#[tokio::test]
async fn a_vote_below_the_quorum_is_an_event_and_its_note_is_in_the_record() {
    let mut app = Embedded::with(|config: &mut Config| {
        with_tokens(config);
        let approve_roles = vec!["chief".to_owned()];
        let rules = ToolRules { approve_roles, approvals: 2, ..ToolRules::default() };
        config.tools.rules.insert("pay".to_owned(), rules);
    })
    .await;
    app.client = app.client.as_user("acme", "alice", &[]);
    let (_, id) = app.held("pay", "1").await;
    let chief = app.client.as_user("acme", "carol", &["chief"]);
    let yes = json!({ "toolCallId": id, "isValidated": true, "reason": "the first yes" });
    chief.validate(&yes).await.has_status(202);
    let voted = events(&app, &id, "tool.voted").await;
    assert_eq!(voted.len(), 1);
    let data = &voted[0]["data"];
    assert_eq!((&voted[0]["actor"], &data["missing"]), (&json!("user:carol"), &json!(1)), "{data}");
    assert_eq!((&data["approved_by"], &data["args"]), (&json!(["user:carol"]), &json!({ "note": "1" })));
    assert_eq!(data.get("decision"), None, "nothing is decided: {data}");
    // The same vote again is no second event.
    chief.validate(&yes).await.has_status(202);
    assert_eq!(events(&app, &id, "tool.voted").await.len(), 1);
    let card = chief.get(&format!("/approvals/{id}")).await.body;
    assert_eq!(card["others"]["votes"][0]["note"], "the first yes", "{card}");
    assert_eq!(card["cannot_approve"]["code"], "already_approved");
    assert_eq!(card["cannot_approve"]["message"], "You have approved. One more person has to.");
    let last = app.client.approve(&id).await;
    assert_eq!(last.body["state"], "succeeded", "{}", last.body);
}
