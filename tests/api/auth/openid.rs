//! Tokens of a real OpenID Connect server.

use super::assert_unknown;
use holdpoint_testkit::{Client, Embedded, JsonFields, Oidc, token};
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use serde_json::{Value, json};

async fn status(client: &Client, token: &str) -> u16 {
    client.with_token(token).get("/threads").await.status
}

#[tokio::test]
async fn tokens_of_a_real_issuer_identify_the_caller_with_every_algorithm() {
    let oidc = Oidc::start();
    let app = Embedded::with(oidc.trusted().await).await;
    for algorithm in ["RS256", "ES256", "EdDSA"] {
        for client in ["ann", "bob"] {
            let token = oidc.token(client, algorithm).await;
            assert_eq!(
                app.client.with_token(&token).post("/threads", &json!({})).await.status,
                201,
                "{algorithm}"
            );
            let other = oidc.token(client, algorithm).await;
            let (signed_part, (_, signature)) =
                (token.rsplit_once('.').unwrap().0, other.rsplit_once('.').unwrap());
            assert_unknown(
                &app.client.with_token(&format!("{signed_part}.")).get("/threads").await,
                "no signature",
            );
            let mixed = format!("{signed_part}.{signature}");
            assert_unknown(&app.client.with_token(&mixed).get("/threads").await, "another's signature");
        }
    }
    let owners = "SELECT DISTINCT tenant_id, user_id FROM threads ORDER BY user_id";
    let of = |user: &str| json!({ "tenant_id": "acme", "user_id": user });
    assert_eq!(app.rows.all(owners).await, [of("ann"), of("bob")]);
    assert_eq!(app.rows.count("threads").await, 6);
}

#[tokio::test]
async fn d5_only_the_access_token_of_a_sign_in_is_accepted() {
    let oidc = Oidc::start();
    let trusted = oidc.trusted().await;
    // The default tenant applies to every token, so only the token's purpose can refuse it.
    let app = Embedded::with(|config| {
        trusted(config);
        config.auth.default_tenant = Some("acme".to_owned());
    })
    .await;
    for (page, algorithm) in [("page", "RS256"), ("page", "ES256"), ("page", "EdDSA"), ("holdpoint", "RS256")]
    {
        let got = oidc.sign_in(page, "ann", algorithm).await;
        let text = |field: &str| got[field].as_str().unwrap_or_else(|| panic!("{got}")).to_owned();
        assert_eq!(status(&app.client, &text("access_token")).await, 200, "{page} {algorithm}");
        for other in ["id_token", "refresh_token"] {
            let answer = app.client.with_token(&text(other)).get("/threads").await;
            assert_unknown(&answer, &format!("{page} {algorithm} {other}"));
        }
    }
}

#[tokio::test]
async fn d6_keys_are_rotated_without_a_restart() {
    let oidc = Oidc::start();
    for algorithm in ["RS256", "ES256", "EdDSA"] {
        let (old, new) = (format!("old-{algorithm}"), format!("new-{algorithm}"));
        let (old, new) = ((old.as_str(), algorithm), (new.as_str(), algorithm));
        oidc.publish(&[old]).await;
        let app = Embedded::with(oidc.trusted().await).await;
        let before = oidc.token("ann", algorithm).await;
        assert_eq!(status(&app.client, &before).await, 200, "{algorithm}");
        oidc.publish(&[new, old]).await;
        let after = oidc.token("ann", algorithm).await;
        assert_eq!(status(&app.client, &after).await, 200, "{algorithm}: the new one");
        assert_eq!(status(&app.client, &before).await, 200, "{algorithm}: the old one is published still");

        // A process that fetched the old key set learns the new key after the old one is retired.
        oidc.publish(&[old]).await;
        let app = Embedded::with(oidc.trusted().await).await;
        assert_eq!(status(&app.client, &before).await, 200, "{algorithm}");
        oidc.publish(&[new]).await;
        assert_eq!(status(&app.client, &after).await, 200, "{algorithm}");
        assert_unknown(&app.client.with_token(&before).get("/threads").await, "retired");
    }
}

#[tokio::test]
async fn d3_a_token_signed_with_a_published_rsa_key_as_a_secret_is_refused() {
    let oidc = Oidc::start();
    let app = Embedded::with(oidc.trusted().await).await;
    let pem = oidc.publish(&[("rsa", "RS256")]).await.remove(0);
    let jwk: Value = oidc.published().await.remove(0);
    let good = oidc.token("ann", "RS256").await;
    assert_eq!(status(&app.client, &good).await, 200);
    let issuer = oidc.trusted().await;
    let mut config = holdpoint::config::Config::default();
    issuer(&mut config);
    let claims = token::changed(token::claims("acme", "ann", &[]), &json!({ "iss": config.auth.issuer }));
    let n = jwk.text("n");
    for secret in [pem.as_str(), pem.trim_end(), &pem.replace('\n', ""), n, &jwk.to_string()] {
        for algorithm in [Algorithm::HS256, Algorithm::HS384, Algorithm::HS512] {
            let header = Header { kid: Some("rsa".to_owned()), ..Header::new(algorithm) };
            let key = EncodingKey::from_secret(secret.as_bytes());
            let forged = jsonwebtoken::encode(&header, &claims, &key).unwrap();
            assert_unknown(&app.client.with_token(&forged).get("/threads").await, "HMAC with what is public");
        }
    }
}

#[tokio::test]
async fn d5_a_token_of_another_issuer_is_refused() {
    let (ours, theirs) = (Oidc::start(), Oidc::start());
    let app = Embedded::with(ours.trusted().await).await;
    assert_eq!(status(&app.client, &ours.token("ann", "ES256").await).await, 200);
    let foreign = theirs.token("ann", "ES256").await;
    assert_unknown(&app.client.with_token(&foreign).get("/threads").await, "the same names, other keys");
}
