//! Access tokens that an issuer gives for a server (`tests/mcp/rooms.mjs`).

use super::rooms::{Rooms, TOOL, approved, hold};
use super::tool;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use holdpoint_testkit::{JsonFields, eventually};
use serde_json::{Value, json};

const SECRET: &str = "the-secret-of-a-client";

fn oauth(more: &Value) -> Value {
    let mut oauth = json!({ "client_id": "holdpoint", "client_secret": SECRET });
    oauth.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    json!({ "oauth": oauth })
}

#[tokio::test]
async fn the_issuer_that_the_server_names_gives_one_token_for_all_requests() {
    let rooms = Rooms::start().await;
    rooms.set("a", &json!({ "guarded": true })).await;
    let (mut server, ann, bob) = rooms.server("a", &oauth(&json!({}))).await;
    for person in [&ann, &bob, &ann] {
        assert_eq!(approved(&mut server, person, "n").await["state"], "succeeded");
    }
    let issued = rooms.issued("a").await;
    let basic = format!("Basic {}", STANDARD.encode(format!("holdpoint:{SECRET}")));
    let expected = json!({ "grant_type": "client_credentials", "scope": "use", "resource": rooms.url("a/mcp"),
        "authorization": basic });
    assert_eq!(issued, [expected]);
    let refused = rooms.requests_of("a", "401").await;
    assert_eq!(refused.len(), 1, "only the first request has no token: {refused:?}");
    assert!(refused[0]["token"].is_null());
    for call in rooms.requests_of("a", "tools/call").await {
        assert_eq!(call["token"], "token-1-of-a-room");
    }
}

#[tokio::test]
async fn what_the_entry_says_of_a_token_counts_and_the_well_known_address_is_found_without_a_challenge() {
    let rooms = Rooms::start().await;
    let methods = json!(["client_secret_post"]);
    rooms.set("a", &json!({ "guarded": true, "challenge": false, "methods": methods })).await;
    let more = json!({ "scope": "read write", "resource": "urn:a:server" });
    let (_server, ..) = rooms.server("a", &oauth(&more)).await;
    let expected = json!({ "grant_type": "client_credentials", "scope": "read write", "resource": "urn:a:server",
        "client_id": "holdpoint", "client_secret": SECRET });
    assert_eq!(rooms.issued("a").await, [expected]);
}

#[tokio::test]
async fn a_token_is_renewed_before_its_end_and_no_request_is_refused() {
    let rooms = Rooms::start().await;
    rooms.set("a", &json!({ "guarded": true, "expires": 2 })).await;
    let (mut server, ann, _) = rooms.server("a", &oauth(&json!({}))).await;
    for n in 0.. {
        assert!(n < 200, "the token is not renewed");
        assert_eq!(approved(&mut server, &ann, "n").await["state"], "succeeded");
        let last = rooms.requests_of("a", "tools/call").await.pop().unwrap();
        if last["token"] == "token-3-of-a-room" {
            break;
        }
    }
    assert_eq!(rooms.requests_of("a", "401").await.len(), 1, "only the first request");
    assert_eq!(rooms.requests_of("a", "initialize").await.len(), 1);
}

#[tokio::test]
async fn a_call_that_is_refused_is_made_once_with_another_token_and_fails_if_that_is_refused_too() {
    let rooms = Rooms::start().await;
    rooms.set("a", &json!({ "guarded": true })).await;
    let (mut server, ann, bob) = rooms.server("a", &oauth(&json!({}))).await;
    let (of_ann, of_bob) = (hold(&mut server, &ann, "a").await, hold(&mut server, &bob, "b").await);
    rooms.set("a", &json!({ "refuse": true })).await;
    tokio::join!(ann.approve(&of_ann), bob.approve(&of_bob));
    ann.becomes(&of_ann, "succeeded").await;
    bob.becomes(&of_bob, "succeeded").await;
    assert_eq!(rooms.requests_of("a", "tools/call").await.len(), 2);
    assert_eq!(rooms.issued("a").await.len(), 2, "both wait for one token");
    assert_eq!(rooms.requests_of("a", "initialize").await.len(), 1, "the connection stays");

    let of_ann = hold(&mut server, &ann, "c").await;
    rooms.set("a", &json!({ "refuse": true, "useless": true })).await;
    ann.approve(&of_ann).await;
    let call = ann.becomes(&of_ann, "failed").await;
    assert_eq!(call["result"], "The tool failed: its server wants other credentials; the tool did not run");
    assert_eq!(rooms.requests_of("a", "tools/call").await.len(), 2);

    // The issuer is better again, and so is the server.
    rooms.set("a", &json!({ "useless": false })).await;
    tool(&ann, TOOL).await;
    assert_eq!(approved(&mut server, &ann, "d").await["state"], "succeeded");
}

#[tokio::test]
async fn callers_have_their_own_sessions_and_one_token() {
    let rooms = Rooms::start().await;
    rooms.set("a", &json!({ "guarded": true })).await;
    let mut lines = oauth(&json!({ "issuer": rooms.url("a/issuer") }));
    lines["headers"] = json!({ "x-user": "{user_id}" });
    let (mut server, ann, bob) = rooms.server("a", &lines).await;
    for (person, user) in [(&ann, "ann"), (&bob, "bob")] {
        assert_eq!(approved(&mut server, person, user).await["state"], "succeeded");
    }
    let called = rooms.requests_of("a", "tools/call").await;
    assert!(called.iter().all(|call| call["user"] == call["note"]), "{called:?}");
    assert_eq!(rooms.issued("a").await.len(), 1);
    assert!(rooms.requests_of("a", "401").await.is_empty(), "the issuer is known before the first request");
}

#[tokio::test]
async fn the_secret_goes_to_no_other_issuer_and_the_log_says_why_there_is_no_token() {
    let rooms = Rooms::start().await;
    let mut entries = String::new();
    let (mut all, secret) =
        (Vec::new(), format!("client_id = \"holdpoint\"\nclient_secret = \"{SECRET}\"\n"));
    for (room, state, lines, why) in [
        (
            "other",
            json!({ "named": "https://other.example" }),
            String::new(),
            "is that of another issuer, https://other.example",
        ),
        (
            "foreign",
            json!({ "resource": "https://foreign.example/mcp" }),
            String::new(),
            "which is another server",
        ),
        ("silent", json!({ "document": false, "challenge": false }), String::new(), "has no metadata"),
        (
            "plain",
            json!({ "issuer": "http://plain.example" }),
            String::new(),
            "neither https:// nor on this machine",
        ),
        (
            "none",
            json!({ "methods": ["private_key_jwt"] }),
            String::new(),
            "takes neither client_secret_basic nor",
        ),
        (
            "denied",
            json!({ "error": { "error": "invalid_client", "error_description": format!("{SECRET} is wrong") } }),
            String::new(),
            "the issuer said: invalid_client: *** is wrong",
        ),
        (
            "direct",
            json!({ "error": { "error": "invalid_scope", "error_description": "no such scope" } }),
            format!("token_url = \"{}\"\n", rooms.url("direct/issuer/token")),
            "the issuer said: invalid_scope: no such scope",
        ),
    ] {
        let mut guarded = state.clone();
        guarded["guarded"] = json!(true);
        rooms.set(room, &guarded).await;
        let url = rooms.url(&format!("{room}/mcp"));
        entries += &format!("[[mcp]]\nname = \"{room}\"\nurl = \"{url}\"\n[mcp.oauth]\n{secret}{lines}");
        all.push((room, why));
    }
    let server = rooms.deployment(&entries).await.start_logged();
    let is_said = async || {
        let printed = server.printed();
        let lines = || printed.lines().filter(|line| line.contains("there is no access token"));
        let said = |(room, why): &(&str, &str)| {
            lines().any(|line| line.contains(&format!("\"server\":\"{room}\"")) && line.contains(why))
        };
        all.iter().all(said).then_some(())
    };
    eventually("the log says why there is no token", is_said).await;
    for (room, _) in &all {
        let issued = rooms.issued(room).await;
        assert_eq!(issued.is_empty(), !matches!(*room, "denied" | "direct"), "{room}: {issued:?}");
        assert!(rooms.requests_of(room, "tools/list").await.is_empty());
    }
    let direct = &rooms.issued("direct").await[0];
    assert!(direct["resource"].is_null() && direct["scope"].is_null(), "{direct}");
    let printed = server.finish();
    assert!(!printed.contains(SECRET), "{printed}");
}

#[tokio::test]
async fn a_server_that_names_another_issuer_later_gets_no_token_of_it() {
    let rooms = Rooms::start().await;
    rooms.set("a", &json!({ "guarded": true })).await;
    let (mut server, ann, _) = rooms.server("a", &oauth(&json!({}))).await;
    let id = hold(&mut server, &ann, "n").await;
    rooms.set("a", &json!({ "refuse": true, "issuer": rooms.url("b/issuer") })).await;
    ann.approve(&id).await;
    let call = ann.becomes(&id, "failed").await;
    assert_eq!(call["result"], "The tool failed: its server wants other credentials; the tool did not run");
    assert_eq!((rooms.issued("a").await.len(), rooms.issued("b").await.len()), (1, 0));
}

#[tokio::test]
async fn a_token_that_the_server_repeats_is_in_no_result() {
    let rooms = Rooms::start().await;
    rooms.set("a", &json!({ "guarded": true })).await;
    let (mut server, ann, _) = rooms.server("a", &oauth(&json!({}))).await;
    let call = approved(&mut server, &ann, "echo").await;
    assert_eq!(call["state"], "interrupted", "{call}");
    let result = call.text("result");
    assert!(result.ends_with("The server said: HTTP 500 Internal Server Error: bad token: ***"), "{result}");
}
