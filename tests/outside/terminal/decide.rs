//! `approvals approve` and `approvals reject`.

use super::{Approver, TerminalCommand, free_address, hash};
use holdpoint::config::ToolRules;
use holdpoint::tools::ToolRegistry;
use holdpoint_testkit::previews::{World, server};
use holdpoint_testkit::token::with_tokens;
use holdpoint_testkit::{ChangedPay, Embedded, Pty, call, eventually};
use serde_json::{Value, json};
use std::io::Write;
use tempfile::NamedTempFile;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

const QUESTION: &str = "Approve this call? [y/N] ";

fn file(json: &str) -> NamedTempFile {
    let mut file = NamedTempFile::new().unwrap();
    file.write_all(json.as_bytes()).unwrap();
    file
}

/// Waits until the server has continued the run of this call to its end.
async fn run_completes(app: &Embedded, id: &str) {
    let run = app.client.run_of(id).await;
    let completed = async || {
        let run = app.client.get(&format!("/runs/{run}")).await.body;
        (run["status"] == "completed").then_some(())
    };
    eventually("the run is completed", completed).await;
}

#[tokio::test]
async fn an_approval_with_the_shown_hash_runs_the_tool_and_the_server_continues_the_run() {
    let app = Embedded::start().await;
    let (_, id) = app.held("pay", "10").await;
    app.scene.answers("It is paid.");
    let approver = Approver::of(&app);
    let hash = hash(&app, &id).await;
    let stdout = approver.run(&["approve", &id, "--hash", &hash]).await.stdout_of_success();
    assert_eq!(stdout, format!("{id} approved: it is succeeded\n  | {{\"paid\":\"10\"}}\n"));
    assert_eq!(app.ledger.lines(), ["pay 10"]);
    run_completes(&app, &id).await;

    // The same decision again gets the outcome, and the tool does not run again.
    let again = approver.run(&["approve", &id, "--hash", &hash]).await.stdout_of_success();
    assert!(again.contains("the same decision was in force already"), "{again}");
    let json = approver.run(&["approve", &id, "--hash", &hash, "--json"]).await.stdout_of_success();
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&json["state"], &json["toolCallId"]), (&json!("succeeded"), &json!(id)));
    assert_eq!(app.ledger.lines(), ["pay 10"]);
    // Another decision is refused, with the one in force.
    let other = approver.run(&["reject", &id, "--hash", &hash]).await;
    other.fails(3, "the decision in force: approve by user:local");
}

#[tokio::test]
async fn the_model_reads_the_reason_of_a_rejection() {
    let app = Embedded::start().await;
    let (_, id) = app.held("pay", "10").await;
    app.scene.answers("I will not.");
    let hash = hash(&app, &id).await;
    let args = ["reject", &id[id.len() - 8..], "--hash", &hash, "--reason", "too much"];
    let stdout = Approver::of(&app).run(&args).await.stdout_of_success();
    assert!(stdout.starts_with(&format!("{id} rejected: it does not run\n")), "{stdout}");
    let rejected = app.client.call(&id).await;
    assert_eq!(
        (&rejected["state"], &rejected["decision"]["reason"]),
        (&json!("rejected"), &json!("too much"))
    );
    assert_eq!(rejected["decision"]["input_hash"], json!(hash));
    assert_eq!(app.ledger.lines(), [""; 0]);
}

#[tokio::test]
async fn each_kind_of_failure_has_its_exit_code_and_decides_nothing() {
    let app = Embedded::start().await;
    let (thread, id) = app.held("pay", "10").await;
    let [cancelled, expired] =
        [app.hold_in(&thread, "pay", "11").await, app.hold_in(&thread, "pay", "12").await];
    app.client.post(&format!("/tool_calls/{cancelled}/cancel"), &Value::Null).await;
    let overdue = format!("UPDATE tool_calls SET expires_at = created_at WHERE tool_call_id = '{expired}'");
    app.rows.change(&overdue).await.unwrap();
    let approver = Approver::of(&app);
    let hash = hash(&app, &id).await;
    let wrong = "0".repeat(64);
    for (args, code, words) in [
        (&["approve", &id][..], 2, "--hash: expected the input hash that was shown"),
        (&["reject", &id], 2, "--hash: expected the input hash that was shown"),
        (&["approve", &id, "--hash", "0123"], 2, "expected 64 hexadecimal digits"),
        (&["approve", &id, "--hash", &hash, "--remember", "ever"], 2, "session"),
        (&["approve", &id, "--hash", &hash, "--edit", "/no/such/file"], 2, "--edit: /no/such/file"),
        (&["approve", &id, "--hash", &wrong], 4, "(stale, status 409)"),
        (&["reject", &id, "--hash", &wrong], 4, &format!("the input hash now: {hash}")),
        (&["approve", &cancelled, "--hash", &hash], 3, "(cancelled, status 409)"),
        (&["approve", &expired, "--hash", &hash], 3, "(expired, status 409)"),
        (&["approve", "01890a5d-ac96-774b-bcce-b302099a8057", "--hash", &hash], 1, "(not_found, status 404)"),
    ] {
        approver.run(args).await.fails(code, words);
        assert_eq!(app.client.call(&id).await["state"], "pending", "{args:?}");
    }
    // No server has this address: port 1 of the machine is not used.
    let gone = Approver::at("http://127.0.0.1:1").run(&["approve", &id, "--hash", &hash]).await;
    gone.fails(1, "HOLDPOINT_URL: the server at http://127.0.0.1:1/ cannot be reached");
    assert!(!gone.stderr.contains("not known"), "{gone:?}");
    assert_eq!(app.ledger.lines(), [""; 0]);
}

#[tokio::test]
async fn a_decision_whose_response_is_lost_is_unknown_and_may_be_repeated() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let approver = Approver::at(&format!("http://{}", listener.local_addr().unwrap()));
    let hash = "0".repeat(64);
    let args = ["approve", "01890a5d-ac96-774b-bcce-b302099a8057", "--hash", &hash];
    let loses = async {
        let (mut client, _) = listener.accept().await.unwrap();
        assert_ne!(client.read(&mut [0; 4096]).await.unwrap(), 0);
    };
    let (ran, ()) = tokio::join!(approver.run(&args), loses);
    ran.fails(1, "Whether the call is decided is not known; the same command again is safe");
}

#[tokio::test]
async fn an_approval_may_have_other_inputs_and_be_remembered() {
    let app = Embedded::start().await;
    let (thread, id) = app.held("pay", "10").await;
    app.scene.answers("paid");
    let approver = Approver::of(&app);
    let shown = hash(&app, &id).await;
    for (json, code, words) in [
        ("[1]", 2, "expected the inputs as a JSON object"),
        ("{", 2, "expected the inputs as a JSON object"),
        (r#"{"note":1}"#, 1, r#"(invalid_inputs, status 422); "/note": "#),
        // The server sees each digit and each key of the file.
        (r#"{"note":12345678901234567890123}"#, 1, "status 4"),
        (r#"{"note":"11","note":"12"}"#, 1, "status 4"),
    ] {
        let edit = file(json);
        let args = ["approve", &id, "--hash", &shown, "--edit", edit.path().to_str().unwrap()];
        approver.run(&args).await.fails(code, words);
        assert_eq!(app.client.call(&id).await["state"], "pending", "{json}");
    }
    let mut command =
        approver.command(&["approve", &id, "--hash", &shown, "--edit", "-", "--remember", "session"]);
    let mut child = command.stdin(std::process::Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"{ \"note\": \"11\" }\n").await.unwrap();
    assert!(child.wait_with_output().await.unwrap().status.success());
    let decided = app.client.call(&id).await;
    assert_eq!(decided["validated_inputs"], json!({ "note": "11" }));
    assert_eq!(decided["decision"]["remember"], "session");
    assert_eq!(app.ledger.lines(), ["pay 11"]);
    run_completes(&app, &id).await;
    app.scene.calls(&[call("p-3", "pay", &json!({ "note": "13" }))]).answers("paid");
    let turn = app.client.send_message(&thread, "again").await;
    assert!(turn.pending().is_empty(), "{}", turn.raw);
    assert_eq!(app.ledger.lines(), ["pay 11", "pay 13"]);
}

#[tokio::test]
async fn an_edit_of_a_tool_with_previews_needs_the_hash_of_its_preview() {
    let app = server(&World::that_reports("Wipes {note}."), |_| {}).await;
    let (_, id) = app.held("wipe", "10").await;
    app.scene.answers("wiped");
    let approver = Approver::of(&app);
    let (shown, edit) = (hash(&app, &id).await, file(r#"{"note":"11"}"#));
    let path = edit.path().to_str().unwrap();
    let args = ["approve", &id, "--hash", &shown, "--edit", path];
    approver.run(&args).await.fails(4, "(stale, status 409)");
    let sheet = approver.run(&["show", &id, "--edit", path]).await.stdout_of_success();
    let preview_hash = sheet.lines().find_map(|line| line.trim().strip_prefix("preview hash"));
    let preview_hash = preview_hash.unwrap().trim();
    approver.run(&[&args[..], &["--preview-hash", preview_hash]].concat()).await.stdout_of_success();
    assert_eq!(app.ledger.lines(), ["wipe 11"]);
    run_completes(&app, &id).await;

    // At a terminal the preview is shown, and its hash is sent.
    let (_, id) = app.held("wipe", "20").await;
    let terminal = approver.start(&["approve", &id, "--edit", path]);
    terminal.shows(QUESTION).await;
    assert!(terminal.pty.shown().contains("  | Wipes 20.") && terminal.pty.shown().contains("  | Wipes 11."));
    terminal.pty.types("y\n");
    let (code, shown) = terminal.ends().await;
    assert_eq!(code, 0, "{shown}");
    assert_eq!(app.ledger.lines(), ["wipe 11", "wipe 11"]);
}

#[tokio::test]
async fn an_approval_below_the_quorum_is_done_and_says_what_is_missing() {
    let mut app = Embedded::with(|config| {
        with_tokens(config);
        let rules =
            ToolRules { approve_roles: vec!["chief".to_owned()], approvals: 2, ..ToolRules::default() };
        config.tools.rules.insert("pay".to_owned(), rules);
    })
    .await;
    app.client = app.client.as_user("acme", "alice", &[]);
    let (_, id) = app.held("pay", "10").await;
    let shown = hash(&app, &id).await;
    let approve = async |user: &str| {
        Approver::named(&app, user, &["chief"])
            .run(&["approve", &id, "--hash", &shown])
            .await
            .stdout_of_success()
    };
    let first = approve("carol").await;
    assert!(first.contains("it waits for the approvals of more people"), "{first}");
    assert!(first.contains("One more person has to approve it"), "{first}");
    assert!(approve("dave").await.contains("approved: it is succeeded"));
    assert_eq!(app.ledger.lines(), ["pay 10"]);
}

#[tokio::test]
async fn f13_a_person_is_shown_the_call_and_asked_at_a_terminal() {
    let app = Embedded::start().await;
    let (_, id) = app.held("pay", "10").await;
    let approver = Approver::of(&app);
    // A complete line and the beginning of another, which the terminal has before the command asks.
    let pty = Pty::new();
    let held_open = pty.end();
    pty.types("y\ny");
    pty.shows("y\r\ny", 1).await;
    let terminal = TerminalCommand::start_at(pty, &mut approver.command(&["approve", &id]));
    drop(held_open);
    terminal.shows(QUESTION).await;
    let shown = terminal.pty.shown();
    assert!(shown.contains("\"note\": \"10\"") && shown.contains(&hash(&app, &id).await), "{shown}");
    terminal.pty.types("\n");
    terminal.shows("nothing is decided").await;
    let (code, shown) = terminal.ends().await;
    assert_eq!(code, 5, "{shown}");
    assert_eq!(app.client.call(&id).await["state"], "pending");

    let terminal = approver.start(&["reject", &id]);
    terminal.shows("Reject this call? [y/N] ").await;
    terminal.pty.types("n\n");
    assert_eq!(terminal.ends().await.0, 5);
    assert_eq!(app.client.call(&id).await["state"], "pending");

    let terminal = approver.start(&["approve", &id]);
    terminal.shows(QUESTION).await;
    terminal.pty.types("yes\n");
    let (code, shown) = terminal.ends().await;
    assert_eq!(code, 0, "{shown}");
    assert!(shown.contains("\u{1b}["), "a terminal has colours: {shown}");
    assert_eq!(app.ledger.lines(), ["pay 10"]);
}

#[tokio::test]
async fn f13_a_call_whose_tool_changes_while_the_question_is_open_is_stale() {
    let app = Embedded::with(|config| config.server.bind = free_address()).await;
    let (_, id) = app.held("pay", "10").await;
    let terminal = Approver::of(&app).start(&["approve", &id]);
    terminal.shows(QUESTION).await;
    let address = app.client.base.strip_prefix("http://").unwrap().parse().unwrap();
    let mut tools = ToolRegistry::new();
    tools.register(ChangedPay(app.ledger.clone())).unwrap();
    let app = app.redeploy_with(tools, |config| config.server.bind = address).await;
    terminal.pty.types("y\n");
    let (code, shown) = terminal.ends().await;
    assert_eq!(code, 4, "{shown}");
    assert_eq!(app.client.call(&id).await["state"], "pending");
    assert_eq!(app.ledger.lines(), [""; 0]);
}
