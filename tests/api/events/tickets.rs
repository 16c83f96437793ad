//! Tickets, which replace a token in a URL.

use futures::future::join_all;
use holdpoint_testkit::ticket::{content, signed as signed_ticket};
use holdpoint_testkit::token::{self, changed, claims, signed, with_tokens};
use holdpoint_testkit::{Client, Embedded, JsonFields, Rows, Socket, Sse, postgres, probes};
use serde_json::json;

async fn ticket(client: &Client) -> String {
    let made = client.post("/tickets", &json!({})).await;
    made.has_status(201);
    assert!(made.body.text("expires_at").ends_with('Z'));
    made.body.text("ticket").to_owned()
}

async fn key(rows: &Rows) -> String {
    let keys = rows.all("SELECT signing_key FROM ticket_keys").await;
    assert_eq!(keys.len(), 1);
    keys[0].text("signing_key").to_owned()
}

#[tokio::test]
async fn d10_a_ticket_opens_one_stream_for_its_user() {
    let mut app = Embedded::with(with_tokens).await;
    let nobody = app.client.clone();
    app.client = nobody.as_user("acme", "alice", &[]);
    for events in ["/events", "/api/events", "/events/stream", "/api/events/stream"] {
        let path = format!("{events}?after=0&ticket={}", ticket(&app.client).await);
        let mut stream = Sse::open(&nobody, &path).await;
        assert_eq!(nobody.get(&path).await.status, 401, "it is used");
        let (thread, _) = app.held("pay", events.len().to_string().as_str()).await;
        while stream.next().await.unwrap()["thread_id"] != thread.as_str() {}
    }
    let path = format!("/ws?ticket={}", ticket(&app.client).await);
    assert!(Socket::open(&nobody, &path, &[]).await.is_ok());
    assert_eq!(Socket::open(&nobody, &path, &[]).await.err(), Some(401), "it is used");
    assert_eq!(app.rows.count("used_tickets").await, 5);
}

#[tokio::test]
async fn one_of_several_concurrent_requests_with_the_same_ticket_is_accepted() {
    let app = Embedded::with(with_tokens).await;
    let path = format!("/ws?ticket={}", ticket(&app.client.as_user("acme", "alice", &[])).await);
    let opened = join_all((0..8).map(|_| Socket::open(&app.client, &path, &[]))).await;
    assert_eq!(opened.iter().filter(|socket| socket.is_ok()).count(), 1);
    assert!(opened.iter().all(|socket| socket.as_ref().err().is_none_or(|status| *status == 401)));
}

#[tokio::test]
async fn d10_a_ticket_is_valid_at_no_other_route_and_expires_soon() {
    let app = Embedded::with(with_tokens).await;
    let alice = app.client.as_user("acme", "alice", &[]);
    let good = ticket(&alice).await;
    for path in [
        "/threads",
        "/approvals",
        "/eventsx",
        "/events/x",
        "/runs/x/events",
        "/runs/x/events/stream",
        "/tickets",
    ] {
        assert_eq!(app.client.get(&format!("{path}?ticket={good}")).await.status, 401, "{path}");
    }
    for wrong in ["", "x", &good[1..], &good.to_uppercase(), &format!("{good}=")] {
        assert_eq!(app.client.get(&format!("/events?ticket={wrong}")).await.status, 401, "{wrong:?}");
    }
    let twice = format!("/events?ticket={good}&ticket={good}");
    app.client.get(&twice).await.has_status(401);
    app.client.post("/tickets", &json!({})).await.has_status(401);
    let key = key(&app.rows).await;
    let (now, output) = (token::now() * 1_000_000, content(&good));
    let left = output["expires_at"].as_i64().unwrap() - now;
    assert!((0..=31_000_000).contains(&left), "{left}");
    let over = signed_ticket(&changed(output.clone(), &json!({ "expires_at": now - 1 })), &key);
    app.client.get(&format!("/events?ticket={over}")).await.has_status(401);
    assert_eq!(app.rows.count("used_tickets").await, 0, "nothing was used up");
    let not_over = signed_ticket(&changed(output, &json!({ "expires_at": now + 5_000_000 })), &key);
    Sse::open(&app.client, &format!("/events?ticket={not_over}")).await;
    assert_eq!(app.client.get(&format!("/events?ticket={good}")).await.status, 401, "both are the same one");
}

#[tokio::test]
async fn a_used_ticket_is_kept_past_its_expiry_and_then_removed() {
    let app = Embedded::with(with_tokens).await;
    let alice = app.client.as_user("acme", "alice", &[]);
    let id = |n: u8| format!("01890a5d-ac96-774b-bcce-b302099a80{n:02}");
    let now = token::now();
    for (n, over_for) in [(10, 1), (11, 600), (12, 700), (13, 100_000)] {
        let expires_at = (now - over_for) * 1_000_000;
        let used = format!("INSERT INTO used_tickets VALUES ('{}', {expires_at})", id(n));
        assert_eq!(app.rows.change(&used).await, Ok(1));
    }
    Sse::open(&app.client, &format!("/events?ticket={}", ticket(&alice).await)).await;
    let left = app.rows.all("SELECT ticket_id FROM used_tickets ORDER BY expires_at").await;
    assert_eq!(left[..2], [json!({ "ticket_id": id(11) }), json!({ "ticket_id": id(10) })]);
    assert_eq!(left.len(), 3);
}

#[tokio::test]
async fn a_ticket_outlives_a_restart_and_not_its_signing_key() {
    let app = Embedded::with(with_tokens).await;
    let alice = app.client.as_user("acme", "alice", &["approver"]);
    let (good, other) = (ticket(&alice).await, ticket(&alice).await);
    let before = key(&app.rows).await;
    let app = app.redeploy_with(probes(&holdpoint_testkit::Ledger::new()), with_tokens).await;
    assert_eq!(key(&app.rows).await, before);
    assert!(Socket::open(&app.client, &format!("/ws?ticket={good}"), &[]).await.is_ok());
    assert_eq!(app.rows.change("DELETE FROM ticket_keys").await, Ok(1));
    let app = app.redeploy_with(probes(&holdpoint_testkit::Ledger::new()), with_tokens).await;
    assert_ne!(key(&app.rows).await, before);
    assert_eq!(Socket::open(&app.client, &format!("/ws?ticket={other}"), &[]).await.err(), Some(401));
}

#[tokio::test]
async fn servers_that_start_together_share_one_key_and_accept_a_ticket_once_on_postgres() {
    let url = postgres().await;
    let server = || {
        Embedded::with(|config| {
            with_tokens(config);
            config.database.url = url.clone().into();
        })
    };
    let (one, two, three) = tokio::join!(server(), server(), server());
    key(&one.rows).await;
    let alice = one.client.as_user("acme", "alice", &[]);
    for n in 0..3 {
        let path = format!("/ws?ticket={}", ticket(&alice).await);
        let clients = [&one, &two, &three].map(|server| server.client.clone());
        let opened = join_all(clients.iter().map(|client| Socket::open(client, &path, &[]))).await;
        assert_eq!(opened.iter().filter(|socket| socket.is_ok()).count(), 1, "{n}");
    }
    assert_eq!(one.rows.count("used_tickets").await, 3);
}

#[tokio::test]
async fn a_connection_opened_with_a_ticket_ends_when_the_users_token_expires() {
    let app = Embedded::with(with_tokens).await;
    // The server allows a clock difference of one minute.
    let claims = changed(claims("acme", "alice", &[]), &json!({ "exp": token::now() - 50 }));
    let alice = app.client.with_token(&signed(&claims));
    let path = format!("/events?ticket={}", ticket(&alice).await);
    let socket = format!("/ws?ticket={}", ticket(&alice).await);
    let mut stream = Sse::open(&app.client, &path).await;
    let mut socket = Socket::open(&app.client, &socket, &[]).await.ok().unwrap();
    assert_eq!(stream.next().await, None);
    assert_eq!(socket.next().await, Some(Err(1008)));
    assert!(token::now() >= claims["exp"].as_i64().unwrap() + 60);
}
