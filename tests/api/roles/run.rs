//! `run_roles`: a tool does not exist for users without one of its roles.

use super::{acme, is_not_there, office, office_with, rule};
use holdpoint_testkit::{Client, JsonFields, Turn, call};
use serde_json::{Value, json};

fn names(tools: &Value) -> Vec<&str> {
    tools.list("results").iter().map(|tool| tool.text("tool_name")).collect()
}

/// The results of the turn's calls, in order.
fn results(turn: &Turn) -> Vec<&Value> {
    turn.all('a').into_iter().map(|line| &line["result"]).collect()
}

#[tokio::test]
async fn a_tool_looks_nonexistent_to_a_user_without_its_role() {
    let app = office().await;
    let thread = app.client.thread().await;
    let note = json!({ "note": "a" });
    app.scene.calls(&[call("p1", "look", &note), call("p2", "lock", &note)]).answers("No.");
    let turn = app.client.send_message(&thread, "look").await;
    let [requested, again] = &app.scene.requests()[..] else { panic!("{}", turn.raw) };
    for request in [requested, again] {
        assert!(!request.tools.iter().any(|tool| tool.name == "look"), "{:?}", request.tools);
        assert!(request.tools.iter().any(|tool| tool.name == "dawdle"), "{:?}", request.tools);
    }
    let [look, lock] = &results(&turn)[..] else { panic!("{}", turn.raw) };
    assert_eq!(look.to_string(), lock.to_string().replace("lock", "look"));
    assert_eq!(**look, json!({ "error": "There is no tool named \"look\". It did not run." }));
    assert_eq!(app.ledger.lines(), Vec::<String>::new());
    let differ = "SELECT DISTINCT state, held, risk_level, schema_hash, idempotent FROM tool_calls";
    assert_eq!(app.rows.all(differ).await.len(), 1, "the rows do not differ either");

    let listed = app.client.get("/tools").await;
    assert!(!names(&listed.body).contains(&"look"), "{}", listed.body);
    is_not_there(&app.client.get("/tools/look").await);
    is_not_there(&app.client.get("/tools/lock").await);
    let choose = async |tool: &str| {
        app.client.turn(&thread, &json!({ "content": "look", "tool_selection": ["pay", tool] })).await
    };
    let (look, lock) = (choose("look").await, choose("lock").await);
    assert_eq!(look.refused(), (422, "unknown_tool".to_owned()));
    assert_eq!(look.raw, lock.raw.replace("lock", "look"));
}

#[tokio::test]
async fn a_user_with_the_role_runs_the_tool() {
    let app = office().await;
    let clerk = acme(&app, "bob", &["guest", "clerk", "clerk"]);
    let thread = clerk.thread().await;
    app.scene.calls(&[call("p1", "look", &json!({ "note": "a" }))]).answers("Seen.");
    let chosen = json!({ "content": "look", "tool_selection": ["look"] });
    assert_eq!(clerk.turn(&thread, &chosen).await.text(), "Seen.");
    assert_eq!(app.ledger.lines(), ["look a"]);
    assert!(names(&clerk.get("/tools").await.body).contains(&"look"));
    clerk.get("/tools/look").await.has_status(200);
}

#[tokio::test]
async fn roles_match_by_their_whole_name_only() {
    let app = office_with(|config| rule(config, "break", &["chief clerk"], &[], false)).await;
    let sees = async |roles: &[&str]| {
        let client = acme(&app, "bob", roles);
        let (looks, breaks) = (client.get("/tools/look").await, client.get("/tools/break").await);
        (looks.status == 200, breaks.status == 200)
    };
    for roles in [
        &["cler"][..],
        &["clerks"],
        &["Clerk"],
        &["clerk "],
        &[" clerk"],
        &["clerk,chief"],
        &["*"],
        &["cl%"],
        &["chief", "chie"],
    ] {
        assert_eq!(sees(roles).await, (false, false), "{roles:?}");
    }
    assert_eq!(sees(&["chief clerk"]).await, (false, true), "role names in a list may contain spaces");
    assert_eq!(sees(&["chief", "clerk"]).await, (true, false));
}

#[tokio::test]
async fn a_continuation_with_fewer_roles_loses_their_tools_and_more_roles_add_none() {
    let app = office().await;
    let clerk = acme(&app, "alice", &["clerk"]);
    let offered = |n: usize| -> Vec<String> {
        app.scene.requests()[n].tools.iter().map(|tool| tool.name.clone()).collect()
    };
    for (selection, left) in [
        (Value::Null, vec!["break", "dawdle", "mumble", "pay", "refuse", "restock", "tidy", "wait_for_me"]),
        (json!(["look", "pay"]), vec!["pay"]),
        (json!(["look"]), vec![]),
    ] {
        let thread = clerk.thread().await;
        let started = app.scene.requests().len();
        app.scene.calls(&[call("p1", "look", &json!({ "note": "a" }))]);
        let chosen = json!({ "content": "look", "tool_selection": selection });
        assert_eq!(clerk.turn(&thread, &chosen).await.all('3').len(), 1, "then the scene is over");
        assert!(offered(started).contains(&"look".to_owned()));

        app.scene.calls(&[call("p2", "look", &json!({ "note": "b" }))]).answers("No.");
        let again = app.scene.requests().len();
        let turn = app.client.resume(&thread).await;
        assert_eq!(offered(again), left);
        let unknown = json!({ "error": "There is no tool named \"look\". It did not run." });
        assert_eq!(results(&turn), [&unknown], "{}", turn.raw);
        let kept = format!("SELECT tools FROM runs WHERE thread_id = '{thread}'");
        assert_eq!(app.rows.all(&kept).await, [json!({ "tools": json!(left).to_string() })]);
    }
    assert_eq!(app.ledger.lines(), ["look a", "look a", "look a"]);

    // A run that lost a tool does not get it back. The next run has it.
    let thread = clerk.thread().await;
    assert_eq!(app.client.send_message(&thread, "look").await.all('3').len(), 1, "the scene is over");
    app.scene.calls(&[call("p1", "look", &json!({ "note": "c" }))]).answers("No.");
    assert!(clerk.resume(&thread).await.raw.contains("There is no tool named"));
    app.scene.calls(&[call("p2", "look", &json!({ "note": "d" }))]).answers("Seen.");
    assert_eq!(clerk.send_message(&thread, "look").await.text(), "Seen.");
    assert_eq!(app.ledger.lines().last().unwrap(), "look d");
}

#[tokio::test]
async fn an_attach_that_continues_with_fewer_roles_loses_their_tools() {
    let mut app = office().await;
    let alice = app.client.clone();
    app.client = acme(&app, "alice", &["clerk"]);
    let (thread, id) = app.held("pay", "10").await;
    app.client.reject(&id).await.has_status(200);
    app.scene.calls(&[call("p1", "look", &json!({ "note": "a" }))]).answers("No.");
    let turn = attach(&alice, &thread).await;
    assert!(turn.raw.contains("There is no tool named"), "{}", turn.raw);
    assert_eq!(app.ledger.lines(), Vec::<String>::new());
}

#[tokio::test]
async fn a_continuation_that_waits_for_a_running_call_with_fewer_roles_loses_their_tools() {
    let mut app = office().await;
    let alice = app.client.clone();
    app.client = acme(&app, "alice", &["clerk"]);
    let (thread, id) = app.held("wait_for_me", "a").await;
    app.scene.calls(&[call("p1", "look", &json!({ "note": "b" }))]).answers("No.");
    let going_on = async {
        app.ledger.wait_started().await;
        let stream = alice.http.post(alice.url(&format!("/qa/chat_streamed/{thread}"))).send().await.unwrap();
        // The response head arrives at once, the rest after the call has ended.
        assert_eq!(stream.status(), 200);
        app.ledger.release.add_permits(1);
        stream.text().await.unwrap()
    };
    let (approved, reported) = tokio::join!(app.client.approve(&id), going_on);
    assert_eq!(approved.body["state"], "succeeded");
    assert!(reported.contains("There is no tool named"), "{reported}");
    assert_eq!(app.ledger.lines(), ["wait_for_me a"]);
}

async fn attach(client: &Client, thread: &str) -> Turn {
    client.read(client.http.get(client.url(&format!("/qa/chat_streamed/{thread}")))).await
}

#[tokio::test]
async fn b11_a_requester_who_lost_the_run_role_cannot_approve_but_can_reject() {
    let mut app = office_with(|config| rule(config, "pay", &["clerk"], &["chief"], false)).await;
    let alice = app.client.clone();
    app.client = acme(&app, "alice", &["clerk"]);
    let (thread, id) = app.held("pay", "10").await;
    let before = super::all_of(&app, &id).await;
    let refused = alice.approve(&id).await;
    refused.failed_with(403, "forbidden");
    // A role to approve calls of others does not replace the run role.
    assert_eq!(acme(&app, "alice", &["chief"]).approve(&id).await.body, refused.body);
    assert_eq!(super::all_of(&app, &id).await, before);
    assert_eq!(alice.reject(&id).await.body["state"], "rejected");

    let id = app.hold_in(&thread, "pay", "11").await;
    assert_eq!(app.client.approve(&id).await.body["state"], "succeeded");
    assert_eq!(app.ledger.lines(), ["pay 11"]);
}
