//! The cause of a 401, as a fixed text in `www-authenticate` and in the log.

use super::{assert_no_credentials, assert_refused};
use holdpoint_testkit::issuer::{Issuer, KeysResponse, issued, public};
use holdpoint_testkit::token::{self, AUDIENCE, changed, claims, now, signed, with_tokens};
use holdpoint_testkit::{Embedded, WatchedServer};
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use serde_json::{Value, json};

/// Changes to valid claims, and the cause of each refusal.
fn refused_claims() -> Vec<(Value, &'static str)> {
    let name = "is not a name: expected 1 to 256 characters, none of them a control character.";
    vec![
        (json!({ "exp": now() - 62 }), "The token has expired."),
        (json!({ "exp": null }), "The token has no usable claim exp."),
        (json!({ "exp": "x" }), "The token has no usable claim exp."),
        (json!({ "nbf": now() + 65 }), "The token is not valid yet (nbf)."),
        (json!({ "nbf": "0" }), "The token's claim nbf has a wrong form."),
        (json!({ "iat": now() + 65 }), "The token's iat is not a time, or is in the future."),
        (json!({ "aud": "canary" }), "The token is for another audience (aud)."),
        (json!({ "aud": null }), "The token has no usable claim aud."),
        (json!({ "iss": "canary" }), "The token is from another issuer (iss)."),
        (json!({ "iss": [token::ISSUER, "canary"] }), "The token is from another issuer (iss)."),
        (json!({ "iss": null }), "The token has no usable claim iss."),
        (json!({ "sub": null }), "The token has no usable claim sub."),
        (json!({ "sub": "canary\n" }), &*format!("The token's claim sub {name}").leak()),
        (
            json!({ "tenant": null }),
            "The token has no claim tenant for the tenant, and auth.default_tenant is not set.",
        ),
        (json!({ "tenant": ["canary"] }), &*format!("The token's claim tenant {name}").leak()),
        (
            json!({ "roles": { "canary": 1 } }),
            "The token's claim roles is not a list of texts, or of objects with auth.roles_key, or one text, or an object of objects.",
        ),
        (json!({ "at_hash": "canary" }), "The token is an ID token, not an access token."),
        (json!({ "token_use": "refresh" }), "The token is not an access token."),
    ]
}

#[tokio::test]
async fn a_401_names_its_cause_in_its_header_and_in_the_log_and_never_the_token() {
    let settings = [("HOLDPOINT_LOG__LEVEL", "info"), ("HOLDPOINT_LOG__FORMAT", "json")];
    let watched = WatchedServer::start(&settings).await;
    let anonymous = &watched.server.client;
    let ann = || claims("acme", "ann", &[]);
    let hmac = |header: &Header, secret: &str| {
        jsonwebtoken::encode(header, &ann(), &EncodingKey::from_secret(secret.as_bytes())).unwrap()
    };
    let of_type = Header { typ: Some("canary".to_owned()), ..Header::new(Algorithm::HS256) };
    let critical = Header { crit: Some(vec!["exp".to_owned()]), ..Header::new(Algorithm::HS256) };
    let mut tokens = vec![
        ("canary".to_owned(), "The token cannot be read as a JWT."),
        ("canary.e30.e30".to_owned(), "The token cannot be read as a JWT."),
        (hmac(&Header::new(Algorithm::HS256), "canary"), "The token's signature is wrong."),
        (hmac(&Header::new(Algorithm::HS384), token::SECRET), "The token's algorithm is not accepted."),
        (hmac(&of_type, token::SECRET), "The token's typ is not that of an access token."),
        (hmac(&critical, token::SECRET), "The token has header parameters that are critical (crit)."),
    ];
    tokens.extend(refused_claims().into_iter().map(|(change, why)| (signed(&changed(ann(), &change)), why)));

    let mut expected = Vec::new();
    let id = |answer: &holdpoint_testkit::Answer| answer.header("x-request-id").unwrap().to_owned();
    for (token, why) in &tokens {
        let answer = anonymous.with_token(token).get("/threads").await;
        assert_refused(&answer, why, why);
        expected.push((id(&answer), *why));
    }
    let with = |values: &[&str]| {
        let request = anonymous.http.get(anonymous.url("/threads"));
        values.iter().fold(request, |request, value| request.header("authorization", *value))
    };
    let good = format!("Bearer {}", signed(&ann()));
    for (headers, why) in [
        (vec![good.as_str(), good.as_str()], "There is more than one Authorization header."),
        (vec!["Bearer"], "The token cannot be read as a JWT."),
        (vec!["bearer "], "The token cannot be read as a JWT."),
    ] {
        let answer = anonymous.send(with(&headers)).await;
        assert_refused(&answer, why, why);
        expected.push((id(&answer), why));
    }
    for (headers, why) in [
        (vec![], "No token was sent."),
        (vec!["Basic Y2FuYXJ5"], "The Authorization header has another scheme than Bearer."),
    ] {
        let answer = anonymous.send(with(&headers)).await;
        assert_no_credentials(&answer, why);
        expected.push((id(&answer), why));
    }
    let known = anonymous.as_user("acme", "ann", &[]).get("/threads").await;
    let printed = watched.finish();
    let logged: Vec<Value> = printed
        .lines()
        .filter(|line| line.starts_with('{'))
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let line_of = |id: &str| {
        let of_it = |line: &&Value| line["message"] == "answered" && line["request_id"] == id;
        logged.iter().find(of_it).unwrap()
    };
    for (id, why) in &expected {
        let line = line_of(id);
        assert_eq!(
            (&line["level"], &line["status"], &line["cause"]),
            (&json!("INFO"), &json!(401), &json!(why))
        );
    }
    assert_eq!(line_of(&id(&known))["cause"], Value::Null);
    assert!(!printed.contains("canary"), "{printed}");
    for (token, _) in tokens.iter().skip(2) {
        for part in token.split('.').skip(1).filter(|part| !part.is_empty()) {
            assert!(!printed.contains(part), "{part}: {printed}");
        }
    }
}

#[tokio::test]
async fn a_401_reports_that_the_issuer_has_no_key_for_the_token() {
    let issuer = Issuer::start(KeysResponse::Keys(vec![public("a", 1)])).await;
    let app = Embedded::with(issuer.trusted()).await;
    let ann = claims("acme", "ann", &[]);
    let answer = app.client.with_token(&issued("b", 1, "acme", "ann")).get("/threads").await;
    assert_refused(&answer, "The issuer has no key for the token's kid and algorithm.", "another kid");
    let answer = app.client.with_token(&signed(&ann)).get("/threads").await;
    assert_refused(&answer, "The token's algorithm is not accepted.", "HMAC");
}

#[tokio::test]
async fn a_cause_names_the_configured_claims_and_breaks_no_header() {
    let app = Embedded::with(|config| {
        with_tokens(config);
        config.auth.user_claim = "e\"ma\\il\n".to_owned();
        config.auth.tenant_claim = "https://example.com/org".to_owned();
        config.auth.default_tenant = Some("home".to_owned());
    })
    .await;
    let refused = async |change: &Value| {
        let token = signed(&changed(claims("acme", "ann", &[]), change));
        app.client.with_token(&token).get("/threads").await
    };
    let answer = refused(&json!({})).await;
    assert_refused(&answer, "The token has no usable claim e?ma?il?.", "no user");
    let answer = refused(&json!({ "e\"ma\\il\n": "ann", "https://example.com/org": 7 })).await;
    let why = "The token's claim https://example.com/org is not a name: expected 1 to 256 characters, \
               none of them a control character.";
    assert_refused(&answer, why, "a tenant that is a number");
    let answer = refused(&json!({ "aud": ["other", AUDIENCE, 7] })).await;
    assert_refused(&answer, "The token has no usable claim aud.", "aud with a number");
}
