//! Structured content that values of JSON cannot have.

use super::sessions::Session;
use super::{approved, entry, packages, tool};
use holdpoint::config::Config;
use holdpoint_testkit::{Embedded, free_port};
use serde_json::{Value, json};
use std::process::{Child, Command, Stdio};

/// The server over HTTP (`tests/mcp/exact.mjs`). Dropping it kills the process.
struct ExactServer(Child);

impl Drop for ExactServer {
    fn drop(&mut self) {
        let _gone = self.0.kill().and_then(|()| self.0.wait());
    }
}

/// Structured content, and the output of a call with it and without a text.
fn contents() -> Vec<(String, Value)> {
    let many = format!("[{}0]", "0,".repeat(100_000));
    let mut contents = vec![
        (
            r#"{"n":18446744073709551615,"f":1.5}"#.to_owned(),
            json!({ "n": 18446744073709551615_u64, "f": 1.5 }),
        ),
        ("{}".to_owned(), json!({})),
    ];
    for exact in [
        r#"{"n": 12345678901234567890123}"#,
        r#"{"a":1,"a":2}"#,
        r#"{"rows":[{"id":-9223372036854775809}]}"#,
        "[1e400]",
        r#"["\ud800"]"#,
        &many,
    ] {
        contents.push((exact.to_owned(), json!(exact)));
    }
    contents
}

#[tokio::test]
async fn numbers_and_repeated_keys_of_a_result_are_kept_as_a_text_over_stdio() {
    let mut session = Session::start(&json!({})).await;
    let ann = session.ann.clone();
    for (n, (content, output)) in contents().into_iter().enumerate() {
        let note = format!("call {n}");
        let id = session.call(&ann, &note).await;
        let result = format!(r#"{{"content":[],"structuredContent":{content}}}"#);
        session.does(&json!([{ "raw": note, "result": result }]));
        assert_eq!(ann.becomes(&id, "succeeded").await["output"], output, "{content}");
    }
}

#[tokio::test]
async fn a_text_that_repeats_an_exact_content_is_the_output_alone() {
    let mut session = Session::start(&json!({})).await;
    let ann = session.ann.clone();
    let content = r#"{"a": 1, "a": 2}"#;
    for (n, (text, output)) in
        [("{\"a\":1,\n\"a\":2}", content.to_owned()), ("{\"a\":2}", format!("{{\"a\":2}}\n{content}"))]
            .into_iter()
            .enumerate()
    {
        let note = format!("call {n}");
        let id = session.call(&ann, &note).await;
        let block = json!({ "type": "text", "text": text });
        let result = format!(r#"{{"content":[{block}],"structuredContent":{content}}}"#);
        session.does(&json!([{ "raw": note, "result": result }]));
        assert_eq!(ann.becomes(&id, "succeeded").await["output"], output, "{text}");
    }
}

#[tokio::test]
async fn numbers_and_repeated_keys_of_a_result_are_kept_as_a_text_over_http() {
    let port = free_port();
    let mut node = Command::new("node");
    node.arg(packages().join("exact.mjs")).arg(port.to_string()).stdin(Stdio::null());
    let _exact = ExactServer(node.spawn().unwrap());
    let entry = entry(&json!({ "name": "s", "url": format!("http://127.0.0.1:{port}/mcp") }));
    let server = Box::pin(Embedded::with(|config: &mut Config| {
        config.egress.allow = vec!["127.0.0.1".to_owned()];
        config.mcp = vec![entry];
    }))
    .await;
    tool(&server.client, "s__act").await;
    // Inputs have bounds of their own.
    for (content, output) in contents().into_iter().filter(|(content, _)| content.len() < 10_000) {
        for events in [false, true] {
            let result = format!(r#"{{"content":[],"structuredContent":{content}}}"#);
            let call = approved(&server, "s__act", &json!({ "result": result, "events": events })).await;
            assert_eq!((&call["state"], &call["output"]), (&json!("succeeded"), &output), "{content}");
        }
    }
}
