//! I: the database and its files.

use super::{UNKNOWN_ID, everything, held_echo, last_request, user, user_message, with_echo};
use holdpoint::llm::ModelMessage;
use holdpoint_testkit::{Embedded, JsonFields, Process, call};
use reqwest::Method;
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

/// Texts that would end a string, a statement or a pattern on SQLite or Postgres.
const INJECTED: [&str; 16] = [
    "' OR 1=1--",
    "'; DROP TABLE tool_calls; --",
    "'); DELETE FROM threads; --",
    "\" OR \"\"=\"",
    "\\' OR 1=1 #",
    "' UNION SELECT tenant_id FROM threads --",
    "%",
    "_%",
    "\\",
    "$1",
    "?1 :x @x $$",
    "$$; SELECT pg_sleep(60); $$",
    "{\"$gt\":\"\"}",
    "'||(SELECT load_extension('x'))||'",
    "E'\\x27'",
    "/* ' */ \u{2019} \u{ff07}",
];

/// Sends a request and returns its status and body. Asserts that the status is below 500.
async fn send(
    app: &Embedded,
    method: Method,
    path: &str,
    query: &[(&str, &str)],
    body: Option<Value>,
) -> Value {
    let query: Vec<String> = query.iter().map(|(name, value)| format!("{name}={}", segment(value))).collect();
    let query = query.join("&");
    let mut request = app.client.http.request(method.clone(), app.client.url(&format!("{path}?{query}")));
    if let Some(body) = body {
        request = request.json(&body);
    }
    let response = request.send().await.unwrap();
    let status = response.status().as_u16();
    assert!(status < 500, "{method} {path} {query}: {status} {}", response.text().await.unwrap());
    json!({ "status": status, "body": response.text().await.unwrap() })
}

/// Percent-encodes a text for a path or a query.
fn segment(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

#[tokio::test]
async fn i1_the_database_never_interprets_a_string_of_a_request() {
    let app = Embedded::start().await;
    let (_, held) = app.held("pay", "10").await;
    let before = everything(&app).await;
    for text in INJECTED {
        let at = segment(text);
        for (method, path, body) in [
            (Method::GET, format!("/threads/{at}"), None),
            (Method::PATCH, format!("/threads/{at}"), Some(json!({ "title": text }))),
            (Method::DELETE, format!("/threads/{at}"), None),
            (Method::GET, format!("/threads/{at}/messages"), None),
            (Method::POST, format!("/qa/chat_streamed/{at}"), Some(json!({ "content": text }))),
            (Method::GET, format!("/qa/chat_streamed/{at}"), None),
            (Method::GET, format!("/runs/{at}"), None),
            (Method::POST, format!("/runs/{at}/cancel"), None),
            (Method::GET, format!("/tool_calls/{at}"), None),
            (Method::POST, format!("/tool_calls/{at}/cancel"), None),
            (Method::GET, format!("/tools/{at}"), None),
            (
                Method::POST,
                "/qa/validate_tool".to_owned(),
                Some(json!({ "toolCallId": text, "isValidated": true })),
            ),
        ] {
            let answer = send(&app, method.clone(), &path, &[], body).await;
            assert_eq!(answer["status"], 404, "{method} {path}: {answer}");
        }
        let by_name = send(&app, Method::GET, "/qa/chat_streamed", &[("chatId", text)], None).await;
        assert_eq!(by_name, json!({ "status": 200, "body": "" }), "a name that nobody used, and no pattern");
        for (query, path) in [("cursor", "/threads"), ("page_size", "/threads")] {
            let answer = send(&app, Method::GET, path, &[(query, text)], None).await;
            assert_eq!(answer["status"], 400, "{query}={text}: {answer}");
        }
        let by_name = send(&app, Method::GET, "/threads", &[("client_id", text)], None).await;
        let none = json!({ "status": 200, "body": r#"{"results":[],"has_more":false}"# });
        assert_eq!(by_name, none, "{text}");
        // The server refuses query parameters that it does not read.
        for unknown in ["order", "filter", "tenant_id", text] {
            let answer = send(&app, Method::GET, "/threads", &[(unknown, text)], None).await;
            assert_eq!(answer["status"], 400, "{text}");
        }
        let stale = json!({ "toolCallId": held, "isValidated": true, "inputHash": text });
        assert_eq!(app.client.validate(&stale).await.code(), "stale", "{text}");
        for (field, code) in [("model", "unknown_model"), ("tool_selection", "unknown_tool")] {
            let value = if field == "model" { json!(text) } else { json!([text]) };
            let body = json!({ "id": text, "content": "hi", (field): value });
            assert_eq!(app.client.turn_by_id(&body).await.refused(), (422, code.to_owned()), "{text}");
        }
    }
    assert_eq!(everything(&app).await, before);
    assert_eq!(app.ledger.lines(), Vec::<String>::new());
}

#[tokio::test]
async fn i1_stored_strings_are_unchanged() {
    let (app, ran) = with_echo(json!({ "type": "object" })).await;
    for (n, text) in INJECTED.into_iter().enumerate() {
        let made = app.client.post("/threads", &json!({ "title": text })).await.body;
        assert_eq!(made["title"], json!(text));
        let path = format!("/threads/{}", made.text("thread_id"));
        let title = format!("{text}{text}");
        assert_eq!(app.client.patch(&path, &json!({ "title": title })).await.body["title"], json!(title));

        // As the thread's client id, the message's client id and the message text.
        app.scene.answers(text);
        let mut message = user(text);
        message["id"] = json!(text);
        let turn = app.client.turn_by_id(&json!({ "id": text, "messages": [message] })).await;
        assert_eq!((turn.text().as_str(), last_request(&app)), (text, vec![user_message(text)]));
        let thread = app.client.get("/threads?page_size=1").await.body["results"][0].clone();
        assert_eq!(thread["client_id"], json!(text));
        let thread = thread.text("thread_id").to_owned();
        let messages = app.client.messages(&thread).await;
        assert_eq!(
            (&messages[0]["client_id"], &messages[0]["parts"][0]["text"]),
            (&json!(text), &json!(text))
        );
        assert_eq!(messages[1]["parts"][1]["text"], json!(text));
        assert_eq!(
            app.rows.count("threads WHERE client_id IS NOT NULL").await,
            i64::try_from(n).unwrap() + 1
        );

        // As text from the model: a call id, an unknown tool name, inputs and a result.
        let odd = (text.to_owned(), text.to_owned(), json!({ (text): text }).to_string());
        app.scene.calls(&[odd]).answers(text);
        app.client.send_message(&thread, "go").await;
        let requested = last_request(&app);
        let Some(ModelMessage::Tool { call_id, tool_name, .. }) = requested.last() else {
            panic!("{requested:?}")
        };
        assert_eq!((call_id.as_str(), tool_name.as_str()), (text, text));
        let input = json!({ (text): [text], "s": text });
        let (_, _, id) = held_echo(&app, &input).await;
        assert_eq!(app.client.approve(&id).await.body["state"], "succeeded");
        let call = app.client.call(&id).await;
        assert_eq!((&call["input"], &call["output"]), (&input, &input));
        let (_, _, id) = held_echo(&app, &input).await;
        app.client.validate(&json!({ "toolCallId": id, "isValidated": false, "reason": text })).await;
        assert_eq!(app.client.call(&id).await["decision"]["reason"], json!(text));
    }
    assert_eq!(ran.lock().unwrap().len(), INJECTED.len());
    // Each name found exactly one thread, so no name works as a pattern.
    let names = app.rows.all("SELECT DISTINCT client_id FROM threads WHERE client_id IS NOT NULL").await;
    assert_eq!(names.len(), INJECTED.len());
}

#[tokio::test]
async fn i1_an_invalid_cursor_or_page_size_is_refused() {
    let app = Embedded::start().await;
    let thread = app.client.thread().await;
    for list in ["/threads".to_owned(), format!("/threads/{thread}/messages")] {
        for (name, values) in [
            (
                "page_size",
                ["0", "201", "-1", "1;DROP TABLE threads", "1e2", "99999999999999999999", "1 OR 1=1"],
            ),
            ("cursor", ["x", "-", "1;--", "1 OR 1=1", "99999999999999999999", "%00", "null"]),
        ] {
            for value in values {
                let answer = send(&app, Method::GET, &list, &[(name, value)], None).await;
                assert_eq!(answer["status"], 400, "{list} {name}={value}: {answer}");
            }
        }
    }
    app.client.get(&format!("/threads/{UNKNOWN_ID}/messages?cursor=1")).await.has_status(404);
    assert_eq!(app.rows.count("threads").await, 1);
}

/// A command that starts the server binary in this directory with umask 000, which makes new files readable
/// for all users.
fn with_open_umask(dir: &std::path::Path) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", "umask 000; exec \"$0\""]).arg(env!("CARGO_BIN_EXE_holdpoint")).current_dir(dir);
    command
}

#[tokio::test]
async fn i3_on_sqlite_the_database_files_are_private_and_serve_one_process() {
    let dir = tempfile::tempdir().unwrap();
    let server = Process::spawn(&mut with_open_umask(dir.path()));
    let thread = server.client.thread().await;
    let mut modes: Vec<(String, u32)> = std::fs::read_dir(dir.path())
        .unwrap()
        .map(Result::unwrap)
        .filter(|entry| entry.file_type().unwrap().is_file())
        .map(|entry| {
            let mode = entry.metadata().unwrap().permissions().mode() & 0o777;
            (entry.file_name().into_string().unwrap(), mode)
        })
        .collect();
    modes.sort_unstable();
    let files = ["holdpoint.db", "holdpoint.db-shm", "holdpoint.db-wal", "holdpoint.db.lock"];
    assert_eq!(modes, files.map(|name| (name.to_owned(), 0o600)));

    std::os::unix::fs::symlink("holdpoint.db", dir.path().join("other.db")).unwrap();
    for url in ["sqlite://holdpoint.db", "sqlite://other.db", "sqlite://./holdpoint.db?mode=rwc"] {
        let second = with_open_umask(dir.path())
            .env("HOLDPOINT_SERVER__BIND", "127.0.0.1:0")
            .env("HOLDPOINT_DATABASE__URL", url)
            .env_remove("DATABASE_URL")
            .output()
            .unwrap();
        let stderr = String::from_utf8_lossy(&second.stderr).into_owned();
        assert!(
            !second.status.success() && stderr.contains("another process serves from this database"),
            "{stderr}"
        );
    }
    server.client.get(&format!("/threads/{thread}")).await.has_status(200);
}

#[tokio::test]
async fn i3_on_sqlite_an_existing_file_keeps_its_mode() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("holdpoint.db");
    std::fs::write(&file, "").unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o640)).unwrap();
    let server = Process::spawn(&mut with_open_umask(dir.path()));
    server.client.thread().await;
    assert_eq!(
        std::fs::metadata(&file).unwrap().permissions().mode() & 0o777,
        0o640,
        "an operator's own choice"
    );
}

#[tokio::test]
async fn i1_call_ids_chosen_by_the_model_are_looked_up_literally() {
    let app = Embedded::start().await;
    let thread = app.client.thread().await;
    for text in INJECTED {
        app.scene.calls(&[
            call(text, "look", &json!({ "note": "1" })),
            call(text, "look", &json!({ "note": "2" })),
        ]);
        app.scene.answers("Seen.");
        assert_eq!(app.client.send_message(&thread, "look").await.text(), "Seen.", "{text}");
    }
    let taken =
        app.rows.all("SELECT wire_call_id FROM tool_calls WHERE wire_call_id = provider_call_id").await;
    assert_eq!(taken.len(), INJECTED.len(), "each the first time alone");
}
