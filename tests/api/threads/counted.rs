//! The counts of a thread after each kind of work.

use holdpoint_testkit::runs::run_becomes;
use holdpoint_testkit::subagents::{hold_in, with_agents};
use holdpoint_testkit::{JsonFields, call};
use serde_json::{Value, json};

#[tokio::test]
async fn the_counts_of_each_thread_are_the_sums_over_its_rows() {
    let app = with_agents(|_| {}).await;
    let client = &app.client;
    let note = |words: &str| json!({ "note": words });

    // A turn of several steps, after earlier messages of the page.
    let thread = client.thread().await;
    let user = |words: &str| json!({ "role": "user", "content": words });
    app.scene
        .calls(&[call("a", "look", &note("é"))])
        .calls(&[call("b", "look", &note("2"))])
        .answers("Seen.");
    let posted = json!({ "messages": [user("before"), user("and before"), user("look")] });
    assert_eq!(client.turn(&thread, &posted).await.text(), "Seen.");
    let several = app.rows.assert_counted().await;
    assert_eq!(client.messages(&thread).await.len(), 4);

    // Another answer, and another question.
    app.scene.answers("Seen again.").answers("Seen otherwise.");
    assert_eq!(client.turn(&thread, &posted).await.text(), "Seen again.");
    assert!(app.rows.assert_counted().await > several);
    let edited = json!({ "messages": [user("before"), user("and before"), user("look elsewhere")] });
    assert_eq!(client.turn(&thread, &edited).await.text(), "Seen otherwise.");
    app.rows.assert_counted().await;

    // A hold with edited inputs, whose outcome the model reads.
    let held = app.hold_in(&thread, "pay", "10").await;
    app.rows.assert_counted().await;
    let answer = json!({ "toolCallId": held, "isValidated": true, "validatedInputs": note("20 €") });
    assert_eq!(client.validate(&answer).await.body["state"], "succeeded");
    app.rows.assert_counted().await;
    app.scene.answers("Paid.");
    client.resume(&thread).await;
    app.rows.assert_counted().await;

    // A placeholder for a pending call, and a note after its outcome.
    let held = app.hold_in(&thread, "pay", "30").await;
    app.scene.answers("It waits.").answers("It is paid.");
    client.send_message(&thread, "and now?").await;
    app.rows.assert_counted().await;
    assert_eq!(client.approve(&held).await.body["state"], "succeeded");
    client.send_message(&thread, "and now?").await;
    assert!(app.rows.count("sent_answers WHERE kind = 'placeholder'").await > 0);
    assert!(app.rows.count("sent_answers WHERE kind = 'note'").await > 0);
    app.rows.assert_counted().await;

    // A rejection, a cancel, and a step that broke off.
    let rejected = app.hold_in(&thread, "pay", "40").await;
    client.reject(&rejected).await;
    let (cancelled, _) = app.held("pay", "50").await;
    let run = client.messages(&cancelled).await[1].text("run_id").to_owned();
    client.post(&format!("/runs/{run}/cancel"), &Value::Null).await.has_status(200);
    app.scene.then(vec![Ok(holdpoint::llm::ModelEvent::Text("half".to_owned())), Err("broken".to_owned())]);
    client.resume(&thread).await;
    app.rows.assert_counted().await;

    // A sub-agent that holds a call.
    let parent = client.thread().await;
    app.scene.calls(&[call("c", "helper", &note("pay 60"))]).calls(&[call("d", "pay", &note("60"))]);
    client.send_message(&parent, "help").await;
    let held = hold_in(client, &parent).await;
    app.scene.answers("I paid.").answers("All is paid.");
    client.approve(&held).await.has_status(200);
    run_becomes(client, client.messages(&parent).await[1].text("run_id"), "completed").await;
    assert_eq!(app.rows.count("threads WHERE parent_id IS NOT NULL AND messages = 2").await, 1);
    app.rows.assert_counted().await;

    // A deletion erases the texts.
    for thread in [&thread, &cancelled, &parent] {
        client.delete(&format!("/threads/{thread}")).await.has_status(204);
    }
    app.rows.assert_counted().await;
    assert_eq!(app.operate(&["purge", "--older-than", "0s"]).stderr, "");
    let erased = app.rows.all("SELECT thread_id FROM threads WHERE erased_at IS NOT NULL").await;
    assert!(erased.len() >= 3, "{erased:?}");
    assert!(app.rows.assert_counted().await < several);
}
