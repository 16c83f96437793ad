//! Keys fetched from an issuer that is down, slow, oversized or redirecting.

use super::{assert_unavailable, assert_unknown};
use holdpoint_testkit::issuer::{Issuer, KeysResponse, issued, public};
use holdpoint_testkit::{Client, Embedded, eventually};
use serde_json::json;

async fn status(client: &Client, token: &str) -> u16 {
    client.with_token(token).get("/threads").await.status
}

#[tokio::test]
async fn d6_a_server_starts_while_its_issuer_is_down_and_accepts_no_token() {
    let issuer = Issuer::start(KeysResponse::Nothing).await;
    let app = Embedded::with(issuer.trusted()).await;
    let token = issued("a", 1, "acme", "ann");
    assert_unavailable(&app.client.with_token(&token).get("/threads").await, "it is down");
    app.client.get("/readyz").await.has_status(200);
    assert_unknown(&app.client.get("/threads").await, "without a token there is nothing to find out");
    assert_unknown(&app.client.with_token("x.y.z").get("/threads").await, "nor with what is none");
    issuer.answers(KeysResponse::Keys(vec![public("a", 1)]));
    let back = async || (status(&app.client, &token).await == 200).then_some(());
    eventually("the issuer is back", back).await;
    issuer.answers(KeysResponse::Nothing);
    assert_eq!(status(&app.client, &token).await, 200, "what is known stays known for a while");
}

#[tokio::test]
async fn d6_a_new_key_is_accepted_and_a_retired_key_is_not() {
    let issuer = Issuer::start(KeysResponse::Keys(vec![public("a", 1)])).await;
    let app = Embedded::with(issuer.trusted()).await;
    let (old, new) = (issued("a", 1, "acme", "ann"), issued("b", 2, "acme", "ann"));
    assert_eq!(status(&app.client, &old).await, 200);
    issuer.answers(KeysResponse::Keys(vec![public("b", 2)]));
    assert_eq!(status(&app.client, &new).await, 200);
    assert_unknown(&app.client.with_token(&old).get("/threads").await, "retired");
    let borrowed = issued("b", 1, "acme", "ann");
    assert_unknown(&app.client.with_token(&borrowed).get("/threads").await, "signed with another key");
}

#[tokio::test]
async fn d6_made_up_key_ids_cause_few_requests_to_the_issuer() {
    let issuer = Issuer::start(KeysResponse::Keys(vec![public("a", 1)])).await;
    let app = Embedded::with(issuer.trusted()).await;
    let token = issued("a", 1, "acme", "ann");
    let all = futures::future::join_all((0..40).map(|_| status(&app.client, &token))).await;
    assert_eq!(all, [200; 40]);
    assert_eq!(issuer.requests(), 1, "once, however many came at once");
    for n in 0..40 {
        let made_up = issued(&format!("../../{n}' OR 1=1"), 1, "acme", "ann");
        assert_unknown(&app.client.with_token(&made_up).get("/threads").await, "made up");
    }
    assert_eq!((issuer.requests(), status(&app.client, &token).await), (2, 200));
}

#[tokio::test]
async fn d6_an_endless_issuer_response_is_cut_off() {
    let issuer = Issuer::start(KeysResponse::ForEver).await;
    let app = Embedded::with(issuer.trusted()).await;
    let token = issued("a", 1, "acme", "ann");
    assert_unavailable(&app.client.with_token(&token).get("/threads").await, "too long");
    let written = eventually("the response is cut off", async || issuer.written()).await;
    // The count includes bytes in the socket buffers that the server never read.
    assert!(written < 32 << 20, "{written}");
}

#[tokio::test]
async fn d6_a_slow_issuer_response_times_out() {
    let issuer = Issuer::start(KeysResponse::Slowly).await;
    let app = Embedded::with(issuer.trusted()).await;
    let token = issued("a", 1, "acme", "ann");
    let began = std::time::Instant::now();
    let clients = (0..10).map(|_| app.client.with_token(&token));
    let asking = clients.map(async |client| client.get("/threads").await);
    for answer in futures::future::join_all(asking).await {
        assert_unavailable(&answer, "too slow");
    }
    // A request waits at most 5 s for its own fetch and 5 s for the one before it.
    assert!(began.elapsed().as_secs() < 20, "{:?}", began.elapsed());
}

#[tokio::test]
async fn d6_redirects_and_invalid_key_sets_are_refused() {
    let other = Issuer::start(KeysResponse::Keys(vec![public("a", 1)])).await;
    let token = issued("a", 1, "acme", "ann");
    let many: Vec<_> = (0..101).map(|n| public(&format!("k{n}"), 1)).chain([public("a", 1)]).collect();
    for answers in [
        KeysResponse::Elsewhere(other.url.clone()),
        KeysResponse::Body("<html>".to_owned()),
        KeysResponse::Body(json!([public("a", 1)]).to_string()),
        KeysResponse::Body(json!({ "keys": public("a", 1) }).to_string()),
        KeysResponse::Body(json!({ "keys": [public("a", 1)], "x": "x".repeat(256 << 10) }).to_string()),
        KeysResponse::Keys(many),
    ] {
        let issuer = Issuer::start(answers.clone()).await;
        let app = Embedded::with(issuer.trusted()).await;
        let answer = app.client.with_token(&token).get("/threads").await;
        assert_unavailable(&answer, &format!("{answers:.80?}"));
    }
    assert_eq!(other.requests(), 0);
}

#[tokio::test]
async fn an_unusable_key_does_not_affect_the_other_keys() {
    let odd = [
        json!("x"),
        json!({ "kty": "oct", "k": "AA" }),
        json!({ "kty": "OKP", "crv": "Ed25519", "x": "AA" }),
    ];
    let keys = odd.into_iter().chain([public("a", 1)]).collect();
    let issuer = Issuer::start(KeysResponse::Keys(keys)).await;
    let app = Embedded::with(issuer.trusted()).await;
    assert_eq!(status(&app.client, &issued("a", 1, "acme", "ann")).await, 200);
}
