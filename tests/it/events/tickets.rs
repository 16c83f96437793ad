//! Tickets, in the place of a token.

use crate::support::token::{self, changed, claims, signed, with_tokens};
use crate::support::{Client, Embedded, Socket, Sse};
use serde_json::json;

async fn ticket(client: &Client) -> String {
    let made = client.post("/tickets", &json!({})).await;
    assert_eq!(made.status, 201, "{:?}", made.body);
    assert!(made.body["expires_at"].as_str().unwrap().ends_with('Z'));
    made.body["ticket"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn d10_a_ticket_opens_one_stream_for_whoever_got_it() {
    let mut app = Embedded::with(with_tokens).await;
    let nobody = app.client.clone();
    app.client = nobody.as_user("acme", "alice", &[]);
    for prefix in ["", "/api"] {
        let path = format!("{prefix}/events?after=0&ticket={}", ticket(&app.client).await);
        let mut stream = Sse::open(&nobody, &path).await;
        assert_eq!(nobody.get(&path).await.status, 401, "it is used");
        let (thread, _) = app.held("pay", prefix.len().to_string().as_str()).await;
        while stream.next().await.unwrap()["thread_id"] != thread.as_str() {}
    }
    let path = format!("/ws?ticket={}", ticket(&app.client).await);
    assert!(Socket::open(&nobody, &path, &[]).await.is_ok());
    assert_eq!(Socket::open(&nobody, &path, &[]).await.err(), Some(401), "it is used");
    assert_eq!(app.rows.count("tickets").await, 0);
}

#[tokio::test]
async fn d10_a_ticket_is_good_nowhere_else_and_not_for_long() {
    let app = Embedded::with(with_tokens).await;
    let alice = app.client.as_user("acme", "alice", &[]);
    let good = ticket(&alice).await;
    for path in ["/threads", "/approvals", "/eventsx", "/events/x", "/runs/x/events", "/tickets"] {
        assert_eq!(app.client.get(&format!("{path}?ticket={good}")).await.status, 401, "{path}");
    }
    for wrong in ["", "x", &good[1..], &good.to_uppercase()] {
        assert_eq!(app.client.get(&format!("/events?ticket={wrong}")).await.status, 401, "{wrong:?}");
    }
    let twice = format!("/events?ticket={good}&ticket={good}");
    assert_eq!(app.client.get(&twice).await.status, 401);
    assert_eq!(app.client.post("/tickets", &json!({})).await.status, 401);
    // The table opens nothing.
    let kept = app.rows.all("SELECT ticket_hash FROM tickets").await;
    let hash = kept[0]["ticket_hash"].as_str().unwrap();
    assert_ne!(hash, good);
    assert_eq!(app.client.get(&format!("/events?ticket={hash}")).await.status, 401);
    let over = "UPDATE tickets SET expires_at = expires_at - 30000000";
    assert_eq!(app.rows.change(over).await, Ok(1));
    assert_eq!(app.client.get(&format!("/events?ticket={good}")).await.status, 401);
    ticket(&alice).await;
    assert_eq!(app.rows.count("tickets").await, 1, "what is over is gone");
}

#[tokio::test]
async fn what_is_opened_with_a_ticket_ends_with_the_token_that_it_was_got_with() {
    let app = Embedded::with(with_tokens).await;
    // Clocks may differ by a minute.
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
