//! The stored parts of a turn that is being written, and tailing the turn at another process.

use holdpoint::llm::{FinishReason, ModelEvent, Usage};
use holdpoint_testkit::ui::{UiTurn, ui_answer, ui_assistant, ui_submit_at, ui_user};
use holdpoint_testkit::{Deployment, Embedded, JsonFields, Turn, eventually, postgres};
use reqwest::Response;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::task::JoinSet;

type ScriptedAnswer = Result<ModelEvent, String>;

fn words(words: &str) -> ScriptedAnswer {
    Ok(ModelEvent::Text(words.to_owned()))
}

fn thoughts(words: &str) -> ScriptedAnswer {
    Ok(ModelEvent::Reasoning(words.to_owned()))
}

fn end(reason: FinishReason) -> ScriptedAnswer {
    let usage = Some(Usage { input_tokens: 10, output_tokens: 5 });
    Ok(ModelEvent::Finished { reason, usage, provider_state: None })
}

fn calls(index: usize, tool: &str, arguments: &str) -> [ScriptedAnswer; 3] {
    let (provider_call_id, tool_name) = (format!("p-{index}-{tool}"), tool.to_owned());
    [
        Ok(ModelEvent::CallStarted { index, provider_call_id, tool_name }),
        Ok(ModelEvent::CallArguments { index, delta: arguments.to_owned() }),
        Ok(ModelEvent::CallFinished { index }),
    ]
}

/// Two servers on one Postgres database: the first runs the turns.
async fn two() -> (Embedded, Embedded) {
    let url = postgres().await;
    let start = async || {
        let change = |config: &mut holdpoint::config::Config| {
            config.database.url = url.clone().into();
            // A cancel request is seen at the next renewal of the lease.
            config.approval.lease = Duration::from_secs(6);
        };
        Embedded::with(change).await
    };
    (start().await, start().await)
}

/// The protocol by which a page attaches to the running turn.
#[derive(Clone, Copy)]
enum PageProtocol {
    DataV1,
    Ui(&'static str),
}

async fn reads(app: &Embedded, thread: &str, by: PageProtocol) -> Response {
    let request = match by {
        PageProtocol::DataV1 => app.client.http.get(app.client.url(&format!("/qa/chat_streamed/{thread}"))),
        PageProtocol::Ui(dialect) => {
            let path = format!("/qa/chat_streamed/{thread}/stream");
            app.client.http.get(app.client.url(&path)).header("x-stream-protocol", dialect)
        }
    };
    let response = request.send().await.unwrap();
    assert_eq!(response.status(), 200);
    response
}

/// Attaches readers of every protocol.
async fn both_read(app: &Embedded, thread: &str) -> [Response; 3] {
    let [one, other] =
        [PageProtocol::Ui("ui-v5"), PageProtocol::Ui("ui-v6")].map(|by| reads(app, thread, by));
    [reads(app, thread, PageProtocol::DataV1).await, one.await, other.await]
}

/// A stream that is read chunk by chunk.
struct StreamReader {
    response: Response,
    read: Vec<u8>,
}

impl StreamReader {
    fn of(response: Response) -> Self {
        Self { response, read: Vec::new() }
    }

    fn so_far(&self) -> String {
        String::from_utf8_lossy(&self.read).into_owned()
    }

    /// Reads until the stream contains this text, which comes before the end.
    async fn until(&mut self, words: &str) {
        while !self.so_far().contains(words) {
            let piece = tokio::time::timeout(Duration::from_secs(30), self.response.chunk()).await;
            let piece = piece.unwrap_or_else(|_| panic!("no {words:?} in {:?}", self.so_far()));
            self.read.extend_from_slice(&piece.unwrap().expect("the turn goes on"));
        }
    }

    async fn read_to_the_end(mut self) -> String {
        while let Some(piece) = self.response.chunk().await.unwrap() {
            self.read.extend_from_slice(&piece);
        }
        String::from_utf8(self.read).unwrap()
    }

    async fn ui(self) -> UiTurn {
        UiTurn::of(200, self.response.headers().clone(), self.read_to_the_end().await)
    }

    async fn data_v1(self) -> Turn {
        Turn::of(200, self.response.headers().clone(), self.read_to_the_end().await)
    }
}

/// A turn of `data-v1` without the boundaries of its deltas. Other processes receive no unfinished calls, so
/// at another process text may come before the call that precedes it.
fn meaning(turn: &Turn) -> (Vec<(char, Value)>, String, String) {
    let lines = turn.lines.iter().filter(|(code, _)| !"bc0g".contains(*code)).cloned().collect();
    (lines, turn.text(), turn.joined('g'))
}

/// The parts of the message that a page holds at the end.
fn folded(turn: &UiTurn) -> Vec<Value> {
    let mut parts: Vec<Value> = Vec::new();
    for chunk in &turn.chunks {
        let kind = chunk.text("type");
        let id = if chunk["toolCallId"].is_null() { &chunk["id"] } else { &chunk["toolCallId"] };
        let at = parts.iter().rposition(|part| part["id"] == *id && part["type"] != "data-tool-validation");
        match kind {
            "start-step" => parts.push(json!({ "type": "step-start" })),
            "text-start" | "reasoning-start" => {
                parts.push(json!({ "type": kind.trim_end_matches("-start"), "id": id, "text": "" }));
            }
            "text-delta" | "reasoning-delta" => {
                let part = &mut parts[at.unwrap()];
                part["text"] = format!("{}{}", part.text("text"), chunk.text("delta")).into();
            }
            "tool-input-start" | "tool-input-available" if at.is_none() => {
                let input = chunk.get("input").unwrap_or(&Value::Null);
                parts.push(json!({ "type": "tool", "id": id, "name": chunk["toolName"], "input": input }));
            }
            "tool-input-available" => parts[at.unwrap()]["input"] = chunk["input"].clone(),
            "tool-approval-request"
            | "tool-output-available"
            | "tool-output-error"
            | "tool-output-denied" => {
                let shown = ["output", "errorText"].map(|name| chunk.get(name).unwrap_or(&Value::Null));
                parts[at.unwrap()][kind] = json!(shown);
            }
            "data-tool-validation" => {
                match parts.iter_mut().find(|part| part["type"] == kind && part["id"] == *id) {
                    Some(part) => *part = chunk.clone(),
                    None => parts.push(chunk.clone()),
                }
            }
            "finish" => parts.push(json!({ "end": chunk })),
            "error" => parts.push(json!({ "error": without_request(chunk.text("errorText")) })),
            "start" | "text-end" | "reasoning-end" | "tool-input-delta" | "finish-step" => {}
            other => panic!("{other} in {}", turn.raw),
        }
    }
    for part in &mut parts {
        // Text parts have ids in the order in which they arrive.
        if part.get("text").is_some() {
            part.as_object_mut().unwrap().remove("id");
        }
    }
    parts
}

fn without_request(failure: &str) -> &str {
    failure.split(" (request").next().unwrap()
}

/// Asserts that readers at both processes received the same. Returns the `ui-v6` stream of the first process.
async fn read_alike(one: &Embedded, other: &Embedded, here: [Response; 3], there: [Response; 3]) -> UiTurn {
    let [here_v1, here_v5, here_v6] = here;
    let [there_v1, there_v5, there_v6] = there;
    let (here_v1, there_v1) = (one.client.read_on(here_v1).await, other.client.read_on(there_v1).await);
    assert_eq!(meaning(&there_v1), meaning(&here_v1));
    assert_eq!(there_v1.headers["x-run-id"], here_v1.headers["x-run-id"]);
    let (here, there) = (one.client.read_ui_on(here_v5).await, other.client.read_ui_on(there_v5).await);
    assert_eq!(folded(&there), folded(&here));
    let (here, there) = (one.client.read_ui_on(here_v6).await, other.client.read_ui_on(there_v6).await);
    assert_eq!(folded(&there), folded(&here));
    assert_eq!(there.message_id(), here.message_id());
    here
}

#[tokio::test]
async fn on_postgres_text_is_tailed_at_another_process_while_it_is_streamed() {
    let (one, other) = two().await;
    let thread = one.client.thread().await;
    let gate = one.scene.gate();
    let text = [thoughts("Hm. "), thoughts("Well."), words("Half "), words("an "), words("answer.")];
    one.scene.then(text.into_iter().chain([end(FinishReason::Stop)]).collect());
    let first = one.client.begin(&thread, &json!({ "content": "hi" })).await;
    let (here, there) = (both_read(&one, &thread).await, both_read(&other, &thread).await);
    let mut early = StreamReader::of(reads(&other, &thread, PageProtocol::Ui("ui-v6")).await);
    gate.add_permits(3);
    early.until("Half ").await;
    gate.add_permits(1);
    early.until("an ").await;
    gate.add_permits(2);
    let early = early.ui().await;
    assert_eq!(early.text(), "Half an answer.");
    let whole = read_alike(&one, &other, here, there).await;
    assert_eq!(folded(&early), folded(&whole));
    assert_eq!(one.client.read_on(first).await.text(), "Half an answer.");
    assert_eq!((one.scene.requests().len(), other.scene.requests().len()), (1, 0));
}

#[tokio::test]
async fn on_postgres_calls_results_and_holds_are_tailed_at_another_process() {
    let (one, other) = two().await;
    let thread = one.client.thread().await;
    let note = |note: &str| json!({ "note": note }).to_string();
    let mut step = vec![thoughts("Hm."), words("First")];
    step.extend(calls(0, "look", &note("1")));
    step.push(words("then "));
    step.push(words("both"));
    step.extend(calls(1, "dawdle", &note("2")));
    step.extend(calls(2, "pay", &note("3")));
    step.extend(calls(3, "pay", "no object"));
    step.push(words("."));
    step.push(end(FinishReason::ToolCalls));
    one.scene.calls(&[holdpoint_testkit::call("a", "look", &json!({ "note": "0" }))]).then(step);
    let first = one.client.begin(&thread, &json!({ "content": "hi" })).await;
    let (here, there) = (both_read(&one, &thread).await, both_read(&other, &thread).await);
    // The end of the first call is emitted while the second runs.
    let mut early = StreamReader::of(reads(&other, &thread, PageProtocol::DataV1).await);
    early.until("\"seen\":\"1\"").await;
    let read = early.so_far();
    assert!(!read.contains("dawdled") && !read.contains("\n8:"), "{read}");
    one.ledger.release.add_permits(1);
    let early = early.data_v1().await;
    let first = one.client.read_on(first).await;
    assert_eq!(meaning(&early), meaning(&first));
    assert_eq!(first.pending().len(), 1, "{}", first.raw);
    let whole = read_alike(&one, &other, here, there).await;
    assert_eq!(whole.text(), "Firstthen both.");
    assert_eq!(whole.one("finish")["finishReason"], "tool-calls");
    let quiet = other.client.get(&format!("/qa/chat_streamed/{thread}/stream")).await;
    assert_eq!(quiet.status, 204, "it has ended");
}

#[tokio::test]
async fn on_postgres_a_continuation_is_tailed_at_another_process_after_the_earlier_steps() {
    let (one, other) = two().await;
    let thread = one.client.thread().await;
    let two_calls = ["1", "2"].map(|note| holdpoint_testkit::call(note, "pay", &json!({ "note": note })));
    one.scene.calls(&two_calls);
    let held = one.client.send_message(&thread, "pay").await;
    let [yes, no] = &held.pending()[..] else { panic!("{}", held.raw) };
    let edited = json!({ "toolCallId": yes, "isValidated": true, "validatedInputs": { "note": "changed" } });
    assert_eq!(other.client.validate(&edited).await.body["state"], "succeeded");
    one.client.reject(no).await;
    let gate = one.scene.gate();
    one.scene.calls(&[holdpoint_testkit::call("3", "pay", &json!({ "note": "3" }))]);
    let first = one.client.begin_resume(&thread).await;
    let (here, there) = (both_read(&one, &thread).await, both_read(&other, &thread).await);
    // A page that posts to resume tails the continuation only.
    let posts = other.client.begin_resume(&thread).await;
    assert_eq!(
        other.client.send_message(&thread, "and?").await.refused(),
        (409, "turn_in_progress".to_owned())
    );
    gate.add_permits(10);
    let (first, posted) = (one.client.read_on(first).await, other.client.read_on(posts).await);
    assert_eq!((first.codes().as_str(), meaning(&posted)), ("aa8efbc98ed", meaning(&first)));
    let whole = read_alike(&one, &other, here, there).await;
    assert_eq!(whole.message_id(), held.one('f')["messageId"]);
    assert_eq!(
        whole.all("tool-output-denied").len(),
        1,
        "by the step that held it, and not again by the turn"
    );
    assert_eq!(whole.one("finish")["messageMetadata"]["usage"]["inputTokens"], 20);
}

#[tokio::test]
async fn on_postgres_a_page_that_posts_to_a_turn_another_process_has_resumed_tails_it() {
    let (one, other) = two().await;
    let (thread, id) = one.held("pay", "10").await;
    one.client.approve(&id).await;
    let gate = one.scene.gate();
    one.scene.answers("Paid.");
    let first = one.client.begin_resume(&thread).await;
    let message = one.client.messages(&thread).await.pop().unwrap();
    let message = message.text("message_id");
    let parts = json!([{ "type": "step-start" }, ui_answer(&id, "pay", true)]);
    let messages = [ui_user("u", "please pay 10"), ui_assistant(message, &parts)];
    let url = other.client.url(&format!("/qa/chat_streamed/{thread}"));
    let posts = other.client.http.post(url).json(&ui_submit_at(&thread, &messages, message)).send();
    let posts = posts.await.unwrap();
    gate.add_permits(10);
    let page = other.client.read_ui_on(posts).await;
    assert_eq!((page.status, page.text().as_str()), (200, "Paid."), "{}", page.raw);
    assert_eq!(page.message_id(), message);
    assert_eq!(page.one("tool-output-available")["output"], json!({ "paid": "10" }));
    assert_eq!(one.client.read_on(first).await.text(), "Paid.");
    assert_eq!((one.ledger.lines().len(), other.ledger.lines().len()), (1, 0));
}

#[tokio::test]
async fn on_postgres_failures_and_cancellations_are_tailed_at_another_process() {
    let (one, other) = two().await;
    let gate = one.scene.gate();
    for breaks in [true, false] {
        let thread = one.client.thread().await;
        let mut step = vec![words("Half"), words(" an answer")];
        step.extend(calls(0, "look", "{\"note\":").into_iter().take(2));
        step.push(Err("gone".to_owned()));
        one.scene.then(step);
        let first = one.client.begin(&thread, &json!({ "content": "hi" })).await;
        let there = both_read(&other, &thread).await;
        gate.add_permits(4);
        StreamReader::of(reads(&other, &thread, PageProtocol::DataV1).await).until(" an answer").await;
        if breaks {
            gate.add_permits(1);
        } else {
            let run = first.headers()["x-run-id"].to_str().unwrap();
            let stopped = other.client.post(&format!("/runs/{run}/cancel"), &Value::Null).await;
            assert_eq!(stopped.body["status"], "cancelled");
        }
        let first = one.client.read_on(first).await;
        let [v1, v5, v6] = there;
        let v1 = other.client.read_on(v1).await;
        assert_eq!((v1.text().as_str(), first.text().as_str()), ("Half an answer", "Half an answer"));
        assert_eq!(
            (v1.codes().as_str(), first.codes().as_str()),
            if breaks { ("f03", "f0bc3") } else { ("f0d", "f0bcd") }
        );
        if breaks {
            let failure = |turn: &Turn| without_request(turn.error()).to_owned();
            assert_eq!(failure(&v1), failure(&first));
        }
        for page in [v5, v6] {
            let page = other.client.read_ui_on(page).await;
            assert_eq!(page.text(), "Half an answer");
            let last = if breaks { "error" } else { "finish" };
            assert_eq!(page.chunks.last().unwrap()["type"], last, "{}", page.raw);
        }
    }
}

#[tokio::test]
async fn on_postgres_long_answers_reach_every_subscriber_at_another_process_completely() {
    let (one, other) = two().await;
    let thread = one.client.thread().await;
    let text: Vec<String> = (0..3000).map(|n| format!("{n} \u{20ac}\u{1f600} ")).collect();
    let gate = one.scene.gate();
    one.scene.then(text.iter().map(|piece| words(piece)).chain([end(FinishReason::Length)]).collect());
    let first = one.client.begin(&thread, &json!({ "content": "hi" })).await;
    let pages =
        futures::future::join_all((0..15).map(|_| reads(&other, &thread, PageProtocol::DataV1))).await;
    let mut early = StreamReader::of(reads(&other, &thread, PageProtocol::DataV1).await);
    for (permits, until) in [(1000, "\u{20ac}"), (1000, "1500 "), (1001, "2999 ")] {
        gate.add_permits(permits);
        early.until(until).await;
    }
    let first = one.client.read_on(first).await;
    assert!(first.text() == text.concat());
    for page in pages {
        assert!(meaning(&other.client.read_on(page).await) == meaning(&first));
    }
    assert_eq!(first.one('d')["finishReason"], "length");
}

#[tokio::test]
async fn on_postgres_a_subscriber_receives_an_error_when_the_process_dies() {
    let deployment = Deployment::on_postgres().await;
    let (mut dies, lives) = (deployment.start("0s"), deployment.start("0s"));
    let thread = lives.client.thread().await;
    let first = dies.client.begin(&thread, &json!({ "content": "think" })).await;
    let path = lives.client.url(&format!("/qa/chat_streamed/{thread}/stream"));
    let mut page = StreamReader::of(lives.client.http.get(path).send().await.unwrap());
    page.until("Half an ").await;
    dies.kill();
    drop(first);
    let page = page.ui().await;
    assert_eq!(page.text(), "Half an ");
    assert_eq!(
        page.error().map(without_request),
        Some("interrupted: The server stopped before the answer was complete.")
    );
    let answer = lives.client.messages(&thread).await.pop().unwrap();
    assert_eq!((&answer["status"], &answer["parts"][1]["text"]), (&json!("interrupted"), &json!("Half an ")));
    deployment.release();
    let again = lives.client.resume(&thread).await;
    assert_eq!((again.codes().as_str(), again.text().as_str()), ("f0ed", "Half an answer."));
}

#[tokio::test]
async fn after_a_kill_while_the_model_pauses_its_text_is_kept() {
    let deployment = Deployment::new().await;
    let mut server = deployment.start("30s");
    let thread = server.client.thread().await;
    let first = server.client.begin(&thread, &json!({ "content": "think" })).await;
    let kept = async || {
        let answer = server.client.messages(&thread).await.pop()?;
        (answer["parts"][1]["text"] == "Half an ").then_some(answer)
    };
    assert_eq!(eventually("what was said is kept", kept).await["status"], "streaming");
    server.kill();
    drop(first);

    let server = deployment.start("30s");
    let broken = async || {
        let answer = server.client.messages(&thread).await.pop()?;
        (answer["status"] == "interrupted").then_some(answer)
    };
    let broken = eventually("the turn is closed", broken).await;
    assert_eq!(broken["parts"], json!([{ "type": "step_start" }, { "type": "text", "text": "Half an " }]));
    deployment.release();
    assert_eq!(server.client.resume(&thread).await.text(), "Half an answer.");
    let answer = server.client.messages(&thread).await.pop().unwrap();
    let texts = answer.list("parts").iter().filter_map(|part| part["text"].as_str());
    assert_eq!(texts.collect::<Vec<_>>(), ["Half an ", "Half an answer."]);
}

#[tokio::test]
async fn a_call_that_was_never_stored_is_skipped_wherever_its_step_is_read() {
    let app = Embedded::with(|config| config.approval.sweep = Duration::from_millis(100)).await;
    let thread = app.client.thread().await;
    let gate = app.scene.gate();
    let mut step = vec![thoughts("Hm."), words("I pay.")];
    step.extend(calls(0, "pay", "{\"note\":\"1\"}"));
    step.push(end(FinishReason::ToolCalls));
    app.scene.then(step).answers("Whole.");
    let first = app.client.begin(&thread, &json!({ "content": "hi" })).await;
    gate.add_permits(4);
    let kept =
        async || (app.rows.count("message_steps WHERE parts LIKE '%tool_call%'").await == 1).then_some(());
    eventually("the call is named in what is kept", kept).await;
    let parts = json!([
        { "type": "step_start" },
        { "type": "reasoning", "text": "Hm." },
        { "type": "text", "text": "I pay." },
    ]);
    assert_eq!(app.client.messages(&thread).await[1]["parts"], parts);

    // As if its process had died: the new owner of the lease emits no event.
    assert_eq!(app.rows.change("UPDATE runs SET owner = 'dead', lease_until = 1").await, Ok(1));
    let closed = async || {
        let answer = app.client.messages(&thread).await.pop()?;
        (answer["status"] == "interrupted").then_some(answer)
    };
    let closed = eventually("the turn is closed", closed).await;
    assert_eq!((&closed["parts"], app.rows.count("tool_calls").await), (&parts, 0));
    gate.add_permits(10);
    let first = app.client.read_on(first).await;
    first.failed_with("interrupted");
    let v4 = app.client.get(&format!("/threads/{thread}/messages?format=v4")).await.body;
    let v4 = &v4["results"][1];
    assert_eq!((&v4["content"], v4.list("parts").len()), (&json!("I pay."), 3), "{v4}");
    assert_eq!(app.client.resume(&thread).await.text(), "Whole.");
    let reported = &app.scene.requests()[1].messages;
    assert_eq!(reported.len(), 1, "the broken step is not sent: {reported:?}");
}

#[tokio::test]
async fn a_step_is_not_stored_again_with_every_delta_on_sqlite() {
    let dir = tempfile::tempdir().unwrap();
    let app = Embedded::on_sqlite(&dir).await;
    let count = [
        "CREATE TABLE kept (bytes INTEGER)",
        "CREATE TRIGGER kept_too AFTER UPDATE ON message_steps WHEN NEW.status = 'streaming'
         BEGIN INSERT INTO kept VALUES (length(NEW.parts)); END",
    ];
    for change in count {
        app.rows.change(change).await.unwrap();
    }
    const PIECES: usize = 40_000;
    let thread = app.client.thread().await;
    let piece = "\u{e9}".repeat(16);
    // The task that waits for permits yields to other tasks.
    app.scene.gate().add_permits(PIECES + 1);
    app.scene.then((0..PIECES).map(|_| words(&piece)).chain([end(FinishReason::Stop)]).collect());
    assert!(app.client.send_message(&thread, "hi").await.text() == piece.repeat(PIECES));
    let kept = app.rows.all("SELECT bytes FROM kept").await;
    let kept: Vec<_> = kept.iter().map(|row| row["bytes"].as_u64().unwrap()).collect();
    // A step is stored whenever it has grown by a fourth, and once a second by the clock, at growing
    // intervals.
    assert!((1..100).contains(&kept.len()), "{kept:?}");
    let bytes = u64::try_from(PIECES * piece.len()).unwrap();
    assert!(kept.iter().sum::<u64>() < 20 * bytes, "{kept:?}");
    let whole = app.client.messages(&thread).await.pop().unwrap();
    assert!(whole["parts"][1].text("text") == piece.repeat(PIECES));
}

#[tokio::test]
async fn on_postgres_the_drafts_of_many_turns_are_written_together() {
    const TURNS: usize = 20;
    let deployment = Deployment::on_postgres().await;
    let server = deployment.start("0s");
    let (rows, lock) = (deployment.rows().await, deployment.rows().await);
    let mut turns = JoinSet::new();
    let begin = |turns: &mut JoinSet<Turn>| {
        let client = server.client.clone();
        turns.spawn(async move { client.send_message(&client.thread().await, "think").await });
    };
    begin(&mut turns);
    deployment.wait_started(&["think"]).await;
    // The first draft waits for this lock, and the others for the first one.
    lock.change("BEGIN; SELECT 1 FROM message_steps FOR UPDATE").await.unwrap();
    rows.wait_for_lock_waiter().await;
    (1..TURNS).for_each(|_| begin(&mut turns));
    deployment.wait_started(&["think"; TURNS]).await;
    let is_new = "message_steps WHERE created_at > extract(epoch FROM clock_timestamp()) * 1000000 - 1500000";
    eventually("all drafts are due", async || (rows.count(is_new).await == 0).then_some(())).await;
    lock.change("ROLLBACK").await.unwrap();
    let drafted = "message_steps WHERE parts LIKE '%Half an %'";
    let all = i64::try_from(TURNS).unwrap();
    eventually("all drafts are stored", async || (rows.count(drafted).await >= all - 1).then_some(())).await;
    let transactions = format!("(SELECT DISTINCT xmin::text FROM {drafted}) AS transactions");
    let transactions = rows.count(&transactions).await;
    // One of the first draft and one of the others. On a slow machine some drafts are due later.
    assert!(transactions <= all / 2, "{transactions} transactions");
    deployment.release();
    for turn in turns.join_all().await {
        assert_eq!(turn.text(), "Half an answer.");
    }
}
