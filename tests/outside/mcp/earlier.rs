//! Servers with the transport of earlier versions, behind a proxy (`tests/mcp/rooms.mjs`).

use super::rooms::{Rooms, TOOL, approved};
use super::tool;
use holdpoint_testkit::eventually;
use serde_json::{Value, json};

/// The paths of the room that were not found.
async fn missed(rooms: &Rooms, path: &str) -> usize {
    rooms.requests_of("a", &format!("POST {path}")).await.len()
}

#[tokio::test]
async fn the_address_of_a_server_behind_a_proxy_may_lack_its_prefix_and_each_call_is_made_once() {
    let rooms = Rooms::start().await;
    rooms.set("a", &json!({ "endpoint": "/messages", "messages": "/a/messages" })).await;
    let lines = json!({ "url": rooms.url("a/sse") });
    let (mut server, ann, _) = rooms.server("a", &lines).await;
    for _ in 0..3 {
        assert_eq!(approved(&mut server, &ann, "n").await["output"], "done");
    }
    assert_eq!(rooms.requests_of("a", "tools/call").await.len(), 3);
    assert_eq!(missed(&rooms, "/messages").await, 1, "only the first message is tried at both addresses");
}

#[tokio::test]
async fn an_address_that_answers_is_not_changed() {
    let rooms = Rooms::start().await;
    rooms.set("a", &json!({ "endpoint": "/a/messages", "messages": "/a/messages" })).await;
    let (mut server, ann, _) = rooms.server("a", &json!({ "url": rooms.url("a/sse") })).await;
    assert_eq!(approved(&mut server, &ann, "n").await["output"], "done");
    assert_eq!(missed(&rooms, "/a/messages").await, 0);
}

#[tokio::test]
async fn the_log_names_the_address_that_a_stream_names_if_nothing_is_there() {
    let rooms = Rooms::start().await;
    rooms.set("a", &json!({ "endpoint": "/messages", "messages": "/b/other" })).await;
    let entry = format!("[[mcp]]\nname = \"s\"\nurl = \"{}\"\n", rooms.url("a/sse"));
    let server = rooms.deployment(&entry).await.start_logged();
    let words = format!("HTTP 404 Not Found at {}?stream=0, which its stream names", rooms.url("messages"));
    let is_said = async || server.printed().contains(&words).then_some(());
    eventually("the log has the address", is_said).await;
    assert!(missed(&rooms, "/a/messages").await > 0, "it was tried below the prefix too");
}

#[tokio::test]
async fn a_server_behind_a_proxy_gets_its_token_and_its_caller_too() {
    let rooms = Rooms::start().await;
    rooms.set("a", &json!({ "endpoint": "/messages", "messages": "/a/messages", "guarded": true })).await;
    let oauth = json!({ "client_id": "holdpoint", "client_secret": "a secret",
        "token_url": rooms.url("a/issuer/token") });
    let lines = json!({ "url": rooms.url("a/sse"), "oauth": oauth, "headers": { "x-user": "{user_id}" } });
    let (mut server, ann, bob) = rooms.server("a", &lines).await;
    for (person, user) in [(&ann, "ann"), (&bob, "bob"), (&ann, "ann")] {
        assert_eq!(approved(&mut server, person, user).await["output"], "done");
    }
    let called = rooms.requests_of("a", "tools/call").await;
    assert!(called.iter().all(|call| call["user"] == call["note"]), "{called:?}");
    rooms.set("a", &json!({ "refuse": true })).await;
    assert_eq!(approved(&mut server, &ann, "ann").await["output"], "done");
    let token = rooms.requests_of("a", "tools/call").await.pop().unwrap()["token"].clone();
    assert_eq!((token, rooms.issued("a").await.len()), (json!("token-2-of-a-room"), 2));
    assert_eq!(rooms.requests_of("a", "401").await.last().unwrap()["of"], Value::from("tools/call"));
    tool(&ann, TOOL).await;
}
