//! Rate limits and concurrency limits of a user.

use super::RawConnection;
use futures::future::join_all;
use holdpoint::config::Limits;
use holdpoint_testkit::{Answer, Client, Deployment, Embedded, Turn, eventually, token};
use serde_json::json;

/// A server that authenticates by tokens, with these limits.
async fn limited(change: impl FnOnce(&mut Limits)) -> Embedded {
    Embedded::with(|config| {
        token::with_tokens(config);
        change(&mut config.limits);
    })
    .await
}

/// Asserts a 429 with this message and a `retry-after` within the bound.
fn assert_limited(answer: &Answer, message: &str, at_most_seconds: u64) {
    assert_eq!((answer.status, answer.code(), answer.message()), (429, "rate_limited", message));
    let seconds: u64 = answer.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=at_most_seconds).contains(&seconds), "{seconds}");
}

fn limited_turn(turn: &Turn, message: &str) {
    let body: serde_json::Value = serde_json::from_str(&turn.raw).unwrap();
    assert_eq!(turn.refused(), (429, "rate_limited".to_owned()), "{}", turn.raw);
    assert_eq!(body["error"]["message"], message);
    assert!(turn.headers.contains_key("retry-after"));
}

#[tokio::test]
async fn e10_the_requests_of_a_user_in_a_minute_are_limited() {
    let app = limited(|limits| limits.requests_per_minute = Some(3)).await;
    let ada = app.client.as_user("acme", "ada", &[]);
    for path in ["/threads", "/nowhere", "/api/threads"] {
        assert_ne!(ada.get(path).await.status, 429, "{path}");
    }
    for _ in 0..3 {
        let refused = ada.post("/threads", &json!({})).await;
        assert_limited(&refused, "More than 3 requests in a minute.", 20);
    }
    assert_limited(&ada.get("/nowhere").await, "More than 3 requests in a minute.", 20);
    assert_eq!(app.rows.count("threads").await, 0, "nothing was done");
    // Another token of the same user shares the limit. Other users, and the same name in another tenant, do
    // not.
    app.client.as_user("acme", "ada", &["x"]).get("/threads").await.has_status(429);
    for (tenant, user) in [("acme", "bob"), ("umbra", "ada"), ("acme\"", "ada"), ("acm", "eada")] {
        assert_eq!(
            app.client.as_user(tenant, user, &[]).get("/threads").await.status,
            200,
            "{tenant} {user}"
        );
    }
    for path in ["/healthz", "/readyz", "/openapi.json"] {
        assert_eq!(ada.get(path).await.status, 200, "{path}: a public path");
    }
    for _ in 0..5 {
        assert_eq!(
            app.client.get("/threads").await.status,
            401,
            "an unauthenticated request gets a 401, not a 429"
        );
    }
}

#[tokio::test]
async fn e10_a_user_may_continue_after_the_retry_after_time_on_sqlite() {
    let app = limited(|limits| limits.requests_per_minute = Some(60)).await;
    let ada = app.client.as_user("acme", "ada", &[]);
    let refused = async || Some(ada.get("/tools").await).filter(|answer| answer.status == 429);
    let refused = eventually("there were too many", refused).await;
    assert_limited(&refused, "More than 60 requests in a minute.", 1);
    let again = async || (ada.post("/threads", &json!({})).await.status == 201).then_some(());
    eventually("the user may continue", again).await;
}

#[tokio::test]
async fn e10_the_turns_of_a_user_in_a_minute_are_limited() {
    let app = limited(|limits| limits.turns_per_minute = Some(2)).await;
    let ada = app.client.as_user("acme", "ada", &[]);
    let (one, two) = (ada.thread().await, ada.thread().await);
    for _ in 0..4 {
        app.scene.answers("ok");
    }
    ada.send_message(&one, "hi").await.has_status(200);
    ada.turn_by_id(&json!({ "id": "mine", "content": "hi" })).await.has_status(200);
    let message = "More than 2 turns in a minute.";
    limited_turn(&ada.send_message(&two, "hi").await, message);
    limited_turn(&ada.turn_by_id(&json!({ "id": "other", "content": "hi" })).await, message);
    let under_api = ada.post(&format!("/api/qa/chat_streamed/{two}"), &json!({ "content": "hi" })).await;
    assert_limited(&under_api, message, 30);
    assert_eq!(app.scene.requests().len(), 2);
    assert_eq!(app.rows.count("threads").await, 3, "none was made for a turn that was refused");
    assert_eq!(app.rows.count("messages").await, 4);
    // A request that does not ask the model is no turn, and another user has a separate limit.
    ada.get(&format!("/qa/chat_streamed/{one}")).await.has_status(200);
    assert_eq!(ada.resume(&one).await.refused(), (409, "nothing_to_continue".to_owned()));
    let bob = app.client.as_user("acme", "bob", &[]);
    let his = bob.thread().await;
    bob.send_message(&his, "hi").await.has_status(200);
}

#[tokio::test]
async fn e10_a_turn_counts_however_it_starts() {
    let app = limited(|limits| limits.turns_per_minute = Some(3)).await;
    let ada = app.client.as_user("acme", "ada", &[]);
    let threads = [ada.thread().await, ada.thread().await];
    for thread in &threads {
        app.scene.calls(&[holdpoint_testkit::call("a", "pay", &json!({ "note": "10" }))]);
        let call = ada.send_message(thread, "pay").await.pending()[0].clone();
        assert_eq!(
            ada.resume(thread).await.status,
            200,
            "the turn reports the pending call and asks no model"
        );
        ada.approve(&call).await.has_status(200);
    }
    // A page that attaches lets the model read the decision.
    let looks = |thread: &str| ada.read(ada.http.get(ada.url(&format!("/qa/chat_streamed/{thread}"))));
    app.scene.answers("Paid.");
    assert_eq!(looks(&threads[0]).await.text(), "Paid.");
    let message = "More than 3 turns in a minute.";
    limited_turn(&looks(&threads[1]).await, message);
    limited_turn(&ada.resume(&threads[1]).await, message);
    assert_eq!(looks(&threads[0]).await.status, 200, "there is nothing to continue");
    assert_eq!(app.scene.requests().len(), 3);
    assert_eq!(app.rows.count("runs WHERE status = 'waiting'").await, 1);
}

#[tokio::test]
async fn b15_the_decisions_of_a_user_in_a_minute_are_limited_however_the_id_is_spelled() {
    let app = Embedded::with(|config| config.limits.decisions_per_minute = Some(3)).await;
    let (_, id) = app.held("pay", "10").await;
    let spelled = [id.to_uppercase(), format!("{{{id}}}"), format!("urn:uuid:{id}")];
    for other in &spelled {
        assert_eq!(app.client.approve(other).await.status, 404, "{other}");
    }
    for spelling in spelled.iter().chain([&id]) {
        assert_limited(&app.client.approve(spelling).await, "More than 3 decisions in a minute.", 20);
    }
    assert_eq!(app.client.call(&id).await["state"], "pending");
    assert_eq!(app.ledger.lines(), Vec::<String>::new());
}

#[tokio::test]
async fn e5_the_concurrent_streams_of_a_user_are_limited() {
    let app = limited(|limits| limits.streams_per_user = Some(2)).await;
    let (ada, bob) = (app.client.as_user("acme", "ada", &[]), app.client.as_user("acme", "bob", &[]));
    let threads = [ada.thread().await, ada.thread().await, ada.thread().await];
    let gate = app.scene.gate();
    for _ in 0..3 {
        app.scene.answers("ok");
    }
    let first = ada.begin(&threads[0], &json!("hi")).await;
    let along = ada.http.get(ada.url(&format!("/qa/chat_streamed/{}", threads[0]))).send().await.unwrap();
    assert_eq!((first.status().as_u16(), along.status().as_u16()), (200, 200));

    let message = "More than 2 streams of this user at once.";
    limited_turn(&ada.send_message(&threads[1], "hi").await, message);
    limited_turn(&ada.turn_by_id(&json!({ "id": "new", "content": "hi" })).await, message);
    for path in [format!("/qa/chat_streamed/{}", threads[1]), "/qa/chat_streamed?chatId=x".to_owned()] {
        assert_limited(&ada.get(&path).await, message, 5);
    }
    assert_eq!(app.rows.count("messages").await, 2, "nothing was begun");
    assert_eq!(ada.get("/threads").await.status, 200, "only streams count");
    let his = bob.thread().await;
    let other = bob.begin(&his, &json!("hi")).await;
    assert_eq!(other.status(), 200);

    // A client that disconnects frees its stream slot, although the turn continues.
    drop(along);
    let room = async || {
        let response = ada.begin(&threads[1], &json!("hi")).await;
        (response.status() == 200).then_some(response)
    };
    let second = eventually("there is room", room).await;
    gate.add_permits(100);
    for response in [first, second, other] {
        assert_eq!(ada.read_on(response).await.text(), "ok");
    }
    // The end of a stream frees its slot too.
    let over = async || (ada.begin(&threads[2], &json!("hi")).await.status() == 200).then_some(());
    eventually("there is room again", over).await;
}

#[tokio::test]
async fn e5_the_concurrent_chat_bodies_of_a_user_are_limited_like_streams_on_sqlite() {
    let app = limited(|limits| limits.streams_per_user = Some(2)).await;
    let token = format!("authorization: Bearer {}", token::token("acme", "ada", &[]));
    let lines = ["content-type: application/json", "content-length: 16", "expect: 100-continue", &token];
    let asks = async |path: &str| {
        let mut other_user = RawConnection::to(&app.client).await;
        other_user.writes(other_user.head(&format!("POST {path}"), &lines)).await;
        other_user
    };
    let mut reading = Vec::new();
    for path in ["/qa/chat_streamed", "/api/qa/chat_streamed/x"] {
        let mut other_user = asks(path).await;
        assert!(other_user.answer_head().await.starts_with("http/1.1 100 "), "its body is read");
        reading.push(other_user);
    }
    let reply = asks("/qa/chat_streamed/x").await.answer().await;
    assert_eq!((reply.status, reply.code().as_str()), (429, "rate_limited"), "{}", reply.body);
    assert_eq!(reply.message(), "More than 2 streams of this user at once.");
    for mut other_user in reading {
        other_user.writes(r#"{"content":"hi"}"#).await;
        assert!([400, 404].contains(&other_user.answer().await.status));
    }
    assert_eq!(asks("/qa/chat_streamed/x").await.answer_head().await.get(..13), Some("http/1.1 100 "));
}

#[tokio::test]
async fn e10_the_running_turns_of_a_user_are_limited() {
    let app = limited(|limits| limits.turns_per_user = Some(2)).await;
    let (ada, bob) = (app.client.as_user("acme", "ada", &[]), app.client.as_user("acme", "bob", &[]));
    let threads = [ada.thread().await, ada.thread().await, ada.thread().await];
    // One thread has an answer that the model has not read.
    app.scene.calls(&[holdpoint_testkit::call("a", "pay", &json!({ "note": "10" }))]);
    let call = ada.send_message(&threads[2], "pay").await.pending()[0].clone();
    ada.approve(&call).await.has_status(200);

    let gate = app.scene.gate();
    for _ in 0..5 {
        app.scene.answers("ok");
    }
    let first = ada.begin(&threads[0], &json!("hi")).await;
    let second = ada.begin(&threads[1], &json!("hi")).await;
    assert_eq!((first.status().as_u16(), second.status().as_u16()), (200, 200));
    let message = "More than 2 turns of this user at once.";
    limited_turn(&ada.resume(&threads[2]).await, message);
    limited_turn(&ada.send_message(&threads[2], "hi").await, message);
    limited_turn(&ada.turn_by_id(&json!({ "id": "new", "content": "hi" })).await, message);
    assert_limited(&ada.get(&format!("/qa/chat_streamed/{}", threads[2])).await, message, 5);
    assert_eq!(app.rows.count("threads").await, 3);
    assert_eq!(app.rows.count("messages WHERE role = 'user'").await, 3);
    assert_eq!(app.rows.count("runs WHERE status = 'running'").await, 2);
    // Attaching to a running turn counts as no turn, and another user has a separate limit.
    assert_eq!(ada.begin_resume(&threads[0]).await.status(), 200);
    let his = bob.thread().await;
    let other = bob.begin(&his, &json!("hi")).await;
    assert_eq!(other.status(), 200);

    gate.add_permits(100);
    for response in [first, second, other] {
        assert_eq!(ada.read_on(response).await.text(), "ok");
    }
    assert_eq!(ada.resume(&threads[2]).await.text(), "ok", "the turn could still be continued");
}

#[tokio::test]
async fn e10_the_running_turns_of_a_tenant_are_limited() {
    let app = limited(|limits| limits.turns_per_tenant = Some(2)).await;
    let gate = app.scene.gate();
    let mut started = Vec::new();
    for (tenant, user, status) in [
        ("acme", "ada", 200),
        ("acme", "bob", 200),
        ("acme", "cyd", 429),
        ("acme", "ada", 429),
        ("umbra", "ada", 200),
    ] {
        app.scene.answers("ok");
        let client = app.client.as_user(tenant, user, &[]);
        let thread = client.thread().await;
        let response = client.begin(&thread, &json!("hi")).await;
        assert_eq!(response.status(), status, "{tenant} {user}");
        if status == 200 {
            started.push(response);
        } else {
            let refused = client.read_on(response).await;
            limited_turn(&refused, "More than 2 turns of this tenant at once.");
        }
    }
    gate.add_permits(100);
    for response in started {
        assert_eq!(app.client.read_on(response).await.text(), "ok");
    }
}

#[tokio::test]
async fn e10_turns_that_start_concurrently_do_not_exceed_the_limit() {
    let app = limited(|limits| limits.turns_per_user = Some(3)).await;
    let ada = app.client.as_user("acme", "ada", &[]);
    let gate = app.scene.gate();
    let mut threads = Vec::new();
    for _ in 0..12 {
        app.scene.answers("ok");
        threads.push(ada.thread().await);
    }
    let begins = threads.iter().map(async |thread| ada.begin(thread, &json!("hi")).await);
    let responses = join_all(begins).await;
    let (started, refused): (Vec<_>, Vec<_>) =
        responses.into_iter().partition(|response| response.status() == 200);
    assert_eq!((started.len(), refused.len()), (3, 9));
    assert!(refused.iter().all(|response| response.status() == 429));
    assert_eq!(app.rows.count("runs WHERE status = 'running'").await, 3);
    gate.add_permits(100);
    for response in started {
        assert_eq!(ada.read_on(response).await.text(), "ok");
    }
}

#[tokio::test]
async fn a_turn_with_an_expired_lease_does_not_count() {
    let app = Embedded::with(|config| config.limits.turns_per_user = Some(1)).await;
    let (one, two) = (app.client.thread().await, app.client.thread().await);
    let gate = app.scene.gate();
    app.scene.answers("ok").answers("ok");
    let first = app.client.begin(&one, &json!("hi")).await;
    limited_turn(&app.client.send_message(&two, "hi").await, "More than 1 turns of this user at once.");
    assert_eq!(app.rows.change("UPDATE runs SET lease_until = 1").await, Ok(1));
    let second = app.client.begin(&two, &json!("hi")).await;
    assert_eq!(second.status(), 200);
    gate.add_permits(100);
    assert_eq!(app.client.read_on(second).await.text(), "ok");
    drop(first);
}

#[tokio::test]
async fn turns_are_counted_over_all_processes_on_postgres() {
    let deployment = Deployment::on_postgres().await;
    let limits = [("HOLDPOINT_LIMITS__TURNS_PER_USER", "2")];
    let servers = [deployment.start_with("0s", &limits), deployment.start_with("0s", &limits)];
    let clients: Vec<&Client> = servers.iter().map(|server| &server.client).collect();
    let mut threads = Vec::new();
    for _ in 0..10 {
        threads.push(clients[0].thread().await);
    }
    let begins = threads
        .iter()
        .enumerate()
        .map(async |(n, thread)| clients[n % 2].begin(thread, &json!({ "content": "think" })).await);
    let (started, refused): (Vec<_>, Vec<_>) =
        join_all(begins).await.into_iter().partition(|response| response.status() == 200);
    assert_eq!((started.len(), refused.len()), (2, 8));
    assert!(refused.iter().all(|response| response.status() == 429));
    deployment.release();
    for response in started {
        assert_eq!(clients[0].read_on(response).await.text(), "Half an answer.");
    }
}
