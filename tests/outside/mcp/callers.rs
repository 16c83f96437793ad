//! Headers that name who calls: a session for each caller (`tests/mcp/rooms.mjs`).

use super::rooms::{Rooms, TOOL, approved, hold};
use super::tasks::approved_in;
use super::{no_tool, tool};
use futures::future::join_all;
use holdpoint_testkit::{JsonFields, eventually};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use tokio::task::JoinSet;

fn named() -> Value {
    json!({ "headers": { "x-user": "{tenant_id}/{user_id}", "x-key": "key-1" } })
}

/// The users of the requests of a room, by their sessions. A request that begins a session has none.
async fn users(rooms: &Rooms, room: &str) -> BTreeMap<String, BTreeSet<Option<String>>> {
    let mut users = BTreeMap::<String, BTreeSet<Option<String>>>::new();
    for request in rooms.requests(room).await {
        assert_eq!(request["key"], "key-1", "{request}");
        if let Some(session) = request["session"].as_str() {
            users.entry(session.to_owned()).or_default().insert(request["user"].as_str().map(str::to_owned));
        }
    }
    users
}

#[tokio::test]
async fn each_call_is_made_in_a_session_of_its_user_and_the_tools_are_listed_in_one_without() {
    let rooms = Rooms::start().await;
    let (mut server, ann, bob) = rooms.server("a", &named()).await;
    let mut calls = Vec::new();
    for _ in 0..4 {
        for (person, user) in [(&ann, "t1/ann"), (&bob, "t2/bob")] {
            calls.push((person, hold(&mut server, person, user).await));
        }
    }
    // The same name in another tenant is another user.
    let other = server.client.as_user("t2", "ann", &[]);
    calls.push((&other, hold(&mut server, &other, "t2/ann").await));
    join_all(calls.iter().map(|(person, id)| person.approve(id))).await;
    for (person, id) in &calls {
        assert_eq!(person.becomes(id, "succeeded").await["output"], "done");
    }
    let called = rooms.requests_of("a", "tools/call").await;
    assert_eq!(called.len(), calls.len(), "each call is made once: {called:?}");
    for call in &called {
        assert_eq!(call["user"], call["note"]);
    }
    for listing in rooms.requests_of("a", "tools/list").await {
        assert_eq!(listing["user"], Value::Null, "{listing}");
    }
    let users = users(&rooms, "a").await;
    assert!(users.values().all(|users| users.len() == 1), "{users:?}");
    let begun = rooms.requests_of("a", "initialize").await;
    assert_eq!((begun.len(), users.len()), (4, 4), "a session for each user, and one that lists: {users:?}");
}

#[tokio::test]
async fn a_session_of_a_user_that_has_ended_is_begun_again_for_the_same_user_and_the_call_is_made_once() {
    let rooms = Rooms::start().await;
    let (mut server, ann, bob) = rooms.server("a", &named()).await;
    for (person, user) in [(&ann, "t1/ann"), (&bob, "t2/bob")] {
        assert_eq!(approved(&mut server, person, user).await["state"], "succeeded");
    }
    let (of_ann, of_bob) = (hold(&mut server, &ann, "t1/ann").await, hold(&mut server, &bob, "t2/bob").await);
    rooms.set("a", &json!({ "forget": true })).await;
    tokio::join!(bob.approve(&of_bob), ann.approve(&of_ann));
    assert_eq!(ann.becomes(&of_ann, "succeeded").await["output"], "done");
    assert_eq!(bob.becomes(&of_bob, "succeeded").await["output"], "done");
    let called = rooms.requests_of("a", "tools/call").await;
    assert_eq!(called.len(), 4, "{called:?}");
    assert!(called.iter().all(|call| call["user"] == call["note"]), "{called:?}");

    // With another status nothing says that the call was not made, and the session is not used again.
    tool(&ann, TOOL).await;
    let of_ann = hold(&mut server, &ann, "t1/ann").await;
    rooms.set("a", &json!({ "forget": true, "stale": 400 })).await;
    ann.approve(&of_ann).await;
    ann.becomes(&of_ann, "interrupted").await;
    tool(&ann, TOOL).await;
    assert_eq!(approved(&mut server, &ann, "t1/ann").await["state"], "succeeded");
    assert!(users(&rooms, "a").await.values().all(|users| users.len() == 1));
}

#[tokio::test]
async fn after_a_restart_of_the_server_each_user_has_a_session_again_and_no_other_one_is_used() {
    let rooms = Rooms::start().await;
    let (mut server, ann, bob) = rooms.server("a", &named()).await;
    for (person, user) in [(&ann, "t1/ann"), (&bob, "t2/bob")] {
        assert_eq!(approved(&mut server, person, user).await["state"], "succeeded");
    }
    let rooms = rooms.started_again().await;
    for (person, user) in [(&bob, "t2/bob"), (&ann, "t1/ann"), (&bob, "t2/bob")] {
        tool(person, TOOL).await;
        let call = approved(&mut server, person, user).await;
        assert_eq!((&call["state"], &call["output"]), (&json!("succeeded"), &json!("done")), "{call}");
    }
    let called = rooms.requests_of("a", "tools/call").await;
    assert_eq!(called.len(), 3);
    assert!(called.iter().all(|call| call["user"] == call["note"]), "{called:?}");
    assert!(users(&rooms, "a").await.values().all(|users| users.len() == 1));
}

#[tokio::test]
async fn a_user_that_no_header_can_name_has_a_failed_call_and_nothing_is_sent() {
    let rooms = Rooms::start().await;
    let (mut server, _, _) = rooms.server("a", &named()).await;
    for user in ["änn", "ann\u{202e}", " ann", "ann ", &"x".repeat(256)] {
        let person = server.client.as_user("t1", user, &[]);
        let call = approved(&mut server, &person, "n").await;
        if user.len() == 256 {
            assert_eq!(call["state"], "succeeded", "{call}");
            continue;
        }
        let why = "the header x-user cannot have the value of {user_id}: expected 1 to 256 visible characters of \
                   ASCII; the tool did not run";
        let expected = format!("The tool failed: {why}");
        assert_eq!((&call["state"], &call["result"]), (&json!("failed"), &json!(expected)), "{user:?}");
    }
    let begun = rooms.requests_of("a", "initialize").await;
    assert_eq!(begun.len(), 2, "{begun:?}");
    assert_eq!(rooms.requests_of("a", "tools/call").await.len(), 1);
}

#[tokio::test]
async fn sessions_make_room_for_others_only_while_no_call_uses_them() {
    let rooms = Rooms::start().await;
    let lines =
        json!({ "headers": { "x-user": "{thread_id} {session_id}", "x-key": "key-1" }, "timeout": "5m" });
    let (mut server, ann, _) = rooms.server("a", &lines).await;
    let waits = hold(&mut server, &ann, "wait").await;
    let thread = ann.call(&waits).await.text("thread_id").to_owned();
    let waiting = tokio::join!(ann.approve(&waits), async {
        let called = async || (!rooms.requests_of("a", "tools/call").await.is_empty()).then_some(());
        eventually("the call is made", called).await;
        for n in 0..70 {
            assert_eq!(approved(&mut server, &ann, &format!("n{n}")).await["state"], "succeeded");
        }
        let closed = async || (rooms.requests_of("a", "DELETE").await.len() >= 7).then_some(());
        eventually("the sessions that were used longest ago are closed", closed).await;
        rooms.set("a", &json!({ "go": true })).await;
    });
    assert_eq!(waiting.0.body["state"], "succeeded", "{:?}", waiting.0.body);
    let closed = rooms.requests_of("a", "DELETE").await;
    let user = format!("{thread} {thread}");
    assert!(closed.iter().all(|it| it["user"] != user), "the session of the call that waits is closed");
    assert_eq!(closed.len(), 7, "71 sessions, of which 64 stay");
    assert!(users(&rooms, "a").await.values().all(|users| users.len() == 1));
}

#[tokio::test]
async fn while_all_sessions_have_calls_a_call_of_one_more_caller_fails_and_nothing_of_it_is_sent() {
    let rooms = Rooms::start().await;
    let lines = json!({ "headers": { "x-user": "{user_id}", "x-key": "key-1" }, "timeout": "5m" });
    let (mut server, ann, _) = rooms.server("a", &lines).await;
    let mut decisions = JoinSet::new();
    for n in 0..64 {
        let person = server.client.as_user("t1", &format!("user-{n}"), &[]);
        let id = hold(&mut server, &person, "wait").await;
        // A decision answers once its call has ended.
        decisions.spawn(async move { person.approve(&id).await });
        let called = async || (rooms.requests_of("a", "tools/call").await.len() == n + 1).then_some(());
        eventually("the call is made", called).await;
    }
    let call = approved(&mut server, &ann, "n").await;
    let why = "The tool failed: its server has too many sessions now; the tool did not run";
    assert_eq!((&call["state"], &call["result"]), (&json!("failed"), &json!(why)));
    rooms.set("a", &json!({ "go": true })).await;
    for ended in decisions.join_all().await {
        assert_eq!(ended.body["state"], "succeeded", "{:?}", ended.body);
    }
    assert_eq!(approved(&mut server, &ann, "n").await["state"], "succeeded");
    let begun = rooms.requests_of("a", "initialize").await;
    assert_eq!(begun.len(), 66, "one lists, and one made room");
}

#[tokio::test]
async fn after_a_kill_the_next_process_polls_a_task_in_a_session_of_its_user() {
    let rooms = Rooms::start().await;
    let url = rooms.url("a/mcp");
    let entry = format!(
        "[[mcp]]\nname = \"s\"\nurl = \"{url}\"\nheaders = {{ x-user = \"{{tenant_id}}/{{user_id}}\", x-key = \"key-1\" }}\n"
    );
    let deployment = rooms.deployment(&entry).await;
    let mut server = deployment.start();
    let id = approved_in(&server.client, &json!({ "note": "task" })).await;
    let polled = async |more: usize| {
        let polled = async || (rooms.requests_of("a", "tasks/get").await.len() > more).then_some(());
        eventually("the task is polled", polled).await;
    };
    polled(0).await;
    server.kill();
    let before = rooms.requests_of("a", "tasks/get").await.len();
    let server = deployment.start();
    polled(before).await;
    rooms.set("a", &json!({ "completed": true })).await;
    assert_eq!(server.client.becomes(&id, "succeeded").await["output"], "done");
    for method in ["tools/call", "tasks/get"] {
        for request in rooms.requests_of("a", method).await {
            assert_eq!(request["user"], "default/local", "{request}");
        }
    }
    assert_eq!(rooms.requests_of("a", "tools/call").await.len(), 1);
}

#[tokio::test]
async fn a_server_that_begins_no_session_for_a_caller_says_why_and_keeps_its_tools() {
    let rooms = Rooms::start().await;
    let (mut server, ann, _) = rooms.server("a", &named()).await;
    rooms.set("a", &json!({ "unwanted": "t1/ann" })).await;
    let call = approved(&mut server, &ann, "n").await;
    let why = "The tool failed: its server began no session for this call: ";
    let result = call.text("result");
    assert_eq!(call["state"], "failed", "{call}");
    assert!(result.starts_with(why) && result.ends_with("; the tool did not run"), "{result}");
    assert!(!result.contains("key-1"), "{result}");
    tool(&ann, TOOL).await;
    rooms.set("a", &json!({ "unwanted": "" })).await;
    assert_eq!(approved(&mut server, &ann, "t1/ann").await["state"], "succeeded");
    drop(rooms);
    no_tool(&ann, TOOL).await;
}
