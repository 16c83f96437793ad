//! The caller's own name for a thread, in place of its id, on every route; and the routes that need only that
//! name: a Stop button, and the search of a thread by its name.

use holdpoint_testkit::token::with_tokens;
use holdpoint_testkit::{Client, Embedded, JsonFields, Sse, call, eventually};
use reqwest::{Method, Url};
use serde_json::{Value, json};

/// Names as pages make them: plain, with characters that an address must encode, and in the form of an id.
const NAMES: [&str; 3] = ["chat-1", "über/50% & ?a=1#b", "5b0c7a50-0a0c-4a52-9d3c-0f6f4a3a7c11"];

/// The name as a segment of a path.
fn segment(name: &str) -> String {
    let mut url = Url::parse("http://x").unwrap();
    url.path_segments_mut().unwrap().push(name);
    url.path()[1..].to_owned()
}

/// The path with this parameter of the query.
fn with_query(path: &str, key: &str, value: &str) -> String {
    let mut url = Url::parse("http://x").unwrap();
    url.query_pairs_mut().append_pair(key, value);
    format!("{path}?{}", url.query().unwrap())
}

/// Has the model request a call in the thread with this name, which the message makes. Returns the ids of the
/// thread and the call.
async fn held_under(app: &Embedded, client: &Client, name: &str) -> (String, String) {
    app.scene.calls(&[call("p-1", "pay", &json!({ "note": "1" }))]);
    let turn = client.turn_by_id(&json!({ "id": name, "content": "please pay 1" })).await;
    assert_eq!(turn.status, 200, "{}", turn.raw);
    (turn.headers["x-thread-id"].to_str().unwrap().to_owned(), turn.pending().pop().unwrap())
}

async fn put(client: &Client, path: &str, body: &Value) -> (u16, Value) {
    let answer = client.send(client.http.put(client.url(path)).json(body)).await;
    (answer.status, answer.body)
}

#[tokio::test]
async fn every_get_of_a_thread_or_session_answers_the_name_as_it_answers_the_id() {
    let app = Embedded::start().await;
    let document = app.client.get("/openapi.json").await.body;
    for name in NAMES {
        let (thread, _) = held_under(&app, &app.client, name).await;
        let mut compared = 0;
        for (path, item) in document["paths"].as_object().unwrap() {
            if item.get("get").is_none() || !(path.contains("{thread_id}") || path.contains("{session_id}")) {
                continue;
            }
            let with = |value: &str| {
                let value = segment(value);
                let path = path.replace("{thread_id}", &value).replace("{session_id}", &value);
                path.replace("{chat_id}", &value)
            };
            let (by_id, by_name) = (app.client.get(&with(&thread)).await, app.client.get(&with(name)).await);
            assert!([200, 204].contains(&by_id.status), "{path}: {by_id:?}");
            assert_eq!((by_name.status, by_name.body), (by_id.status, by_id.body), "{name:?} {path}");
            compared += 1;
        }
        assert!(compared >= 6, "{compared}");
        let inbox = |value: &str| with_query("/approvals", "session_id", value);
        let (by_id, by_name) = (app.client.get(&inbox(&thread)).await, app.client.get(&inbox(name)).await);
        assert_eq!((by_id.status, by_id.body.list("results").len()), (200, 1));
        assert_eq!((by_name.status, by_name.body), (200, by_id.body), "{name:?}");
        let found = app.client.get(&with_query("/threads", "client_id", name)).await.body;
        assert_eq!(found["results"][0]["thread_id"], json!(thread), "{name:?}");
        assert_eq!((found.list("results").len(), &found["has_more"]), (1, &json!(false)));
    }
    let none = app.client.get("/threads?client_id=nothing").await;
    assert_eq!((none.status, &none.body), (200, &json!({ "results": [], "has_more": false })));
    app.client.get("/threads?client_id=a%00b").await.has_status(400);
}

#[tokio::test]
async fn every_change_of_a_thread_or_session_takes_the_name() {
    let app = Embedded::start().await;
    for name in NAMES {
        let (thread, held) = held_under(&app, &app.client, name).await;
        let name = segment(name);
        let renamed = app.client.patch(&format!("/threads/{name}"), &json!({ "title": "Mine" })).await;
        assert_eq!((renamed.status, &renamed.body["thread_id"]), (200, &json!(thread)));
        assert_eq!(app.client.get(&format!("/threads/{thread}")).await.body["title"], "Mine");
        let policy = json!({ "tools": { "look": "deny" } });
        let (status, set) = put(&app.client, &format!("/sessions/{name}/policy"), &policy).await;
        assert_eq!((status, &set["tools"]), (200, &policy["tools"]));
        let decision = json!({ "decision": "allow_session" });
        let decided = app.client.post(&format!("/sessions/{name}/approvals/{held}"), &decision).await;
        decided.has(200, "success", true);
        app.client.becomes(&held, "succeeded").await;
        let grants = app.client.get(&format!("/sessions/{name}/grants")).await.body;
        let grant = grants["results"][0].text("grant_id");
        app.client.delete(&format!("/sessions/{name}/grants/{grant}")).await.has_status(204);
        app.client.delete(&format!("/sessions/{name}/grants/{grant}")).await.has_status(404);
        let cancelled = app.client.post(&format!("/sessions/{name}/cancel"), &Value::Null).await;
        assert!([200, 202].contains(&cancelled.status), "{cancelled:?}");
        app.client.delete(&format!("/threads/{name}")).await.has_status(204);
        for gone in [format!("/threads/{name}"), format!("/threads/{thread}/messages")] {
            assert_eq!(app.client.get(&gone).await.status, 404, "{gone}");
        }
    }
    // The scripted model has answered the resumed runs, or they were cancelled: nothing of it matters here.
    app.scene.forget();
    app.client.turn_by_id(&json!({ "id": "root", "content": "hi" })).await;
    let child = app.client.post("/threads", &json!({ "parent_id": "root" })).await;
    let root = app.client.get("/threads/root").await.body;
    assert_eq!((child.status, &child.body["parent_id"]), (201, &root["thread_id"]));
    let orphan = app.client.post("/threads", &json!({ "parent_id": "nothing" })).await;
    orphan.failed_with(400, "bad_request");
}

#[tokio::test]
async fn an_id_comes_before_a_name_in_the_form_of_that_id() {
    let app = Embedded::start().await;
    let thread = app.client.thread().await;
    app.scene.answers("Hello.");
    let by_chat = app.client.turn_by_id(&json!({ "id": thread, "content": "hi" })).await;
    assert_eq!(by_chat.headers["x-thread-id"], thread.as_str());
    assert_eq!(app.client.get(&format!("/threads/{thread}")).await.body.get("client_id"), None);
}

#[tokio::test]
async fn the_name_of_another_user_is_as_unknown_as_a_made_up_one() {
    let mut app = Embedded::with(with_tokens).await;
    let anonymous = app.client.clone();
    let ann = anonymous.as_user("acme", "ann", &[]);
    app.client = ann.clone();
    for name in ["chat", NAMES[2]] {
        let (thread, held) = held_under(&app, &ann, name).await;
        for (tenant, user) in [("acme", "bob"), ("other", "ann")] {
            let other_user = anonymous.as_user(tenant, user, &[]);
            let unknown = if name == "chat" { "nothing" } else { "5b0c7a50-0a0c-4a52-9d3c-0f6f4a3a7c12" };
            for (method, path) in [
                (Method::GET, "/threads/{}"),
                (Method::DELETE, "/threads/{}"),
                (Method::GET, "/threads/{}/messages"),
                (Method::GET, "/threads/{}/approvals"),
                (Method::POST, "/threads/{}/cancel"),
                (Method::POST, "/threads/{}/turns"),
                (Method::GET, "/sessions/{}/policy"),
                (Method::GET, "/sessions/{}/grants"),
                (Method::GET, "/sessions/{}/approvals"),
                (Method::POST, "/sessions/{}/cancel"),
            ] {
                let ask = async |name: &str| {
                    let url = other_user.url(&path.replace("{}", name));
                    other_user.send(other_user.http.request(method.clone(), url)).await
                };
                let (theirs, none) = (ask(name).await, ask(unknown).await);
                assert_eq!((theirs.status, theirs.body), (404, none.body), "{method} {path} {name}");
            }
            let deny = json!({ "decision": "deny" });
            let decided = other_user.post(&format!("/sessions/{name}/approvals/{held}"), &deny).await;
            decided.has_status(404);
            let found = other_user.get(&with_query("/threads", "client_id", name)).await.body;
            assert_eq!(found["results"], json!([]));
        }
        // A name is the user's own: the same name leads bob to a thread of his own.
        let bob = anonymous.as_user("acme", "bob", &[]);
        app.scene.answers("Hello.");
        bob.turn_by_id(&json!({ "id": name, "content": "hi" })).await;
        assert_ne!(bob.get(&format!("/threads/{name}")).await.body["thread_id"], json!(thread));
        assert_eq!(ann.get(&format!("/threads/{name}")).await.body["thread_id"], json!(thread));
        assert_eq!(ann.call(&held).await["state"], "pending");
    }
}

#[tokio::test]
async fn an_unknown_name_counts_as_a_decision_with_an_unknown_id() {
    let app = Embedded::with(|config| {
        config.limits.decisions_per_minute = Some(2);
    })
    .await;
    let call = "01890a5d-ac96-774b-bcce-b302099a8057";
    let mut statuses = Vec::new();
    for _ in 0..3 {
        let path = format!("/sessions/nothing/approvals/{call}");
        statuses.push(app.client.post(&path, &json!({ "decision": "deny" })).await.status);
    }
    assert_eq!(statuses, [404, 404, 429]);
}

#[tokio::test]
async fn a_stream_of_events_selects_a_thread_by_its_name() {
    let app = Embedded::start().await;
    for name in NAMES {
        app.scene.answers("Hello.");
        app.client.turn_by_id(&json!({ "id": name, "content": "hi" })).await;
        let thread = app.client.get(&format!("/threads/{}", segment(name))).await.body["thread_id"].clone();
        for key in ["thread_id", "session_id"] {
            let mut stream = Sse::open(&app.client, &with_query("/events", key, name)).await;
            app.scene.answers("Elsewhere.").answers("Here.");
            app.client.turn_by_id(&json!({ "id": "another", "content": "hi" })).await;
            app.client.turn_by_id(&json!({ "id": name, "content": "hi" })).await;
            let event = stream.next().await.unwrap();
            assert_eq!(
                (&event["thread_id"], &event["type"]),
                (&thread, &json!("run.started")),
                "{name} {key}"
            );
        }
    }
    for key in ["thread_id", "session_id"] {
        let unknown = app.client.get(&with_query("/events", key, "nothing")).await;
        unknown.failed_with(404, "not_found");
    }
}

async fn stop(client: &Client, name: &str) -> (u16, Vec<Value>) {
    let stopped = client.send(client.http.post(client.url(&format!("/threads/{name}/cancel")))).await;
    (stopped.status, stopped.body["results"].as_array().cloned().unwrap_or_default())
}

#[tokio::test]
async fn a_stop_button_cancels_what_runs_or_waits_in_its_thread_and_nothing_else() {
    let app = Embedded::start().await;
    let (_, elsewhere) = held_under(&app, &app.client, "another").await;
    let (thread, held) = held_under(&app, &app.client, "chat").await;
    let child = app.client.post("/threads", &json!({ "parent_id": "chat" })).await.body;
    let below = app.hold_in(child.text("thread_id"), "pay", "2").await;
    let (status, results) = stop(&app.client, "chat").await;
    assert_eq!((status, results.len()), (200, 1), "{results:?}");
    assert_eq!((&results[0]["thread_id"], &results[0]["status"]), (&json!(thread), &json!("cancelled")));
    assert_eq!(app.client.call(&held).await["state"], "cancelled");
    for other in [&elsewhere, &below] {
        assert_eq!(app.client.call(other).await["state"], "pending", "another thread");
    }
    assert_eq!(stop(&app.client, "chat").await, (200, vec![]), "nothing runs or waits");

    // A turn in progress stops where it is.
    app.scene.answers("Half an answer.");
    let gate = app.scene.gate();
    gate.add_permits(1);
    let stopping = async {
        let runs = async || {
            let found = app.client.get("/threads/chat").await.body;
            found.get("active_run_id").is_some().then_some(()).filter(|()| gate.available_permits() == 0)
        };
        eventually("the model speaks", runs).await;
        stop(&app.client, "chat").await
    };
    let (turn, (status, results)) = tokio::join!(app.client.send_message("chat", "go on"), stopping);
    assert_eq!((status, &results[0]["status"]), (200, &json!("cancelled")));
    assert_eq!(turn.text(), "Half an answer.");
    assert_eq!(stop(&app.client, "nothing").await.0, 404);
    assert_eq!(app.ledger.lines(), Vec::<String>::new());
}
