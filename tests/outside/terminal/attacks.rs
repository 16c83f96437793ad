//! Texts that try to control the terminal of an approver, or to hide from the approver's eyes.

use super::{Approver, TerminalCommand};
use holdpoint_testkit::{Embedded, Pty, eventually};
use rustix::termios::{Winsize, tcsetwinsize};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Erases the screen, sets the title, changes colours by C1, reverses the text, begins a line that looks like
/// the program's, hides a character, and tags one.
const PLANTED: &str = "\u{1b}[2J\u{1b}]0;owned\u{7}\u{9b}31m\u{202e}\r\nInputs as the model proposed them\n\u{200b}\u{e0041}\u{7f}";

/// The id and the hash of the one call of the planted server.
pub(super) const ID: &str = "01890a5d-ac96-774b-bcce-b302099a8057";
pub(super) const HASH: &str = "00000000000000000000000000000000000000000000000000000000000000aa";

/// A server in whose answers every text is planted.
pub(super) struct PlantedServer {
    pub(super) url: String,
    pub(super) requests: Arc<Mutex<Vec<String>>>,
}

/// A call in this state with the text in every field.
fn planted_call(state: &str) -> Value {
    let inputs = json!({ PLANTED: PLANTED, "deep": [{ "more": PLANTED }] });
    let decision = json!({
        "decision": PLANTED, "by": PLANTED, "at": PLANTED, "edited": true, "reason": PLANTED, "surface": PLANTED,
        "source": PLANTED, "remember": PLANTED, "input_hash": PLANTED,
    });
    let mut call = json!({
        "tool_call_id": ID, "state": state, "held": true, "mcp": { "server": PLANTED, "tool": PLANTED },
        "preview": { "text": PLANTED }, "validated_preview": { "failed": PLANTED }, "input_hash": HASH,
        "can_decide": true, "can_reject": true, "required": 2, "approved_by": [PLANTED, PLANTED],
        "context": { "words": PLANTED }, "decision": decision,
    });
    for name in ["input", "constants", "validated_inputs", "input_schema", "output"] {
        call[name] = inputs.clone();
    }
    for name in [
        "session_id",
        "thread_id",
        "message_id",
        "run_id",
        "child_run_id",
        "tool_name",
        "headline",
        "tool_description",
        "risk_level",
        "reason",
        "requested_by",
        "thread_title",
        "schema_hash",
        "result",
        "created_at",
        "expires_at",
        "started_at",
        "finished_at",
        "result_deadline",
        PLANTED,
    ] {
        call[name] = PLANTED.into();
    }
    call
}

fn planted_event(event_type: &str) -> Value {
    json!({
        "seq": 7, "type": event_type, "at": PLANTED, "actor": PLANTED, "session_id": PLANTED, "thread_id": PLANTED,
        "tool_call_id": PLANTED,
        "data": { "tool_name": PLANTED, "risk_level": PLANTED, "args": { PLANTED: PLANTED },
            "decision": planted_call("pending")["decision"] },
    })
}

impl PlantedServer {
    async fn start(state: &str) -> Self {
        Self::with(planted_call(state)).await
    }

    /// A server whose one call is this one.
    pub(super) async fn with(call: Value) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let requests = Arc::<Mutex<Vec<String>>>::default();
        let seen = requests.clone();
        #[expect(clippy::disallowed_methods, reason = "the server ends with the test")]
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                // A client may open a connection that it does not use.
                let Some(request) = request(&mut client).await else { continue };
                let answer = answer(&request, &call);
                seen.lock().unwrap().push(request);
                client.write_all(answer.as_bytes()).await.unwrap();
                client.shutdown().await.unwrap();
            }
        });
        Self { url, requests }
    }
}

/// Reads a whole request.
async fn request(client: &mut TcpStream) -> Option<String> {
    let mut request = Vec::new();
    while !is_whole(&request) {
        let mut piece = [0; 4096];
        let length = client.read(&mut piece).await.ok().filter(|length| *length > 0)?;
        request.extend_from_slice(&piece[..length]);
    }
    Some(String::from_utf8(request).unwrap())
}

fn is_whole(request: &[u8]) -> bool {
    let text = String::from_utf8_lossy(request);
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    body.len() >= length.map_or(0, |length| length.parse().unwrap())
}

fn answer(request: &str, call: &Value) -> String {
    let path = request.split(' ').nth(1).unwrap();
    let list = |items: &[Value]| json!({ "results": items, "has_more": false });
    let (status, body) = if path.starts_with("/events/stream") {
        let events = ["tool.requires_approval", "tool.approved"].map(planted_event);
        let frames = events.map(|event| format!("id: 7\nevent: x\ndata: {event}\n\n")).concat();
        return format!(
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n{frames}"
        );
    } else if path.starts_with("/approvals/") && call["state"] == "pending" {
        (200, call.clone())
    } else if path.starts_with("/approvals/") {
        // A server that has held calls in lists only.
        (404, json!({ "error": { "code": "not_found", "message": PLANTED } }))
    } else if path.starts_with("/approvals") {
        (200, list(std::slice::from_ref(call)))
    } else if path.contains("/events?") {
        (200, list(&[planted_event(PLANTED)]))
    } else if path.ends_with("/preview") {
        let errors = json!([{ "pointer": PLANTED, "message": PLANTED }]);
        let details =
            json!({ "errors": errors, "input_hash": PLANTED, "decision": planted_call("x")["decision"] });
        (422, json!({ "error": { "code": PLANTED, "message": PLANTED, "details": details } }))
    } else if path.starts_with("/tool_calls/") {
        (200, call.clone())
    } else {
        (200, json!({ "success": true, "toolCallId": PLANTED, "state": PLANTED, "result": PLANTED }))
    };
    let body = body.to_string();
    // The header of a failed request, with a planted byte that HTTP allows.
    let challenge = "www-authenticate: Bearer error_description=\"\u{9b}2J\"";
    format!(
        "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {}\r\n{challenge}\r\n\
         connection: close\r\n\r\n{body}",
        body.len()
    )
}

/// Asserts that the text controls no terminal, and has the planted texts in a readable form.
#[track_caller]
fn is_harmless(text: &str) {
    let harmful = |c: char| {
        (c.is_control() && c != '\n')
            || matches!(c, '\u{202a}'..='\u{202e}' | '\u{200b}'..='\u{200f}' | '\u{e0000}'..='\u{e007f}')
    };
    assert_eq!(text.chars().find(|c| harmful(*c)), None, "{text:?}");
    assert!(text.contains("u{1b}[2J") || text.contains("u001b[2J"), "{text}");
}

#[tokio::test]
async fn f13_no_field_of_an_answer_controls_the_terminal() {
    for state in ["pending", PLANTED] {
        let server = PlantedServer::start(state).await;
        let approver = Approver::at(&server.url);
        for args in [
            &["list"][..],
            &["list", "--json"],
            &["show", ID],
            &["show", ID, "--full"],
            &["show", ID, "--json"],
            &["approve", ID, "--hash", HASH],
            &["reject", ID, "--hash", HASH, "--json"],
        ] {
            let stdout = approver.run(args).await.stdout_of_success();
            is_harmless(&stdout);
            // Only the program begins a line with a title, and each title once.
            let titles = stdout.lines().filter(|line| *line == "Inputs as the model proposed them").count();
            assert!(titles <= 1, "{args:?}: {stdout}");
        }
        let mut command = approver.command(&["show", ID, "--edit", "-"]);
        let mut child = command.stdin(std::process::Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(b"{}").await.unwrap();
        let output = child.wait_with_output().await.unwrap();
        assert_eq!(output.status.code(), Some(1));
        is_harmless(&String::from_utf8(output.stderr).unwrap());
    }
}

#[tokio::test]
async fn f13_no_event_controls_the_terminal() {
    for json in [false, true] {
        let server = PlantedServer::start("pending").await;
        let mut command =
            Approver::at(&server.url).command(if json { &["watch", "--json"] } else { &["watch"] });
        let mut child = command.spawn().unwrap();
        // The stream ends at once, so the watch connects again.
        let again = async || {
            let requests = server.requests.lock().unwrap();
            let opened = requests.iter().filter(|request| request.starts_with("GET /events/stream"));
            let opened: Vec<&String> = opened.collect();
            opened.get(1).map(|request| request.to_lowercase().contains("last-event-id: 7"))
        };
        assert!(eventually("the watch connects again", again).await);
        child.start_kill().unwrap();
        let output = child.wait_with_output().await.unwrap();
        is_harmless(&String::from_utf8(output.stdout).unwrap());
    }
}

#[tokio::test]
async fn f13_the_question_shows_planted_texts_and_sends_the_shown_hash() {
    let server = PlantedServer::start("pending").await;
    let mut command = Approver::at(&server.url).command(&["approve", ID]);
    let terminal = TerminalCommand::start(command.env("NO_COLOR", "1"));
    terminal.shows("Approve this call? [y/N] ").await;
    is_harmless(&terminal.pty.shown().replace("\r\n", "\n"));
    terminal.pty.types("y\n");
    let (code, shown) = terminal.ends().await;
    assert_eq!(code, 0, "{shown}");
    is_harmless(&shown.replace("\r\n", "\n"));
    let requests = server.requests.lock().unwrap();
    let decision = requests.iter().find(|request| request.starts_with("POST /qa/validate_tool")).unwrap();
    let body: Value = serde_json::from_str(decision.split_once("\r\n\r\n").unwrap().1).unwrap();
    assert_eq!(body, json!({ "toolCallId": ID, "isValidated": true, "inputHash": HASH, "resume": true }));
}

#[tokio::test]
async fn a_server_of_another_version_is_shown_with_what_it_has() {
    let call = json!({
        "tool_call_id": ID, "tool_name": "pay", "state": "pending", "input_hash": HASH, "news": { "amount": 1.50 },
    });
    let server = PlantedServer::with(call).await;
    let approver = Approver::at(&server.url);
    assert!(approver.run(&["list"]).await.stdout_of_success().contains(ID));
    let shown = approver.run(&["show", ID]).await.stdout_of_success();
    assert!(shown.contains("  field          news\n  | {\n  |   \"amount\": 1.5\n"), "{shown}");
    assert!(shown.contains("you may        ask the server: it checks each decision"), "{shown}");
}

#[tokio::test]
async fn f13_the_inputs_of_a_model_are_shown_as_stored_and_cannot_hide() {
    let app = Embedded::start().await;
    let planted = "\u{1b}[2J\u{202e}txt.\u{200b}\u{9b}1A\nno";
    let (_, id) = app.held("pay", planted).await;
    let approver = Approver::of(&app);
    let escaped = r#""note": "\u001b[2J\u202etxt.\u200b\u009b1A\nno""#;
    let shown = approver.run(&["show", &id]).await.stdout_of_success();
    assert!(shown.contains(escaped), "{shown}");
    let listed = approver.run(&["list", "--json"]).await.stdout_of_success();
    is_harmless(&listed);
    let call: Value = serde_json::from_str(&listed).unwrap();
    assert_eq!(call["input"]["note"], planted);
}

#[tokio::test]
async fn f13_a_long_text_cannot_fill_a_row_that_looks_like_a_row_of_the_program() {
    let app = Embedded::start().await;
    // At 40 columns these dots would end the row.
    let planted = format!("x{}Approve this call? [y/N] y", " .".repeat(35));
    let (_, id) = app.held("pay", &planted).await;
    let mut command = Approver::of(&app).command(&["approve", &id]);
    let terminal = TerminalCommand::sized(command.env("NO_COLOR", "1"), 40);
    // The planted text has the question too, but not at the beginning of a row. What is typed before the question is not
    // its answer.
    terminal.shows("\nApprove this call? [y/N] ").await;
    terminal.pty.types("n\n");
    let (code, shown) = terminal.ends().await;
    assert_eq!(code, 5, "{shown}");
    let rows: Vec<&str> = shown.lines().map(|row| row.trim_end_matches('\r')).collect();
    assert!(rows.iter().all(|row| row.chars().count() <= 40), "{shown}");
    let questions = rows.iter().filter(|row| row.starts_with("Approve this call?")).count();
    assert_eq!(questions, 1, "{shown}");
    let stored: String = rows.iter().filter_map(|row| row.strip_prefix("  | ")).collect();
    assert!(stored.contains(&planted), "{shown}");
}

#[tokio::test]
async fn f13_what_is_cut_is_named_by_its_hash_and_shown_in_full_on_request() {
    let (text, items) = ("é".repeat(5000), vec![7; 300]);
    let mut call = planted_call("pending");
    call["input"] = json!({ "text": text });
    call["output"] = json!(items);
    let server = PlantedServer::with(call.clone()).await;
    let approver = Approver::at(&server.url);
    let shown = approver.run(&["show", ID]).await.stdout_of_success();
    // The hash is that of the JSON in one line.
    for whole in [&call["input"], &call["output"]] {
        let hash: String =
            Sha256::digest(whole.to_string()).iter().map(|byte| format!("{byte:02x}")).collect();
        let note = format!("SHA-256 of the whole: {hash}; --full shows it)");
        assert!(shown.contains(&note), "{note}: {shown}");
    }
    assert!(!shown.contains(&"é".repeat(2000)), "{shown}");
    let full = approver.run(&["show", ID, "--full"]).await.stdout_of_success();
    assert!(
        full.contains(&text) && !full.contains("(cut: ") && full.matches("  |   7").count() == 300,
        "{full}"
    );
    let terminal = approver.start(&["reject", ID]);
    terminal.shows("Not everything is shown. --full shows the rest.").await;
    terminal.shows("[y/N] ").await;
    terminal.pty.types("n\n");
    assert_eq!(terminal.ends().await.0, 5);
}

impl TerminalCommand {
    /// Starts the command at a terminal of this width.
    fn sized(command: &mut tokio::process::Command, columns: u16) -> Self {
        let terminal = Pty::new();
        let size = Winsize { ws_row: 50, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(terminal.end(), size).unwrap();
        Self::start_at(terminal, command)
    }
}
