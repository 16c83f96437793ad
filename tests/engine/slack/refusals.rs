//! Requests that decide nothing.

use super::api::HANGS;
use super::{
    APPROVE, FakeSlack, Interaction, PATH, SIGNING_SECRET, local, now, payload, press, server, with_slack,
};
use futures::future::select_all;
use holdpoint::tools::ToolRegistry;
use holdpoint_testkit::token::{token, with_tokens};
use holdpoint_testkit::{ChangedPay, Embedded, JsonFields, RemoteTool, ServiceAction};
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

/// Asserts that the call still waits, and that nothing ran.
async fn waits(app: &Embedded, call: &str) {
    assert_eq!(app.client.call(call).await["state"], "pending");
    assert_eq!(app.rows.count("decisions").await, 0);
    assert_eq!(app.ledger.lines(), Vec::<String>::new());
}

#[tokio::test]
async fn only_a_request_that_slack_signed_within_five_minutes_over_these_bytes_decides() {
    let slack = FakeSlack::start().await;
    let app = server(&slack, [local()]).await;
    let (_, call) = app.held("pay", "10").await;
    let message = slack.got(1).await.remove(0);
    let good = Interaction::of(&payload(&slack, "U1", &message, APPROVE));
    let signed_at = |at: i64| Interaction::signed(SIGNING_SECRET, at, good.body.clone());
    let with = |change: &dyn Fn(&mut Interaction)| {
        let mut changed = good.clone();
        change(&mut changed);
        changed
    };
    for (what, forged) in [
        ("another secret", Interaction::signed("another", now(), good.body.clone())),
        ("too old", signed_at(now() - 310)),
        ("from the future", signed_at(now() + 310)),
        ("another body", with(&|it| it.body.push_str("&x=1"))),
        ("another time", with(&|it| it.timestamp = (now() + 1).to_string())),
        ("no time", with(&|it| it.timestamp = "soon".to_owned())),
        ("no signature", with(&|it| it.signature = String::new())),
        ("another version", with(&|it| it.signature = it.signature.replace("v0=", "v1="))),
    ] {
        for path in [PATH, "/api/slack/interactions", "/slack//interactions", "/slack/interactions/"] {
            let (status, body) = forged.send(&app.client, path).await;
            let expected: &[u16] = if path.ends_with("k/interactions") { &[401] } else { &[401, 404] };
            assert!(expected.contains(&status), "{what} {path}: {status} {body}");
        }
    }
    let unsigned = app.client.http.post(app.client.url(PATH)).body(good.body.clone()).send().await.unwrap();
    assert_eq!(unsigned.status(), 401);
    let challenge = unsigned.headers()["www-authenticate"].to_str().unwrap().to_owned();
    assert!(
        challenge.starts_with("Slack error_description=\"The headers x-slack-request-timestamp"),
        "{challenge}"
    );
    let read = app.client.get(PATH).await;
    assert_eq!((read.status, read.header("allow")), (405, Some("POST")));
    waits(&app, &call).await;
    assert_eq!(slack.notices().len(), 0);
    assert_eq!(good.send(&app.client, PATH).await.0, 200);
    app.client.becomes(&call, "succeeded").await;
}

#[tokio::test]
async fn unfinished_bodies_of_strangers_take_no_bytes_of_users_and_decisions() {
    const BYTES: usize = 2000;
    let slack = FakeSlack::start().await;
    let app = Embedded::with(|config| {
        with_slack(config, &slack, [local()]);
        config.limits.body_bytes = BYTES;
        config.limits.chat_body_bytes = BYTES;
        config.limits.bodies_in_flight_bytes = 4 * BYTES;
    })
    .await;
    let host = app.client.base.trim_start_matches("http://").to_owned();
    let mut open = Vec::new();
    // The requests of one network that are not verified have as many bytes as eight of the longest bodies.
    for _ in 0..9 {
        let mut socket = tokio::net::TcpStream::connect(&host).await.unwrap();
        let head = format!(
            "POST {PATH} HTTP/1.1\r\nhost: {host}\r\nx-slack-request-timestamp: {}\r\n\
             x-slack-signature: v0=00\r\ncontent-length: {BYTES}\r\n\r\n{}",
            now(),
            "x".repeat(BYTES - 1)
        );
        socket.write_all(head.as_bytes()).await.unwrap();
        open.push(socket);
    }
    // The others wait for the rest of their bodies.
    let answers = open.iter_mut().map(|socket| {
        Box::pin(async move {
            let mut status = [0; 12];
            socket.read_exact(&mut status).await.map(|_| status)
        })
    });
    let first = timeout(Duration::from_secs(30), select_all(answers)).await;
    let (status, ..) = first.expect("one of them is refused");
    assert_eq!(&status.unwrap(), b"HTTP/1.1 429");
    app.client.post("/threads", &json!({ "title": "one" })).await.has_status(201);
    app.client.approve("01890a5d-ac96-774b-bcce-b302099a8057").await.has_status(404);
}

#[tokio::test]
async fn a_token_opens_no_button_and_a_server_without_slack_has_no_such_route() {
    let slack = FakeSlack::start().await;
    let app = Embedded::with(|config| {
        with_tokens(config);
        with_slack(config, &slack, []);
    })
    .await;
    let bearer = format!("Bearer {}", token("acme", "ann", &["approver"]));
    let post =
        |app: &Embedded| app.client.http.post(app.client.url(PATH)).header("authorization", bearer.clone());
    app.client.send(post(&app)).await.has_status(401);
    let without = Embedded::with(with_tokens).await;
    without.client.send(post(&without)).await.has_status(404);
    let good = Interaction::of(&json!({ "type": "block_actions" }));
    assert_eq!(good.send(&without.client, PATH).await.0, 401);
    assert_eq!(good.send(&app.client, PATH).await.0, 200);
}

#[tokio::test]
async fn a_signed_request_without_a_press_decides_nothing_and_an_unreadable_one_names_its_field() {
    let slack = FakeSlack::start().await;
    let app = server(&slack, [local()]).await;
    let (_, call) = app.held("pay", "10").await;
    let message = slack.got(1).await.remove(0);
    let good = payload(&slack, "U1", &message, APPROVE);
    let with = |change: &dyn Fn(&mut Value)| {
        let mut changed = good.clone();
        change(&mut changed);
        Interaction::of(&changed)
    };
    for (interaction, status, why) in [
        (with(&|it| it["type"] = json!("view_submission")), 200, ""),
        (with(&|it| it["actions"][0]["action_id"] = json!("holdpoint_open")), 200, ""),
        (with(&|it| it["actions"] = json!([])), 200, ""),
        (with(&|it| it["actions"][0]["value"] = json!("x")), 400, "payload: actions: expected the value"),
        (with(&|it| it["user"] = json!(null)), 400, "payload: user: expected the user"),
        (with(&|it| it["user"] = json!(1)), 400, "payload: expected the JSON of an interaction"),
        (
            Interaction::signed(SIGNING_SECRET, now(), "payload=%7B".to_owned()),
            400,
            "payload: expected the JSON",
        ),
        (
            Interaction::signed(SIGNING_SECRET, now(), "x=1".to_owned()),
            400,
            "payload: expected this field once",
        ),
        (
            Interaction::signed(SIGNING_SECRET, now(), "payload=1&payload=2".to_owned()),
            400,
            "payload: expected this field once",
        ),
    ] {
        let (found, body) = interaction.send(&app.client, PATH).await;
        assert!(found == status && body.contains(why), "{found} {body}: {status} {why}");
    }
    for (field, value, notice) in [
        ("endpoint", json!("nowhere"), "Your Slack account is not mapped"),
        ("call", json!("x"), "There is no such call"),
        ("call", json!("00000000-0000-0000-0000-000000000000"), "There is no such call"),
        ("input_hash", json!("0".repeat(64)), "The call has changed since this message."),
    ] {
        let before = slack.notices().len();
        let changed = with(&|it| {
            let mut button: Value = serde_json::from_str(it["actions"][0].text("value")).unwrap();
            button[field] = value.clone();
            it["actions"][0]["value"] = json!(button.to_string());
        });
        assert_eq!(changed.send(&app.client, PATH).await.0, 200);
        let notices = slack.noticed(before + 1).await;
        assert!(notices[before].starts_with(notice), "{field}: {notices:?}");
    }
    waits(&app, &call).await;
}

#[tokio::test]
async fn a_call_whose_tool_has_changed_since_the_message_is_not_approved_by_it() {
    let slack = FakeSlack::start().await;
    let app = server(&slack, [local()]).await;
    let (_, call) = app.held("pay", "10").await;
    let message = slack.got(1).await.remove(0);
    let mut tools = ToolRegistry::new();
    tools.register(ChangedPay(app.ledger.clone())).unwrap();
    let app = app.redeploy_with(tools, |config| with_slack(config, &slack, [local()])).await;
    press(&app, &slack, "U1", &message, APPROVE).await;
    let notices = slack.noticed(1).await;
    assert!(notices[0].starts_with("The call has changed since this message."), "{notices:?}");
    waits(&app, &call).await;
}

#[tokio::test]
async fn slack_has_its_answer_in_time_although_a_notice_does_not_arrive() {
    let slack = FakeSlack::start().await;
    let app = server(&slack, [local()]).await;
    app.held("pay", "10").await;
    let message = slack.got(1).await.remove(0);
    let mut unmapped = payload(&slack, "U7", &message, APPROVE);
    unmapped["response_url"] = json!(format!("{}{HANGS}", slack.base));
    let interaction = Interaction::of(&unmapped);
    let began = Instant::now();
    assert_eq!(interaction.send(&app.client, PATH).await.0, 200);
    // A server that waits for the notice waits for 15 seconds.
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    slack.noticed(1).await;
}

#[tokio::test]
async fn a_notice_goes_to_an_address_of_slack_alone() {
    let slack = FakeSlack::start().await;
    let elsewhere = RemoteTool::start(ServiceAction::answers(200, "")).await;
    let app = server(&slack, [local()]).await;
    let (_, call) = app.held("pay", "10").await;
    let message = slack.got(1).await.remove(0);
    let mut unmapped = payload(&slack, "U7", &message, APPROVE);
    let here = elsewhere.base.replace("127.0.0.1", "localhost");
    for url in [format!("{}/x", elsewhere.base), here, "http://169.254.169.254/".to_owned(), "x".to_owned()] {
        unmapped["response_url"] = json!(url);
        assert_eq!(Interaction::of(&unmapped).send(&app.client, PATH).await.0, 200, "{url}");
    }
    unmapped["response_url"] = json!(null);
    assert_eq!(Interaction::of(&unmapped).send(&app.client, PATH).await.0, 200);
    press(&app, &slack, "U7", &message, APPROVE).await;
    slack.noticed(1).await;
    assert_eq!((elsewhere.received().len(), slack.notices().len()), (0, 1));
    waits(&app, &call).await;
}
