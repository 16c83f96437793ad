//! The keys over time. The test drives the clock, and the issuer is a local socket.

use super::*;
use holdpoint_core::clock::SystemClock;
use jsonwebtoken::EncodingKey;
use jsonwebtoken::jwk::Jwk;
use serde_json::json;
use std::sync::atomic::{AtomicI64, Ordering};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use uuid::Uuid;

/// A clock that moves only when the test moves it.
#[derive(Debug, Default)]
struct Hand(AtomicI64);

impl Clock for Hand {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.0.load(Ordering::SeqCst))
    }

    fn uuid(&self) -> Uuid {
        SystemClock.uuid()
    }
}

/// The issuer's response, and the number of its requests.
#[derive(Debug, Default)]
struct IssuerState {
    /// The body. `None` breaks the connection.
    body: Option<String>,
    requests: usize,
}

struct Bench {
    clock: Arc<Hand>,
    issuer: Arc<Mutex<IssuerState>>,
    jwks: Jwks,
    tasks: Tasks,
    serving: JoinHandle<()>,
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// Returns the EdDSA key derived from this byte, published under this name.
fn published(name: &str, seed: u8) -> Value {
    // PKCS #8 (RFC 8410) is these bytes and the seed.
    let mut der = b"\x30\x2e\x02\x01\x00\x30\x05\x06\x03\x2b\x65\x70\x04\x22\x04\x20".to_vec();
    der.extend([seed; 32]);
    let mut jwk = Jwk::from_encoding_key(&EncodingKey::from_ed_der(&der), Algorithm::EdDSA).unwrap();
    jwk.common.key_id = Some(name.to_owned());
    serde_json::to_value(jwk).unwrap()
}

fn header(name: &str) -> Header {
    let mut header = Header::new(Algorithm::EdDSA);
    header.kid = Some(name.to_owned());
    header
}

impl Bench {
    async fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/jwks", listener.local_addr().unwrap());
        let issuer = Arc::new(Mutex::new(IssuerState::default()));
        let served = issuer.clone();
        #[expect(clippy::disallowed_methods, reason = "the test holds the handle and ends it")]
        let serving = tokio::spawn(async move {
            loop {
                let (mut socket, _) = listener.accept().await.unwrap();
                let body = {
                    let mut issuer = served.lock();
                    issuer.requests += 1;
                    issuer.body.clone()
                };
                let mut request = [0; 4096];
                let read = socket.read(&mut request).await.unwrap();
                assert!(request[..read].starts_with(b"GET /jwks "));
                let Some(body) = body else { continue };
                let head =
                    format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n", body.len());
                socket.write_all((head + &body).as_bytes()).await.unwrap();
            }
        });
        let (clock, tasks) = (Arc::new(Hand::default()), Tasks::new());
        clock.0.store(1_700_000_000_000_000, Ordering::SeqCst);
        let jwks = Jwks::new(url, clock.clone(), tasks.clone()).unwrap();
        Self { clock, issuer, jwks, tasks, serving }
    }

    fn publishes(&self, keys: &[Value]) {
        self.issuer.lock().body = Some(json!({ "keys": keys }).to_string());
    }

    fn is_down(&self) {
        self.issuer.lock().body = None;
    }

    fn requests(&self) -> usize {
        self.issuer.lock().requests
    }

    fn passes(&self, time: Duration) {
        self.clock.0.fetch_add(i64::try_from(time.as_micros()).unwrap(), Ordering::SeqCst);
    }

    /// Returns "known", "unknown" or "unavailable".
    async fn finds(&self, name: &str) -> &'static str {
        let found = match self.jwks.find(&header(name)).await {
            Ok(_) => "known",
            Err(AuthFailure::NotKnown(_)) => "unknown",
            Err(_) => "unavailable",
        };
        // Wait for the background fetch, which is part of the call under test.
        while self.tasks.active() > 0 {
            tokio::task::yield_now().await;
        }
        found
    }
}

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test]
async fn d6_keys_are_fetched_once_and_again_when_they_are_no_longer_fresh() {
    let bench = Bench::new().await;
    bench.publishes(&[published("a", 1)]);
    assert_eq!(bench.finds("a").await, "known");
    bench.passes(FRESH - SECOND);
    assert_eq!((bench.finds("a").await, bench.requests()), ("known", 1));
    // The issuer withdrew key a. The old keys serve once more during the fetch of the new ones.
    bench.publishes(&[published("b", 2)]);
    bench.passes(SECOND);
    assert_eq!((bench.finds("a").await, bench.requests()), ("known", 2));
    assert_eq!((bench.finds("a").await, bench.finds("b").await), ("unknown", "known"));
}

#[tokio::test]
async fn d6_unknown_key_ids_do_not_increase_the_rate_of_fetches() {
    let bench = Bench::new().await;
    bench.publishes(&[published("a", 1)]);
    assert_eq!((bench.finds("a").await, bench.requests()), ("known", 1));
    for n in 0..20 {
        assert_eq!(bench.finds(&format!("x{n}")).await, "unknown");
    }
    assert_eq!(bench.requests(), 2);
    bench.publishes(&[published("a", 1), published("b", 2)]);
    bench.passes(REST - SECOND);
    assert_eq!((bench.finds("b").await, bench.requests()), ("unknown", 2));
    bench.passes(SECOND);
    assert_eq!((bench.finds("b").await, bench.requests()), ("known", 3));
}

#[tokio::test]
async fn d6_concurrent_callers_share_one_fetch() {
    let bench = Bench::new().await;
    bench.publishes(&[published("a", 1)]);
    let header = header("a");
    let all = futures::future::join_all((0..50).map(|_| bench.jwks.find(&header))).await;
    assert!(all.iter().all(Result::is_ok));
    assert_eq!(bench.requests(), 1);
}

#[tokio::test]
async fn d6_while_the_issuer_is_down_cached_keys_are_trusted_for_one_hour_only() {
    let bench = Bench::new().await;
    bench.publishes(&[published("a", 1)]);
    assert_eq!(bench.finds("a").await, "known");
    bench.is_down();
    bench.passes(BELIEVED - SECOND);
    assert_eq!(bench.finds("a").await, "known");
    let requests = bench.requests();
    assert_eq!(
        (bench.finds("a").await, bench.requests()),
        ("known", requests),
        "the server asks again later"
    );
    assert_eq!(bench.finds("b").await, "unavailable", "the issuer may have this key");
    bench.passes(SECOND);
    assert_eq!(bench.finds("a").await, "unavailable");
    let requests = bench.requests();
    assert_eq!((bench.finds("a").await, bench.requests()), ("unavailable", requests));
    bench.publishes(&[published("a", 1)]);
    bench.passes(REST_WITHOUT);
    assert_eq!(bench.finds("a").await, "known");
}

#[tokio::test]
async fn a_clock_that_is_set_back_does_not_extend_the_use_of_a_key() {
    let bench = Bench::new().await;
    bench.publishes(&[published("a", 1)]);
    assert_eq!(bench.finds("a").await, "known");
    bench.publishes(&[published("b", 2)]);
    bench.clock.0.fetch_sub(86_400_000_000, Ordering::SeqCst);
    assert_eq!(bench.finds("a").await, "unknown");
    assert_eq!(bench.finds("b").await, "known");
}

#[tokio::test]
async fn d6_an_unusable_answer_of_the_issuer_changes_no_keys() {
    let bench = Bench::new().await;
    bench.publishes(&[published("a", 1)]);
    assert_eq!(bench.finds("a").await, "known");
    let many: Vec<Value> = (0..=KEYS_MAX).map(|n| published(&format!("k{n}"), 1)).collect();
    for body in [
        "{}".to_owned(),
        "[]".to_owned(),
        "<html>".to_owned(),
        json!({ "keys": many }).to_string(),
        json!({ "keys": [published("b", 2)], "x": "x".repeat(BYTES_MAX) }).to_string(),
    ] {
        bench.issuer.lock().body = Some(body);
        bench.passes(REST);
        assert_eq!((bench.finds("b").await, bench.finds("a").await), ("unavailable", "known"));
    }
}

#[test]
fn d3_only_a_suitable_key_verifies_a_token() {
    let ed = published("a", 1);
    let coded = |length: usize| "u".repeat(length - 1) + "A";
    let rsa = |n: usize| json!({ "kty": "RSA", "n": coded(n), "e": "AQAB" });
    let ec = json!({ "kty": "EC", "crv": "P-256", "x": coded(43), "y": coded(43) });
    let ec_384 = json!({ "kty": "EC", "crv": "P-384", "x": coded(64), "y": coded(64) });
    let with = |jwk: &Value, field: &str, value: Value| {
        let mut jwk = jwk.clone();
        jwk[field] = value;
        jwk
    };
    for good in [
        ed.clone(),
        rsa(342),
        with(&rsa(342), "alg", json!("RS512")),
        with(&rsa(342), "alg", json!("PS256")),
        ec.clone(),
        ec_384.clone(),
        with(&ec_384, "alg", json!("ES384")),
        with(&ed, "use", json!("sig")),
        with(&ed, "alg", json!("EdDSA")),
        with(&ec, "alg", json!("ES256")),
        with(&ed, "key_ops", json!(["verify"])),
    ] {
        assert!(key::of_json(good.clone()).is_some(), "{good}");
    }
    for bad in [
        json!({ "kty": "oct", "k": coded(43) }),
        rsa(340),
        with(&rsa(342), "alg", json!("HS256")),
        with(&rsa(342), "alg", json!("ES256")),
        with(&ec_384, "alg", json!("ES256")),
        with(&ec_384, "crv", json!("P-521")),
        with(&ec, "crv", json!("P-384")),
        with(&ec, "alg", json!("ES384")),
        with(&ed, "use", json!("enc")),
        with(&ed, "alg", json!("ES256")),
        with(&ed, "key_ops", json!(["encrypt"])),
        with(&ed, "x", json!("AA")),
        with(&ed, "crv", json!("X25519")),
        with(&ed, "kid", json!(7)),
        json!({ "kty": "AKP", "alg": "ML-DSA-44", "pub": "AA" }),
        json!("a"),
    ] {
        assert!(key::of_json(bad.clone()).is_none(), "{bad}");
    }
}

#[test]
fn a_token_may_omit_its_key_id_if_there_is_only_one_key() {
    let keys = |all: &[Value]| -> Vec<Key> { all.iter().cloned().filter_map(key::of_json).collect() };
    let (one, two) = (keys(&[published("a", 1)]), keys(&[published("a", 1), published("b", 2)]));
    let nameless = KeyRef::of(&Header::new(Algorithm::EdDSA)).unwrap();
    assert!(nameless.find(&one).is_some());
    assert!(nameless.find(&two).is_none());
    assert!(KeyRef::of(&header("b")).unwrap().find(&two).is_some());
    assert!(KeyRef::of(&header("c")).unwrap().find(&one).is_none());
    assert!(KeyRef::of(&Header::new(Algorithm::RS256)).unwrap().find(&one).is_none());
    assert!(KeyRef::of(&Header::new(Algorithm::HS256)).is_none());
    // A key that names its algorithm checks no other one of its kind.
    let n = "u".repeat(341) + "A";
    let rsa = keys(&[json!({ "kty": "RSA", "n": n, "e": "AQAB" })]);
    let named = keys(&[json!({ "kty": "RSA", "n": n, "e": "AQAB", "alg": "PS384" })]);
    for algorithm in [Algorithm::RS256, Algorithm::RS512, Algorithm::PS256, Algorithm::PS384] {
        let of_it = KeyRef::of(&Header::new(algorithm)).unwrap();
        assert!(of_it.find(&rsa).is_some());
        assert_eq!(of_it.find(&named).is_some(), algorithm == Algorithm::PS384);
    }
}
