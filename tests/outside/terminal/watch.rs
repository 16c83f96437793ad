//! `approvals watch`.

use super::{Approver, TerminalCommand, free_address, lines};
use holdpoint_testkit::{Embedded, eventually, probes};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::process::Child;

/// A watch without a terminal, and its output so far.
struct WatchProcess {
    child: Child,
    stdout: Arc<Mutex<String>>,
    stderr: Arc<Mutex<String>>,
}

/// Collects the lines of a stream.
fn received(stream: impl AsyncRead + Unpin + Send + 'static) -> Arc<Mutex<String>> {
    let all = Arc::<Mutex<String>>::default();
    let received = all.clone();
    #[expect(clippy::disallowed_methods, reason = "the task ends with the stream")]
    tokio::spawn(async move {
        let mut lines = BufReader::new(stream).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            received.lock().unwrap().push_str(&format!("{line}\n"));
        }
    });
    all
}

impl WatchProcess {
    fn start(approver: &Approver, args: &[&str]) -> Self {
        let mut child = approver.command(&[&["watch"], args].concat()).spawn().unwrap();
        let (stdout, stderr) =
            (received(child.stdout.take().unwrap()), received(child.stderr.take().unwrap()));
        Self { child, stdout, stderr }
    }

    fn shown(&self) -> String {
        self.stdout.lock().unwrap().clone()
    }

    async fn shows(&self, text: &str) {
        eventually(text, async || self.shown().contains(text).then_some(())).await;
    }

    async fn warns(&self, text: &str) {
        eventually(text, async || self.stderr.lock().unwrap().contains(text).then_some(())).await;
    }
}

#[tokio::test]
async fn a_watch_shows_what_waits_and_new_holds_and_decisions() {
    let app = Embedded::start().await;
    let (thread, before) = app.held("pay", "10").await;
    let (_, unwanted) = app.held("refuse", "9").await;
    let approver = Approver::of(&app);
    let [all, paid, json] = [
        WatchProcess::start(&approver, &[]),
        WatchProcess::start(&approver, &["--tool", "pay"]),
        WatchProcess::start(&approver, &["--json", "--thread", &thread]),
    ];
    for watching in [&all, &paid, &json] {
        watching.shows(&before).await;
    }
    let during = app.hold_in(&thread, "pay", "11").await;
    all.shows(&format!("{during}  pay  ")).await;
    app.client.reject(&before).await;
    app.client.validate(&json!({ "toolCallId": during, "isValidated": false, "reason": "no more" })).await;
    for watching in [&all, &paid] {
        watching.shows("by user:local, reason: no more").await;
        let shown = watching.shown();
        assert!(shown.contains(&format!("rejected  {before}  pay  by user:local\n")), "{shown}");
        assert_eq!(shown.matches(&during).count(), 2, "a hold and a decision: {shown}");
    }
    assert!(all.shown().contains(&unwanted) && !paid.shown().contains(&unwanted));
    json.shows("no more").await;
    let objects = lines(&json.shown());
    let types: Vec<&Value> = objects.iter().map(|object| &object["type"]).collect();
    assert_eq!(json!(types), json!([null, "tool.requires_approval", "tool.rejected", "tool.rejected"]));
    assert_eq!(objects[0]["tool_call_id"], json!(before));
    assert_eq!(objects[1]["data"]["args"], json!({ "note": "11" }));
}

#[tokio::test]
async fn a_watch_says_that_it_reconnects_and_misses_nothing() {
    let app = Embedded::with(|config| config.server.bind = free_address()).await;
    let (thread, first) = app.held("pay", "10").await;
    let mut watching = WatchProcess::start(&Approver::of(&app), &[]);
    watching.shows(&first).await;
    let second = app.hold_in(&thread, "pay", "11").await;
    watching.shows(&second).await;
    let address = app.client.base.strip_prefix("http://").unwrap().parse().unwrap();
    // The third hold comes while the watch is away: a server without this address has the rows meanwhile.
    let tools = probes(&app.ledger);
    let app = app.redeploy_with(tools, |_| {}).await;
    watching.warns("The connection is lost").await;
    let third = app.hold_in(&thread, "pay", "12").await;
    app.client.reject(&first).await;
    let tools = probes(&app.ledger);
    let app = app.redeploy_with(tools, |config| config.server.bind = address).await;
    watching.warns("Connected again.").await;
    watching.shows(&format!("rejected  {first}")).await;
    let fourth = app.hold_in(&thread, "pay", "13").await;
    watching.shows(&fourth).await;
    let shown = watching.shown();
    for (id, times) in [(&first, 2), (&second, 1), (&third, 1), (&fourth, 1)] {
        assert_eq!(shown.matches(id.as_str()).count(), times, "{id}: {shown}");
    }
    assert_eq!(watching.child.try_wait().unwrap(), None);
}

#[tokio::test]
async fn a_watch_that_never_connected_fails_at_once() {
    Approver::at("http://127.0.0.1:1").run(&["watch"]).await.fails(1, "cannot be reached");
}

#[tokio::test]
async fn a_person_opens_calls_of_a_watch_and_decides_them() {
    const QUESTION: &str =
        "[a]pprove, and later calls with [e]qual or [s] any inputs, [r]eject [why], [l]ater? ";
    let app = Embedded::start().await;
    let (thread, first) = app.held("pay", "10").await;
    let mut command = Approver::of(&app).command(&["watch"]);
    let terminal = TerminalCommand::start(command.env("NO_COLOR", "1"));
    terminal.shows("#1").await;
    let second = app.hold_in(&thread, "pay", "11").await;
    terminal.shows("#2").await;
    // What follows the number was typed before the question, and answers nothing.
    terminal.pty.types("#1\na\n");
    terminal.shows(QUESTION).await;
    assert!(terminal.pty.shown().contains("\"note\": \"10\""), "{}", terminal.pty.shown());
    terminal.pty.types("y\n");
    terminal.pty.shows(QUESTION, 2).await;
    assert_eq!(app.client.call(&first).await["state"], "pending");
    terminal.pty.types("l\n");
    terminal.shows("nothing is decided").await;
    terminal.pty.types("2\n");
    terminal.pty.shows(QUESTION, 3).await;
    terminal.pty.types("r not that one\n");
    terminal.shows("rejected: it does not run").await;
    assert_eq!(app.client.call(&second).await["decision"]["reason"], "not that one");
    terminal.pty.types("1\n");
    terminal.pty.shows(QUESTION, 4).await;
    terminal.pty.types("a\n");
    terminal.shows("approved: it is ").await;
    assert_eq!(app.ledger.lines(), ["pay 10"]);
    // A decided call is shown, and there is no question.
    terminal.pty.types("99\n");
    terminal.shows("expected the id of a call").await;
    terminal.pty.types("q\n");
    let (code, shown) = terminal.ends().await;
    assert_eq!((code, shown.matches(QUESTION).count()), (0, 4), "{shown}");
}
