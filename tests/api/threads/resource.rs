//! Threads: creation, lists, titles and deletion, and reading their messages.

use holdpoint::llm::ModelEvent;
use holdpoint_testkit::{Embedded, JsonFields, call, eventually};
use serde_json::{Value, json};

/// The texts of the first parts of a page's messages.
fn words(page: &Value) -> Vec<&str> {
    let results = page.list("results").iter();
    results.map(|message| message.list("parts").last().unwrap().text("text")).collect()
}

fn ids(page: &Value) -> Vec<&str> {
    let results = page.list("results").iter();
    results.map(|thread| thread.text("thread_id")).collect()
}

#[tokio::test]
async fn a_thread_is_created_with_and_without_a_body() {
    let app = Embedded::start().await;
    let bare = app.client.send(app.client.http.post(app.client.url("/threads"))).await;
    bare.has_status(201);
    let (id, at) = (&bare.body["thread_id"], &bare.body["created_at"]);
    let expected = json!({ "thread_id": id, "session_id": id, "title": "New chat", "created_at": at,
                           "updated_at": at, "pending_count": 0 });
    assert_eq!(bare.body, expected);
    let at = at.as_str().unwrap();
    assert_eq!((at.len(), &at[19..20], &at[26..]), (27, ".", "Z"), "six digits: {at}");

    let empty = app.client.post("/threads", &json!({})).await;
    empty.has(201, "title", "New chat");
    let named = app.client.post("/threads", &json!({ "title": "Budget é" })).await;
    named.has(201, "title", "Budget é");
    let found = app.client.get(&format!("/threads/{}", named.body.text("thread_id"))).await;
    assert_eq!((found.status, &found.body), (200, &named.body));
}

#[tokio::test]
async fn a_title_is_1_to_200_characters() {
    let app = Embedded::start().await;
    let thread = app.client.thread().await;
    let path = format!("/threads/{thread}");
    for length in [1, 200] {
        let body = json!({ "title": "é".repeat(length) });
        assert_eq!(app.client.post("/threads", &body).await.status, 201, "{length}");
        let renamed = app.client.patch(&path, &body).await;
        assert_eq!((renamed.status, &renamed.body["title"]), (200, &body["title"]), "{length}");
    }
    for title in [json!(""), json!("  "), json!("é".repeat(201)), json!(7), json!("a\0b")] {
        let body = json!({ "title": title });
        for refused in [app.client.post("/threads", &body).await, app.client.patch(&path, &body).await] {
            assert_eq!(refused.failure(), (400, "bad_request"), "{title}");
        }
    }
    app.client.patch(&path, &json!({})).await.has_status(400);
    app.client.patch(&path, &json!({ "title": "x", "parent_id": thread })).await.has_status(400);
    let unknown = app.client.post("/threads", &json!({ "titel": "x" })).await;
    unknown.has_status(400);
    assert!(unknown.message().contains("titel"), "{}", unknown.message());
    assert_eq!(app.client.get(&path).await.body["title"], "é".repeat(200));
    assert_eq!(app.rows.count("threads").await, 3);
}

#[tokio::test]
async fn a_child_thread_belongs_to_the_session_of_its_root() {
    let app = Embedded::start().await;
    let root = app.client.thread().await;
    let child = app.client.post("/threads", &json!({ "parent_id": root })).await;
    assert_eq!((child.status, &child.body["parent_id"]), (201, &json!(root)));
    let grandchild = app.client.post("/threads", &json!({ "parent_id": child.body["thread_id"] })).await;
    assert_eq!(grandchild.body["parent_id"], child.body["thread_id"]);
    assert_eq!((&child.body["session_id"], &grandchild.body["session_id"]), (&json!(root), &json!(root)));

    let gone = app.client.thread().await;
    app.client.delete(&format!("/threads/{gone}")).await;
    for parent in
        ["01890a5d-ac96-774b-bcce-b302099a8057", "not-an-id", root.to_uppercase().as_str(), gone.as_str(), ""]
    {
        let refused = app.client.post("/threads", &json!({ "parent_id": parent })).await;
        assert_eq!(refused.failure(), (400, "bad_request"), "{parent}");
        assert!(refused.message().starts_with("parent_id: "), "{}", refused.message());
    }
}

#[tokio::test]
async fn threads_are_listed_newest_first_in_pages() {
    let app = Embedded::start().await;
    let nothing = app.client.get("/threads").await;
    assert_eq!((nothing.status, nothing.body), (200, json!({ "results": [], "has_more": false })));
    let mut made = Vec::new();
    for _ in 0..5 {
        made.push(app.client.thread().await);
    }
    made.reverse();
    let all = app.client.get("/threads").await.body;
    assert_eq!(
        (ids(&all), &all["has_more"], all.get("next_cursor")),
        (made.iter().map(String::as_str).collect(), &json!(false), None)
    );

    let mut path = "/threads?page_size=2".to_owned();
    let mut seen = Vec::new();
    for more in [true, true, false] {
        let page = app.client.get(&path).await.body;
        seen.extend(ids(&page).into_iter().map(str::to_owned));
        assert_eq!((&page["has_more"], page.get("next_cursor").is_some()), (&json!(more), more));
        // A thread created meanwhile does not shift the pages.
        app.client.thread().await;
        path = format!("/threads?page_size=2&cursor={}", page["next_cursor"].as_str().unwrap_or_default());
    }
    assert_eq!(seen, made);
    let exact = app.client.get("/threads?page_size=8").await.body;
    assert_eq!((ids(&exact).len(), &exact["has_more"]), (8, &json!(false)));
}

#[tokio::test]
async fn a_page_has_1_to_200_results_and_an_invalid_cursor_is_refused() {
    let app = Embedded::start().await;
    let thread = app.client.thread().await;
    for list in ["/threads".to_owned(), format!("/threads/{thread}/messages")] {
        for size in ["1", "200"] {
            assert_eq!(
                app.client.get(&format!("{list}?page_size={size}")).await.status,
                200,
                "{list} {size}"
            );
        }
        for size in ["0", "201", "-1", "1.5", "many", "", "99999999999999999999"] {
            let refused = app.client.get(&format!("{list}?page_size={size}")).await;
            assert_eq!(refused.failure(), (400, "bad_request"), "{list} {size}");
            assert!(refused.message().contains("page_size"), "{}", refused.message());
        }
        for cursor in ["abc", "", "1x"] {
            let refused = app.client.get(&format!("{list}?cursor={cursor}")).await;
            assert_eq!(refused.failure(), (400, "bad_request"), "{list} {cursor:?}");
            assert!(refused.message().contains("cursor"), "{}", refused.message());
        }
    }
}

#[tokio::test]
async fn changing_a_title_updates_the_time_of_the_thread() {
    let app = Embedded::start().await;
    let made = app.client.post("/threads", &json!({ "title": "Old" })).await.body;
    let path = format!("/threads/{}", made.text("thread_id"));
    let renamed = app.client.patch(&path, &json!({ "title": "New" })).await;
    let mut expected = made.clone();
    expected["title"] = json!("New");
    expected["updated_at"] = renamed.body["updated_at"].clone();
    assert_eq!((renamed.status, &renamed.body), (200, &expected));
    assert!(renamed.body["updated_at"].as_str() > made["updated_at"].as_str());
    assert_eq!(app.client.get(&path).await.body, expected);
}

#[tokio::test]
async fn a_deleted_thread_is_not_found_and_its_calls_do_not_run() {
    let app = Embedded::start().await;
    let (thread, id) = app.held("pay", "10").await;
    let (kept, other) = app.held("pay", "11").await;
    let run = app.client.run_of(&id).await;
    let deleted = app.client.delete(&format!("/threads/{thread}")).await;
    assert_eq!((deleted.status, &deleted.body), (204, &Value::Null));

    let mut bodies = Vec::new();
    for answer in [
        app.client.delete(&format!("/threads/{thread}")).await,
        app.client.get(&format!("/threads/{thread}")).await,
        app.client.patch(&format!("/threads/{thread}"), &json!({ "title": "x" })).await,
        app.client.get(&format!("/threads/{thread}/messages")).await,
        app.client.get(&format!("/tool_calls/{id}")).await,
        app.client.post(&format!("/tool_calls/{id}/cancel"), &Value::Null).await,
        app.client.get(&format!("/runs/{run}")).await,
        app.client.post(&format!("/runs/{run}/cancel"), &Value::Null).await,
        app.client.approve(&id).await,
        app.client.reject(&id).await,
        app.client.post(&format!("/qa/chat_streamed/{thread}"), &json!({ "content": "hi" })).await,
        app.client.post(&format!("/qa/chat_streamed/{thread}"), &json!({})).await,
        app.client.get("/threads/01890a5d-ac96-774b-bcce-b302099a8057").await,
    ] {
        answer.failed_with(404, "not_found");
        bodies.push(answer.body);
    }
    bodies.dedup();
    assert_eq!(bodies.len(), 1, "what was deleted looks as what never was");
    let listed = app.client.get("/threads").await.body;
    assert_eq!(ids(&listed), [kept.as_str()]);

    let row =
        app.rows.all(&format!("SELECT state, decided_by FROM tool_calls WHERE tool_call_id = '{id}'")).await;
    assert_eq!(row, [json!({ "state": "cancelled", "decided_by": "user:local" })]);
    assert_eq!(app.rows.count(&format!("messages WHERE thread_id = '{thread}'")).await, 2, "rows stay");
    assert_eq!(app.ledger.lines(), Vec::<String>::new());
    assert_eq!(app.client.approve(&other).await.body["state"], "succeeded");
    assert_eq!(app.ledger.lines(), ["pay 11"]);
}

#[tokio::test]
async fn the_name_of_a_deleted_thread_creates_a_new_thread() {
    let app = Embedded::start().await;
    app.scene.answers("ok").answers("ok");
    app.client.turn_by_id(&json!({ "id": "mine", "content": "one" })).await;
    let first = app.client.get("/threads").await.body["results"][0].clone();
    let path = format!("/threads/{}", first.text("thread_id"));
    app.client.delete(&path).await.has_status(204);
    app.client.send_message("mine", "hi").await.has_status(404);
    app.client.turn_by_id(&json!({ "id": "mine", "content": "two" })).await.has_status(200);
    let second = app.client.get("/threads").await.body["results"][0].clone();
    assert_ne!(second["thread_id"], first["thread_id"]);
    assert_eq!(second["client_id"], "mine");
    assert_eq!(app.client.questions(second.text("thread_id")).await, ["two"]);
}

#[tokio::test]
async fn a_call_that_runs_when_its_thread_is_deleted_is_settled() {
    let app = Embedded::with(|config| config.approval.wait = std::time::Duration::from_millis(1)).await;
    let (thread, id) = app.held("wait_for_me", "10").await;
    app.client.approve(&id).await.has_status(202);
    app.ledger.wait_started().await;
    app.client.delete(&format!("/threads/{thread}")).await.has_status(204);
    app.ledger.release.add_permits(1);
    let settled = format!("tool_calls WHERE tool_call_id = '{id}' AND state = 'succeeded'");
    eventually("the call is settled", async || (app.rows.count(&settled).await == 1).then_some(())).await;
}

#[tokio::test]
async fn a_call_that_the_model_makes_after_its_thread_is_deleted_does_not_run() {
    let app = Embedded::start().await;
    let thread = app.client.thread().await;
    app.scene.calls(&[call("a", "look", &json!({ "note": "1" }))]);
    let gate = app.scene.gate();
    let delete = async {
        app.wait_for_model_requests(1).await;
        app.client.delete(&format!("/threads/{thread}")).await.has_status(204);
        gate.add_permits(4);
    };
    let (turn, ()) = tokio::join!(app.client.send_message(&thread, "look"), delete);
    turn.failed_with("interrupted");
    assert_eq!(app.rows.count("tool_calls").await, 0);
    assert_eq!(app.ledger.lines(), Vec::<String>::new());
}

#[tokio::test]
async fn messages_are_listed_newest_page_first_and_oldest_first_within_a_page() {
    let app = Embedded::start().await;
    let thread = app.client.thread().await;
    for n in 1..=3 {
        app.scene.answers(&format!("A{n}"));
        app.client.send_message(&thread, &format!("Q{n}")).await;
    }
    let path = format!("/threads/{thread}/messages");
    let all = app.client.get(&path).await.body;
    assert_eq!(words(&all), ["Q1", "A1", "Q2", "A2", "Q3", "A3"]);
    assert_eq!((&all["has_more"], all.get("next_cursor")), (&json!(false), None));

    let newest = app.client.get(&format!("{path}?page_size=4")).await.body;
    assert_eq!((words(&newest), &newest["has_more"]), (vec!["Q2", "A2", "Q3", "A3"], &json!(true)));
    app.scene.answers("A4");
    app.client.send_message(&thread, "Q4").await;
    let cursor = newest.text("next_cursor");
    let older = app.client.get(&format!("{path}?page_size=2&cursor={cursor}")).await.body;
    assert_eq!((words(&older), &older["has_more"]), (vec!["Q1", "A1"], &json!(false)));
    assert_eq!(older.get("next_cursor"), None);

    let other = app.client.thread().await;
    let empty = app.client.get(&format!("/threads/{other}/messages")).await.body;
    assert_eq!(empty, json!({ "results": [], "has_more": false }));
}

#[tokio::test]
async fn an_unknown_format_is_refused() {
    let app = Embedded::start().await;
    let thread = app.client.thread().await;
    for format in ["v3", "V4", "", "json"] {
        let refused = app.client.get(&format!("/threads/{thread}/messages?format={format}")).await;
        assert_eq!(refused.failure(), (400, "bad_request"), "{format:?}");
        assert!(refused.message().contains("format"), "{}", refused.message());
    }
}

#[tokio::test]
async fn v4_matches_the_messages_of_a_page_of_ai_sdk_4_including_cards() {
    let app = Embedded::start().await;
    let thread = app.client.thread().await;
    app.scene.answers("Hello.");
    let hi = json!({ "message": { "id": "page-1", "role": "user", "content": "hi" } });
    let hello = app.client.turn(&thread, &hi).await.one('f')["messageId"].clone();
    let note = |note: &str| json!({ "note": note });
    app.scene.calls(&[
        call("a", "look", &note("1")),
        call("b", "pay", &note("2")),
        call("c", "pay", &note("3")),
        call("d", "pay", &note("4")),
        call("e", "pay", &json!({ "note": 5 })),
        call("f", "pay", &note("6")),
    ]);
    let turn = app.client.send_message(&thread, "go").await;
    let reported: Vec<&Value> = turn.all('9').iter().map(|call| &call["toolCallId"]).collect();
    let [looked, approved, rejected, pending, invalid, edited] = reported[..] else { panic!("{}", turn.raw) };
    app.client.approve(approved.as_str().unwrap()).await;
    app.client.validate(&json!({ "toolCallId": rejected, "isValidated": false, "reason": "no" })).await;
    let edit = json!({ "toolCallId": edited, "isValidated": true, "validatedInputs": note("7") });
    app.client.validate(&edit).await.has_status(200);

    let page = app.client.get(&format!("/threads/{thread}/messages?format=v4")).await.body;
    let at = |n: usize| page["results"][n]["createdAt"].clone();
    let why = turn.all('a')[0]["result"].clone();
    assert_eq!(turn.all('a')[0]["toolCallId"], *invalid);
    assert!(why.text("error").contains("/note"), "{why}");
    let call = |id: &Value, tool: &str, args: Value| json!({ "state": "call", "step": 0, "toolCallId": id, "toolName": tool, "args": args });
    let result = |id: &Value, tool: &str, args: Value, result: Value| json!({ "state": "result", "step": 0, "toolCallId": id, "toolName": tool, "args": args, "result": result });
    let no = json!({ "error": "Tool execution rejected by user. Reason: no" });
    let invocations = [
        result(looked, "look", note("1"), json!({ "seen": "1" })),
        result(approved, "pay", note("2"), json!({ "paid": "2" })),
        result(rejected, "pay", note("3"), no),
        call(pending, "pay", note("4")),
        result(invalid, "pay", json!({}), why),
        result(edited, "pay", note("7"), json!({ "paid": "7" })),
    ];
    let mut parts = vec![json!({ "type": "step-start" })];
    parts.extend(invocations.iter().map(|it| json!({ "type": "tool-invocation", "toolInvocation": it })));
    let validated = |id: &Value, word: &str| json!({ "toolCallId": id, "validated": word });
    let data = [turn.parts.clone(), decisions(&app, &[approved, rejected, edited]).await].concat();
    let expected = json!({
        "results": [
            { "id": "page-1", "role": "user", "content": "hi", "createdAt": at(0),
              "parts": [{ "type": "text", "text": "hi" }] },
            { "id": hello, "role": "assistant", "content": "Hello.", "createdAt": at(1),
              "parts": [{ "type": "step-start" }, { "type": "text", "text": "Hello." }] },
            { "id": page["results"][2]["id"], "role": "user", "content": "go", "createdAt": at(2),
              "parts": [{ "type": "text", "text": "go" }] },
            { "id": turn.one('f')["messageId"], "role": "assistant", "content": "", "createdAt": at(3),
              "parts": parts, "toolInvocations": invocations, "data": data,
              "annotations": [validated(approved, "approved"), validated(rejected, "rejected"),
                              validated(pending, "pending"), validated(edited, "approved")] },
        ],
        "has_more": false,
    });
    assert_eq!(page, expected, "{page:#}");
    let own = app.client.messages(&thread).await;
    assert_eq!(own[2]["message_id"], page["results"][2]["id"]);
    assert_eq!(own[3]["created_at"], at(3), "the same time in the same form");
}

/// The data parts of the decisions about these calls.
async fn decisions(app: &Embedded, calls: &[&Value]) -> Vec<Value> {
    let mut parts = Vec::new();
    for id in calls {
        let call = app.client.call(id.as_str().unwrap()).await;
        let mut data = json!({ "toolCallId": id });
        for name in ["decision", "by", "at", "edited", "reason"] {
            if let Some(value) = call["decision"].get(name) {
                data[name] = value.clone();
            }
        }
        if let Some(edit) = call.get("validated_inputs") {
            data["input"] = edit.clone();
        }
        parts.push(json!({ "type": "data-tool-decision", "id": id, "data": data }));
    }
    parts
}

/// A tool part of a message in its final state.
fn tool(id: &Value, tool: &str, state: &str, input: &Value, more: &Value) -> Value {
    let mut part =
        json!({ "type": format!("tool-{tool}"), "toolCallId": id, "state": state, "input": input });
    part.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    part
}

#[tokio::test]
async fn the_ui_formats_match_the_messages_of_pages_of_ai_sdk_5_to_7_including_cards() {
    let app = Embedded::start().await;
    let thread = app.client.thread().await;
    app.scene.answers("Hello.");
    let hi = json!({ "message": { "id": "page-1", "role": "user", "content": "hi" } });
    let hello = app.client.turn(&thread, &hi).await.one('f')["messageId"].clone();
    let note = |note: &str| json!({ "note": note });
    app.scene.calls(&[
        call("a", "look", &note("1")),
        call("b", "pay", &note("2")),
        call("c", "pay", &note("3")),
        call("d", "pay", &note("4")),
        call("e", "pay", &json!({ "note": 5 })),
        call("f", "pay", &note("6")),
        call("g", "pay", &note("8")),
    ]);
    let turn = app.client.send_message(&thread, "go").await;
    let reported: Vec<&Value> = turn.all('9').iter().map(|call| &call["toolCallId"]).collect();
    let [looked, approved, rejected, pending, invalid, edited, withdrawn] = reported[..] else {
        panic!("{}", turn.raw)
    };
    app.client.approve(approved.as_str().unwrap()).await;
    app.client.validate(&json!({ "toolCallId": rejected, "isValidated": false, "reason": "no" })).await;
    let edit = json!({ "toolCallId": edited, "isValidated": true, "validatedInputs": note("7") });
    app.client.validate(&edit).await.has_status(200);
    let withdraw = format!("/tool_calls/{}/cancel", withdrawn.as_str().unwrap());
    app.client.post(&withdraw, &Value::Null).await.has_status(200);

    let own = app.client.messages(&thread).await;
    let why = turn.all('a')[0]["result"]["error"].clone();
    assert_eq!(turn.all('a')[0]["toolCallId"], *invalid);
    let seen = json!({ "output": { "seen": "1" } });
    let words = |text: &str| json!({ "errorText": text });
    let rejection = "Tool execution rejected by user. Reason: no";
    let cancelled = "Cancelled, the tool did not run.";
    let data = |id: &Value, word: &str| json!({ "type": "data-tool-validation", "id": id, "data": { "toolCallId": id, "validated": word } });
    let decided = decisions(&app, &[approved, rejected, edited, withdrawn]).await;
    let labels = [
        data(approved, "approved"),
        data(rejected, "rejected"),
        data(pending, "pending"),
        data(edited, "approved"),
        data(withdrawn, "cancelled"),
    ];
    let v5 = [
        tool(looked, "look", "output-available", &note("1"), &seen),
        tool(approved, "pay", "output-available", &note("2"), &json!({ "output": { "paid": "2" } })),
        tool(rejected, "pay", "output-error", &note("3"), &words(rejection)),
        tool(pending, "pay", "input-available", &note("4"), &json!({})),
        tool(invalid, "pay", "output-error", &json!({}), &json!({ "errorText": why })),
        tool(edited, "pay", "output-available", &note("7"), &json!({ "output": { "paid": "7" } })),
        tool(withdrawn, "pay", "output-error", &note("8"), &words(cancelled)),
    ];
    let paid = |id: &Value, what: &str| json!({ "output": { "paid": what }, "approval": { "id": id, "approved": true } });
    let denied =
        |id: &Value, why: &str| json!({ "approval": { "id": id, "approved": false, "reason": why } });
    let v6 = [
        tool(looked, "look", "output-available", &note("1"), &seen),
        tool(approved, "pay", "output-available", &note("2"), &paid(approved, "2")),
        tool(rejected, "pay", "output-denied", &note("3"), &denied(rejected, "no")),
        tool(pending, "pay", "approval-requested", &note("4"), &json!({ "approval": { "id": pending } })),
        tool(invalid, "pay", "output-error", &json!({}), &json!({ "errorText": why })),
        tool(edited, "pay", "output-available", &note("7"), &paid(edited, "7")),
        tool(withdrawn, "pay", "output-denied", &note("8"), &denied(withdrawn, "cancelled")),
    ];
    let usage = json!({ "usage": { "inputTokens": 10, "outputTokens": 5 } });
    for (format, calls, labels) in
        [("ui-v5", &v5[..], &labels[..]), ("ui-v6", &v6[..], &[]), ("ui-v7", &v6[..], &[])]
    {
        let mut parts = vec![json!({ "type": "step-start" })];
        parts.extend([calls, &turn.parts, labels, &decided].concat());
        let expected = json!({
            "results": [
                { "id": "page-1", "role": "user", "parts": [{ "type": "text", "text": "hi" }] },
                { "id": hello, "role": "assistant", "metadata": usage,
                  "parts": [{ "type": "step-start" }, { "type": "text", "text": "Hello.", "state": "done" }] },
                { "id": own[2]["message_id"], "role": "user", "parts": [{ "type": "text", "text": "go" }] },
                { "id": turn.one('f')["messageId"], "role": "assistant", "metadata": usage, "parts": parts },
            ],
            "has_more": false,
        });
        let page = app.client.get(&format!("/threads/{thread}/messages?format={format}")).await.body;
        assert_eq!(page, expected, "{format}: {page:#}");
    }
}

#[tokio::test]
async fn the_ui_formats_omit_the_message_of_a_running_turn() {
    let app = Embedded::start().await;
    let thread = app.client.thread().await;
    app.scene.answers("one two");
    let gate = app.scene.gate();
    let reload = async || {
        let page = app.client.get(&format!("/threads/{thread}/messages?format=ui-v6")).await.body;
        page.list("results").len()
    };
    let look = async {
        app.wait_for_model_requests(1).await;
        let shown = reload().await;
        gate.add_permits(2);
        shown
    };
    let (_turn, shown) = tokio::join!(app.client.send_message(&thread, "go"), look);
    assert_eq!((shown, reload().await), (1, 2));
}

#[tokio::test]
async fn the_ui_formats_include_the_message_of_a_failed_turn() {
    let app = Embedded::start().await;
    let thread = app.client.thread().await;
    app.scene.then(vec![Ok(ModelEvent::Text("Half".to_owned())), Err("gone".to_owned())]);
    let turn = app.client.send_message(&thread, "go").await;
    turn.failed_with("upstream_error");
    let page = app.client.get(&format!("/threads/{thread}/messages?format=ui-v6")).await.body;
    let parts = json!([{ "type": "step-start" }, { "type": "text", "text": "Half", "state": "done" }]);
    let expected = json!({ "id": turn.one('f')["messageId"], "role": "assistant", "parts": parts });
    assert_eq!(page["results"][1], expected);
}
