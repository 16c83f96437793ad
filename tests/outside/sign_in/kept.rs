//! Sign-ins that the server keeps: they outlive the access token, and end in every process.

use super::{COOKIE_OF_SESSION, CSRF, browse, came_back, send, signed_in};
use futures::future::join_all;
use holdpoint_testkit::{Answer, Embedded, JsonFields, Oidc, eventually, postgres, token};
use reqwest::Method;
use serde_json::{Value, json};

/// A server that keeps the sign-ins of `ann` at this issuer.
async fn office(oidc: &Oidc) -> Embedded {
    Embedded::with(oidc.keeps_sign_ins("ann").await).await
}

/// Two servers of one Postgres database.
async fn offices(oidc: &Oidc) -> [Embedded; 2] {
    let url = postgres().await;
    let start = async || {
        let keeps = oidc.keeps_sign_ins("ann").await;
        Box::pin(Embedded::with(|config| {
            keeps(config);
            config.database.url = url.clone().into();
        }))
        .await
    };
    [start().await, start().await]
}

async fn session(app: &Embedded, cookie: &str) -> Answer {
    send(&app.client, Method::GET, "/auth/session", &[("cookie", cookie)]).await
}

/// A request of a page with this cookie.
async fn with_csrf(app: &Embedded, cookie: &str, method: Method, path: &str) -> Answer {
    let csrf = session(app, cookie).await.body.text("csrf_token").to_owned();
    send(&app.client, method, path, &[("cookie", cookie), (CSRF, &csrf)]).await
}

/// Lets the time of all access tokens pass, and the rests after failures.
async fn tokens_end(app: &Embedded) {
    app.rows.change("UPDATE sign_ins SET known_until = begun_at, rests_until = NULL").await.unwrap();
}

fn assert_ended(answer: &Answer, why: &str) {
    answer.failed_with(401, "unauthenticated");
    assert_eq!(answer.body["error"]["details"]["sign_in"], "/auth/sign-in");
    assert!(
        answer.header("www-authenticate").unwrap().contains(why),
        "{:?}",
        answer.header("www-authenticate")
    );
}

#[tokio::test]
async fn d14_a_session_outlives_its_access_token_and_its_roles_are_those_of_the_last_one() {
    let oidc = Oidc::start();
    let app = office(&oidc).await;
    let cookie = signed_in(&oidc, &app).await;
    assert!(cookie.len() < 200, "the cookie has no token: {cookie}");
    let known = session(&app, &cookie).await;
    known.has(200, "user_id", "ann");
    assert_eq!(known.body["roles"], json!(["approver", "reader"]));
    oidc.behaves(json!({ "roles": ["admin"] })).await;
    assert_eq!(session(&app, &cookie).await.body["roles"], json!(["approver", "reader"]));
    assert_eq!(oidc.given().await.0, 1);
    // An issuer like this one takes each refresh token once.
    for roles in [json!(["admin"]), json!([]), json!(["reader"])] {
        oidc.behaves(json!({ "roles": roles })).await;
        tokens_end(&app).await;
        let renewed = session(&app, &cookie).await;
        assert_eq!((renewed.status, &renewed.body["roles"]), (200, &roles), "{:?}", renewed.body);
    }
    let (asked, given) = oidc.given().await;
    assert_eq!((asked, given.len()), (4, 4));
    let row = app.rows.all("SELECT * FROM sign_ins").await[0].to_string();
    let secret = cookie.strip_prefix(COOKIE_OF_SESSION).unwrap().split('.').next().unwrap();
    assert!(given.iter().all(|token| !row.contains(token)), "{row}");
    let tokens_begin_with = ["eyJhbGciOi", "eyJ0eXAiOi"];
    assert!(tokens_begin_with.iter().all(|beginning| !row.contains(beginning)), "{row}");
    assert!(!row.contains(secret), "{row}");
}

#[tokio::test]
async fn d14_an_access_token_in_its_leeway_counts_while_it_is_renewed() {
    let oidc = Oidc::start();
    let app = office(&oidc).await;
    let cookie = signed_in(&oidc, &app).await;
    let soon = (token::now() + 30) * 1_000_000;
    app.rows.change(&format!("UPDATE sign_ins SET known_until = {soon}")).await.unwrap();
    oidc.behaves(json!({ "holds": true })).await;
    session(&app, &cookie).await.has_status(200);
    oidc.behaves(json!({ "roles": ["admin"] })).await;
    let renewed = async || (session(&app, &cookie).await.body["roles"] == json!(["admin"])).then_some(());
    eventually("the token is renewed", renewed).await;
    assert_eq!(oidc.given().await.0, 2);
}

#[tokio::test]
async fn d14_many_requests_at_once_renew_a_session_once() {
    let oidc = Oidc::start();
    let app = office(&oidc).await;
    renewed_once(&oidc, &[&app]).await;
}

#[tokio::test]
async fn d14_two_processes_on_postgres_renew_a_session_once() {
    let oidc = Oidc::start();
    let [one, other] = offices(&oidc).await;
    renewed_once(&oidc, &[&one, &other]).await;
}

async fn renewed_once(oidc: &Oidc, apps: &[&Embedded]) {
    let cookie = signed_in(oidc, apps[0]).await;
    for round in 2..5 {
        tokens_end(apps[0]).await;
        let all = join_all(apps.iter().cycle().take(24).map(|app| session(app, &cookie))).await;
        assert!(all.iter().all(|answer| answer.status == 200), "{all:?}");
        assert_eq!(oidc.given().await.0, round);
    }
}

#[tokio::test]
async fn d14_a_refusal_of_the_issuer_ends_a_session() {
    let oidc = Oidc::start();
    let app = office(&oidc).await;
    let cookie = signed_in(&oidc, &app).await;
    // A thief uses the refresh token. The issuer takes all tokens of the sign-in back at its next use.
    let (_, given) = oidc.given().await;
    assert_eq!(oidc.refused(&given[0]).await, Value::Null);
    tokens_end(&app).await;
    assert_ended(&session(&app, &cookie).await, "The session has ended.");
    assert_eq!(app.rows.count("sign_ins").await, 0);
}

#[tokio::test]
async fn d14_a_renewed_token_of_another_person_ends_a_session() {
    let oidc = Oidc::start();
    let app = office(&oidc).await;
    let cookie = signed_in(&oidc, &app).await;
    oidc.behaves(json!({ "tenant": "another" })).await;
    tokens_end(&app).await;
    assert_ended(&session(&app, &cookie).await, "The session has ended.");
}

#[tokio::test]
async fn d14_an_outage_of_the_issuer_ends_no_session() {
    let oidc = Oidc::start();
    let app = office(&oidc).await;
    let cookie = signed_in(&oidc, &app).await;
    for status in [500, 503, 429] {
        oidc.behaves(json!({ "fails": status })).await;
        tokens_end(&app).await;
        let asked = oidc.given().await.0;
        for _ in 0..2 {
            let refused = session(&app, &cookie).await;
            refused.failed_with(503, "unavailable");
            assert_eq!(refused.header("retry-after"), Some("5"));
        }
        assert_eq!(oidc.given().await.0, asked + 1, "the second request asks nobody");
        oidc.behaves(json!({})).await;
        tokens_end(&app).await;
        session(&app, &cookie).await.has_status(200);
    }
}

#[tokio::test]
async fn d14_a_sign_out_ends_a_session_in_every_process_and_at_the_issuer() {
    let oidc = Oidc::start();
    let [one, other] = offices(&oidc).await;
    let cookie = signed_in(&oidc, &one).await;
    session(&other, &cookie).await.has_status(200);
    let signed_out = with_csrf(&one, &cookie, Method::POST, "/auth/sign-out").await;
    signed_out.has_status(200);
    assert!(signed_out.header("set-cookie").unwrap().ends_with("Max-Age=0"));
    let at_issuer = signed_out.body.text("end_session_url");
    let expected = format!("{}/session/end?client_id=console&id_token_hint=eyJ", oidc.issuer());
    assert!(at_issuer.starts_with(&expected), "{at_issuer}");
    for app in [&one, &other] {
        assert_ended(&session(app, &cookie).await, "The session has ended.");
    }
    let (_, given) = oidc.given().await;
    let revoked = async || (oidc.refused(&given[0]).await == "invalid_grant").then_some(());
    eventually("the refresh token is revoked", revoked).await;
}

#[tokio::test]
async fn d14_a_session_that_ends_while_it_is_renewed_stays_ended() {
    let oidc = Oidc::start();
    let app = office(&oidc).await;
    let (cookie, other) = (signed_in(&oidc, &app).await, signed_in(&oidc, &app).await);
    let ids = with_csrf(&app, &other, Method::GET, "/auth/sign-ins").await.body["results"].clone();
    let id =
        ids.as_array().unwrap().iter().find(|it| it["is_current"] == false).unwrap()["sign_in_id"].clone();
    let renewed =
        format!("UPDATE sign_ins SET known_until = begun_at WHERE sign_in_id = {id}").replace('"', "'");
    app.rows.change(&renewed).await.unwrap();
    oidc.behaves(json!({ "holds": true })).await;
    let asked = oidc.given().await.0;
    let end = async {
        let is_asked = async || (oidc.given().await.0 == asked + 1).then_some(());
        eventually("the issuer is asked", is_asked).await;
        let path = format!("/auth/sign-ins/{}", id.as_str().unwrap());
        with_csrf(&app, &other, Method::DELETE, &path).await.has_status(204);
        oidc.behaves(json!({})).await;
    };
    let (renewing, ()) = tokio::join!(session(&app, &cookie), end);
    assert_ended(&renewing, "The session has ended.");
    // Also the token that came too late is taken back.
    let (_, given) = oidc.given().await;
    let revoked = async || (oidc.refused(given.last().unwrap()).await == "invalid_grant").then_some(());
    eventually("the new refresh token is revoked", revoked).await;
    session(&app, &other).await.has_status(200);
}

#[tokio::test]
async fn d14_a_person_sees_and_ends_their_own_sign_ins_alone() {
    let oidc = Oidc::start();
    let app = office(&oidc).await;
    let (callback, began) = came_back(&oidc, &app).await;
    let client = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build().unwrap();
    let ended = client.get(&callback).header("cookie", began).header("user-agent", "Browser 1 (Linux)");
    let ended = ended.send().await.unwrap();
    let set = ended.headers()["set-cookie"].to_str().unwrap().split(';').next().unwrap().to_owned();
    let cookie = signed_in(&oidc, &app).await;
    let list = with_csrf(&app, &cookie, Method::GET, "/auth/sign-ins").await;
    let results = list.body.list("results");
    let facts = |it: &Value| (it["is_current"].clone(), it["browser"].clone());
    assert_eq!(
        results.iter().map(facts).collect::<Vec<_>>(),
        [(json!(true), json!("")), (json!(false), json!("Browser 1 (Linux)"))]
    );
    assert!(results[0]["begun_at"].as_str() < results[0]["ends_at"].as_str());
    let path = format!("/auth/sign-ins/{}", results[1].text("sign_in_id"));
    let bob = app.client.with_token(&oidc.token("bob", "RS256").await);
    assert_eq!(bob.get("/auth/sign-ins").await.body, json!({ "results": [] }));
    bob.send(bob.http.delete(bob.url(&path))).await.has_status(404);
    session(&app, &set).await.has_status(200);
    with_csrf(&app, &cookie, Method::DELETE, &path).await.has_status(204);
    assert_ended(&session(&app, &set).await, "The session has ended.");
    for path in [&path, "/auth/sign-ins/x"] {
        with_csrf(&app, &cookie, Method::DELETE, path).await.has_status(404);
    }
    session(&app, &cookie).await.has_status(200);
}

#[tokio::test]
async fn d14_a_cookie_that_the_server_did_not_sign_costs_the_database_nothing() {
    let oidc = Oidc::start();
    let app = office(&oidc).await;
    let cookie = signed_in(&oidc, &app).await;
    let (content, signature) = cookie.rsplit_once('.').unwrap();
    let forged = [
        format!("{COOKIE_OF_SESSION}x"),
        format!("{COOKIE_OF_SESSION}x.1.y"),
        content.to_owned(),
        format!("{content}0.{signature}"),
        format!("{COOKIE_OF_SESSION}{}", oidc.token("ann", "RS256").await),
    ];
    app.rows.change("ALTER TABLE sign_ins RENAME TO gone").await.unwrap();
    assert_eq!(session(&app, &cookie).await.status, 500, "the row of this cookie is read");
    for cookie in forged {
        assert_ended(&session(&app, &cookie).await, "The cookie was not made by this server.");
    }
}

#[tokio::test]
async fn d14_a_cookie_reads_no_more_rows_than_its_user_may_send_requests() {
    let oidc = Oidc::start();
    let keeps = oidc.keeps_sign_ins("ann").await;
    let app = Embedded::with(|config| {
        keeps(config);
        config.limits.requests_per_minute = Some(4);
    })
    .await;
    let cookie = signed_in(&oidc, &app).await;
    with_csrf(&app, &cookie, Method::POST, "/auth/sign-out").await.has_status(200);
    let statuses = async |n: usize| {
        let all = (0..n).map(|_| session(&app, &cookie));
        join_all(all).await.iter().map(|answer| answer.status).collect::<Vec<_>>()
    };
    let mut after = statuses(20).await;
    after.sort_unstable();
    // The whole minute is a burst, and two requests of it are gone.
    assert!(after[..2] == [401, 401] && after[4..].iter().all(|status| *status == 429), "{after:?}");
}

#[tokio::test]
async fn d14_a_stream_outlives_its_session_by_a_minute_at_most() {
    let oidc = Oidc::start();
    let app = office(&oidc).await;
    let cookie = signed_in(&oidc, &app).await;
    let before = token::now();
    let made = with_csrf(&app, &cookie, Method::POST, "/tickets").await;
    made.has_status(201);
    let content = holdpoint_testkit::ticket::content(made.body.text("ticket"));
    let until = content["known_until"].as_i64().unwrap() / 1_000_000;
    assert!((before + 58..=token::now() + 61).contains(&until), "{content}");
}

#[tokio::test]
async fn d14_the_twenty_first_sign_in_of_a_person_ends_the_first() {
    let oidc = Oidc::start();
    let app = office(&oidc).await;
    let first = signed_in(&oidc, &app).await;
    let second = signed_in(&oidc, &app).await;
    for _ in 2..21 {
        signed_in(&oidc, &app).await;
    }
    assert_eq!(app.rows.count("sign_ins").await, 20);
    assert_ended(&session(&app, &first).await, "The session has ended.");
    session(&app, &second).await.has_status(200);
    let (_, given) = oidc.given().await;
    let revoked = async || (oidc.refused(&given[0]).await == "invalid_grant").then_some(());
    eventually("the refresh token of the first is revoked", revoked).await;
}

#[tokio::test]
async fn d14_the_sweeper_deletes_sign_ins_after_their_time() {
    let oidc = Oidc::start();
    let app = office(&oidc).await;
    let cookie = signed_in(&oidc, &app).await;
    let stays = signed_in(&oidc, &app).await;
    let first = "(SELECT MIN(begun_at) FROM sign_ins)";
    let over = format!("UPDATE sign_ins SET ends_at = begun_at + 1 WHERE begun_at = {first}");
    app.rows.change(&over).await.unwrap();
    assert_ended(&session(&app, &cookie).await, "The session has ended.");
    eventually("the row is deleted", async || (app.rows.count("sign_ins").await == 1).then_some(())).await;
    session(&app, &stays).await.has_status(200);
}

#[tokio::test]
async fn d14_after_a_restore_the_fence_ends_all_sign_ins() {
    let oidc = Oidc::start();
    let mut app = office(&oidc).await;
    let (cookie, gone) = (signed_in(&oidc, &app).await, signed_in(&oidc, &app).await);
    let kept = app.rows.all("SELECT * FROM sign_ins").await;
    with_csrf(&app, &gone, Method::POST, "/auth/sign-out").await.has_status(200);
    // The restored database has the row of the ended sign-in.
    for row in &kept {
        let text = |name: &str| format!("'{}'", row[name].as_str().unwrap());
        let columns = ["sign_in_id", "secret_hash", "tenant_id", "user_id", "roles", "tokens", "browser"];
        let texts = columns.map(text).join(", ");
        let (known_until, begun_at, ends_at) = (&row["known_until"], &row["begun_at"], &row["ends_at"]);
        let insert = format!(
            "INSERT INTO sign_ins ({}, known_until, begun_at, ends_at) VALUES ({texts}, {known_until}, {begun_at}, \
             {ends_at}) ON CONFLICT DO NOTHING",
            columns.join(", ")
        );
        app.rows.change(&insert).await.unwrap();
    }
    assert_eq!(session(&app, &gone).await.status, 200, "it counts again");
    app.end().await;
    let printed = app.operate(&["fence", "--by", "mel"]).stdout_of_success();
    assert!(printed.ends_with("2 sign-ins have ended\n"), "{printed}");
    let keeps = oidc.keeps_sign_ins("ann").await;
    let app = app.redeploy_with(holdpoint_testkit::probes(&holdpoint_testkit::Ledger::new()), keeps).await;
    for cookie in [cookie, gone] {
        assert_ended(&session(&app, &cookie).await, "The session has ended.");
    }
}

#[tokio::test]
async fn d14_the_tokens_of_a_sign_in_open_with_no_other_key() {
    let oidc = Oidc::start();
    let app = office(&oidc).await;
    let cookie = signed_in(&oidc, &app).await;
    let keeps = oidc.keeps_sign_ins("ann").await;
    let other_key = |config: &mut holdpoint::config::Config| {
        keeps(config);
        config.auth.session_key = Some("another key, also of 32 bytes or more".to_owned().into());
    };
    let app =
        app.redeploy_with(holdpoint_testkit::probes(&holdpoint_testkit::Ledger::new()), other_key).await;
    assert_eq!(session(&app, &cookie).await.status, 200, "until the access token ends");
    tokens_end(&app).await;
    assert_ended(&session(&app, &cookie).await, "The session has ended.");
    assert_eq!(oidc.given().await.0, 1);
}

#[tokio::test]
async fn without_a_session_key_the_server_keeps_no_sign_in() {
    let oidc = Oidc::start();
    let app = Embedded::with(oidc.signs_in("ann").await).await;
    let cookie = signed_in(&oidc, &app).await;
    assert!(cookie.starts_with(&format!("{COOKIE_OF_SESSION}eyJ")), "{cookie}");
    assert_eq!(app.rows.count("sign_ins").await, 0);
    let list = with_csrf(&app, &cookie, Method::GET, "/auth/sign-ins").await;
    assert_eq!((list.status, list.body), (200, json!({ "results": [] })));
    let id = "01890a5d-ac96-774b-bcce-b302099a8057";
    let ended = with_csrf(&app, &cookie, Method::DELETE, &format!("/auth/sign-ins/{id}")).await;
    ended.has_status(404);
    let signed_out = with_csrf(&app, &cookie, Method::POST, "/auth/sign-out").await;
    assert_eq!((signed_out.status, signed_out.body), (200, json!({})));
    assert_eq!(browse(&app.client.url("/auth/sign-in"), "").await.status, 303);
}
