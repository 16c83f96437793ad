//! Links of messages to one person: each opens the card of a call, decides nothing and gives no right.

use super::{CONSOLE, entry, got, service, with_notify};
use crate::webhooks::{MovedClock, becomes, enable};
use holdpoint::config::{Config, Notify};
use holdpoint::tools::ToolRegistry;
use holdpoint_testkit::console::play;
use holdpoint_testkit::token::{token, with_tokens};
use holdpoint_testkit::{
    Answer, ChangedPay, Client, Embedded, JsonFields, ReceivedRequest, RemoteTool, ServiceAction, eventually,
};
use reqwest::Method;
use reqwest::header::CONTENT_TYPE;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::sync::Arc;
use std::time::Duration;

const HOUR: i64 = 60 * 60;
const TEMPLATE: &str = r#"{"link": "{link}"}"#;

/// An entry of this name whose messages are their links.
fn links_to(name: &str, service: &RemoteTool) -> Notify {
    Notify {
        tenant: "acme".to_owned(),
        user: None,
        role: Some("manager".to_owned()),
        ..entry(name, &format!("{}/{name}", service.base), TEMPLATE)
    }
}

/// Tokens, and a tool `pay` that this number of managers approves, never its requester. Messages go to the manager dana
/// and to the role.
fn office(config: &mut Config, service: &RemoteTool, approvals: u8) {
    with_tokens(config);
    let rules = config.tools.rules.entry("pay".to_owned()).or_default();
    rules.approve_roles = vec!["manager".to_owned()];
    rules.other_person = true;
    rules.approvals = approvals;
    let dana = Notify { user: Some("dana".to_owned()), ..links_to("dana", service) };
    with_notify(config, [dana, links_to("managers", service)]);
}

async fn server(service: &RemoteTool, approvals: u8) -> Embedded {
    let mut app = Embedded::with(|config| office(config, service, approvals)).await;
    app.client = app.client.as_user("acme", "ann", &[]);
    app
}

fn manager(app: &Embedded, user: &str) -> Client {
    app.client.as_user("acme", user, &["manager"])
}

fn address(message: &ReceivedRequest) -> String {
    message.json().text("link").to_owned()
}

/// The token of the link in a message.
fn link_of(message: &ReceivedRequest) -> String {
    let address = address(message);
    let token = address.strip_prefix(&format!("{CONSOLE}/#/link/")).unwrap_or_else(|| panic!("{address}"));
    assert!(token.len() == 64 && token.bytes().all(|byte| byte.is_ascii_hexdigit()), "{token}");
    token.to_owned()
}

/// A held call, and the token of the link to it that dana got.
async fn sent(app: &Embedded, service: &RemoteTool, note: &str) -> (String, String) {
    let before = service.received_at("/dana").len();
    let (_, call) = app.held("pay", note).await;
    (call, link_of(&got(service, "/dana", before + 1).await[before]))
}

async fn opened(client: &Client, link: &str) -> Answer {
    client.post("/links/open", &json!({ "link": link })).await
}

async fn decided(client: &Client, call: &str, link: &str, approves: bool) -> Answer {
    client.validate(&json!({ "toolCallId": call, "isValidated": approves, "link": link })).await
}

async fn rows(app: &Embedded) -> Vec<Value> {
    app.rows.all("SELECT * FROM links ORDER BY expires_at, token_hash").await
}

async fn nothing_is_decided(app: &Embedded, call: &str) {
    assert_eq!(app.client.call(call).await["state"], "pending");
    assert_eq!(app.rows.count("decisions").await, 0);
    assert_eq!(app.rows.count("links WHERE used_at IS NOT NULL").await, 0);
    assert!(app.ledger.lines().is_empty());
}

fn hashed(token: &str) -> String {
    Sha256::digest(token).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[tokio::test]
async fn a_message_to_one_person_has_a_link_whose_hash_is_stored_and_one_to_a_role_has_none() {
    let service = service().await;
    let app = server(&service, 1).await;
    let (call, link) = sent(&app, &service, "1").await;
    let card = format!("{CONSOLE}/#/call/{call}");
    assert_eq!(address(&got(&service, "/managers", 1).await[0]), card);
    let stored = rows(&app).await;
    assert_eq!(stored.len(), 1, "{stored:?}");
    assert!(!stored[0].to_string().contains(&link), "{stored:?}");
    let hash = app.client.get(&format!("/approvals/{call}")).await.body["input_hash"].clone();
    for (column, value) in [
        ("token_hash", json!(hashed(&link))),
        ("tool_call_id", json!(call)),
        ("tenant_id", json!("acme")),
        ("user_id", json!("dana")),
        ("input_hash", hash),
        ("used_at", Value::Null),
    ] {
        assert_eq!(stored[0][column], value, "{column}");
    }
    manager(&app, "dana").reject(&call).await.has_status(200);
    assert_eq!(address(&got(&service, "/dana", 2).await[1]), card, "the end has nothing to decide");
    assert_eq!(rows(&app).await, stored, "a decision without the link leaves it");
}

#[tokio::test]
async fn each_attempt_has_a_link_of_its_own() {
    let service = service().await;
    service.next([ServiceAction::answers(503, "")]);
    let mut app = Embedded::with(|config| {
        office(config, &service, 1);
        config.notify.truncate(1);
        config.auth.operator_roles = vec!["operator".to_owned()];
    })
    .await;
    app.client = app.client.as_user("acme", "ann", &[]);
    let (_, call) = app.held("pay", "1").await;
    let operator = app.client.as_user("acme", "olga", &["operator"]);
    becomes(&operator, "dana", "failing").await;
    enable(&operator, "dana").await;
    let links: Vec<String> = got(&service, "/dana", 2).await.iter().map(link_of).collect();
    assert_ne!(links[0], links[1]);
    for link in &links {
        assert_eq!(opened(&manager(&app, "dana"), link).await.body["tool_call_id"], json!(call));
    }
}

/// All addresses in a page: of links, files and forms.
fn addresses(page: &str) -> Vec<String> {
    let values = ["href=\"", "src=\"", "action=\""].into_iter().flat_map(|name| page.split(name).skip(1));
    values.filter_map(|rest| rest.split('"').next()).map(str::to_owned).collect()
}

#[tokio::test]
async fn a11_a_robot_that_fetches_follows_and_submits_everything_decides_nothing() {
    let service = service().await;
    let app = server(&service, 1).await;
    let (call, link) = sent(&app, &service, "1").await;
    let base = &app.client.base;
    let mut found: Vec<String> = ["", "#", "link/", "api/link/", "?link=", "links/open?link="]
        .iter()
        .map(|prefix| format!("{base}/{prefix}{link}"))
        .collect();
    found.push(format!("{base}/#/link/{link}"));
    found.push(format!("{base}/links/open"));
    found.push(format!("{base}/qa/validate_tool"));
    let robot = reqwest::Client::new();
    let page = robot.get(&found[6]).send().await.unwrap().text().await.unwrap();
    let of_page = addresses(&page).into_iter().filter(|at| !at.starts_with("data:"));
    found.extend(of_page.map(|at| format!("{base}/{at}")));
    assert!(found.len() > 12, "{found:?}");
    let fields = json!({ "link": link, "toolCallId": call, "isValidated": true });
    let as_form = format!("link={link}&toolCallId={call}&isValidated=true");
    let mut refused = 0;
    for address in &found {
        for method in [Method::GET, Method::HEAD, Method::POST] {
            let request = || robot.request(method.clone(), address);
            let form =
                request().header(CONTENT_TYPE, "application/x-www-form-urlencoded").body(as_form.clone());
            for request in [request(), request().json(&fields), form] {
                let answer = request.send().await.unwrap();
                assert!(answer.status().as_u16() < 500, "{method} {address}");
                refused += usize::from(answer.status() == 401);
            }
        }
    }
    assert!(refused > 9, "{refused} of {} requests", found.len() * 9);
    nothing_is_decided(&app, &call).await;
    // The person comes after the robot.
    assert_eq!(decided(&manager(&app, "dana"), &call, &link, true).await.body["state"], "succeeded");
}

#[tokio::test]
async fn a15_a_link_opens_its_call_and_one_decision_uses_it_up() {
    let service = service().await;
    let app = server(&service, 1).await;
    let dana = manager(&app, "dana");
    let (call, link) = sent(&app, &service, "1").await;
    let hash = app.client.get(&format!("/approvals/{call}")).await.body["input_hash"].clone();
    let expected = |state: &str| json!({ "tool_call_id": call, "input_hash": hash, "state": state });
    for _ in 0..2 {
        let opened = opened(&dana, &link).await;
        assert_eq!((opened.status, opened.body), (200, expected("pending")));
    }
    nothing_is_decided(&app, &call).await;
    assert_eq!(decided(&dana, &call, &link, true).await.body["state"], "succeeded");
    assert_eq!(app.rows.count("links WHERE used_at IS NOT NULL").await, 1);
    // A repeat shows the outcome.
    assert_eq!(opened(&dana, &link).await.body, expected("succeeded"));
    let repeat = decided(&dana, &call, &link, true).await;
    assert_eq!((repeat.status, repeat.header("idempotent-replayed")), (200, Some("true")));
    let other = decided(&dana, &call, &link, false).await;
    other.failed_with(409, "already_decided");
    assert_eq!(other.body["error"]["details"]["decision"]["by"], "user:dana");
    assert_eq!(app.ledger.lines(), ["pay 1"]);
    assert_eq!(app.rows.count("decisions").await, 1);
}

#[tokio::test]
async fn a15_a_link_of_another_person_of_another_call_or_of_nothing_decides_nothing() {
    let service = service().await;
    let app = server(&service, 1).await;
    let (call, link) = sent(&app, &service, "1").await;
    let (other_call, other_link) = sent(&app, &service, "2").await;
    let (dana, carol) = (manager(&app, "dana"), manager(&app, "carol"));
    // Carol may decide the call, but not by the link of dana.
    for refused in [opened(&carol, &link).await, decided(&carol, &call, &link, true).await] {
        refused.failed_with(403, "forbidden");
        let text = refused.body.to_string();
        assert!(!text.contains("dana") && !text.contains(&call), "{text}");
    }
    let elsewhere = app.client.as_user("other", "dana", &["manager"]);
    opened(&elsewhere, &link).await.has_status(403);
    let (zeros, upper) = ("0".repeat(64), link.to_uppercase());
    for unknown in [zeros.as_str(), "", "x", &upper] {
        for refused in [opened(&dana, unknown).await, decided(&dana, &call, unknown, true).await] {
            assert_eq!(refused.failure(), (404, "not_found"), "{unknown}");
            let text = refused.body["error"].text("message");
            assert!(text.starts_with("link: expected a link of a message of the last hour."), "{text}");
        }
    }
    let crossed = decided(&dana, &call, &other_link, true).await;
    crossed.failed_with(404, "not_found");
    nothing_is_decided(&app, &call).await;
    nothing_is_decided(&app, &other_call).await;
    // A link gives no right: without the role its person neither sees nor decides the call.
    let demoted = app.client.as_user("acme", "dana", &[]);
    opened(&demoted, &link).await.has_status(404);
    decided(&demoted, &call, &link, true).await.has_status(404);
    nothing_is_decided(&app, &call).await;
    // Of several decisions in one request, the one with the wrong link is refused alone.
    let decisions = json!({ "decisions": [
        { "toolCallId": call, "isValidated": true, "link": other_link },
        { "toolCallId": other_call, "isValidated": true, "link": other_link },
    ] });
    let both = dana.post("/qa/validate_tools", &decisions).await;
    let statuses = [&both.body["results"][0]["status"], &both.body["results"][1]["status"]];
    assert_eq!(statuses, [&json!(404), &json!(200)]);
    assert_eq!(app.ledger.lines(), ["pay 2"]);
}

#[tokio::test]
async fn a15_with_a_quorum_a_link_is_good_for_one_vote() {
    let service = service().await;
    let app = server(&service, 2).await;
    let (dana, carol) = (manager(&app, "dana"), manager(&app, "carol"));
    let (call, link) = sent(&app, &service, "1").await;
    let vote = decided(&dana, &call, &link, true).await;
    vote.has(202, "state", "pending");
    let repeat = decided(&dana, &call, &link, true).await;
    assert_eq!((repeat.status, repeat.header("idempotent-replayed")), (202, Some("true")));
    let changed = decided(&dana, &call, &link, false).await;
    changed.failed_with(409, "already_decided");
    assert_eq!(app.client.call(&call).await["state"], "pending");
    assert_eq!(carol.approve(&call).await.body["state"], "succeeded");
    assert_eq!(app.rows.count("decisions").await, 2);
}

#[tokio::test]
async fn a15_a_link_does_not_decide_a_call_that_has_changed_since_its_message() {
    let service = service().await;
    let app = server(&service, 1).await;
    let (call, link) = sent(&app, &service, "1").await;
    let mut tools = ToolRegistry::new();
    tools.register(ChangedPay(app.ledger.clone())).unwrap();
    let mut app = app.redeploy_with(tools, |config| office(config, &service, 1)).await;
    app.client = app.client.as_user("acme", "ann", &[]);
    let dana = manager(&app, "dana");
    let now = dana.get(&format!("/approvals/{call}")).await.body["input_hash"].clone();
    let opened = opened(&dana, &link).await;
    opened.has_status(200);
    assert_ne!(opened.body["input_hash"], now);
    for hash in [Value::Null, now.clone()] {
        let body = json!({ "toolCallId": call, "isValidated": false, "link": link, "inputHash": hash });
        let stale = dana.validate(&body).await;
        stale.failed_with(409, "stale");
        assert_eq!(stale.body["error"]["details"]["input_hash"], now);
    }
    nothing_is_decided(&app, &call).await;
    dana.reject(&call).await.has_status(200);
}

#[tokio::test]
async fn a15_an_expired_link_opens_and_decides_nothing_and_its_row_is_deleted() {
    let service = service().await;
    let mut app = Embedded::with(|config| {
        office(config, &service, 1);
        config.approval.sweep = Duration::from_secs(3600);
    })
    .await;
    app.client = app.client.as_user("acme", "ann", &[]);
    let (call, _) = sent(&app, &service, "1").await;
    let of_an_hour_ago = format!(
        "INSERT INTO links SELECT '{}', tool_call_id, tenant_id, user_id, input_hash, 1000000, NULL FROM links",
        hashed("old")
    );
    assert_eq!(app.rows.change(&of_an_hour_ago).await, Ok(1));
    let dana = manager(&app, "dana");
    opened(&dana, "old").await.has_status(404);
    decided(&dana, &call, "old", true).await.has_status(404);
    nothing_is_decided(&app, &call).await;
    let tools = holdpoint_testkit::probes(&app.ledger);
    let app = app
        .redeploy_with(tools, |config| {
            office(config, &service, 1);
            config.approval.sweep = Duration::from_millis(20);
        })
        .await;
    let deleted = async || (app.rows.count("links").await == 1).then_some(());
    eventually("the old link is deleted", deleted).await;
    assert_eq!(app.rows.count("links WHERE expires_at = 1000000").await, 0);
}

#[tokio::test]
async fn on_sqlite_a_link_is_valid_for_an_hour() {
    let service = service().await;
    let (clock, dir) = (Arc::new(MovedClock::default()), tempfile::tempdir().unwrap());
    // Without authentication, because a token would expire earlier.
    let local = entry("dana", &format!("{}/dana", service.base), TEMPLATE);
    let app = Embedded::clocked(&dir, clock.clone(), |config| with_notify(config, [local])).await;
    let (call, link) = sent(&app, &service, "1").await;
    clock.by_seconds(HOUR - 60);
    assert_eq!(opened(&app.client, &link).await.body["state"], "pending");
    clock.by_seconds(61);
    for refused in [opened(&app.client, &link).await, decided(&app.client, &call, &link, true).await] {
        refused.failed_with(404, "not_found");
    }
    nothing_is_decided(&app, &call).await;
    assert_eq!(app.client.approve(&call).await.body["state"], "succeeded");
}

#[tokio::test]
async fn a11_in_a_browser_a_robot_decides_nothing_by_a_link_and_then_its_person_decides() {
    let service = service().await;
    let app = server(&service, 1).await;
    let (call, link) = sent(&app, &service, "10").await;
    play("robot", &app.client.base, json!({ "link": link })).await;
    nothing_is_decided(&app, &call).await;
    let facts = json!({
        "call": call,
        "link": link,
        "unknown": "0".repeat(64),
        "dana": token("acme", "dana", &["manager"]),
        "carol": token("acme", "carol", &["manager"]),
    });
    play("link", &app.client.base, facts).await;
    assert_eq!(app.ledger.lines(), ["pay 10"]);
    assert_eq!(app.client.call(&call).await["decision"]["by"], "user:dana");
    assert_eq!(app.rows.count("links WHERE used_at IS NOT NULL").await, 1);
}

#[tokio::test]
async fn the_database_takes_no_link_without_a_hash_a_call_or_a_person_and_none_that_is_used_after_its_end() {
    let service = service().await;
    let app = server(&service, 1).await;
    sent(&app, &service, "1").await;
    let hash = hashed("x");
    for values in [
        "token_hash, tool_call_id, tenant_id, user_id, input_hash, expires_at, NULL".to_owned(),
        "'short', tool_call_id, tenant_id, user_id, input_hash, expires_at, NULL".to_owned(),
        format!("'{hash}', 'none', tenant_id, user_id, input_hash, expires_at, NULL"),
        format!("'{hash}', tool_call_id, tenant_id, '', input_hash, expires_at, NULL"),
        format!("'{hash}', tool_call_id, tenant_id, user_id, input_hash, expires_at, expires_at"),
    ] {
        let refused = app.rows.change(&format!("INSERT INTO links SELECT {values} FROM links")).await;
        assert!(refused.is_err(), "{values}");
    }
    let taken = format!("'{hash}', tool_call_id, tenant_id, user_id, input_hash, expires_at, expires_at - 1");
    assert_eq!(app.rows.change(&format!("INSERT INTO links SELECT {taken} FROM links")).await, Ok(1));
}
