//! Tokens signed with a shared secret.

use crate::support::token::{self, changed, claims, now, signed, with_tokens};
use crate::support::{Answer, Client, Embedded, Process};
use serde_json::{Value, json};

/// Asserts that the caller is not known, and that the answer says no more than that.
fn assert_unknown(answer: &Answer, what: &str) {
    let expected =
        json!({ "error": { "code": "unauthenticated", "message": "Expected a valid bearer token." } });
    assert_eq!((answer.status, &answer.body), (401, &expected), "{what}");
    assert_eq!(answer.header("www-authenticate"), Some("Bearer"), "{what}");
}

async fn status(client: &Client, claims: &Value) -> u16 {
    client.with_token(&signed(claims)).get("/threads").await.status
}

#[tokio::test]
async fn a_token_says_who_calls() {
    let app = Embedded::with(with_tokens).await;
    let (ann, bob) = (app.client.as_user("acme", "ann", &[]), app.client.as_user("acme", "bob", &[]));
    let thread = ann.thread().await;
    assert_eq!(ann.get(&format!("/threads/{thread}")).await.status, 200);
    assert_eq!(bob.get(&format!("/threads/{thread}")).await.status, 404);
    assert_eq!(ann.get("/threads").await.body["results"].as_array().unwrap().len(), 1);
    assert_eq!(bob.get("/threads").await.body["results"].as_array().unwrap().len(), 0);
    let owners = app.rows.all("SELECT tenant_id, user_id FROM threads").await;
    assert_eq!(owners, [json!({ "tenant_id": "acme", "user_id": "ann" })]);
    assert_unknown(&app.client.get("/threads").await, "nobody");
}

#[tokio::test]
async fn a_process_of_its_own_takes_tokens_as_well() {
    let dir = tempfile::tempdir().unwrap();
    let server = Process::start(dir.path(), &token::VARIABLES).await;
    assert_eq!(server.client.as_user("acme", "ann", &[]).get("/tools").await.status, 200);
    assert_unknown(&server.client.get("/tools").await, "nobody");
}

#[tokio::test]
async fn d4_a_token_that_is_not_of_this_time_is_refused() {
    let app = Embedded::with(with_tokens).await;
    let ann = || claims("acme", "ann", &[]);
    for (what, change) in [
        ("expired", json!({ "exp": now() - 62 })),
        ("exp as a string", json!({ "exp": (now() + 3600).to_string() })),
        ("no exp", json!({ "exp": null })),
        ("exp below nothing", json!({ "exp": -1 })),
        ("exp beyond all numbers", json!({ "exp": 1e300 })),
        ("exp as a list", json!({ "exp": [now() + 3600] })),
        ("not yet", json!({ "nbf": now() + 65 })),
        ("nbf as a string", json!({ "nbf": "0" })),
        ("issued in the future", json!({ "iat": now() + 65 })),
        ("iat as a string", json!({ "iat": now().to_string() })),
    ] {
        let client = app.client.with_token(&signed(&changed(ann(), &change)));
        assert_unknown(&client.get("/threads").await, what);
    }
    for (what, change) in [
        ("within the leeway", json!({ "exp": now() - 50 })),
        ("nbf within the leeway", json!({ "nbf": now() + 55, "iat": now() + 55 })),
        ("a part of a second", json!({ "exp": (now() as f64) + 10.5, "iat": (now() as f64) - 0.5 })),
        ("no iat", json!({ "iat": null })),
    ] {
        assert_eq!(status(&app.client, &changed(ann(), &change)).await, 200, "{what}");
    }
}

#[tokio::test]
async fn d5_a_token_for_somebody_else_or_of_somebody_else_is_refused() {
    let app = Embedded::with(with_tokens).await;
    let ann = || claims("acme", "ann", &[]);
    for (what, change) in [
        ("aud of another", json!({ "aud": "other" })),
        ("no aud", json!({ "aud": null })),
        ("aud among none", json!({ "aud": [] })),
        ("aud among others", json!({ "aud": ["other", "third"] })),
        ("aud as a number", json!({ "aud": 1 })),
        ("aud that only begins so", json!({ "aud": "holdpoint2" })),
        ("iss of another", json!({ "iss": "https://issuer.example.evil.example" })),
        ("iss with a slash more", json!({ "iss": "https://issuer.example/" })),
        ("no iss", json!({ "iss": null })),
        ("iss as a list", json!({ "iss": [token::ISSUER, "https://evil.example"] })),
        ("no sub", json!({ "sub": null })),
        ("an ID token by its hash", json!({ "at_hash": "x" })),
        ("an ID token by its use", json!({ "token_use": "id" })),
        ("a refresh token by its type", json!({ "typ": "Refresh" })),
    ] {
        let client = app.client.with_token(&signed(&changed(ann(), &change)));
        assert_unknown(&client.get("/threads").await, what);
    }
    for (what, change) in [
        ("aud among others", json!({ "aud": ["other", token::AUDIENCE] })),
        ("an access token by its use", json!({ "token_use": "access", "typ": "Bearer" })),
    ] {
        assert_eq!(status(&app.client, &changed(ann(), &change)).await, 200, "{what}");
    }
}
