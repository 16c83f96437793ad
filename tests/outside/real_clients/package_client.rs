//! The client of `@holdpoint/page` in Node: the requests beside the chat, and the events of a thread.

use super::decided_elsewhere::{OutsideDecision, decide};
use super::native_approval::{PAY, held_call};
use super::output::Piece;
use super::package::on;
use super::page::{CHAT, Page, Version, thread};
use holdpoint_testkit::{Embedded, JsonFields};
use serde_json::{Value, json};

/// A page that shows a held call.
async fn with_a_hold() -> (Embedded, Page) {
    held_call(Version::V7, &PAY, &on("ui-v7")).await
}

impl Page {
    /// Calls this method of the client, which succeeds.
    pub(super) async fn calls_method(&mut self, method: &str, args: Value) -> Value {
        let result = self.tries_method(method, args).await;
        assert_eq!(result.get("error"), None);
        result["ok"].clone()
    }

    /// Calls this method of the client: `{ok}` or `{error}`.
    pub(super) async fn tries_method(&mut self, method: &str, args: Value) -> Value {
        self.act(&json!({ "do": "call", "method": method, "args": args })).await;
        self.package["result"].clone()
    }

    /// Subscribes to the events of its chat, and waits until the subscription has started.
    async fn subscribes(&mut self) {
        self.act(&json!({ "do": "subscribe", "until": { "batches": 1 } })).await;
        assert_eq!(self.package["batches"], json!([[]]));
    }

    /// Waits until an event of this type has come, and returns all events so far.
    async fn receives(&mut self, kind: &str) -> Vec<Value> {
        self.act(&json!({ "do": "wait", "until": { "event": kind } })).await;
        let batches = self.package.list("batches");
        batches.iter().flat_map(|batch| batch.as_array().unwrap().clone()).collect()
    }
}

/// All events of the run of this call.
async fn stored_events(app: &Embedded, call: &str) -> Vec<Value> {
    let run = app.client.run_of(call).await;
    app.client.get(&format!("/runs/{run}/events")).await.body.list("results").clone()
}

#[tokio::test]
async fn a_client_makes_finds_renames_and_deletes_threads() {
    let (app, mut page) = with_a_hold().await;
    let made = page.calls_method("createThread", json!([{ "title": "Bills" }])).await;
    let id = made.text("thread_id").to_owned();
    assert_eq!(page.calls_method("thread", json!([id])).await, made);
    let newest = page.calls_method("threads", json!([{ "pageSize": 1 }])).await;
    assert_eq!((&newest["results"], &newest["has_more"]), (&json!([made]), &json!(true)));
    let older = page.calls_method("threads", json!([{ "cursor": newest["next_cursor"] }])).await;
    let chat = page.calls_method("threads", json!([{ "clientId": CHAT }])).await;
    assert_eq!((&older["results"], &chat["results"][0]["client_id"]), (&chat["results"], &json!(CHAT)));
    let renamed = page.calls_method("renameThread", json!([id, "Rent"])).await;
    assert_eq!(renamed["title"], "Rent");
    assert_eq!(page.calls_method("deleteThread", json!([id])).await, Value::Null);
    let gone = page.tries_method("thread", json!([id])).await;
    assert_eq!((&gone["error"]["status"], &gone["error"]["code"]), (&json!(404), &json!("not_found")));
    app.client.get(&format!("/threads/{id}")).await.has_status(404);
}

#[tokio::test]
async fn a_client_decides_with_edited_inputs_and_receives_the_decision_in_force() {
    let (app, mut page) = with_a_hold().await;
    let call = page.first();
    let hash = page.data_about("data-tool-hold", &call)["inputHash"].clone();
    let stale =
        page.tries_method("decide", json!([call, { "approved": true, "inputHash": "0".repeat(64) }])).await;
    assert_eq!((&stale["error"]["status"], &stale["error"]["code"]), (&json!(409), &json!("stale")));
    let wrong =
        page.tries_method("decide", json!([call, { "approved": true, "input": { "note": 7 } }])).await;
    assert_eq!(wrong["error"]["code"], "invalid_inputs");
    let answer =
        json!({ "approved": true, "input": { "note": "7" }, "inputHash": hash, "remember": "session" });
    let decided = page.calls_method("decide", json!([call, answer])).await;
    assert_eq!(
        (&decided["state"], &decided["validatedInputs"]),
        (&json!("succeeded"), &json!({ "note": "7" }))
    );
    assert_eq!(app.ledger.lines(), ["pay 7"]);
    let late = page.tries_method("decide", json!([call, { "approved": false, "reason": "no" }])).await;
    let stored = app.client.call(&call).await;
    assert_eq!(late["error"]["code"], "already_decided");
    assert_eq!(late["error"]["decision"]["by"], stored["decision"]["by"]);
    assert_eq!(late["error"]["decision"]["edited"], true);
    assert_eq!(late["error"].text("requestId").find("page-"), Some(0));
    assert_eq!(stored["decision"]["remember"], "session");
    page.send_nothing().await;
    assert_eq!((page.text().as_str(), page.invalid.as_deref()), ("I will pay. Done.", None));
}

#[tokio::test]
async fn edited_inputs_as_text_keep_the_digits_of_their_numbers() {
    let (app, mut page) = with_a_hold().await;
    let call = page.first();
    let text = r#"{"note": 12345678901234567890}"#;
    for method in ["decide", "decideAll"] {
        let answer = json!({ "toolCallId": call, "approved": true, "inputText": text });
        let args = if method == "decide" { json!([call, answer]) } else { json!([[answer]]) };
        let refused = page.tries_method(method, args).await.to_string();
        assert!(refused.contains("invalid_inputs"), "a note is a text: {refused}");
        let sent = page.requests.last().unwrap().text("body").to_owned();
        assert!(sent.contains(text), "{sent}");
    }
    let requests = page.requests.len();
    for text in [r#"{"note": "1"#, r#"{}, "isValidated": false"#, ""] {
        let args = json!([call, { "approved": true, "inputText": text }]);
        let refused = page.tries_method("decide", args).await;
        assert!(refused["error"].text("message").contains("JSON"), "{refused}");
    }
    assert_eq!((page.requests.len(), page.error.as_deref()), (requests, None), "nothing was sent");
    let args = json!([call, { "approved": true, "inputText": r#"{"note": "7"}"# }]);
    assert_eq!(page.calls_method("decide", args).await["state"], "succeeded");
    assert_eq!(app.ledger.lines(), ["pay 7"]);
}

#[tokio::test]
async fn a_client_decides_several_calls_and_the_server_continues_if_asked() {
    let two = [Piece::Call("pay", "1"), Piece::Call("pay", "2")];
    let (app, mut page) = held_call(Version::V7, &two, &on("ui-v7")).await;
    let [first, second] = &page.call_ids()[..] else { panic!("{page:#?}") };
    let (first, second) = (first.clone(), second.clone());
    page.subscribes().await;
    decide(&app, &first, OutsideDecision::Reject).await;
    let answers = json!([[
        { "toolCallId": first, "approved": true },
        { "toolCallId": second, "approved": false, "reason": "no", "resume": true },
    ]]);
    let decided = page.calls_method("decideAll", answers).await;
    assert_eq!(
        (&decided[0]["status"], &decided[0]["error"]["code"]),
        (&json!(409), &json!("already_decided"))
    );
    assert_eq!((&decided[1]["status"], &decided[1]["state"]), (&json!(200), &json!("rejected")));
    page.receives("run.completed").await;
    page.send_nothing().await;
    assert_eq!((page.error.as_deref(), page.text().as_str()), (None, "Done."));
}

#[tokio::test]
async fn a_client_cancels_and_reads_a_tool_and_any_other_route() {
    let (app, mut page) = with_a_hold().await;
    let tool = page.calls_method("tool", json!(["pay"])).await;
    assert_eq!(tool["input_schema"]["properties"]["note"]["type"], "string");
    let models = page.calls_method("request", json!(["GET", "/qa/models"])).await;
    assert_eq!(models, app.client.get("/qa/models").await.body);
    page.calls_method("cancel", json!([CHAT])).await;
    assert_eq!(app.client.call(&page.first()).await["state"], "cancelled");
    let sent: Vec<&Value> = page.requests.iter().map(|request| &request["requestId"]).collect();
    assert_eq!(sent, ["page-1", "page-2", "page-3", "page-4"], "the headers are made for each request");
}

#[tokio::test]
async fn a_client_reports_that_another_server_answers() {
    let (_app, mut page) = with_a_hold().await;
    let other = page.tries_method("request", json!(["GET", "/docs"])).await;
    let output = "Not an answer of the server: status 200, text/html.";
    assert_eq!((&other["error"]["message"], &other["error"]["status"]), (&json!(output), &json!(200)));
}

#[tokio::test]
async fn a_subscription_gives_every_event_once_also_after_a_break() {
    let (app, mut page) = with_a_hold().await;
    let call = page.first();
    page.subscribes().await;
    decide(&app, &call, OutsideDecision::Approve).await;
    let before = page.receives("tool.succeeded").await.len();
    page.act(&json!({ "do": "breakStreams" })).await;
    let id = thread(&app).await;
    app.client.resume(&id).await;
    let received = page.receives("run.completed").await;
    assert!(received.len() > before);
    let stored = stored_events(&app, &call).await;
    let waiting = stored.iter().position(|event| event["type"] == "run.waiting").unwrap();
    assert_eq!(received, stored[waiting + 1..]);
    let opened = |request: &&Value| request.text("path").starts_with("/events/stream?");
    let opened: Vec<&Value> = page.requests.iter().filter(opened).map(|request| &request["path"]).collect();
    let [first, again] = &opened[..] else { panic!("{opened:?}") };
    assert_eq!(*first, &format!("/events/stream?thread_id={CHAT}"));
    assert_eq!(*again, &format!("/events/stream?thread_id={CHAT}&after={}", stored[waiting + before]["seq"]));
    assert_eq!(page.package.list("errors").len(), 1, "the break was reported");
    let batches = page.package.list("batches");
    assert!(batches[1..].iter().all(|batch| *batch != json!([])), "it does not begin anew: {batches:?}");
}

#[tokio::test]
async fn a_subscription_without_an_event_begins_anew_after_a_break() {
    let (app, mut page) = with_a_hold().await;
    page.subscribes().await;
    page.act(&json!({ "do": "breakStreams" })).await;
    page.act(&json!({ "do": "wait", "until": { "batches": 2 } })).await;
    assert_eq!(page.package["batches"], json!([[], []]), "what happened meanwhile is not known");
    decide(&app, &page.first(), OutsideDecision::Reject).await;
    assert_eq!(page.receives("tool.rejected").await.len(), 1);
}

#[tokio::test]
async fn a_subscription_begins_after_a_given_event() {
    let (app, mut page) = with_a_hold().await;
    let stored = stored_events(&app, &page.first()).await;
    page.act(&json!({ "do": "subscribe", "after": stored[0]["seq"], "until": { "event": "run.waiting" } }))
        .await;
    assert_eq!(page.receives("run.waiting").await, stored[1..]);
}

#[tokio::test]
async fn a_subscription_to_an_unknown_thread_ends_with_the_refusal() {
    let app = Embedded::start().await;
    let mut page = Page::open_with(&app, Version::V7, &on("ui-v7")).await;
    page.act(&json!({ "do": "subscribe", "until": "answered" })).await;
    page.act(&json!({ "do": "wait", "until": { "errors": 1 } })).await;
    let refused = app.client.get(&format!("/events/stream?thread_id={CHAT}")).await;
    refused.has_status(404);
    assert_eq!(page.package["errors"], json!([refused.message()]));
    assert_eq!(page.package["batches"], json!([]));
    // Each reconnection of another subscription takes half a second or more, and one of the first would take a second
    // at most.
    app.scene.answers("Hello.");
    page.send("hello").await;
    page.act(&json!({ "do": "subscribe", "after": 0, "until": "answered" })).await;
    for _ in 0..3 {
        page.act(&json!({ "do": "breakStreams", "until": "answered" })).await;
    }
    let path = |request: &Value| request.text("path").to_owned();
    let opened: Vec<String> =
        page.requests.iter().map(path).filter(|path| path.starts_with("/events")).collect();
    let first = opened.iter().filter(|path| !path.contains("after=")).count();
    assert_eq!((first, opened.len()), (1, 5), "{opened:?}");
}

#[tokio::test]
async fn events_that_come_while_the_page_is_busy_come_together() {
    let (app, mut page) = with_a_hold().await;
    let call = page.first();
    page.act(&json!({ "do": "subscribe", "held": true, "until": { "batches": 1 } })).await;
    decide(&app, &call, OutsideDecision::Approve).await;
    app.client.resume(&thread(&app).await).await;
    page.act(&json!({ "do": "wait", "until": { "received": "run.completed" } })).await;
    assert_eq!(page.package["batches"], json!([[]]), "the first list is still being handled");
    page.act(&json!({ "do": "letGo", "until": { "batches": 2 } })).await;
    let batches = page.package.list("batches");
    let kinds: Vec<&Value> = batches[1].as_array().unwrap().iter().map(|event| &event["type"]).collect();
    assert_eq!(
        (kinds.first(), kinds.last()),
        (Some(&&json!("tool.approved")), Some(&&json!("run.completed")))
    );
}

#[tokio::test]
async fn hidden_characters_of_a_text_are_shown_by_their_numbers() {
    let app = Embedded::start().await;
    let mut page = Page::open_with(&app, Version::V7, &on("ui-v7")).await;
    let hides = "<i>1\u{202e}0\u{200b} \u{3164}\u{a0}\u{2800}\u{9b}\u{7}\u{feff}\u{e0041} é 漢 👍\n";
    page.act(&json!({ "do": "apply", "name": "visible", "args": [hides] })).await;
    let shown = r"<i>1\u{202e}0\u{200b} \u{3164}\u{a0}\u{2800}\u{9b}\u{7}\u{feff}\u{e0041} é 漢 👍";
    assert_eq!(page.package["result"]["ok"], format!("{shown}\n"));
}
