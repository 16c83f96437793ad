//! Approvals belong to a session of several agents, each with its own thread: a decision reaches its thread,
//! even if the models use the same provider ids.

use holdpoint_testkit::runs::{decide_in, last_words, run_becomes};
use holdpoint_testkit::{Embedded, JsonFields, call, eventually};
use serde_json::{Value, json};

#[tokio::test]
async fn two_agents_of_a_session_race_on_one_provider_id_and_each_decision_reaches_its_thread() {
    let app = Embedded::start().await;
    let coordinator = app.client.thread().await;
    let mut agents = Vec::new();
    for _ in 0..2 {
        let made = app.client.post("/threads", &json!({ "parent_id": coordinator })).await.body;
        assert_eq!(made["session_id"], json!(coordinator));
        agents.push(made.text("thread_id").to_owned());
    }
    // Both models use the same provider id and request the call at the same time.
    let step = || app.scene.calls(&[call("call_1", "pay", &json!({ "note": "build" }))]);
    step();
    step();
    let (first, second) = tokio::join!(
        app.client.send_message(&agents[0], "build"),
        app.client.send_message(&agents[1], "build")
    );
    let ids = [first.pending()[0].clone(), second.pending()[0].clone()];
    assert_ne!(ids[0], ids[1]);
    for (id, agent) in ids.iter().zip(&agents) {
        let call = app.client.call(id).await;
        assert_eq!((&call["thread_id"], &call["session_id"]), (&json!(agent), &json!(coordinator)));
    }

    app.scene.answers("One.").answers("One.");
    let decide = async |id: &str, decision: &str| decide_in(&app.client, &coordinator, id, decision).await;
    // The user clicks twice, in two windows.
    let (allowed, again, denied) =
        tokio::join!(decide(&ids[0], "allow_once"), decide(&ids[0], "allow_once"), decide(&ids[1], "deny"));
    let fresh = [&allowed, &again].iter().filter(|it| it.header("idempotent-replayed").is_none()).count();
    assert_eq!((allowed.status, again.status, denied.status, fresh), (200, 200, 200, 1));
    for (id, agent) in ids.iter().zip(&agents) {
        run_becomes(&app.client, &app.client.run_of(id).await, "completed").await;
        assert_eq!(last_words(&app.client, agent).await, "One.");
    }
    assert_eq!(app.ledger.lines(), ["pay build"], "once, and only for the approved call");
    assert_eq!(app.client.call(&ids[0]).await["state"], "succeeded");
    let denied = app.client.call(&ids[1]).await;
    assert_eq!(
        (&denied["state"], &denied["result"]),
        (&json!("rejected"), &json!("Tool execution rejected by user."))
    );
    // Each agent's model read the outcome of its own call only.
    for (agent, outcome) in agents.iter().zip(["{\"paid\":\"build\"}", "Tool execution rejected by user."]) {
        let answers = format!(
            "SELECT text FROM sent_answers WHERE tool_call_id IN
                 (SELECT tool_call_id FROM tool_calls WHERE thread_id = '{agent}')"
        );
        assert_eq!(app.rows.all(&answers).await, [json!({ "text": outcome })]);
    }
    assert_eq!(
        app.client.messages(&coordinator).await,
        Vec::<Value>::new(),
        "and nothing in the coordinator's"
    );
}

#[tokio::test]
async fn a_call_pending_at_a_restart_is_decided_and_its_turn_resumes() {
    let app = Embedded::start().await;
    let (session, id) = app.held("pay", "build").await;
    let tools = holdpoint_testkit::probes(&app.ledger);
    let app = app.redeploy(tools).await;
    app.scene.answers("Built.");
    decide_in(&app.client, &session, &id, "allow_once").await.has_status(200);
    let words = async || Some(last_words(&app.client, &session).await).filter(|words| words == "Built.");
    eventually("the agent goes on", words).await;
    assert_eq!(app.ledger.lines(), ["pay build"]);
}
