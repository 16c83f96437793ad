//! Requests without valid credentials, and malformed ids, are answered without the database.

use super::{assert_no_credentials, assert_refused};
use futures::future::join_all;
use holdpoint_testkit::token::{self, changed, claims, signed, with_tokens};
use holdpoint_testkit::{Answer, Client, Cluster, Embedded, JsonFields, Rows, postgres_if_chosen, ticket};
use serde_json::{Value, json};

/// Makes every later statement on the database fail.
async fn take_away(cluster: Option<&Cluster>, rows: &Rows) {
    if let Some(cluster) = cluster {
        return cluster.stop_now();
    }
    let tables = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'";
    for table in rows.all(tables).await {
        let name = table.text("name");
        rows.change(&format!("ALTER TABLE {name} RENAME TO gone_{name}")).await.unwrap();
    }
    rows.change("BEGIN IMMEDIATE").await.unwrap();
}

/// Invalid tokens, and the cause of each refusal.
fn bad_tokens() -> Vec<(String, &'static str)> {
    let ann = || claims("acme", "ann", &[]);
    let good = signed(&ann());
    let (head, rest) = good.split_once('.').unwrap();
    // {"alg":"none","typ":"JWT"}
    let unsigned = format!("eyJhbGciOiJub25lIiwidHlwIjoiSldUIn0.{}.", rest.split_once('.').unwrap().0);
    vec![
        ("x".to_owned(), "The token cannot be read as a JWT."),
        ("a.b.c".to_owned(), "The token cannot be read as a JWT."),
        (unsigned, "The token cannot be read as a JWT."),
        (format!("{head}.{}", rest.replace('.', "x.")), "The token's signature is wrong."),
        (signed(&changed(ann(), &json!({ "exp": token::now() - 120 }))), "The token has expired."),
        (signed(&changed(ann(), &json!({ "aud": "x" }))), "The token is for another audience (aud)."),
    ]
}

/// Invalid tickets, derived from a valid ticket and the server's key, and the cause of each refusal.
fn bad_tickets(good: &str, key: &str) -> Vec<(String, &'static str)> {
    let forged = "The ticket was not made by this server.";
    let (payload, mac) = good.split_once('.').unwrap();
    let over = changed(ticket::content(good), &json!({ "expires_at": token::now() * 1_000_000 - 1 }));
    let other = changed(ticket::content(good), &json!({ "user_id": "bob" }));
    let others = ticket::signed(&other, "x");
    vec![
        (String::new(), forged),
        ("x".to_owned(), forged),
        (".".to_owned(), forged),
        ("0".repeat(64), forged),
        (payload.to_owned(), forged),
        (format!("{payload}."), forged),
        (format!("{payload}.{}", &mac[1..]), forged),
        (format!("{payload}.{mac}.{mac}"), forged),
        (format!("{}.{mac}", others.split_once('.').unwrap().0), forged),
        (others, forged),
        (ticket::signed(&json!({ "user_id": "bob" }), key), forged),
        (ticket::signed(&over, key), "The ticket has expired."),
    ]
}

async fn ask(client: &Client, method: &reqwest::Method, path: &str) -> Answer {
    client.send(client.http.request(method.clone(), client.url(path)).json(&json!({}))).await
}

#[tokio::test]
async fn d1_bad_credentials_and_malformed_ids_are_answered_without_a_database() {
    let cluster = postgres_if_chosen().await.map(|_| Cluster::start());
    let url = match &cluster {
        Some(cluster) => Some(cluster.database().await),
        None => None,
    };
    let app = Embedded::with(|config| {
        with_tokens(config);
        if let Some(url) = url {
            config.database.url = url.into();
        }
    })
    .await;
    let ann = app.client.as_user("acme", "ann", &["approver"]);
    let made = ann.post("/tickets", &json!({})).await.body;
    let good = made.text("ticket");
    let key = app.rows.all("SELECT signing_key FROM ticket_keys").await[0]["signing_key"].clone();
    take_away(cluster.as_ref(), &app.rows).await;
    assert!([500, 503].contains(&ann.get("/threads").await.status), "there is no database");

    let http2 = reqwest::Client::builder().http2_prior_knowledge().build().unwrap();
    for http in [app.client.http.clone(), http2] {
        let anonymous = Client { http, base: app.client.base.clone() };
        for path in ["/threads", "/events", "/api/ws", "/qa/validate_tool", "/threads/x", "/nowhere"] {
            for method in [reqwest::Method::GET, reqwest::Method::POST] {
                assert_no_credentials(&ask(&anonymous, &method, path).await, path);
                for (token, why) in bad_tokens() {
                    let other_user =
                        anonymous.http.request(method.clone(), anonymous.url(path)).bearer_auth(&token);
                    assert_refused(&anonymous.send(other_user).await, why, path);
                }
            }
        }
        for path in ["/events", "/api/events", "/events/stream", "/ws", "/api/ws"] {
            for (bad, why) in bad_tickets(good, key.as_str().unwrap()) {
                let answer = anonymous.get(&format!("{path}?ticket={bad}")).await;
                assert_refused(&answer, why, &format!("{path} {bad}"));
            }
        }
    }
    // Authenticated requests with malformed ids. Threads and sessions also have names, which are looked up.
    let id = "01890a5d-ac96-774b-bcce-b302099a8057";
    let named =
        |path: &str| ["x", "0", "01890A5D-AC96-774B-BCCE-B302099A8057"].map(|bad| path.replace('?', bad));
    for (method, path, body) in [
        ("GET", "/runs/?", Value::Null),
        ("POST", "/runs/?/cancel", Value::Null),
        ("POST", "/runs/?/approve", json!({ "tool_call_id": id })),
        ("GET", "/runs/?/events", Value::Null),
        ("GET", "/runs/?/events/stream", Value::Null),
        ("GET", "/tool_calls/?", Value::Null),
        ("POST", "/tool_calls/?/cancel", Value::Null),
        ("GET", "/tool_calls/?/events", Value::Null),
        ("GET", "/tool_calls/?/events/stream", Value::Null),
        ("POST", &format!("/sessions/{id}/approvals/?"), json!({ "decision": "deny" })),
        ("DELETE", &format!("/sessions/{id}/grants/?"), Value::Null),
        ("POST", "/qa/validate_tool", json!({ "toolCallId": "x", "isValidated": true })),
    ] {
        for path in named(path) {
            let request = ann.http.request(method.parse().unwrap(), ann.url(&path));
            let request = if body.is_null() { request } else { request.json(&body) };
            let answer = ann.send(request).await;
            assert_eq!(answer.failure(), (404, "not_found"), "{method} {path}: {answer:?}");
        }
    }
    // Creating a ticket needs no database; redeeming it does.
    let late = ann.post("/tickets", &json!({})).await;
    late.has_status(201);
    let path = format!("/events?ticket={}", late.body.text("ticket"));
    let answers = join_all((0..2).map(|_| app.client.get(&path))).await;
    assert!(answers.iter().all(|answer| [500, 503].contains(&answer.status)), "{answers:?}");
}
