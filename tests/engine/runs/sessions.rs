//! Whole sessions: decisions about calls in any thread of a session, and the cancel of a session.

use super::{decide_in, events_of, last_words, run_becomes};
use holdpoint_testkit::token::with_tokens;
use holdpoint_testkit::{Client, Embedded, JsonFields, eventually};
use serde_json::{Value, json};

async fn child_of(client: &Client, thread: &str) -> String {
    let made = client.post("/threads", &json!({ "parent_id": thread })).await;
    made.has_status(201);
    made.body.text("thread_id").to_owned()
}

async fn cancel(client: &Client, session: &str) -> holdpoint_testkit::Answer {
    client.post(&format!("/sessions/{session}/cancel"), &Value::Null).await
}

#[tokio::test]
async fn a_call_in_any_thread_is_decided_in_its_session_and_the_server_resumes_the_run() {
    let app = Embedded::start().await;
    let root = app.client.thread().await;
    let child = child_of(&app.client, &root).await;
    for (thread, decision, state, ends, words) in [
        (&root, "allow_once", "approved", "succeeded", "Paid."),
        (&child, "allow_once", "approved", "succeeded", "Paid below."),
        (&child, "deny", "rejected", "rejected", "As you like."),
    ] {
        let id = app.hold_in(thread, "pay", "1").await;
        app.scene.answers(words);
        let decided = decide_in(&app.client, &root, &id, decision).await;
        let expected = json!({ "success": true, "tool_call_id": id, "decision": decision, "state": state });
        assert_eq!((decided.status, &decided.body), (200, &expected));
        run_becomes(&app.client, &app.client.run_of(&id).await, "completed").await;
        assert_eq!(last_words(&app.client, thread).await, words);
        let again = decide_in(&app.client, &root, &id, decision).await;
        assert_eq!((again.status, again.header("idempotent-replayed")), (200, Some("true")));
        assert_eq!(again.body["state"], ends);
        let other =
            decide_in(&app.client, &root, &id, if decision == "deny" { "allow_once" } else { "deny" });
        let other = other.await;
        other.failed_with(409, "already_decided");
    }
    assert_eq!(app.ledger.lines(), ["pay 1", "pay 1"]);
}

#[tokio::test]
async fn allow_session_approves_the_pending_calls_of_all_threads_and_the_server_resumes_their_runs() {
    let app = Embedded::start().await;
    let root = app.client.thread().await;
    let child = child_of(&app.client, &root).await;
    let (first, below) = (app.hold_in(&root, "pay", "1").await, app.hold_in(&child, "pay", "2").await);
    let (_, elsewhere) = app.held("pay", "3").await;
    app.scene.answers("Paid.").answers("Paid.");
    let decided = decide_in(&app.client, &root, &first, "allow_session").await;
    let grant = &app.client.get(&format!("/sessions/{root}/grants")).await.body["results"][0]["grant_id"];
    let remembered = json!({ "grant": grant, "approved": [below], "left": [] });
    let expected = json!({ "success": true, "tool_call_id": first, "decision": "allow_session", "state": "approved",
        "remembered": remembered });
    assert_eq!((decided.status, decided.body), (200, expected));
    for (thread, id) in [(&root, &first), (&child, &below)] {
        run_becomes(&app.client, &app.client.run_of(id).await, "completed").await;
        assert_eq!(last_words(&app.client, thread).await, "Paid.");
    }
    assert_eq!(app.client.call(&first).await["decision"]["remember"], "session");
    let source = app.client.call(&below).await["decision"].text("source").to_owned();
    assert!(source.starts_with("remembered:"), "{source}");
    assert_eq!(app.client.call(&elsewhere).await["state"], "pending");
    // The next call of the session needs no approval.
    app.scene.calls(&[holdpoint_testkit::call("p", "pay", &json!({ "note": "4" }))]).answers("At once.");
    assert_eq!(app.client.send_message(&child, "again").await.text(), "At once.");
    let mut ran = app.ledger.lines();
    ran.sort();
    assert_eq!(ran, ["pay 1", "pay 2", "pay 4"]);
}

#[tokio::test]
async fn a_reason_reaches_the_model_and_an_unknown_decision_is_refused() {
    let app = Embedded::start().await;
    let (thread, id) = app.held("pay", "1").await;
    let path = format!("/sessions/{thread}/approvals/{id}");
    for (body, field) in [
        (json!({}), "decision"),
        (json!({ "decision": "allow" }), "decision"),
        (json!({ "decision": true }), "decision"),
        (json!({ "decision": "deny", "reason": "x".repeat(2001) }), "reason"),
        (json!({ "decision": "deny", "remember": true }), "remember"),
    ] {
        let answer = app.client.post(&path, &body).await;
        assert_eq!(answer.failure(), (400, "bad_request"), "{body}");
        assert!(answer.message().contains(field), "{body}: {}", answer.message());
    }
    let refused = app.client.post(&path, &json!({ "decision": "deny", "remember": "session" })).await;
    refused.failed_with(422, "not_remembered");
    assert_eq!(app.client.call(&id).await["state"], "pending");
    app.scene.answers("I see.");
    let denied = app.client.post(&path, &json!({ "decision": "deny", "reason": "not today" })).await;
    denied.has_status(200);
    assert_eq!(app.client.call(&id).await["result"], "Tool execution rejected by user. Reason: not today");
}

#[tokio::test]
async fn a_call_of_another_session_gets_404_and_a_session_has_the_id_of_its_root() {
    let mut app = Embedded::with(with_tokens).await;
    let nobody = app.client.clone();
    app.client = nobody.as_user("acme", "alice", &[]);
    let bob = nobody.as_user("acme", "bob", &[]);
    let (root, id) = app.held("pay", "1").await;
    let child = child_of(&app.client, &root).await;
    let below = app.hold_in(&child, "pay", "2").await;
    let elsewhere = app.client.thread().await;
    let of_bob = bob.thread().await;
    let nothing = json!({ "error": { "code": "not_found",
        "message": "There is nothing here, or nothing for you." } });
    for (client, session, call) in [
        (&app.client, &elsewhere, &id),
        (&app.client, &child, &below),
        (&app.client, &"nothing".to_owned(), &id),
        (&app.client, &root, &"nothing".to_owned()),
        (&app.client, &root, &root),
        (&bob, &root, &id),
        (&bob, &of_bob, &id),
    ] {
        for decision in ["allow_once", "allow_session", "deny"] {
            let answer = decide_in(client, session, call, decision).await;
            assert_eq!((answer.status, &answer.body), (404, &nothing), "{session} {call} {decision}");
        }
    }
    for id in [&id, &below] {
        assert_eq!(app.client.call(id).await["state"], "pending");
    }
    for (client, session) in [
        (&bob, root.as_str()),
        (&app.client, child.as_str()),
        (&app.client, "nothing"),
        (&app.client, id.as_str()),
    ] {
        let answer = cancel(client, session).await;
        assert_eq!((answer.status, &answer.body), (404, &nothing), "{session}");
    }
    assert_eq!(app.client.call(&below).await["state"], "pending");
}

#[tokio::test]
async fn cancelling_a_session_cancels_the_runs_and_pending_calls_of_its_threads_and_of_no_other() {
    let app = Embedded::start().await;
    let (root, waits) = app.held("pay", "1").await;
    let child = child_of(&app.client, &root).await;
    let below = app.hold_in(&child, "pay", "2").await;
    let speaks = child_of(&app.client, &child).await;
    let (_, elsewhere) = app.held("pay", "3").await;
    let done = child_of(&app.client, &root).await;
    app.scene.answers("Done.");
    app.client.send_message(&done, "hello").await;

    app.scene.answers("Half an answer.");
    app.scene.gate();
    let turn = app.client.begin(&speaks, &json!({ "content": "speak" })).await;
    let cancelled = cancel(&app.client, &root).await;
    cancelled.has_status(200);
    let sent = app.client.read_on(turn).await;
    assert_eq!(sent.codes().chars().last(), Some('d'), "{}", sent.raw);
    let runs = cancelled.body.list("results");
    let threads: Vec<_> = runs.iter().map(|run| run.text("thread_id")).collect();
    assert_eq!(threads, [&root, &child, &speaks]);
    for run in runs {
        assert_eq!((&run["status"], &run["pending"]), (&json!("cancelled"), &json!([])), "{run}");
        let id = run.text("run_id");
        assert_eq!(
            events_of(&app.rows, id).await.iter().filter(|event| *event == "run.cancelled").count(),
            1
        );
    }
    for id in [waits, below] {
        assert_eq!(app.client.call(&id).await["state"], "cancelled");
        let late = decide_in(&app.client, &root, &id, "allow_once").await;
        late.failed_with(409, "cancelled");
    }
    assert_eq!(app.client.call(&elsewhere).await["state"], "pending");
    let again = cancel(&app.client, &root).await;
    assert_eq!((again.status, &again.body), (200, &json!({ "results": [] })));
    assert_eq!(app.ledger.lines(), Vec::<String>::new());
}

#[tokio::test]
async fn a_tool_running_when_its_session_is_cancelled_settles_and_the_run_does_not_resume() {
    let app = Embedded::start().await;
    let (thread, id) = app.held("wait_for_me", "1").await;
    let run = app.client.run_of(&id).await;
    decide_in(&app.client, &thread, &id, "allow_once").await.has_status(200);
    app.ledger.wait_started().await;
    let cancelled = cancel(&app.client, &thread).await;
    assert_eq!((cancelled.status, &cancelled.body["results"][0]["status"]), (200, &json!("cancelled")));
    app.ledger.release.add_permits(1);
    app.client.becomes(&id, "succeeded").await;
    let types = events_of(&app.rows, &run).await;
    let expected = ["run.cancelled", "tool.succeeded"];
    assert_eq!(types[types.len() - 2..], expected);
    app.scene.answers("Hello.");
    let next =
        async || Some(app.client.send_message(&thread, "hello").await).filter(|turn| turn.status == 200);
    assert_eq!(eventually("the thread takes the next message", next).await.text(), "Hello.");
}
