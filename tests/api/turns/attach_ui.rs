//! Tailing the message that a turn is writing by GET, as pages of AI SDK 5 to 7 do.

use holdpoint::llm::{FinishReason, ModelEvent, Usage};
use holdpoint_testkit::ui::UiTurn;
use holdpoint_testkit::{Embedded, JsonFields, Turn, eventually};
use reqwest::{RequestBuilder, Response};
use serde_json::{Value, json};
use tokio::net::TcpSocket;

/// The resume request of a page whose `api` names no thread.
fn resume(app: &Embedded, chat: &str) -> RequestBuilder {
    app.client.http.get(app.client.url(&format!("/qa/chat_streamed/{chat}/stream")))
}

async fn begin_to_resume(app: &Embedded, chat: &str) -> Response {
    resume(app, chat).send().await.unwrap()
}

/// Asserts that the chat has no message to tail.
async fn has_nothing(app: &Embedded, chat: &str) {
    for path in [format!("{chat}/stream"), format!("{chat}/page/stream")] {
        let path = format!("/qa/chat_streamed/{path}");
        let answer = app.client.http.get(app.client.url(&path)).send().await.unwrap();
        assert_eq!(answer.status(), 204, "{path}");
        assert_eq!(answer.text().await.unwrap(), "", "{path}");
    }
}

fn end(reason: FinishReason) -> Result<ModelEvent, String> {
    let usage = Some(Usage { input_tokens: 10, output_tokens: 5 });
    Ok(ModelEvent::Finished { reason, usage, provider_state: None })
}

fn words(words: &str) -> Result<ModelEvent, String> {
    Ok(ModelEvent::Text(words.to_owned()))
}

fn thoughts(words: &str) -> Result<ModelEvent, String> {
    Ok(ModelEvent::Reasoning(words.to_owned()))
}

fn calls(index: usize, tool: &str) -> [Result<ModelEvent, String>; 3] {
    let (provider_call_id, tool_name) = (format!("p{index}"), tool.to_owned());
    let delta = json!({ "note": tool }).to_string();
    [
        Ok(ModelEvent::CallStarted { index, provider_call_id, tool_name }),
        Ok(ModelEvent::CallArguments { index, delta }),
        Ok(ModelEvent::CallFinished { index }),
    ]
}

/// Has the model think, look and ask to pay in one step, and approves the payment. Returns the thread and the
/// turn.
async fn approved(app: &Embedded) -> (String, Turn) {
    let thread = app.client.thread().await;
    let mut step = vec![thoughts("Hm. "), words("I look"), words(" and pay.")];
    step.extend(calls(0, "look").into_iter().chain([words("So.")]).chain(calls(1, "pay")));
    step.push(end(FinishReason::ToolCalls));
    app.scene.then(step);
    let turn = app.client.send_message(&thread, "look and pay").await;
    app.client.approve(&turn.pending()[0]).await;
    (thread, turn)
}

#[tokio::test]
async fn a_page_that_attaches_mid_turn_receives_the_whole_message_under_its_id() {
    let app = Embedded::start().await;
    let (thread, held) = approved(&app).await;
    app.scene.then(vec![words("Pa"), words("id."), end(FinishReason::Stop)]);
    let gate = app.scene.gate();
    let writes = app.client.begin_resume(&thread).await;
    let pages = [
        begin_to_resume(&app, &thread).await,
        begin_to_resume(&app, &format!("{thread}/any%20name")).await,
        resume(&app, &thread).header("x-stream-protocol", "ui-v6").send().await.unwrap(),
    ];
    gate.add_permits(3);
    let written = app.client.read_on(writes).await;
    assert_eq!((written.codes().as_str(), written.text().as_str()), ("a8ef0ed", "Paid."));
    let [look, pay] = &held.all('9')[..] else { panic!("{}", held.raw) };
    for page in pages {
        let page = app.client.read_ui_on(page).await;
        page.has_status(200);
        assert_eq!(page.headers["content-type"], "text/event-stream");
        assert_eq!(page.headers["x-vercel-ai-ui-message-stream"], "v1");
        assert_eq!(page.headers["x-run-id"], held.headers["x-run-id"]);
        assert_eq!(page.message_id(), held.one('f')["messageId"]);
        #[rustfmt::skip]
        assert_eq!(page.kinds(), [
            "start",
            "start-step",
            "reasoning-start", "reasoning-delta", "reasoning-end",
            "text-start", "text-delta", "text-end",
            "tool-input-available",
            "text-start", "text-delta", "text-end",
            "tool-input-available",
            "tool-output-available", "tool-approval-request", "tool-output-available",
            "finish-step",
            "start-step",
            "text-start", "text-delta", "text-end",
            "finish-step",
            "finish",
        ]);
        assert_eq!(page.text(), "I look and pay.So.Paid.");
        let inputs: Vec<_> = page.all("tool-input-available").into_iter().map(|it| &it["input"]).collect();
        assert_eq!(inputs, [&look["args"], &pay["args"]]);
        let outputs: Vec<_> = page.all("tool-output-available").into_iter().map(|it| &it["output"]).collect();
        let (seen, paid) = (json!({ "seen": "look" }), json!({ "paid": "pay" }));
        assert_eq!(outputs, [&seen, &paid], "each outcome is told once");
        assert_eq!(page.parts.len(), 2, "the card and the decision: {:?}", page.parts);
        let finish = page.one("finish");
        assert_eq!(finish["messageMetadata"]["usage"], json!({ "inputTokens": 20, "outputTokens": 10 }));
    }
    has_nothing(&app, &thread).await;
}

#[tokio::test]
async fn a_decided_turn_waits_for_a_post_and_reading_starts_no_turn() {
    let app = Embedded::start().await;
    let thread = app.client.thread().await;
    has_nothing(&app, &thread).await;
    let id = app.hold_in(&thread, "pay", "10").await;
    has_nothing(&app, &thread).await;
    app.client.approve(&id).await;
    has_nothing(&app, &thread).await;
    let requested = app.client.http.get(app.client.url(&format!("/qa/chat_streamed/{thread}?chatId=page")));
    let requested = requested.header("x-stream-protocol", "ui-v5").send().await.unwrap();
    assert_eq!(requested.status(), 204, "the dialect decides, not the path");
    assert_eq!(app.scene.requests().len(), 1, "no model was called");
    app.scene.answers("Paid.");
    let requested = resume(&app, &thread).header("x-stream-protocol", "data-v1");
    let turn = app.client.read(requested).await;
    assert_eq!((turn.codes().as_str(), turn.text().as_str()), ("a8ef0ed", "Paid."));
    let requested = resume(&app, &thread).header("x-stream-protocol", "data-v1");
    assert_eq!(app.client.read(requested).await.raw, "");
    has_nothing(&app, &thread).await;
}

#[tokio::test]
async fn a_page_may_resume_before_its_first_message_but_a_named_thread_must_exist() {
    let app = Embedded::start().await;
    let theirs = app.client.thread().await;
    for (path, status) in [
        ("new/stream".to_owned(), 204),
        ("a%00b/stream".to_owned(), 204),
        ("01890a5d-ac96-774b-bcce-b302099a8057/stream".to_owned(), 204),
        (format!("{theirs}/stream"), 204),
        (format!("{theirs}/new/stream"), 204),
        (format!("{theirs}/{theirs}/stream"), 204),
        ("new/new/stream".to_owned(), 404),
        (format!("01890a5d-ac96-774b-bcce-b302099a8057/{theirs}/stream"), 404),
        (format!("{theirs}/new/other/stream"), 404),
    ] {
        let path = format!("/qa/chat_streamed/{path}");
        for prefix in ["", "/api"] {
            let answer = app.client.get(&format!("{prefix}{path}")).await;
            let code = if status == 404 { "not_found" } else { "" };
            assert_eq!(answer.failure(), (status, code), "{prefix}{path}");
        }
    }
    assert_eq!(app.rows.count("threads").await, 1, "asking makes no thread");
    app.scene.answers("Hello.");
    app.client.turn_by_id(&json!({ "id": "stream", "content": "hi" })).await;
    has_nothing(&app, "stream").await;
}

#[tokio::test]
async fn an_attached_page_reads_the_broken_step_and_then_the_step_that_replaces_it() {
    let app = Embedded::start().await;
    let thread = app.client.thread().await;
    let mut step = vec![thoughts("Hm."), words("Half")];
    step.extend(calls(0, "look").into_iter().take(2));
    step.push(Err("gone".to_owned()));
    app.scene.then(step);
    let broken = app.client.send_message(&thread, "hi").await;
    app.scene.answers("Whole.");
    let gate = app.scene.gate();
    let writes = app.client.begin_resume(&thread).await;
    let page = begin_to_resume(&app, &thread).await;
    gate.add_permits(10);
    let (written, page) = (app.client.read_on(writes).await, app.client.read_ui_on(page).await);
    assert_eq!(written.text(), "Whole.");
    assert_eq!(page.message_id(), broken.one('f')["messageId"]);
    #[rustfmt::skip]
    assert_eq!(page.kinds(), [
        "start",
        "start-step",
        "reasoning-start", "reasoning-delta", "reasoning-end",
        "text-start", "text-delta", "text-end",
        "start-step",
        "text-start", "text-delta", "text-end",
        "finish-step",
        "finish",
    ]);
    assert_eq!(page.text(), "HalfWhole.");
}

#[tokio::test]
async fn pages_of_ai_sdk_5_receive_the_state_of_calls_in_their_dialect() {
    let app =
        Embedded::with(|config| config.stream.default_ui_dialect = holdpoint::config::UiDialect::V5).await;
    let (thread, held) = approved(&app).await;
    app.scene.answers("Paid.");
    let gate = app.scene.gate();
    let writes = app.client.begin_resume(&thread).await;
    let page = begin_to_resume(&app, &thread).await;
    gate.add_permits(10);
    app.client.read_on(writes).await;
    let page = app.client.read_ui_on(page).await;
    let id = &held.pending()[0];
    let stands: Vec<_> = page.all("data-tool-validation").into_iter().map(|part| &part["data"]).collect();
    let approved = json!({ "toolCallId": id, "validated": "approved" });
    assert_eq!(stands, [&approved, &approved]);
    assert!(page.all("tool-approval-request").is_empty() && page.one("finish").get("finishReason").is_none());
}

/// Opens a client with a small receive buffer that requests the path and never reads the response.
async fn reads_nothing(app: &Embedded, path: &str) -> tokio::net::TcpStream {
    use tokio::io::AsyncWriteExt;
    let host = app.client.base.trim_start_matches("http://").to_owned();
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let mut socket = socket.connect(host.parse().unwrap()).await.unwrap();
    socket.write_all(format!("GET {path} HTTP/1.1\r\nhost: {host}\r\n\r\n").as_bytes()).await.unwrap();
    socket
}

#[tokio::test]
async fn a_subscriber_that_never_reads_delays_no_other_subscriber() {
    const TEXTS: usize = 12;
    const READERS: usize = 20;
    let app = Embedded::start().await;
    let thread = app.client.thread().await;
    // More than a socket buffers while its client does not read.
    let text = "\u{e9}".repeat(32 << 10);
    let gate = app.scene.gate();
    app.scene.then((0..TEXTS).map(|_| words(&text)).chain([end(FinishReason::Stop)]).collect());
    let first = app.client.begin(&thread, &json!({ "content": "hi" })).await;
    let path = format!("/qa/chat_streamed/{thread}/stream");
    let stuck = reads_nothing(&app, &path).await;
    let mut pages = Vec::new();
    for _ in 0..READERS {
        pages.push(begin_to_resume(&app, &thread).await);
        assert_eq!(pages.last().unwrap().status(), 200);
    }
    // The stuck client's stream is open before the model continues.
    let open = async || {
        let metrics = app.client.http.get(app.client.url("/metrics")).send().await.unwrap();
        let metrics = metrics.text().await.unwrap();
        // The readers, the stuck client and the client that posted the question.
        let all = format!("holdpoint_streams_open {}", READERS + 2);
        metrics.lines().any(|line| line == all).then_some(())
    };
    eventually("all read along", open).await;
    gate.add_permits(TEXTS + 1);
    let reads = pages.into_iter().map(|page| app.client.read_ui_on(page));
    let (first, pages) = tokio::join!(app.client.read_on(first), futures::future::join_all(reads));
    let whole = text.repeat(TEXTS);
    assert!(first.text() == whole);
    for page in pages {
        assert!(page.text() == whole && page.chunks.last().unwrap()["type"] == "finish");
    }
    drop(stuck);
}

#[tokio::test]
async fn a_late_subscriber_receives_long_text_in_chunks_that_split_no_character() {
    const PIECE: usize = 16 << 10;
    let app = Embedded::start().await;
    let thread = app.client.thread().await;
    // Three bytes each; the length of a piece is no multiple of three.
    let text = "\u{20ac}".repeat(PIECE);
    let gate = app.scene.gate();
    let pieces = text.as_bytes().chunks(300).map(|piece| words(std::str::from_utf8(piece).unwrap()));
    let pieces: Vec<_> = pieces.chain([end(FinishReason::Stop)]).collect();
    let count = pieces.len();
    app.scene.then(pieces);
    let first = app.client.begin(&thread, &json!({ "content": "hi" })).await;
    let early = begin_to_resume(&app, &thread).await;
    gate.add_permits(count - 1);
    let late = async || {
        let mut page = begin_to_resume(&app, &thread).await;
        let mut read = Vec::new();
        while let Some(piece) = page.chunk().await.unwrap() {
            read.extend_from_slice(&piece);
            // All deltas except the last have arrived: let the model finish.
            if read.iter().filter(|byte| **byte == 0xe2).count() == PIECE && gate.available_permits() == 0 {
                gate.add_permits(1);
            }
        }
        UiTurn::of(200, page.headers().clone(), String::from_utf8(read).unwrap())
    };
    let (first, early, late) = tokio::join!(app.client.read_on(first), app.client.read_ui_on(early), late());
    assert!(first.text() == text && early.text() == text && late.text() == text);
    let longest = late.all("text-delta").into_iter().map(|chunk| chunk.text("delta").len()).max();
    assert!(longest.unwrap() <= PIECE + 3, "{longest:?}");
}

#[tokio::test]
async fn an_unrelated_user_reads_nothing_of_a_running_turn() {
    use holdpoint_testkit::token::with_tokens;
    let app = Embedded::with(with_tokens).await;
    let (ann, bob) = (app.client.as_user("acme", "ann", &[]), app.client.as_user("acme", "bob", &[]));
    let thread = ann.thread().await;
    let gate = app.scene.gate();
    app.scene.answers("Secret.");
    let first = ann.begin(&thread, &json!({ "content": "hi" })).await;
    gate.add_permits(1);
    let by_name = bob.get(&format!("/qa/chat_streamed/{thread}/stream")).await;
    assert_eq!((by_name.status, by_name.body), (204, Value::Null));
    let by_thread = bob.get(&format!("/qa/chat_streamed/{thread}/page/stream")).await;
    by_thread.failed_with(404, "not_found");
    gate.add_permits(1);
    assert_eq!(ann.read_on(first).await.text(), "Secret.");
}
