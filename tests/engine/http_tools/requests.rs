//! What a service receives.

use super::{HERE, Office, SECRETS, approved, hold, tool, verified};
use holdpoint_testkit::{ServiceAction, token};
use serde_json::{Value, json};

/// The headers of a signature.
const SIGNED: [&str; 3] = ["webhook-id", "webhook-timestamp", "webhook-signature"];

fn signed(received: &holdpoint_testkit::ReceivedRequest) -> Value {
    SIGNED.iter().map(|name| ((*name).to_owned(), json!(received.header(name)))).collect()
}

#[tokio::test]
async fn an_approved_call_is_one_signed_post_and_its_answer_is_the_result() {
    let office = Office::with_delete(ServiceAction::answers(200, r#"{"deleted":"old.txt"}"#), "").await;
    let server = office.start(&[]);
    let thread = server.client.thread().await;
    let turn = server.client.send_message(&thread, "delete old.txt").await;
    let [id] = &turn.pending()[..] else { panic!("{}", turn.raw) };
    assert_eq!(office.remote.received().len(), 0, "nothing is sent before the approval");

    let yes = server.client.approve(id).await;
    assert_eq!(yes.body["state"], "succeeded", "{:?}", yes.body);
    assert_eq!(server.client.call(id).await["output"], json!({ "deleted": "old.txt" }));
    assert_eq!(server.client.resume(&thread).await.text(), "Done: old.txt is deleted.");

    let [received] = &office.remote.received()[..] else { panic!("{:?}", office.remote.received()) };
    let call = server.client.call(id).await;
    let expected = json!({
        "type": "tool.execute",
        "tool_call_id": id,
        "tool_name": "delete_file",
        "requester": { "tenant_id": "default", "user_id": "local" },
        "thread_id": thread,
        "session_id": thread,
        "run_id": call["run_id"],
        "input": { "path": "old.txt" },
        "approved_by": ["user:local"],
        "attempt": 1,
    });
    assert_eq!((received.path.as_str(), received.json()), ("/delete", expected.clone()));
    assert_eq!((received.header("webhook-id"), received.header("idempotency-key")), (&**id, &**id));
    assert_eq!(received.header("content-type"), "application/json");
    let headers = signed(received);
    assert_eq!(verified(SECRETS[0], &headers, &received.body), Ok(expected));
    let changed = received.body.replace("old.txt", "new.txt");
    assert_eq!(verified(SECRETS[0], &headers, &changed), Err("No matching signature found".to_owned()));
    assert!(verified(SECRETS[1], &headers, &received.body).is_err());

    let again = server.client.approve(id).await;
    assert_eq!(again.header("idempotent-replayed"), Some("true"));
    assert_eq!(office.remote.received().len(), 1);
}

#[tokio::test]
async fn while_a_secret_is_replaced_both_verify_the_request() {
    let office = Office::with_delete(ServiceAction::answers(200, "{}"), "").await;
    std::fs::write(office.dir.path().join("secrets"), SECRETS.join("\n")).unwrap();
    let server = office.start(&[]);
    assert_eq!(approved(&server.client, "a").await["state"], "succeeded");
    let [received] = &office.remote.received()[..] else { panic!() };
    for secret in SECRETS {
        assert_eq!(verified(secret, &signed(received), &received.body), Ok(received.json()));
    }
}

#[tokio::test]
async fn constants_are_sent_and_shown_to_approvers_and_the_model_cannot_choose_them() {
    let toml = format!(
        "{HERE}{}\n[http_tools.constants]\naccount = \"acme-7\"\nlimit = 5\n",
        tool("delete_file", "{url}", "headline = \"Delete {path} elsewhere?\"")
    );
    let office = Office::new(ServiceAction::answers(200, "{}"), &toml).await;
    let server = office.start(&[]);
    let constants = json!({ "account": "acme-7", "limit": 5 });
    let turn = server.client.send_message(&server.client.thread().await, "delete old.txt").await;
    let [id] = &turn.pending()[..] else { panic!("{}", turn.raw) };
    let card = &turn.parts[0]["data"];
    assert_eq!((&card["constants"], &card["input"]), (&constants, &json!({ "path": "old.txt" })));
    assert_eq!(card["headline"], "Delete old.txt elsewhere?");
    let inbox = server.client.get("/approvals").await.body;
    assert_eq!(inbox["results"][0]["constants"], constants);
    let tool = server.client.get("/tools/delete_file").await.body;
    assert_eq!(
        (&tool["input_schema"]["properties"]["account"], &tool["constants"]),
        (&Value::Null, &Value::Null)
    );
    assert_eq!(tool["input_schema"]["additionalProperties"], false);

    let edit = json!({ "toolCallId": id, "isValidated": true,
                       "validatedInputs": { "path": "old.txt", "account": "mine" } });
    let refused = server.client.validate(&edit).await;
    refused.failed_with(422, "invalid_inputs");
    assert!(refused.body.to_string().contains("/account"), "{:?}", refused.body);
    server.client.approve(id).await;
    let [received] = &office.remote.received()[..] else { panic!() };
    assert_eq!(received.json()["input"], json!({ "path": "old.txt", "account": "acme-7", "limit": 5 }));
    assert_eq!(server.client.call(id).await["input"], json!({ "path": "old.txt" }));
}

#[tokio::test]
async fn a_change_of_a_constant_makes_an_earlier_approval_stale() {
    let entry = tool("delete_file", "{url}", "constants = { account = \"acme-7\" }");
    let office = Office::new(ServiceAction::answers(200, "{}"), &format!("{HERE}{entry}")).await;
    let server = office.start(&[]);
    let id = hold(&server.client, "a").await;
    let shown = server.client.call(&id).await["input_hash"].clone();
    server.finish();
    let file = office.dir.path().join("holdpoint.toml");
    let changed = std::fs::read_to_string(&file).unwrap().replace("acme-7", "acme-8");
    std::fs::write(&file, changed).unwrap();
    let server = office.start(&[]);
    let yes = json!({ "toolCallId": id, "isValidated": true, "inputHash": shown });
    assert_eq!(server.client.validate(&yes).await.code(), "stale");
    assert_eq!(office.remote.received().len(), 0);
    assert_eq!(server.client.approve(&id).await.code(), "stale", "no hash says what was shown");
    assert_eq!(office.remote.received().len(), 0);
    let shown = server.client.call(&id).await["input_hash"].clone();
    let yes = json!({ "toolCallId": id, "isValidated": true, "inputHash": shown });
    assert_eq!(server.client.validate(&yes).await.body["state"], "succeeded");
    assert_eq!(office.remote.received()[0].json()["input"]["account"], "acme-8");
}

#[tokio::test]
async fn the_request_names_everyone_who_approved_the_inputs_that_run() {
    let toml = format!(
        "{HERE}[tools.delete_file]\napprovals = 2\napprove_roles = [\"chief\"]\n{}",
        tool("delete_file", "{url}", "")
    );
    let office = Office::new(ServiceAction::answers(200, "{}"), &toml).await;
    let server = office.start(&token::VARIABLES);
    let [alice, bob, carl, dora] = [("alice", false), ("bob", true), ("carl", true), ("dora", true)]
        .map(|(user, chief)| server.client.as_user("acme", user, if chief { &["chief"] } else { &[] }));
    let id = hold(&alice, "old.txt").await;
    let edited = json!({ "toolCallId": id, "isValidated": true, "validatedInputs": { "path": "new.txt" } });
    bob.approve(&id).await.has_status(202);
    carl.validate(&edited).await.has_status(202);
    assert_eq!(dora.validate(&edited).await.body["state"], "succeeded");
    let [received] = &office.remote.received()[..] else { panic!() };
    let body = received.json();
    assert_eq!(body["input"], json!({ "path": "new.txt" }));
    assert_eq!(body["approved_by"], json!(["user:carl", "user:dora"]), "bob approved other inputs");
    assert_eq!(body["requester"], json!({ "tenant_id": "acme", "user_id": "alice" }));
}

#[tokio::test]
async fn a_call_that_another_claim_starts_names_its_approvers_too() {
    let toml = format!(
        "{HERE}[tools.delete_file]\napprovals = 2\napprove_roles = [\"chief\"]\n{}",
        tool("delete_file", "{url}", "idempotent = true")
    );
    let office = Office::new(ServiceAction::answers(503, ""), &toml).await;
    let server = office.start(&token::VARIABLES);
    let [alice, bob, carl] = [("alice", false), ("bob", true), ("carl", true)]
        .map(|(user, chief)| server.client.as_user("acme", user, if chief { &["chief"] } else { &[] }));
    let id = hold(&alice, "old.txt").await;
    office.remote.next([ServiceAction::answers(503, ""), ServiceAction::answers(200, "{}")]);
    bob.approve(&id).await.has_status(202);
    carl.approve(&id).await;
    alice.becomes(&id, "succeeded").await;
    let received = office.remote.received();
    let approved_by: Vec<Value> = received.iter().map(|it| it.json()["approved_by"].clone()).collect();
    assert_eq!(approved_by, [json!(["user:bob", "user:carl"]), json!(["user:bob", "user:carl"])]);
}

#[tokio::test]
async fn a_call_that_needs_no_approval_names_no_approver() {
    let entry = tool("list_files", "{url}", "hil = false\nidempotent = true");
    let office =
        Office::new(ServiceAction::answers(200, r#"{"files":["a"]}"#), &format!("{HERE}{entry}")).await;
    let server = office.start(&[]);
    let turn = server.client.send_message(&server.client.thread().await, "list files").await;
    assert!(turn.text().contains("The files (1):"), "{}", turn.raw);
    let body = office.remote.received()[0].json();
    assert_eq!((&body["approved_by"], &body["input"]), (&json!([]), &json!({})));
    let tool = server.client.get("/tools/list_files").await.body;
    assert_eq!(
        (&tool["hil"], &tool["idempotent"], &tool["risk_level"]),
        (&json!(false), &json!(true), &json!("low"))
    );
}

#[cfg(feature = "otel")]
#[tokio::test]
async fn the_request_continues_the_trace_of_the_decision() {
    let office = Office::with_delete(ServiceAction::answers(200, "{}"), "").await;
    let collector = holdpoint_testkit::RemoteTool::start(ServiceAction::answers(200, "")).await;
    let server = office.start(&[("HOLDPOINT_LOG__OTLP_ENDPOINT", &collector.base)]);
    let id = hold(&server.client, "a").await;
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    let yes = server.client.http.post(server.client.url("/qa/validate_tool"));
    let yes = yes.header("traceparent", format!("00-{trace}-00f067aa0ba902b7-01"));
    let yes = server.client.send(yes.json(&json!({ "toolCallId": id, "isValidated": true }))).await;
    assert_eq!(yes.body["state"], "succeeded");
    let [received] = &office.remote.received()[..] else { panic!() };
    let parent = received.header("traceparent");
    assert!(parent.starts_with(&format!("00-{trace}-")) && !parent.contains("00f067aa0ba902b7"), "{parent}");
}
