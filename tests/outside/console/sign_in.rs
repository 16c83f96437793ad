//! The sign-in of people, with a real OpenID Connect server.

use super::play;
use crate::sign_in::{
    COOKIE_OF_SESSION, COOKIE_OF_SIGN_IN, CSRF, browse, came_back, send, signed_in, signs_in_with,
};
use holdpoint_testkit::{Embedded, JsonFields, Oidc};
use reqwest::Method;
use reqwest::header::COOKIE;
use serde_json::json;

#[tokio::test]
async fn d12_a_person_signs_in_at_the_issuer_decides_and_signs_out() {
    let oidc = Oidc::start();
    let mut app = Embedded::with(oidc.signs_in("ann").await).await;
    app.client = app.client.with_token(&oidc.token("ann", "RS256").await);
    let (_, id) = app.held("pay", "10").await;
    play("sign-in", &app.client.base, json!({ "call": id, "issuer": oidc.issuer() })).await;
    assert_eq!(app.ledger.lines(), ["pay 10"]);
    let decided = app.client.call(&id).await["decision"].clone();
    assert_eq!(decided["by"], "user:ann");
}

#[tokio::test]
async fn d14_what_was_typed_is_there_after_a_new_sign_in_and_each_browser_is_signed_out() {
    let oidc = Oidc::start();
    let mut app = Embedded::with(oidc.keeps_sign_ins("ann").await).await;
    app.client = app.client.with_token(&oidc.token("ann", "RS256").await);
    let (_, edited) = app.held("pay", "10").await;
    let (_, denied) = app.held("pay", "20").await;
    let facts = json!({ "edited": edited, "denied": denied, "issuer": oidc.issuer() });
    play("signed-in", &app.client.base, facts).await;
    assert_eq!(app.ledger.lines(), ["pay 11"]);
    assert_eq!(app.client.call(&denied).await["decision"]["reason"], "Not <b>now</b>.");
    assert_eq!(app.rows.count("sign_ins").await, 0);
}

#[tokio::test]
async fn d12_a_request_with_the_cookie_of_a_session_needs_the_csrf_token() {
    let oidc = Oidc::start();
    let app = Embedded::with(oidc.signs_in("ann").await).await;
    let cookie = signed_in(&oidc, &app).await;
    let with_cookie = ("cookie", cookie.as_str());
    let session = send(&app.client, Method::GET, "/auth/session", &[with_cookie]).await;
    session.has_status(200);
    assert_eq!((&session.body["user_id"], &session.body["tenant_id"]), (&json!("ann"), &json!("acme")));
    let csrf = session.body.text("csrf_token").to_owned();
    for (method, path) in [
        (Method::GET, "/threads"),
        (Method::POST, "/threads"),
        (Method::GET, "/api/threads"),
        (Method::POST, "/auth/sign-out"),
        (Method::GET, "/events/stream"),
    ] {
        for headers in [&[with_cookie][..], &[with_cookie, (CSRF, "")], &[with_cookie, (CSRF, "guessed")]] {
            let refused = send(&app.client, method.clone(), path, headers).await;
            assert_eq!(refused.failure(), (403, "forbidden"), "{method} {path}");
        }
    }
    assert_eq!(app.rows.count("threads").await, 0);
    let made = send(&app.client, Method::POST, "/threads", &[with_cookie, (CSRF, &csrf)]).await;
    made.has_status(201);
    assert_eq!(app.rows.count("threads WHERE tenant_id = 'acme' AND user_id = 'ann'").await, 1);
    // The value belongs to its session.
    let other = signed_in(&oidc, &app).await;
    assert_ne!(other, cookie);
    let crossed = send(&app.client, Method::GET, "/threads", &[("cookie", &other), (CSRF, &csrf)]).await;
    crossed.has_status(403);
    // A token in a header is a caller of its own.
    let token = format!("Bearer {}", oidc.token("bob", "RS256").await);
    let both =
        send(&app.client, Method::GET, "/auth/session", &[with_cookie, ("authorization", &token)]).await;
    assert_eq!((&both.body["user_id"], &both.body["csrf_token"]), (&json!("bob"), &json!(null)));
}

#[tokio::test]
async fn d12_only_the_browser_that_began_a_sign_in_ends_it_and_once() {
    let oidc = Oidc::start();
    let app = Embedded::with(oidc.signs_in("ann").await).await;
    let failed = |word: &str| app.client.url(&format!("/#/sign-in/{word}"));
    let (callback, cookie) = came_back(&oidc, &app).await;
    let (_, other) = came_back(&oidc, &app).await;
    for cookie in ["", &other, COOKIE_OF_SIGN_IN] {
        let got = browse(&callback, cookie).await;
        assert_eq!((got.status, &got.to), (303, &failed("not-started")), "{cookie}");
        assert_eq!(got.cookies, Vec::<String>::new(), "the sign-in of this cookie continues");
    }
    let (before, _) = callback.split_once("iss=").unwrap();
    let got = browse(&format!("{before}iss=https%3A%2F%2Fother.example"), &cookie).await;
    assert_eq!(got.to, failed("refused"));
    let with_error = callback.replace("code=", "error=access_denied&not_code=");
    assert_eq!(browse(&with_error, &cookie).await.to, failed("refused"));
    let head = app.client.http.head(&callback).header(COOKIE, &cookie).send().await.unwrap();
    assert_eq!(head.status(), 405);
    let got = browse(&callback, &cookie).await;
    assert_eq!(got.to, app.client.url("/"));
    assert_eq!(got.cookies.len(), 2, "{:?}", got.cookies);
    assert!(
        got.cookies
            .iter()
            .any(|cookie| cookie.starts_with(COOKIE_OF_SIGN_IN) && cookie.ends_with("Max-Age=0"))
    );
    assert_eq!(browse(&callback, &cookie).await.to, failed("not-started"), "a sign-in ends once");
}

#[tokio::test]
async fn a_sign_in_without_its_issuer_and_a_token_for_another_audience_say_so() {
    let oidc = Oidc::start();
    let signs_in = oidc.signs_in("ann").await;
    let app = Embedded::with(|config| {
        signs_in(config);
        config.auth.audience = Some("another".to_owned());
    })
    .await;
    let (callback, cookie) = came_back(&oidc, &app).await;
    assert_eq!(browse(&callback, &cookie).await.to, app.client.url("/#/sign-in/not-accepted"));
    let signs_in = oidc.signs_in("ann").await;
    let app = Embedded::with(signs_in).await;
    drop(oidc);
    let started = browse(&app.client.url("/auth/sign-in"), "").await;
    assert_eq!((started.status, started.to), (303, app.client.url("/#/sign-in/unavailable")));
    assert_eq!(started.cookies, Vec::<String>::new());
}

#[tokio::test]
async fn a_sign_in_needs_an_issuer_that_binds_a_code_to_a_browser() {
    let (_issuer, app) = signs_in_with(&["plain"]).await;
    let started = browse(&app.client.url("/auth/sign-in"), "").await;
    assert_eq!((started.status, started.to.as_str()), (303, "http://127.0.0.1:1/#/sign-in/unavailable"));
    let (issuer, app) = signs_in_with(&["plain", "S256"]).await;
    let started = browse(&app.client.url("/auth/sign-in"), "").await;
    assert!(started.to.starts_with(&issuer.url.replace("/keys", "/authorize?")), "{}", started.to);
}

#[tokio::test]
async fn a_server_without_a_client_id_has_no_sign_in_and_takes_no_cookie() {
    let oidc = Oidc::start();
    let app = Embedded::with(oidc.trusted().await).await;
    app.client.get("/auth/sign-in").await.has_status(404);
    let token = oidc.token("ann", "RS256").await;
    let cookie = format!("{COOKIE_OF_SESSION}{token}");
    let refused = send(&app.client, Method::GET, "/auth/session", &[("cookie", &cookie)]).await;
    assert_eq!((refused.status, &refused.body["error"]["details"]), (401, &json!(null)));
    let signs_in = Embedded::with(oidc.signs_in("ann").await).await;
    let reported = signs_in.client.get("/auth/session").await;
    assert_eq!(
        (reported.status, &reported.body["error"]["details"]["sign_in"]),
        (401, &json!("/auth/sign-in"))
    );
}
