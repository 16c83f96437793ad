//! The person of a session at an issuer whose access tokens are opaque (`auth.session_from`).

use super::{COOKIE_OF_SIGN_IN, browse, came_back, send, signed_in};
use holdpoint::config::SessionFrom;
use holdpoint_testkit::{Embedded, Oidc};
use reqwest::Method;
use serde_json::json;

async fn names_the_person(from: SessionFrom) {
    let oidc = Oidc::start();
    let app = Embedded::with(oidc.keeps_sign_ins_by("ann", from).await).await;
    let cookie = signed_in(&oidc, &app).await;
    let session = async || send(&app.client, Method::GET, "/auth/session", &[("cookie", &cookie)]).await;
    let known = session().await.body;
    assert_eq!((&known["user_id"], &known["tenant_id"]), (&json!("ann"), &json!("acme")), "{known}");
    assert_eq!(known["roles"], json!(["approver", "reader"]));
    oidc.behaves(json!({ "roles": ["admin"] })).await;
    app.rows.change("UPDATE sign_ins SET known_until = begun_at").await.unwrap();
    assert_eq!(session().await.body["roles"], json!(["admin"]));
    // Of the last access token, which lasts ten minutes, and the leeway of one.
    let lasts = "(SELECT known_until - begun_at AS lasts FROM sign_ins)";
    assert_eq!(
        app.rows.count(&format!("{lasts} AS times WHERE lasts BETWEEN 600000000 AND 720000000")).await,
        1
    );
}

#[tokio::test]
async fn d14_an_id_token_names_the_person_where_access_tokens_are_opaque() {
    names_the_person(SessionFrom::IdToken).await;
}

#[tokio::test]
async fn d14_the_issuer_names_the_person_where_access_tokens_are_opaque() {
    names_the_person(SessionFrom::Introspection).await;
}

#[tokio::test]
async fn d14_an_opaque_access_token_names_nobody_by_itself() {
    let oidc = Oidc::start();
    let app = Embedded::with(oidc.keeps_sign_ins_by("ann", SessionFrom::AccessToken).await).await;
    let (callback, cookie) = came_back(&oidc, &app).await;
    assert!(cookie.starts_with(COOKIE_OF_SIGN_IN));
    assert_eq!(browse(&callback, &cookie).await.to, app.client.url("/#/sign-in/not-accepted"));
    assert_eq!(app.rows.count("sign_ins").await, 0);
}
