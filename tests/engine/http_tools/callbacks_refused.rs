//! Reports that are refused: forged, changed, of another call, too old, or with a wrong body.

use super::{
    HERE, Office, PUBLIC, SECRETS, callback, fresh_secret, hold, post, report, signed, signed_at, tool,
};
use holdpoint_testkit::{Answer, Client, JsonFields, Process, ReceivedRequest, ServiceAction, token};
use serde_json::json;

const BODY: &str = r#"{"result":1}"#;

const NO_CALLBACK: &str =
    "The URL is no callback_url, or was made with other secrets than those of its tool.";
const UNSIGNED: &str = "The headers webhook-id, webhook-timestamp and webhook-signature are not all there.";
const TIME: &str = "The webhook-timestamp is no time, or is more than 5 minutes from now.";
const SIGNATURE: &str =
    "The webhook-signature was made with other secrets than those of the tool, or over other bytes.";

/// Asserts a 401 with this cause.
fn assert_unknown(answer: &Answer, why: &str, what: &str) {
    let message = "Expected a callback_url, and a signature by Standard Webhooks.";
    let expected = json!({ "error": { "code": "unauthenticated", "message": message } });
    assert_eq!((answer.status, &answer.body), (401, &expected), "{what}");
    let challenge = format!("Webhook error_description=\"{why}\"");
    assert_eq!(answer.header("www-authenticate"), Some(challenge.as_str()), "{what}");
}

/// An approved call of `delete_file` that its service has, with its request.
async fn sent(office: &Office, client: &Client, path: &str) -> (String, ReceivedRequest) {
    let id = hold(client, path).await;
    client.approve(&id).await.has_status(202);
    let all = office.remote.received();
    (id.clone(), all.into_iter().find(|it| it.header("webhook-id") == id).unwrap())
}

#[tokio::test]
async fn a_forged_report_is_refused_without_the_database() {
    let office = Office::deferring(ServiceAction::answers(202, ""), "delete_file", "").await;
    let server = office.start(&[("HOLDPOINT_AUTH__MODE", "none")]);
    let client = &server.client;
    let (_, request) = sent(&office, client, "a").await;
    let (other, of_other) = sent(&office, client, "b").await;
    let (path, good) = (callback(&request), signed(SECRETS[0], BODY));
    let id = request.header("webhook-id");
    // A statement of the refused requests would fail.
    let rows = office.rows().await;
    let before = rows.all("SELECT * FROM tool_calls ORDER BY tool_call_id").await;
    rows.change("ALTER TABLE tool_calls RENAME TO gone").await.unwrap();

    let (address, mac) = path.rsplit_once("&mac=").unwrap();
    let (_, mac_of_other) =
        callback(&of_other).rsplit_once("&mac=").map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap();
    let changed = format!("{}{}", if mac.starts_with('A') { 'B' } else { 'A' }, &mac[1..]);
    for forged in [
        address.to_owned(),
        format!("{address}&mac="),
        format!("{address}&mac={changed}"),
        format!("{address}&mac={}", &mac[1..]),
        format!("{address}&mac={mac_of_other}"),
        format!("{address}&mac={mac}&mac={mac}"),
        path.replace(id, &other),
        path.replace("delete_file", "list_files"),
        path.replace("delete_file", "nothing"),
        path.replace("delete_file", ""),
        path.replace("execution_id=", "execution_id=0"),
        callback(&of_other).replace(&other, id),
        path.split('?').next().unwrap().to_owned(),
    ] {
        for prefix in ["", "/api"] {
            let answer = post(client, &format!("{prefix}{forged}"), &good, BODY).await;
            assert_unknown(&answer, NO_CALLBACK, &forged);
        }
    }
    let answer = post(client, &path.replace(id, "x"), &good, BODY).await;
    answer.failed_with(404, "not_found");
    let with = |name: &str, value: &str| {
        let headers =
            good.iter().map(|(other, old)| (*other, if *other == name { value } else { old }.to_owned()));
        headers.collect::<Vec<_>>()
    };
    let without = |name: &str| good.iter().filter(|(other, _)| *other != name).cloned().collect::<Vec<_>>();
    let now = token::now();
    for (headers, body, why) in [
        (vec![], BODY, UNSIGNED),
        (without("webhook-id"), BODY, UNSIGNED),
        (without("webhook-timestamp"), BODY, UNSIGNED),
        (without("webhook-signature"), BODY, UNSIGNED),
        (with("webhook-id", "msg_2"), BODY, SIGNATURE),
        (with("webhook-timestamp", &(now + 1).to_string()), BODY, SIGNATURE),
        (with("webhook-signature", "v1,AAAA"), BODY, SIGNATURE),
        (with("webhook-signature", ""), BODY, SIGNATURE),
        (good.clone(), r#"{"result":2}"#, SIGNATURE),
        (good.clone(), "", SIGNATURE),
        (signed(SECRETS[1], BODY), BODY, SIGNATURE),
        (signed(&fresh_secret(), BODY), BODY, SIGNATURE),
        (signed_at(SECRETS[0], BODY, now - 400), BODY, TIME),
        (signed_at(SECRETS[0], BODY, now + 400), BODY, TIME),
        (with("webhook-timestamp", "soon"), BODY, TIME),
    ] {
        assert_unknown(&post(client, &path, &headers, body).await, why, &format!("{headers:?} {body}"));
    }
    rows.change("ALTER TABLE gone RENAME TO tool_calls").await.unwrap();
    assert_eq!(rows.all("SELECT * FROM tool_calls ORDER BY tool_call_id").await, before);
    post(client, &path, &good, BODY).await.has_status(200);
    assert_eq!(client.call(&other).await["state"], "executing");
}

#[tokio::test]
async fn a_service_reports_the_calls_of_its_own_tool_only() {
    let toml = format!(
        "server.public_url = \"{PUBLIC}\"\n{HERE}{}{}",
        tool("delete_file", "{url}/a", ""),
        tool("list_files", "{url}/b", "hil = false").replace("\"secrets\"", "\"others\"")
    );
    let office = Office::new(ServiceAction::answers(202, ""), &toml).await;
    std::fs::write(office.dir.path().join("others"), SECRETS[1]).unwrap();
    let server = office.start(&[]);
    let (id, request) = sent(&office, &server.client, "a").await;
    // The service of list_files knows its own secret, the ids of the other tool's call, and how a URL is made.
    let execution =
        callback(&request).split("execution_id=").nth(1).unwrap().split('&').next().unwrap().to_owned();
    let mac = mac(SECRETS[1], &format!("holdpoint callback\nlist_files\n{id}\n{execution}"));
    let path = format!("/tool_calls/{id}/result?tool_name=list_files&execution_id={execution}&mac={mac}");
    let answer = post(&server.client, &path, &signed(SECRETS[1], BODY), BODY).await;
    answer.failed_with(404, "not_found");
    let unknown = path.replace(&id, &execution);
    let mac_of_unknown =
        self::mac(SECRETS[1], &format!("holdpoint callback\nlist_files\n{execution}\n{execution}"));
    let unknown = unknown.replace(&mac, &mac_of_unknown);
    let missing = post(&server.client, &unknown, &signed(SECRETS[1], BODY), BODY).await;
    assert_eq!((missing.status, &missing.body), (404, &answer.body), "{missing:?}");
    assert_eq!(server.client.call(&id).await["state"], "executing");
}

/// The HMAC of a text with this secret, in base64 for URLs.
fn mac(secret: &str, text: &str) -> String {
    use base64::Engine;
    use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
    use hmac::{KeyInit, Mac};
    let key = STANDARD.decode(secret.strip_prefix("whsec_").unwrap()).unwrap();
    let mut mac = hmac::Hmac::<sha2::Sha256>::new_from_slice(&key).unwrap();
    mac.update(text.as_bytes());
    URL_SAFE_NO_PAD.encode(mac.finalize().into_bytes())
}

#[tokio::test]
async fn a_body_is_either_a_result_or_an_error() {
    let office = Office::deferring(ServiceAction::answers(202, ""), "delete_file", "").await;
    let server = office.start(&[("HOLDPOINT_LIMITS__BODY_BYTES", "2000")]);
    let client = &server.client;
    let (id, request) = sent(&office, client, "a").await;
    for (body, why) in [
        ("", "body: "),
        ("nope", "body: "),
        ("[1]", "body: expected a JSON object"),
        ("{}", "body: expected either result or error"),
        (r#"{"result":1,"error":"no"}"#, "body: expected either result or error"),
        (r#"{"error":null}"#, "body: expected either result or error"),
        (r#"{"error":5}"#, "error: "),
        (r#"{"result":1,"state":"succeeded"}"#, "state: unknown field"),
        (r#"{"result":1,"result":2}"#, "body: the key"),
        (r#"{"result":"\u0000"}"#, "result: "),
        (r#"{"result":123456789012345678901234567890}"#, "result: "),
    ] {
        let answer = report(client, &request, body).await;
        assert_eq!(answer.failure(), (400, "bad_request"), "{body}: {answer:?}");
        assert!(answer.message().starts_with(why), "{body}: {}", answer.message());
    }
    let long = json!({ "result": "x".repeat(2000) }).to_string();
    assert_eq!(report(client, &request, &long).await.code(), "body_too_large");
    let path = callback(&request);
    let plain = client.http.post(client.url(&path)).header("content-type", "text/plain").body(BODY);
    let plain = signed(SECRETS[0], BODY).iter().fold(plain, |it, (name, value)| it.header(*name, value));
    assert_eq!(client.send(plain).await.code(), "unsupported_media_type");
    let further = post(client, &format!("{path}&x=1"), &signed(SECRETS[0], BODY), BODY).await;
    assert!(further.message().starts_with("query: unknown parameter \"x\""), "{further:?}");
    assert_eq!(client.get(&path).await.code(), "method_not_allowed");
    assert_eq!(client.call(&id).await["state"], "executing");

    let answer = report(client, &request, r#"{"result":null,"error":null}"#).await;
    answer.has_status(200);
    assert_eq!(client.call(&id).await["output"], json!(null));
}

#[tokio::test]
async fn a_long_result_is_cut_like_that_of_a_200() {
    let office = Office::deferring(ServiceAction::answers(202, ""), "delete_file", "").await;
    let server = office.start(&[("HOLDPOINT_LIMITS__RESULT_BYTES", "1000")]);
    let (id, request) = sent(&office, &server.client, "a").await;
    let body = json!({ "result": "é".repeat(3000) }).to_string();
    for replayed in [None, Some("true")] {
        let answer = report(&server.client, &request, &body).await;
        assert_eq!((answer.status, answer.header("idempotent-replayed")), (200, replayed), "{answer:?}");
    }
    let output = server.client.call(&id).await.text("output").to_owned();
    assert!(output.len() <= 1000 && output.ends_with("[…cut]"), "{output}");
}

#[tokio::test]
async fn a_report_needs_no_token_and_has_a_limit_for_each_call() {
    let office = Office::deferring(ServiceAction::answers(202, ""), "delete_file", "").await;
    let settings = token::VARIABLES.iter().copied().chain([("HOLDPOINT_LIMITS__REQUESTS_PER_MINUTE", "5")]);
    let server = office.start(&settings.collect::<Vec<_>>());
    let ann = server.client.as_user("acme", "ann", &[]);
    let (id, request) = sent(&office, &ann, "a").await;
    let bob = server.client.as_user("acme", "bob", &[]);
    let (_, of_bob) = sent(&office, &bob, "b").await;
    let (path, good) = (callback(&request), signed(SECRETS[0], BODY));
    for status in [200, 200, 200, 200, 200, 429] {
        assert_eq!(post(&server.client, &path, &good, BODY).await.status, status);
    }
    let limited = post(&server.client, &path, &good, BODY).await;
    assert!(limited.header("retry-after").is_some() && limited.code() == "rate_limited", "{limited:?}");
    post(&server.client, &callback(&of_bob), &good, BODY).await.has_status(200);
    // A token opens no other way to the route.
    let spelled = path.replace(&id, &id.replacen('-', "%2D", 1));
    for client in [&server.client.as_user("acme", "eve", &[]), &server.client] {
        let answer = post(client, &spelled, &good, BODY).await;
        answer.failed_with(404, "not_found");
    }
}

#[tokio::test]
async fn no_log_event_or_row_contains_a_callback_url() {
    let office = Office::deferring(ServiceAction::answers(202, ""), "delete_file", "").await;
    let server = Process::spawn_captured(&mut office.command(&[("HOLDPOINT_LOG__LEVEL", "trace")]));
    let (id, request) = sent(&office, &server.client, "a").await;
    let path = callback(&request);
    let mut seen = vec![report(&server.client, &request, "{}").await.body.to_string()];
    seen.push(post(&server.client, &path, &signed(SECRETS[1], BODY), BODY).await.body.to_string());
    seen.push(report(&server.client, &request, BODY).await.body.to_string());
    seen.push(server.client.call(&id).await.to_string());
    let rows = office.rows().await;
    for table in ["events", "tool_calls", "decisions", "sent_answers"] {
        seen.push(format!("{:?}", rows.all(&format!("SELECT * FROM {table}")).await));
    }
    seen.push(server.finish());
    let mac = path.split("mac=").nth(1).unwrap();
    assert!(seen.iter().all(|text| !text.contains(mac)), "{seen:?}");
}

#[tokio::test]
async fn a_report_may_come_through_a_proxy_to_a_server_of_this_machine() {
    let office = Office::deferring(ServiceAction::answers(202, ""), "delete_file", "").await;
    let server = office.start(&[]);
    let (_, request) = sent(&office, &server.client, "a").await;
    let mut headers = signed(SECRETS[0], BODY);
    headers.extend([("host", "chat.example".to_owned()), ("x-forwarded-for", "192.0.2.7".to_owned())]);
    let url = "/tool_calls/x/result";
    assert_eq!(post(&server.client, url, &headers, BODY).await.status, 404, "no call");
    let own = server.client.http.get(server.client.url("/threads")).header("host", "chat.example");
    assert_eq!(server.client.send(own).await.status, 403, "the other routes stay closed");
    post(&server.client, &callback(&request), &headers, BODY).await.has_status(200);
}
