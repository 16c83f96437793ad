//! Previews of HTTP tools (`preview_url`).

use super::{Office, SECRETS, hold, verified};
use holdpoint_testkit::{Client, Process, ReceivedRequest, ServiceAction};
use serde_json::{Value, json};

const LINES: &str = "preview_url = \"{url}/preview?key=canary-key\"\nconstants = { shop = \"berlin\" }";
/// The address as the service sees it.
const PREVIEW: &str = "/preview?key=canary-key";

fn answers_preview(text: &str) -> ServiceAction {
    ServiceAction::answers(200, &json!({ "preview": text }).to_string())
}

async fn preview(client: &Client, id: &str, path: &str) -> Value {
    let body = json!({ "validated_inputs": { "path": path } });
    let answer = client.post(&format!("/tool_calls/{id}/preview"), &body).await;
    answer.has_status(200);
    answer.body
}

#[tokio::test]
async fn a_preview_is_a_signed_post_of_its_own_that_names_no_call_and_no_approval() {
    let office = Office::with_delete(answers_preview("deletes 3 rows"), LINES).await;
    let server = office.start(&[]);
    let id = hold(&server.client, "old.txt").await;
    assert_eq!(server.client.call(&id).await["preview"], json!({ "text": "deletes 3 rows" }));
    let shown = preview(&server.client, &id, "new.txt").await;
    let [first, second] = &office.remote.received()[..] else { panic!("{:?}", office.remote.received()) };
    for (received, path) in [(first, "old.txt"), (second, "new.txt")] {
        let expected = json!({
            "type": "tool.preview",
            "tool_name": "delete_file",
            "requester": { "tenant_id": "default", "user_id": "local" },
            "input": { "path": path, "shop": "berlin" },
        });
        assert_eq!((received.path.as_str(), received.json()), (PREVIEW, expected.clone()));
        assert!(received.header("webhook-id").starts_with("preview_"), "{:?}", received.headers);
        assert_eq!(received.headers.get("idempotency-key"), None, "there is nothing to do once");
        let headers: Value = ["webhook-id", "webhook-timestamp", "webhook-signature"]
            .iter()
            .map(|name| ((*name).to_owned(), json!(received.header(name))))
            .collect();
        assert_eq!(verified(SECRETS[0], &headers, &received.body), Ok(expected));
    }
    assert_ne!(first.header("webhook-id"), second.header("webhook-id"));

    office.remote.next([answers_preview("deletes 3 rows"), ServiceAction::answers(200, "\"done\"")]);
    let edit = json!({
        "toolCallId": id, "isValidated": true, "validatedInputs": { "path": "new.txt" },
        "previewHash": shown["preview_hash"],
    });
    let done = server.client.validate(&edit).await;
    assert_eq!(done.body["state"], "succeeded", "{:?}", done.body);
    assert_eq!(server.client.call(&id).await["validated_preview"], shown["preview"]);
    let sent: Vec<String> = office.remote.received().into_iter().map(|it| it.path).collect();
    assert_eq!(sent, [PREVIEW, PREVIEW, PREVIEW, "/delete"]);
}

#[tokio::test]
async fn without_a_preview_the_call_is_held_all_the_same_and_the_approver_reads_why() {
    let office = Office::with_delete(ServiceAction::Hangs, LINES).await;
    let server = office.start(&[("HOLDPOINT_TOOLS__PREVIEW_TIMEOUT", "1s")]);
    let elsewhere = format!("{}/elsewhere", office.remote.base);
    for (n, (does, why)) in [
        (ServiceAction::answers(422, r#"{"error":"no such file"}"#), "no such file"),
        (ServiceAction::answers(404, "nope"), "its service answered 404"),
        (ServiceAction::answers(202, r#"{"preview":"later"}"#), "its service answered 202"),
        (ServiceAction::answers(500, r#"{"error":"secret"}"#), "its service answered 500"),
        (ServiceAction::answers(200, "deletes 3 rows"), "its service answered something else than a preview"),
        (
            ServiceAction::answers(200, r#"{"preview":"a","preview":"b"}"#),
            "its service answered something else than a preview",
        ),
        (ServiceAction::Redirects(elsewhere), "its service answered 307"),
        (ServiceAction::Resets, "its service did not answer"),
        (ServiceAction::BreaksOff, "its service did not answer"),
        (ServiceAction::Floods(200), "its service answered too much"),
    ]
    .into_iter()
    .enumerate()
    {
        office.remote.next([does.clone()]);
        let id = hold(&server.client, &format!("file-{n}")).await;
        let call = server.client.call(&id).await;
        assert_eq!(
            (&call["preview"], &call["state"]),
            (&json!({ "failed": why }), &json!("pending")),
            "{does:?}"
        );
    }
    let id = hold(&server.client, "late").await;
    let failed = server.client.call(&id).await["preview"]["failed"].clone();
    assert!(
        ["its service did not answer", "the tool did not say it in time"].contains(&failed.as_str().unwrap())
    );
    office.remote.wait_left().await;
    assert_eq!(office.remote.received_at("/elsewhere").len(), 0);
    office.remote.now(ServiceAction::answers(200, "\"done\""));
    assert_eq!(server.client.approve(&id).await.body["state"], "succeeded");
}

#[tokio::test]
async fn a_process_that_is_killed_in_mid_preview_loses_nothing() {
    let office = Office::with_delete(ServiceAction::Hangs, LINES).await;
    let mut server = office.start(&[("HOLDPOINT_TOOLS__PREVIEW_TIMEOUT", "30s")]);
    let thread = server.client.thread().await;
    let turn = server.client.begin(&thread, &json!({ "content": "delete old.txt" })).await;
    office.remote.wait_received(1).await;
    server.kill();
    office.remote.wait_left().await;
    drop(turn);
    office.remote.now(answers_preview("deletes 3 rows"));
    let server = office.start(&[]);
    let rows = office.rows().await;
    assert_eq!(rows.count("tool_calls").await, 0, "nothing was held, and nothing ran");
    let resumed = async || {
        let turn = server.client.resume(&thread).await;
        turn.pending().first().cloned()
    };
    let id = holdpoint_testkit::eventually("the turn resumes", resumed).await;
    assert_eq!(server.client.call(&id).await["preview"], json!({ "text": "deletes 3 rows" }));
    assert_eq!(server.client.messages(&thread).await.len(), 2);
    let kinds: Vec<Value> =
        office.remote.received().iter().map(|it: &ReceivedRequest| it.json()["type"].clone()).collect();
    assert_eq!(kinds, ["tool.preview", "tool.preview"]);
}

#[tokio::test]
async fn no_log_contains_a_preview_its_inputs_or_its_address() {
    let office = Office::with_delete(answers_preview("canary-preview"), LINES).await;
    let server = Process::spawn_captured(&mut office.command(&[("HOLDPOINT_LOG__LEVEL", "trace")]));
    let id = hold(&server.client, "canary-path").await;
    preview(&server.client, &id, "canary-edit").await;
    office.remote.next([ServiceAction::answers(500, "canary-answer"), ServiceAction::Resets]);
    hold(&server.client, "canary-path").await;
    hold(&server.client, "canary-path-2").await;
    let events = server.client.get("/tool_calls").await;
    events.has_status(404);
    let log = server.finish();
    for canary in ["canary-preview", "canary-path", "canary-edit", "canary-key", "canary-answer"] {
        assert!(!log.contains(canary), "{canary} in {log}");
    }
    assert!(log.contains("HTTP tool"), "the log says that there was no answer: {log}");
}

#[tokio::test]
async fn a_preview_goes_only_where_requests_may_go() {
    let office = Office::with_delete(answers_preview("x"), "preview_url = \"http://10.0.0.1/preview\"").await;
    let ended = office.command(&[]).output().unwrap();
    let output = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(!ended.status.success() && output.contains("http_tools[0].preview_url"), "{output}");
    let office = Office::with_delete(answers_preview("x"), "preview_url = \"ftp://127.0.0.1/preview\"").await;
    let ended = office.command(&[]).output().unwrap();
    let output = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(!ended.status.success() && output.contains("http_tools[0].preview_url"), "{output}");
}
