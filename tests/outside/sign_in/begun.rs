//! Only a sign-in that a server of the database began reaches the issuer, and once.

use super::{COOKIE_OF_SIGN_IN, browse, signs_in_with};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit, Mac};
use holdpoint_testkit::issuer::KeysResponse;
use holdpoint_testkit::{Embedded, eventually, postgres, token};
use reqwest::{Method, Url};
use sha2::Sha256;
use tokio::task::JoinHandle;

/// Where the console shows that a sign-in did not start here, that the issuer refused a code, and that it cannot be asked.
const NOT_STARTED: &str = "http://127.0.0.1:1/#/sign-in/not-started";
const REFUSED: &str = "http://127.0.0.1:1/#/sign-in/refused";
const UNAVAILABLE: &str = "http://127.0.0.1:1/#/sign-in/unavailable";

/// Begins a sign-in. Returns its state, and the value of its cookie.
async fn begun(app: &Embedded) -> (String, String) {
    let started = browse(&app.client.url("/auth/sign-in"), "").await;
    let state = Url::parse(&started.to).unwrap();
    let state = state.query_pairs().find_map(|(name, value)| (name == "state").then(|| value.into_owned()));
    (state.unwrap(), started.cookie(COOKIE_OF_SIGN_IN))
}

/// Comes back from the issuer with this state and this cookie. Returns where the server sends the browser.
async fn comes_back(app: &Embedded, state: &str, cookie: &str) -> String {
    let callback = app.client.url(&format!("/auth/callback?state={state}&code=z"));
    browse(&callback, &format!("{COOKIE_OF_SIGN_IN}{cookie}")).await.to
}

/// The cookie of a sign-in with this content, signed with this key.
fn signed(content: &str, key: &str) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(key.as_bytes()).unwrap();
    mac.update(format!("holdpoint.sign-in.v1\0{content}").as_bytes());
    format!("{content}.{}", URL_SAFE_NO_PAD.encode(mac.finalize().into_bytes()))
}

#[tokio::test]
async fn d13_only_a_sign_in_that_the_server_began_reaches_the_issuer_and_once() {
    let (issuer, app) = signs_in_with(&["S256"]).await;
    let (_other_issuer, other) = signs_in_with(&["S256"]).await;
    let (state, cookie) = begun(&app).await;
    let (foreign_state, foreign) = begun(&other).await;
    let key = app.rows.all("SELECT signing_key FROM ticket_keys").await[0]["signing_key"].clone();
    let signed_at = |state: &str, seconds_ago: i64| {
        signed(&format!("{state}.v.{}", (token::now() - seconds_ago) * 1_000_000), key.as_str().unwrap())
    };
    let asked = issuer.requests();
    let (content, signature) = cookie.rsplit_once('.').unwrap();
    let (secrets, at) = content.rsplit_once('.').unwrap();
    for (what, state, cookie) in [
        ("made up", "x", "x.y".to_owned()),
        ("an empty state", "", ".v".to_owned()),
        ("an empty state, signed", "", signed_at("", 0)),
        ("of a server of another database", &foreign_state, foreign),
        ("without its signature", &state, content.to_owned()),
        ("with another state", "x", cookie.replacen(&state, "x", 1)),
        ("with another time", &state, format!("{secrets}.{}.{signature}", at.replacen('1', "2", 1))),
        ("ten minutes old", "x", signed_at("x", 601)),
        ("of a ticket", "x", holdpoint_testkit::ticket::signed(&"x.y.1".into(), key.as_str().unwrap())),
    ] {
        assert_eq!(comes_back(&app, state, &cookie).await, NOT_STARTED, "{what}");
        assert_eq!(issuer.requests(), asked, "{what}");
    }
    assert_eq!(comes_back(&app, "x", &signed_at("x", 500)).await, REFUSED);
    assert_eq!(comes_back(&app, &state, &cookie).await, REFUSED);
    assert_eq!(issuer.requests(), asked + 2);
    assert_eq!(comes_back(&app, &state, &cookie).await, NOT_STARTED, "it came back before");
    assert_eq!(issuer.requests(), asked + 2);
}

#[tokio::test]
async fn a_step_of_a_sign_in_is_a_get_and_says_so() {
    let (_issuer, app) = signs_in_with(&["S256"]).await;
    for path in ["/auth/sign-in", "/auth/callback"] {
        for method in [Method::HEAD, Method::POST] {
            let answer = app.client.http.request(method.clone(), app.client.url(path)).send().await.unwrap();
            assert_eq!(answer.status(), 405, "{method} {path}");
            assert_eq!(answer.headers()["allow"], "GET", "{method} {path}");
        }
    }
}

#[tokio::test]
async fn on_postgres_a_sign_in_ends_at_another_server_than_the_one_that_began_it() {
    let url = postgres().await;
    let (_issuer, one) = Box::pin(super::signs_in_on(&["S256"], Some(url.clone()))).await;
    let (issuer, other) = Box::pin(super::signs_in_on(&["S256"], Some(url))).await;
    let (state, cookie) = begun(&one).await;
    let asked = issuer.requests();
    assert_eq!(comes_back(&other, &state, &cookie).await, REFUSED);
    // The other server asks for the addresses first.
    assert_eq!(issuer.requests(), asked + 2);
}

#[tokio::test]
async fn d13_beyond_the_bound_the_oldest_sign_ins_fail_at_once_and_the_others_wait_for_a_place() {
    let (issuer, app) = signs_in_with(&["S256"]).await;
    let all = futures::future::join_all((0..50).map(|_| begun(&app))).await;
    issuer.answers(KeysResponse::Slowly);
    let asked = issuer.requests();
    let come_back = |sign_ins: &[(String, String)]| -> Vec<JoinHandle<String>> {
        let back = |(state, cookie): &(String, String)| {
            let (callback, cookie) = (
                app.client.url(&format!("/auth/callback?state={state}&code=z")),
                format!("{COOKIE_OF_SIGN_IN}{cookie}"),
            );
            #[expect(clippy::disallowed_methods, reason = "the test waits for it")]
            tokio::spawn(async move { browse(&callback, &cookie).await.to })
        };
        sign_ins.iter().map(back).collect()
    };
    let first = come_back(&all[..16]);
    eventually("all places are taken", async || (issuer.requests() == asked + 16).then_some(())).await;
    let later = come_back(&all[16..]);
    let ended = || later.iter().filter(|task| task.is_finished()).count();
    // 32 of 34 wait.
    eventually("the oldest fail", async || (ended() == 2).then_some(())).await;
    assert_eq!(issuer.requests(), asked + 16);
    issuer.answers(KeysResponse::Body("{}".to_owned()));
    let first = futures::future::join_all(first).await;
    assert!(
        first.iter().all(|to| to.as_ref().unwrap() == UNAVAILABLE),
        "the issuer does not answer: {first:?}"
    );
    let mut later: Vec<String> =
        futures::future::join_all(later).await.into_iter().map(Result::unwrap).collect();
    later.sort();
    assert_eq!(later, [vec![REFUSED; 32], vec![UNAVAILABLE; 2]].concat());
    assert_eq!(issuer.requests(), asked + 48);
}
