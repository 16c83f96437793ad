//! Tokens signed with a shared secret.

use super::assert_unknown;
use holdpoint::app::App;
use holdpoint::config::Config;
use holdpoint::handlers::Deferred;
use holdpoint_testkit::token::{self, changed, claims, now, signed, with_tokens};
use holdpoint_testkit::{Client, Embedded, JsonFields, Process};
use serde_json::{Value, json};
use std::net::SocketAddr;

async fn status(client: &Client, claims: &Value) -> u16 {
    client.with_token(&signed(claims)).get("/threads").await.status
}

#[tokio::test]
async fn a_token_identifies_the_caller() {
    let app = Embedded::with(with_tokens).await;
    let (ann, bob) = (app.client.as_user("acme", "ann", &[]), app.client.as_user("acme", "bob", &[]));
    let thread = ann.thread().await;
    ann.get(&format!("/threads/{thread}")).await.has_status(200);
    bob.get(&format!("/threads/{thread}")).await.has_status(404);
    assert_eq!(ann.get("/threads").await.body.list("results").len(), 1);
    assert_eq!(bob.get("/threads").await.body.list("results").len(), 0);
    let owners = app.rows.all("SELECT tenant_id, user_id FROM threads").await;
    assert_eq!(owners, [json!({ "tenant_id": "acme", "user_id": "ann" })]);
    assert_unknown(&app.client.get("/threads").await, "no token");
}

#[tokio::test]
async fn the_server_binary_accepts_tokens() {
    let dir = tempfile::tempdir().unwrap();
    let server = Process::start(dir.path(), &token::VARIABLES).await;
    server.client.as_user("acme", "ann", &[]).get("/tools").await.has_status(200);
    assert_unknown(&server.client.get("/tools").await, "no token");
}

#[tokio::test]
async fn d4_a_token_outside_its_validity_period_is_refused() {
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
        ("a nonce in what says that it is for access", json!({ "nonce": "x", "typ": "Bearer" })),
    ] {
        assert_eq!(status(&app.client, &changed(ann(), &change)).await, 200, "{what}");
    }
}

#[tokio::test]
async fn d5_a_token_of_another_audience_issuer_or_type_is_refused() {
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
        ("an ID token by its nonce", json!({ "nonce": "x" })),
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

#[tokio::test]
async fn a_token_with_unusable_user_tenant_or_roles_is_refused() {
    let app = Embedded::with(with_tokens).await;
    let ann = || claims("acme", "ann", &[]);
    let long = |n: usize| "é".repeat(n);
    for (what, change) in [
        ("no tenant", json!({ "tenant": null })),
        ("a tenant as a number", json!({ "tenant": 7 })),
        ("a tenant as a list", json!({ "tenant": ["acme"] })),
        ("an empty tenant", json!({ "tenant": "" })),
        ("a tenant with a line's end", json!({ "tenant": "acme\nx" })),
        ("a long tenant", json!({ "tenant": long(257) })),
        ("an empty user", json!({ "sub": "" })),
        ("a user as a number", json!({ "sub": 7 })),
        ("a user with U+0000", json!({ "sub": "ann\0" })),
        ("a user with U+0085", json!({ "sub": "ann\u{85}" })),
        ("a long user", json!({ "sub": long(257) })),
        ("roles as a number", json!({ "roles": 7 })),
        ("roles as an object", json!({ "roles": { "approver": true } })),
        ("a role as an object", json!({ "roles": ["approver", { "name": "reader" }] })),
    ] {
        let client = app.client.with_token(&signed(&changed(ann(), &change)));
        assert_unknown(&client.get("/threads").await, what);
    }
    for change in [
        json!({ "tenant": long(256), "sub": long(256) }),
        json!({ "sub": "auth0|ann@example.com' OR 1=1 --" }),
        json!({ "roles": null }),
        json!({ "roles": "approver reader" }),
        json!({ "roles": ["approver", 7] }),
        json!({ "roles": [] }),
    ] {
        assert_eq!(status(&app.client, &changed(ann(), &change)).await, 200, "{change}");
    }
}

#[tokio::test]
async fn the_claims_that_identify_the_caller_are_configurable() {
    let app = Embedded::with(|config| {
        with_tokens(config);
        config.auth.user_claim = "email".to_owned();
        config.auth.tenant_claim = "https://example.com/org".to_owned();
        config.auth.default_tenant = Some("home".to_owned());
        config.auth.roles_claim = "/realm_access/roles".to_owned();
    })
    .await;
    let with_claims = |change: Value| changed(claims("ignored", "u-1", &[]), &change);
    for (change, status_wanted) in [
        (json!({ "email": "ann@a", "https://example.com/org": "acme" }), 201),
        (json!({ "email": "bob@a" }), 201),
        (json!({ "https://example.com/org": "acme" }), 401),
        (json!({ "email": "ann@a", "https://example.com/org": 7 }), 401),
        (json!({ "email": "eve@a", "realm_access": { "roles": 7 } }), 401),
        (json!({ "email": "eve@a", "realm_access": { "roles": ["x"] } }), 201),
        (json!({ "email": "eve@a", "realm_access": "x", "roles": 7 }), 201),
    ] {
        let client = app.client.with_token(&signed(&with_claims(change.clone())));
        assert_eq!(client.post("/threads", &json!({})).await.status, status_wanted, "{change}");
    }
    let owners = app.rows.all("SELECT DISTINCT tenant_id, user_id FROM threads ORDER BY user_id").await;
    assert_eq!(
        owners,
        [
            json!({ "tenant_id": "acme", "user_id": "ann@a" }),
            json!({ "tenant_id": "home", "user_id": "bob@a" }),
            json!({ "tenant_id": "home", "user_id": "eve@a" }),
        ]
    );
}

/// The error of a configuration, or an empty text.
async fn refusal(change: impl FnOnce(&mut Config)) -> String {
    let mut config = Config::default();
    config.database.url = "sqlite::memory:".into();
    config.database.max_connections = 1;
    with_tokens(&mut config);
    change(&mut config);
    match Box::pin(App::builder(config).handler(Deferred).build()).await {
        Ok(_) => String::new(),
        Err(error) => error.to_string(),
    }
}

#[tokio::test]
async fn d7_a_server_with_an_unsafe_auth_configuration_does_not_start() {
    fn jwks(url: &str) -> impl FnOnce(&mut Config) {
        let url = url.to_owned();
        move |config| (config.auth.secret, config.auth.jwks_url) = (None, Some(url))
    }
    let key_of = |refusal: String| refusal.split(": ").nth(1).unwrap_or_default().to_owned();
    assert_eq!(key_of(refusal(|config| config.auth.secret = None).await), "auth.jwks_url");
    assert_eq!(
        key_of(refusal(|config| config.auth.secret = Some("x".repeat(31).into())).await),
        "auth.secret"
    );
    assert_eq!(
        key_of(refusal(|config| config.auth.jwks_url = Some("https://a".to_owned())).await),
        "auth.secret"
    );
    assert_eq!(key_of(refusal(|config| config.auth.issuer = None).await), "auth.issuer");
    assert_eq!(key_of(refusal(|config| config.auth.audience = Some(String::new())).await), "auth.audience");
    for tenant in [String::new(), "a\nb".to_owned(), "x".repeat(257)] {
        let refused = refusal(|config| config.auth.default_tenant = Some(tenant)).await;
        assert_eq!(key_of(refused), "auth.default_tenant");
    }
    for url in [
        "http://issuer.example/jwks",
        "http://10.0.0.1/jwks",
        "http://localhost.evil.example/jwks",
        "http://127.0.0.1@evil.example/jwks",
        "ftp://127.0.0.1/jwks",
        "file:///etc/jwks",
        "issuer.example/jwks",
        "",
    ] {
        assert_eq!(key_of(refusal(jwks(url)).await), "auth.jwks_url", "{url}");
    }
    // No server listens there. The server starts anyway.
    for url in
        ["http://127.0.0.1:1/jwks", "http://localhost:1/jwks", "http://[::1]:1/jwks", "https://127.0.0.1:1/"]
    {
        assert_eq!(refusal(jwks(url)).await, "", "{url}");
    }
}

#[tokio::test]
async fn a_server_with_tokens_may_bind_any_address_and_accepts_any_host() {
    let app = Embedded::with(|config| {
        with_tokens(config);
        config.server.bind = SocketAddr::from(([0, 0, 0, 0], 0));
    })
    .await;
    let ann = app.client.as_user("acme", "ann", &[]);
    let request =
        ann.http.get(ann.url("/threads")).header("host", "chat.example").header("origin", "https://x");
    app.client.send(request).await.has_status(200);
    assert_unknown(&app.client.get("/threads").await, "no token");
}

#[tokio::test]
async fn a_token_is_ignored_if_authentication_is_off() {
    let app = Embedded::start().await;
    let with_a_token = app.client.with_token("nonsense");
    with_a_token.get("/threads").await.has_status(200);
}
