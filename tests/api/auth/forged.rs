//! Tokens that no issuer issued.

use super::assert_unknown;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use holdpoint_testkit::issuer::{self, Issuer, KeysResponse, header, issued, private, public};
use holdpoint_testkit::token::{self, claims, with_tokens};
use holdpoint_testkit::{Client, Embedded, JsonFields};
use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use serde_json::{Value, json};

fn part(json: &Value) -> String {
    URL_SAFE_NO_PAD.encode(json.to_string())
}

/// A token with this header, these claims and this signature.
fn with_header(header: &Value, claims: &Value, signature: &str) -> String {
    format!("{}.{}.{signature}", part(header), part(claims))
}

fn hmac(header: &Header, secret: &[u8]) -> String {
    let key = EncodingKey::from_secret(secret);
    jsonwebtoken::encode(header, &claims("acme", "ann", &[]), &key).unwrap()
}

async fn assert_refused(client: &Client, token: &str, what: &str) {
    assert_unknown(&client.with_token(token).get("/threads").await, what);
}

#[tokio::test]
async fn d2_a_token_without_a_signature_is_refused() {
    let issuer = Issuer::start(KeysResponse::Keys(vec![public("a", 1)])).await;
    let apps = [Embedded::with(with_tokens).await, Embedded::with(issuer.trusted()).await];
    let ann = claims("acme", "ann", &[]);
    for app in &apps {
        for alg in ["none", "None", "nOnE", "NONE", "", "HS256", "EdDSA", "null"] {
            for signature in ["", "AA", "e30"] {
                let header = json!({ "alg": alg, "typ": "JWT", "kid": "a" });
                assert_refused(&app.client, &with_header(&header, &ann, signature), alg).await;
            }
        }
        for header in
            [json!({}), json!({ "alg": null }), json!({ "alg": ["HS256"] }), json!([]), json!("HS256")]
        {
            assert_refused(&app.client, &with_header(&header, &ann, ""), "no alg").await;
        }
        for token in ["", ".", "..", "...", "a.b", "a.b.c", "e30.e30.", "\u{7f}", &"a.".repeat(2000)] {
            let request = app.client.http.get(app.client.url("/threads"));
            let bearer = reqwest::header::HeaderValue::from_bytes(format!("Bearer {token}").as_bytes());
            let Ok(bearer) = bearer else { continue };
            assert_unknown(&app.client.send(request.header("authorization", bearer)).await, token);
        }
    }
}

#[tokio::test]
async fn d2_only_the_algorithm_of_the_configured_mode_is_accepted() {
    let app = Embedded::with(with_tokens).await;
    for algorithm in [Algorithm::HS384, Algorithm::HS512] {
        let token = hmac(&Header::new(algorithm), token::SECRET.as_bytes());
        assert_refused(&app.client, &token, "another hash").await;
    }
    assert_refused(&app.client, &issued("a", 1, "acme", "ann"), "another kind").await;
    assert_refused(&app.client, &hmac(&Header::new(Algorithm::HS256), b"another secret"), "another secret")
        .await;
    let good = token::token("acme", "ann", &[]);
    app.client.with_token(&good).get("/threads").await.has_status(200);
    let (signed_part, signature) = good.rsplit_once('.').unwrap();
    let (header, _) = signed_part.split_once('.').unwrap();
    let other = format!("{header}.{}.{signature}", part(&claims("acme", "root", &[])));
    assert_refused(&app.client, &other, "other claims").await;
    assert_refused(&app.client, &good[..good.len() - 2], "a shorter signature").await;
}

#[tokio::test]
async fn d3_a_token_signed_with_the_public_key_as_a_secret_is_refused() {
    let issuer = Issuer::start(KeysResponse::Keys(vec![public("a", 1)])).await;
    let app = Embedded::with(issuer.trusted()).await;
    let jwk = public("a", 1);
    let x = jwk.text("x");
    let raw = URL_SAFE_NO_PAD.decode(x).unwrap();
    for secret in [jwk.to_string().as_bytes(), x.as_bytes(), &raw] {
        for algorithm in [Algorithm::HS256, Algorithm::HS384, Algorithm::HS512] {
            for named in [Some("a".to_owned()), None] {
                let header = Header { kid: named, ..Header::new(algorithm) };
                assert_refused(&app.client, &hmac(&header, secret), "HMAC").await;
            }
        }
    }
    app.client.with_token(&issued("a", 1, "acme", "ann")).get("/threads").await.has_status(200);
}

#[tokio::test]
async fn d3_a_published_symmetric_key_is_not_accepted() {
    let secret = b"a secret of thirty-two bytes, or more";
    let oct = json!({ "kty": "oct", "kid": "s", "k": URL_SAFE_NO_PAD.encode(secret) });
    let issuer = Issuer::start(KeysResponse::Keys(vec![oct, public("a", 1)])).await;
    let app = Embedded::with(issuer.trusted()).await;
    let header = Header { kid: Some("s".to_owned()), ..Header::new(Algorithm::HS256) };
    assert_refused(&app.client, &hmac(&header, secret), "a published secret").await;
}

#[tokio::test]
async fn d3_a_key_location_in_a_token_is_ignored() {
    let evil = Issuer::start(KeysResponse::Keys(vec![public("e", 9)])).await;
    let issuer = Issuer::start(KeysResponse::Keys(vec![public("a", 1)])).await;
    let app = Embedded::with(issuer.trusted()).await;
    let evil_jwk: Jwk = serde_json::from_value(public("a", 9)).unwrap();
    let url = Some(evil.url.clone());
    let forged =
        |header: Header| jsonwebtoken::encode(&header, &claims("acme", "ann", &[]), &private(9)).unwrap();
    for kid in ["a", "e", "../../etc/passwd", "' OR 1=1 --", "/dev/null", "", &evil.url] {
        for header in [
            Header { jku: url.clone(), ..header(kid) },
            Header { x5u: url.clone(), ..header(kid) },
            Header { jwk: Some(evil_jwk.clone()), ..header(kid) },
            Header { x5c: Some(vec!["AAAA".to_owned()]), ..header(kid) },
        ] {
            assert_refused(&app.client, &forged(Header { kid: None, ..header.clone() }), kid).await;
            assert_refused(&app.client, &forged(header), kid).await;
        }
    }
    assert_eq!(evil.requests(), 0);
}

#[tokio::test]
async fn d3_a_token_with_critical_parameters_or_another_type_is_refused() {
    let issuer = Issuer::start(KeysResponse::Keys(vec![public("a", 1)])).await;
    let app = Embedded::with(issuer.trusted()).await;
    let signed =
        |header: &Header| jsonwebtoken::encode(header, &claims("acme", "ann", &[]), &private(1)).unwrap();
    for crit in [vec![], vec!["exp".to_owned()], vec!["b64".to_owned()]] {
        let header = Header { crit: Some(crit), ..issuer::header("a") };
        assert_refused(&app.client, &signed(&header), "crit").await;
    }
    for typ in ["logout+jwt", "dpop+jwt", "secevent+jwt", "id_token", ""] {
        let header = Header { typ: Some(typ.to_owned()), ..issuer::header("a") };
        assert_refused(&app.client, &signed(&header), typ).await;
    }
    for typ in ["at+jwt", "application/at+jwt", "AT+JWT", "JWT", "jwt"] {
        let header = Header { typ: Some(typ.to_owned()), ..issuer::header("a") };
        assert_eq!(app.client.with_token(&signed(&header)).get("/threads").await.status, 200, "{typ}");
    }
    let header = Header { typ: None, ..issuer::header("a") };
    app.client.with_token(&signed(&header)).get("/threads").await.has_status(200);
}

#[tokio::test]
async fn a_token_must_name_its_key_if_the_issuer_has_several() {
    let issuer = Issuer::start(KeysResponse::Keys(vec![public("a", 1), public("b", 2)])).await;
    let app = Embedded::with(issuer.trusted()).await;
    let nameless = |seed| {
        let header = Header::new(Algorithm::EdDSA);
        jsonwebtoken::encode(&header, &claims("acme", "ann", &[]), &private(seed)).unwrap()
    };
    assert_refused(&app.client, &nameless(1), "one of two").await;
    let alone = Issuer::start(KeysResponse::Keys(vec![public("a", 1)])).await;
    let app = Embedded::with(alone.trusted()).await;
    app.client.with_token(&nameless(1)).get("/threads").await.has_status(200);
    assert_refused(&app.client, &nameless(2), "signed with another").await;
}
