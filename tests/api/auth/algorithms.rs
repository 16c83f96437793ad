//! Tokens of issuers that differ: their algorithms, the claim of the audience, and the form of roles.

use super::assert_unknown;
use holdpoint_testkit::issuer::{Issuer, KeysResponse};
use holdpoint_testkit::token::{AUDIENCE, changed, claims, signed, with_tokens};
use holdpoint_testkit::{Answer, Embedded, JsonFields};
use serde_json::{Value, json};
use std::io::Write;
use std::process::{Command, Stdio};

/// Signs these claims with fresh keys, by each algorithm, as issuers do.
const SIGN: &str = r"
const c = require('node:crypto');
const claims = JSON.parse(require('node:fs').readFileSync(0));
const coded = value => Buffer.from(JSON.stringify(value)).toString('base64url');
const pairs = {
  rsa: c.generateKeyPairSync('rsa', { modulusLength: 2048 }),
  named: c.generateKeyPairSync('rsa', { modulusLength: 2048 }),
  p256: c.generateKeyPairSync('ec', { namedCurve: 'P-256' }),
  p384: c.generateKeyPairSync('ec', { namedCurve: 'P-384' }),
  p521: c.generateKeyPairSync('ec', { namedCurve: 'P-521' }),
  ed: c.generateKeyPairSync('ed25519'),
};
const pss = { padding: c.constants.RSA_PKCS1_PSS_PADDING, saltLength: c.constants.RSA_PSS_SALTLEN_DIGEST };
const ecdsa = { dsaEncoding: 'ieee-p1363' };
const token = (kid, alg, hash, options, as = alg) => {
  const message = `${coded({ alg: as, kid })}.${coded(claims)}`;
  const signature = c.sign(hash, message, { key: pairs[kid].privateKey, ...options });
  return { kid, alg, as, token: `${message}.${signature.toString('base64url')}` };
};
const tokens = ['256', '384', '512'].flatMap(bits => [
  token('rsa', `RS${bits}`, `sha${bits}`), token('rsa', `PS${bits}`, `sha${bits}`, pss),
  token('named', `RS${bits}`, `sha${bits}`), token('named', `PS${bits}`, `sha${bits}`, pss),
]);
tokens.push(token('p256', 'ES256', 'sha256', ecdsa), token('p384', 'ES384', 'sha384', ecdsa), token('ed', 'EdDSA'));
const refused = [
  token('p521', 'ES512', 'sha512', ecdsa), token('rsa', 'RS256', 'sha1'),
  token('rsa', 'PS256', 'sha256', pss, 'RS256'), token('rsa', 'RS256', 'sha256', {}, 'PS256'),
  token('rsa', 'RS384', 'sha384', {}, 'RS256'), token('p256', 'ES256', 'sha256', {}),
  token('p256', 'ES256', 'sha256', ecdsa, 'ES384'), token('rsa', 'RS256', 'sha256', {}, 'HS256'),
];
const keys = Object.entries(pairs).map(([kid, { publicKey }]) => ({ ...publicKey.export({ format: 'jwk' }), kid }));
keys.find(({ kid }) => kid === 'named').alg = 'PS384';
console.log(JSON.stringify({ keys, tokens, refused }));
";

fn node(input: &Value) -> Value {
    let mut node = Command::new("node");
    let mut child = node
        .args(["-e", SIGN])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("node is installed");
    child.stdin.take().unwrap().write_all(input.to_string().as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    serde_json::from_slice(&output.stdout).unwrap()
}

#[tokio::test]
async fn tokens_of_each_algorithm_are_checked_with_the_keys_of_the_issuer() {
    let made = node(&claims("acme", "ann", &[]));
    let issuer = Issuer::start(KeysResponse::Keys(made.list("keys").clone())).await;
    let app = Embedded::with(issuer.trusted()).await;
    let asks = async |token: &str| app.client.with_token(token).get("/threads").await;
    for case in made.list("tokens") {
        let (token, alg) = (case.text("token"), &case["alg"]);
        if case["kid"] == "named" && alg != "PS384" {
            assert_unknown(&asks(token).await, "the key names another algorithm");
            continue;
        }
        let answer = asks(token).await;
        assert_eq!(answer.status, 200, "{}: {alg}: {:?}", case["kid"], answer.body);
        // Another character within the signature.
        let at = token.len() - 20;
        let other = if &token[at..=at] == "A" { "B" } else { "A" };
        let forged = format!("{}{other}{}", &token[..at], &token[at + 1..]);
        assert_unknown(&asks(&forged).await, &format!("{alg} forged"));
    }
    for case in made.list("refused") {
        assert_unknown(&asks(case.text("token")).await, &format!("{} as {}", case["alg"], case["as"]));
    }
}

fn cause(answer: &Answer) -> String {
    answer.header("www-authenticate").unwrap_or_default().to_owned()
}

#[tokio::test]
async fn another_claim_may_name_the_audience() {
    let app = Embedded::with(|config| {
        with_tokens(config);
        config.auth.audience_claim = "client_id".to_owned();
    })
    .await;
    let asks = async |change: Value| {
        let token = signed(&changed(claims("acme", "ann", &[]), &change));
        app.client.with_token(&token).get("/threads").await
    };
    for change in [
        json!({ "aud": null, "client_id": AUDIENCE, "token_use": "access" }),
        json!({ "aud": "another", "client_id": AUDIENCE }),
        json!({ "client_id": ["another", AUDIENCE] }),
    ] {
        assert_eq!(asks(change.clone()).await.status, 200, "{change}");
    }
    for (change, why) in [
        (json!({ "aud": AUDIENCE }), "The token has no usable claim client_id."),
        (json!({ "client_id": null }), "The token has no usable claim client_id."),
        (json!({ "client_id": "another" }), "The token is for another audience (client_id)."),
        (json!({ "client_id": 7 }), "The token has no usable claim client_id."),
        (json!({ "client_id": [AUDIENCE, 7] }), "The token has no usable claim client_id."),
    ] {
        let refused = asks(change.clone()).await;
        assert_eq!(refused.status, 401, "{change}");
        assert!(cause(&refused).contains(why), "{change}: {}", cause(&refused));
    }
    // By default `aud` has to name this server.
    let plain = Embedded::with(with_tokens).await;
    let token = signed(&changed(claims("acme", "ann", &[]), &json!({ "aud": null, "client_id": AUDIENCE })));
    plain.client.with_token(&token).get("/threads").await.has_status(401);
}

#[tokio::test]
async fn roles_may_be_objects_and_an_item_that_is_no_role_is_left_out() {
    let keyed = Embedded::with(|config| {
        with_tokens(config);
        config.auth.roles_key = Some("name".to_owned());
    })
    .await;
    let plain = Embedded::with(with_tokens).await;
    let objects = json!([{ "name": "chief", "id": 1 }, "desk", { "id": 2 }, { "name": 7 }, null]);
    for (app, roles, known) in [
        (&keyed, &objects, Some(json!(["chief", "desk"]))),
        (&keyed, &json!(["chief"]), Some(json!(["chief"]))),
        (&keyed, &json!({ "name": "chief" }), None),
        (&plain, &json!(["chief", null, 7, ["x"], "desk"]), Some(json!(["chief", "desk"]))),
        (&plain, &Value::Null, Some(json!([]))),
        // No rule could name these roles, so the token has to be refused.
        (&plain, &objects, None),
        (&plain, &json!({ "chief": { "1": "a.example" }, "desk": true }), None),
        (&plain, &json!({ "chief": null }), None),
        (&plain, &json!({ "chief": ["1"] }), None),
        (&plain, &json!(7), None),
    ] {
        let mut claims = claims("acme", "ann", &[]);
        claims["roles"] = roles.clone();
        let answer = app.client.with_token(&signed(&claims)).get("/auth/session").await;
        match known {
            Some(known) => assert_eq!((answer.status, &answer.body["roles"]), (200, &known), "{roles}"),
            None => {
                assert_eq!(answer.status, 401, "{roles}");
                assert!(cause(&answer).contains("auth.roles_key"), "{}", cause(&answer));
            }
        }
    }
}

#[tokio::test]
async fn roles_may_be_the_keys_of_an_object_of_objects() {
    const CLAIM: &str = "urn:zitadel:iam:org:project:roles";
    let roles = json!({ "chief": { "170001": "acme.example", "170002": "b.example" }, "desk": {} });
    for key in [None, Some("name".to_owned())] {
        let app = Embedded::with(|config| {
            with_tokens(config);
            config.auth.roles_claim = CLAIM.to_owned();
            config.auth.operator_roles = vec!["chief".to_owned()];
            config.auth.roles_key = key.clone();
        })
        .await;
        for (value, known) in [(&roles, json!(["chief", "desk"])), (&json!({}), json!([]))] {
            let mut claims = claims("acme", "ann", &[]);
            claims[CLAIM] = value.clone();
            let answer = app.client.with_token(&signed(&claims)).get("/auth/session").await;
            assert_eq!((answer.status, &answer.body["roles"]), (200, &known), "{key:?} {value}");
        }
    }
}
