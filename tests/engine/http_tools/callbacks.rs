//! Outcomes that come later: a service accepts a call with 202, and reports its outcome at the `callback_url`.

use super::{HERE, Office, SECRETS, callback, hold, post, report, signed, tool};
use futures::future::join_all;
use holdpoint_testkit::runs::{events_of, last_words, run_becomes};
use holdpoint_testkit::{
    Client, EndedCommand, JsonFields, Process, ReceivedRequest, ServiceAction, UNKNOWN, eventually, postgres,
};
use serde_json::{Value, json};

const DELETED: &str = r#"{"result":{"deleted":"old.txt"}}"#;

/// A service that accepts every call.
async fn accepting(lines: &str) -> Office {
    Office::deferring(ServiceAction::answers(202, ""), "delete_file", lines).await
}

/// A call that its service has accepted: its thread, its id, and the request.
async fn accepted(office: &Office, client: &Client) -> (String, String, ReceivedRequest) {
    let thread = client.thread().await;
    let turn = client.send_message(&thread, "delete old.txt").await;
    let [id] = &turn.pending()[..] else { panic!("{}", turn.raw) };
    let yes = client.approve(id).await;
    yes.has(202, "state", "executing");
    owned(client, id).await;
    (thread, id.clone(), office.remote.received().pop().unwrap())
}

/// Waits until the call has an owner, and returns it.
async fn owned(client: &Client, id: &str) -> Value {
    let owned = async || Some(client.call(id).await).filter(|call| call["result_deadline"].is_string());
    eventually("the call has an owner", owned).await
}

/// Asserts the answer to a report: its state, and whether it was a repetition.
fn assert_accepted(answer: &holdpoint_testkit::Answer, state: &str, replayed: bool) {
    assert_eq!((answer.status, &answer.body["state"]), (200, &json!(state)), "{answer:?}");
    assert_eq!(answer.header("idempotent-replayed"), replayed.then_some("true"), "{answer:?}");
}

#[tokio::test]
async fn a_202_hands_the_call_over_and_the_report_settles_it_and_resumes_its_run() {
    let office = accepting("result_deadline = \"1h\"").await;
    let server = office.start(&[("HOLDPOINT_APPROVAL__WAIT", "60s")]);
    let client = &server.client;
    let (thread, id, request) = accepted(&office, client).await;
    let call = client.call(&id).await;
    assert_eq!((&call["state"], call.get("result")), (&json!("executing"), None));
    let run = client.run_of(&id).await;
    assert_eq!(run_becomes(client, &run, "waiting").await["pending"], json!([]));
    // The same decision again does not wait for the owner either.
    client.approve(&id).await.has_status(202);
    let rows = office.rows().await;
    let row = rows.all("SELECT lease_until, result_deadline, started_at FROM tool_calls").await;
    assert_eq!(row[0]["lease_until"], Value::Null);
    let time = row[0]["result_deadline"].as_i64().unwrap() - row[0]["started_at"].as_i64().unwrap();
    assert!((3_600_000_000..3_660_000_000).contains(&time), "{row:?}");

    let answer = report(client, &request, DELETED).await;
    assert_accepted(&answer, "succeeded", false);
    assert_eq!(answer.body, json!({ "tool_call_id": id, "state": "succeeded" }));
    run_becomes(client, &run, "completed").await;
    let call = client.call(&id).await;
    assert_eq!((&call["state"], &call["output"]), (&json!("succeeded"), &json!({ "deleted": "old.txt" })));
    assert!(call["result_deadline"].is_string());
    assert!(last_words(client, &thread).await.ends_with("Done: old.txt is deleted."));
    let events = [
        "run.started",
        "tool.called",
        "tool.requires_approval",
        "run.waiting",
        "tool.approved",
        "tool.started",
        "tool.accepted",
        "tool.succeeded",
        "run.resumed",
        "run.completed",
    ];
    assert_eq!(events_of(&office.rows().await, &run).await, events);
    let of_call = client.get(&format!("/tool_calls/{id}/events")).await.body;
    let accepted = of_call.list("results").iter().find(|it| it["type"] == "tool.accepted").unwrap();
    assert_eq!((&accepted["actor"], &accepted["data"]["attempt"]), (&json!("user:local"), &json!(1)));
    assert_eq!(accepted["data"]["result_deadline"], call["result_deadline"]);
    assert_eq!(accepted["data"].get("state"), None);

    assert_accepted(&report(client, &request, DELETED).await, "succeeded", true);
    assert_accepted(
        &report(client, &request, r#"{ "result": { "deleted": "old.txt" } }"#).await,
        "succeeded",
        true,
    );
    for other in [r#"{"result":{"deleted":"new.txt"}}"#, r#"{"error":"no such file"}"#] {
        let refused = report(client, &request, other).await;
        refused.failed_with(409, "already_settled");
        assert_eq!(refused.body["error"]["details"], json!({ "state": "succeeded" }));
    }
    assert_eq!(client.call(&id).await, call);
    assert_eq!(office.remote.received().len(), 1);
}

#[tokio::test]
async fn a_repeated_report_may_write_the_same_number_otherwise() {
    let office = accepting("").await;
    let server = office.start(&[]);
    let client = &server.client;
    let (_, _, request) = accepted(&office, client).await;
    assert_accepted(
        &report(client, &request, r#"{"result":{"refunded":1.0,"to":[12e2]}}"#).await,
        "succeeded",
        false,
    );
    let same = report(client, &request, r#"{"result":{"to":[1200],"refunded":1}}"#).await;
    assert_accepted(&same, "succeeded", true);
    let other = report(client, &request, r#"{"result":{"to":[1200],"refunded":1.5}}"#).await;
    other.failed_with(409, "already_settled");
}

#[tokio::test]
async fn a_reported_error_is_a_failure() {
    let office = accepting("").await;
    let server = office.start(&[]);
    let client = &server.client;
    let (thread, id, request) = accepted(&office, client).await;
    let no = r#"{"error":"it is locked"}"#;
    assert_accepted(&report(client, &request, no).await, "failed", false);
    assert_eq!(client.call(&id).await["result"], "The tool failed: it is locked");
    run_becomes(client, &client.run_of(&id).await, "completed").await;
    assert!(last_words(client, &thread).await.contains("it is locked"));
    assert_accepted(&report(client, &request, no).await, "failed", true);
    for other in [r#"{"error":"it is gone"}"#, r#"{"result":null}"#] {
        assert_eq!(report(client, &request, other).await.code(), "already_settled", "{other}");
    }
}

#[tokio::test]
async fn a_call_without_a_question_pauses_its_turn_until_the_report() {
    let office = Office::deferring(ServiceAction::answers(202, "later"), "list_files", "hil = false").await;
    let server = office.start(&[]);
    let client = &server.client;
    let thread = client.thread().await;
    let turn = client.send_message(&thread, "list files").await;
    let id = turn.one('9').text("toolCallId").to_owned();
    assert_eq!((turn.all('a').len(), turn.text().as_str()), (0, "I will list the files."), "{}", turn.raw);
    let run = client.run_of(&id).await;
    run_becomes(client, &run, "waiting").await;
    // The user may write meanwhile, as while a sub-agent works. Here the page waits.
    let request = office.remote.received().pop().unwrap();
    assert_accepted(&report(client, &request, r#"{"result":{"files":["a"]}}"#).await, "succeeded", false);
    run_becomes(client, &run, "completed").await;
    assert!(last_words(client, &thread).await.contains("The files (1):"));
}

#[tokio::test]
async fn a_message_may_follow_while_the_service_works_and_the_outcome_becomes_a_note() {
    let office = accepting("").await;
    let server = office.start(&[]);
    let client = &server.client;
    let (thread, id, request) = accepted(&office, client).await;
    let reported = client.send_message(&thread, "what happened").await.text();
    assert!(reported.contains("under way"), "{reported}");
    assert_eq!(client.call(&id).await["state"], "executing");
    assert_accepted(&report(client, &request, DELETED).await, "succeeded", false);
    run_becomes(client, &client.run_of(&id).await, "completed").await;
    let reported = client.send_message(&thread, "what happened").await.text();
    assert!(reported.contains("old.txt"), "{reported}");
    let sent = office.rows().await.all("SELECT kind, text FROM sent_answers ORDER BY n").await;
    assert_eq!((sent.len(), &sent[1]["kind"]), (2, &json!("note")), "{sent:?}");
    assert!(sent[1].text("text").contains("old.txt"), "{sent:?}");
}

#[tokio::test]
async fn a_report_counts_before_the_202_was_read() {
    let office = Office::deferring(ServiceAction::Hangs, "delete_file", "").await;
    let server = office.start(&[("HOLDPOINT_APPROVAL__LEASE", "60s")]);
    let client = &server.client;
    for (sent, does) in [(1, ServiceAction::Waits(202, String::new())), (2, ServiceAction::Hangs)] {
        office.remote.next([does]);
        let thread = client.thread().await;
        let turn = client.send_message(&thread, "delete old.txt").await;
        let [id] = &turn.pending()[..] else { panic!("{}", turn.raw) };
        let reporting = async {
            let request = office.remote.wait_received(sent).await.pop().unwrap();
            let answer = report(client, &request, DELETED).await;
            office.remote.release();
            (request, answer)
        };
        let (yes, (request, answer)) = tokio::join!(client.approve(id), reporting);
        assert_accepted(&answer, "succeeded", false);
        yes.has(200, "state", "succeeded");
        assert_eq!(client.call(id).await.get("result_deadline"), None);
        assert_eq!(client.resume(&thread).await.text(), "Done: old.txt is deleted.");
        assert_accepted(&report(client, &request, DELETED).await, "succeeded", true);
    }
    office.remote.wait_left().await;
}

#[tokio::test]
async fn of_a_hundred_reports_at_once_one_settles_the_call() {
    let office = accepting("").await;
    let server = office.start(&[]);
    let (_, id, request) = accepted(&office, &server.client).await;
    let (path, bodies) = (callback(&request), [DELETED, r#"{"error":"it is locked"}"#]);
    let signatures = bodies.map(|body| signed(SECRETS[0], body));
    let answers =
        join_all((0..100).map(|n| post(&server.client, &path, &signatures[n % 2], bodies[n % 2]))).await;
    let call = server.client.call(&id).await;
    let first = usize::from(call["state"] == "failed");
    let new = answers.iter().filter(|it| it.status == 200 && it.header("idempotent-replayed").is_none());
    assert_eq!(new.count(), 1, "{answers:?}");
    for (n, answer) in answers.iter().enumerate() {
        let expected = if n % 2 == first { 200 } else { 409 };
        assert_eq!(answer.status, expected, "{n} {answer:?}");
    }
    let ends = "events WHERE type IN ('tool.succeeded', 'tool.failed')";
    assert_eq!(office.rows().await.count(ends).await, 1);
}

#[tokio::test]
async fn a_call_that_is_never_reported_is_interrupted_and_a_later_report_settles_it() {
    let office = accepting("result_deadline = \"1s\"").await;
    let server = office.start(&[]);
    let client = &server.client;
    let (thread, id, request) = accepted(&office, client).await;
    let call = client.becomes(&id, "interrupted").await;
    assert_eq!(call["result"], UNKNOWN);
    assert!(call["finished_at"].as_str() >= call["result_deadline"].as_str(), "{call}");
    let run = client.run_of(&id).await;
    run_becomes(client, &run, "completed").await;
    assert!(last_words(client, &thread).await.contains("unknown"));
    assert_accepted(&report(client, &request, DELETED).await, "succeeded", false);
    assert_eq!(client.call(&id).await["output"], json!({ "deleted": "old.txt" }));
    let reported = client.send_message(&thread, "what happened").await.text();
    assert!(reported.contains("old.txt"), "{reported}");
    let sent = office.rows().await.all("SELECT kind FROM sent_answers ORDER BY n").await;
    assert_eq!(sent, [json!({ "kind": "answer" }), json!({ "kind": "note" })]);
    assert_eq!(office.remote.received().len(), 1, "also an idempotent tool gets it once");
}

#[tokio::test]
async fn an_idempotent_call_that_was_accepted_is_not_sent_again() {
    let office = accepting("result_deadline = \"1s\"\nidempotent = true").await;
    let server = office.start(&[]);
    let (_, id, request) = accepted(&office, &server.client).await;
    server.client.becomes(&id, "interrupted").await;
    assert_accepted(&report(&server.client, &request, r#"{"error":"no"}"#).await, "failed", false);
    assert_eq!(office.remote.received().len(), 1);
}

#[tokio::test]
async fn a_service_that_dies_after_its_202_has_accepted_the_call() {
    let office = Office::deferring(ServiceAction::AcceptsAndBreaksOff, "delete_file", "").await;
    let server = office.start(&[]);
    let (_, id, request) = accepted(&office, &server.client).await;
    assert_eq!(server.client.call(&id).await["state"], "executing");
    assert_accepted(&report(&server.client, &request, DELETED).await, "succeeded", false);
}

#[tokio::test]
async fn a_server_that_is_killed_before_it_read_the_202_does_not_know_the_outcome_until_the_report() {
    let office = Office::deferring(ServiceAction::Waits(202, String::new()), "delete_file", "").await;
    let mut server = office.start(&[("HOLDPOINT_APPROVAL__WAIT", "0s")]);
    let id = hold(&server.client, "old.txt").await;
    server.client.approve(&id).await.has_status(202);
    let request = office.remote.wait_received(1).await.pop().unwrap();
    server.kill();
    office.remote.release();
    let server = office.start(&[]);
    let call = server.client.becomes(&id, "interrupted").await;
    assert_eq!((&call["result"], call.get("result_deadline")), (&json!(UNKNOWN), None));
    assert_accepted(&report(&server.client, &request, DELETED).await, "succeeded", false);
    assert_eq!(office.remote.received().len(), 1);
}

#[tokio::test]
async fn a_killed_server_leaves_an_accepted_call_to_its_owner() {
    let office = accepting("").await;
    let mut server = office.start(&[]);
    let (thread, id, request) = accepted(&office, &server.client).await;
    server.kill();
    let server = office.start(&[]);
    let client = &server.client;
    assert_eq!(client.call(&id).await["state"], "executing");
    assert_accepted(&report(client, &request, DELETED).await, "succeeded", false);
    run_becomes(client, &client.run_of(&id).await, "completed").await;
    assert!(last_words(client, &thread).await.ends_with("Done: old.txt is deleted."));
}

/// A call of an idempotent tool whose first process was killed before it read the 202: its id, and both requests.
async fn started_twice(office: &Office) -> (Process, String, [ReceivedRequest; 2]) {
    let mut server = office.start(&[("HOLDPOINT_APPROVAL__WAIT", "0s")]);
    let id = hold(&server.client, "old.txt").await;
    server.client.approve(&id).await;
    office.remote.wait_received(1).await;
    server.kill();
    office.remote.now(ServiceAction::answers(202, ""));
    let server = office.start(&[]);
    owned(&server.client, &id).await;
    let received = office.remote.received();
    let [first, second] = &received[..] else { panic!("{received:?}") };
    (server, id, [first.clone(), second.clone()])
}

#[tokio::test]
async fn only_the_attempt_that_holds_the_call_is_reported() {
    let office = Office::deferring(ServiceAction::Hangs, "delete_file", "idempotent = true").await;
    let (server, id, [first, second]) = started_twice(&office).await;
    assert_eq!(first.header("webhook-id"), second.header("webhook-id"));
    assert_ne!(callback(&first), callback(&second));
    let refused = report(&server.client, &first, DELETED).await;
    refused.failed_with(409, "stale");
    assert_eq!(server.client.call(&id).await["state"], "executing");
    assert_accepted(&report(&server.client, &second, DELETED).await, "succeeded", false);
    assert_eq!(report(&server.client, &first, DELETED).await.code(), "stale");
}

#[tokio::test]
async fn an_error_of_a_repeated_attempt_leaves_the_outcome_unknown() {
    let office = Office::deferring(ServiceAction::Hangs, "delete_file", "idempotent = true").await;
    let (server, id, [_, second]) = started_twice(&office).await;
    let no = r#"{"error":"it is gone"}"#;
    assert_accepted(&report(&server.client, &second, no).await, "interrupted", false);
    let result = server.client.call(&id).await.text("result").to_owned();
    assert!(result.starts_with(UNKNOWN) && result.ends_with("it is gone"), "{result}");
    assert_accepted(&report(&server.client, &second, no).await, "interrupted", true);
    let other = report(&server.client, &second, r#"{"error":"it is locked"}"#).await;
    other.failed_with(409, "already_settled");
    // An attempt that did it after all is known.
    assert_accepted(&report(&server.client, &second, DELETED).await, "succeeded", false);
}

#[tokio::test]
async fn a_cancel_is_recorded_and_the_report_still_counts() {
    let office = accepting("").await;
    let server = office.start(&[]);
    let client = &server.client;
    let (_, id, request) = accepted(&office, client).await;
    let answer = client.post(&format!("/tool_calls/{id}/cancel"), &Value::Null).await;
    let executing = json!({ "success": false, "tool_call_id": id, "state": "executing" });
    assert_eq!((answer.status, &answer.body), (202, &executing));
    let requested = "tool_calls WHERE cancel_requested_at IS NOT NULL AND state = 'executing'";
    assert_eq!(office.rows().await.count(requested).await, 1);
    assert_accepted(&report(client, &request, DELETED).await, "succeeded", false);
}

#[tokio::test]
async fn the_report_of_a_call_whose_run_was_cancelled_is_stored_and_resumes_nothing() {
    let office = accepting("").await;
    let server = office.start(&[]);
    let client = &server.client;
    let (thread, id, request) = accepted(&office, client).await;
    let run = client.run_of(&id).await;
    let cancelled = client.post(&format!("/runs/{run}/cancel"), &Value::Null).await;
    cancelled.has(200, "status", "cancelled");
    assert_accepted(&report(client, &request, DELETED).await, "succeeded", false);
    assert_eq!(client.get(&format!("/runs/{run}")).await.body["status"], "cancelled");
    client.delete(&format!("/threads/{thread}")).await;
    assert_accepted(&report(client, &request, DELETED).await, "succeeded", true);
}

#[tokio::test]
async fn a_fenced_call_is_interrupted_and_its_report_settles_it() {
    let office = accepting("").await;
    let server = office.start(&[]);
    let (_, id, request) = accepted(&office, &server.client).await;
    server.finish();
    let fenced = EndedCommand::of(office.command(&[]).args(["fence", "--by", "mel"]).output().unwrap())
        .stdout_of_success();
    assert!(fenced.contains("1 "), "{fenced}");
    let server = office.start(&[]);
    assert_eq!(server.client.call(&id).await["state"], "interrupted");
    let run = server.client.run_of(&id).await;
    assert_accepted(&report(&server.client, &request, DELETED).await, "succeeded", false);
    assert_eq!(server.client.get(&format!("/runs/{run}")).await.body["status"], "waiting");
}

#[tokio::test]
async fn on_postgres_a_report_reaches_any_process() {
    let office = Office { database: postgres().await, ..accepting("").await };
    let (runs, other) = (office.start(&[]), office.start(&[]));
    let (thread, id, request) = accepted(&office, &runs.client).await;
    assert_accepted(&report(&other.client, &request, DELETED).await, "succeeded", false);
    assert_accepted(&report(&runs.client, &request, DELETED).await, "succeeded", true);
    run_becomes(&runs.client, &runs.client.run_of(&id).await, "completed").await;
    assert!(last_words(&other.client, &thread).await.ends_with("Done: old.txt is deleted."));
}

#[tokio::test]
async fn while_a_secret_is_replaced_reports_with_either_count() {
    let office = accepting("").await;
    let secrets =
        |lines: &[&str]| std::fs::write(office.dir.path().join("secrets"), lines.join("\n")).unwrap();
    let [old, new] = SECRETS;
    // The secrets of the server that sends the request, of the service that signs, and of the server that takes the report.
    for (sends, signs, takes) in [
        (&[old][..], old, &[old, new][..]),
        (&[old, new], old, &[old, new]),
        (&[old, new], new, &[old, new]),
        (&[old, new], new, &[new]),
        (&[new, old], old, &[old]),
    ] {
        secrets(sends);
        let server = office.start(&[]);
        let (_, id, request) = accepted(&office, &server.client).await;
        server.finish();
        secrets(takes);
        let server = office.start(&[]);
        let answer = post(&server.client, &callback(&request), &signed(signs, DELETED), DELETED).await;
        assert_accepted(&answer, "succeeded", false);
        assert_eq!(server.client.call(&id).await["state"], "succeeded");
        server.finish();
    }
    secrets(&[old]);
    let server = office.start(&[]);
    let (_, _, request) = accepted(&office, &server.client).await;
    server.finish();
    secrets(&[new]);
    let server = office.start(&[]);
    let answer = post(&server.client, &callback(&request), &signed(new, DELETED), DELETED).await;
    assert_eq!(answer.status, 401, "no process has a secret of the URL any more");
}

#[tokio::test]
async fn without_a_public_url_a_service_cannot_report_and_a_202_is_an_unknown_outcome() {
    let office =
        Office::new(ServiceAction::answers(202, ""), &format!("{HERE}{}", tool("delete_file", "{url}", "")))
            .await;
    let server = Process::spawn_captured(&mut office.command(&[("HOLDPOINT_LOG__LEVEL", "warn")]));
    let call = super::approved(&server.client, "a").await;
    assert_eq!((&call["state"], &call["result"]), (&json!("interrupted"), &json!(UNKNOWN)));
    assert_eq!(office.remote.received()[0].json().get("callback_url"), None);
    let printed = server.finish();
    assert!(printed.contains("without server.public_url it cannot report the outcome"), "{printed}");
}
