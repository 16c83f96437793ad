//! Unreadable rows, as an earlier version or a manual edit leaves them.

use holdpoint_testkit::{Embedded, JsonFields, Rows, Socket, Sse, WatchedServer};
use serde_json::{Value, json};

/// One level deeper than the server reads.
const DEEP: usize = 128;

fn deep() -> String {
    format!("{}{}", "[".repeat(DEEP), "]".repeat(DEEP))
}

/// Sets a column to a value that no server writes.
async fn spoil(rows: &Rows, table: &str, column: &str, value: &str, of: &str) {
    rows.drop_guards(table).await;
    let change = format!("UPDATE {table} SET {column} = '{value}' WHERE {of}");
    assert!(rows.change(&change).await.unwrap() > 0, "{change}");
}

/// A conversation in which one call ran and another is pending, the run of each, and clients for every list
/// and feed.
struct Story {
    app: Embedded,
    thread: String,
    ran: String,
    waits: String,
}

impl Story {
    async fn begin() -> Self {
        let app = Embedded::start().await;
        let (thread, ran) = app.held("pay", "1").await;
        assert_eq!(app.client.approve(&ran).await.body["state"], "succeeded");
        app.scene.answers("Paid.");
        assert_eq!(app.client.resume(&thread).await.text(), "Paid.");
        let waits = app.hold_in(&thread, "pay", "2").await;
        Self { app, thread, ran, waits }
    }

    async fn spoil(&self, table: &str, column: &str, value: &str, of: &str) {
        spoil(&self.app.rows, table, column, value, of).await;
    }

    async fn results(&self, path: &str) -> Vec<Value> {
        let found = self.app.client.get(path).await;
        assert_eq!(found.status, 200, "{path}: {:?}", found.body);
        found.body.list("results").clone()
    }

    /// Asserts that every list and feed contains all of its rows, and that the conversation continues.
    async fn assert_continues(&self) {
        let Self { app, thread, ran, waits } = self;
        let has = |found: &[Value], id: &str| found.iter().any(|it| it.to_string().contains(id));
        for path in [
            format!("/threads/{thread}/messages"),
            format!("/threads/{thread}/messages?format=v4"),
            format!("/threads/{thread}/messages?format=ui-v5"),
            format!("/threads/{thread}/messages?format=ui-v6"),
        ] {
            let found = self.results(&path).await;
            assert_eq!(found.len(), 4, "{path}");
            assert!(has(&found, ran) && has(&found, waits), "{path}: {found:#?}");
        }
        let state = app.client.call(waits).await.text("state").to_owned();
        let inbox = format!("/approvals?state={state}");
        for (path, id) in [("/approvals?state=succeeded", ran), (&inbox, waits), ("/threads", thread)] {
            assert!(has(&self.results(path).await, id), "{path}");
        }
        for id in [ran, waits] {
            let call = app.client.call(id).await;
            assert_eq!((&call["tool_name"], &call["tool_call_id"]), (&json!("pay"), &json!(id)));
            let known = self.results(&format!("/tool_calls/{id}/events")).await;
            assert!(known.iter().all(|event| event["tool_call_id"] == *id), "{known:#?}");
            let run = call.text("run_id");
            let reported = self.results(&format!("/runs/{run}/events")).await;
            let stored = app.rows.count(&format!("events WHERE run_id = '{run}'")).await;
            assert_eq!(i64::try_from(reported.len()), Ok(stored));
        }
        let listed = app
            .operate(&["approvals", "list", "--state", "succeeded", "--state", &state])
            .stdout_of_success();
        assert!(listed.contains(ran.as_str()) && listed.contains(waits.as_str()), "{listed}");

        let stored = usize::try_from(app.rows.count("events").await).unwrap();
        let mut feed = Sse::open(&app.client, "/events?after=0").await;
        let reported = feed.take(stored).await;
        assert!(
            reported.iter().all(|event| event["thread_id"] == *thread && event["at"].is_string()),
            "{reported:#?}"
        );
        let mut socket = Socket::open(&app.client, "/ws", &[]).await.unwrap();
        app.scene.answers("Good.");
        assert_eq!(app.client.send_message(thread, "and?").await.text(), "Good.");
        assert_eq!(feed.next().await.unwrap()["type"], "run.started");
        assert_eq!(socket.next().await.unwrap().unwrap()["event"]["type"], "run.started");
    }
}

#[tokio::test]
async fn a_call_with_an_unreadable_output_is_listed_with_a_replacement_text() {
    for output in [deep(), "{".to_owned(), String::new()] {
        let story = Story::begin().await;
        story.spoil("tool_calls", "output", &output, &format!("tool_call_id = '{}'", story.ran)).await;
        let call = story.app.client.call(&story.ran).await;
        assert_eq!(
            (&call["state"], &call["output"]),
            (&json!("succeeded"), &json!("The stored output cannot be read."))
        );
        assert_eq!(call["result"], r#"{"paid":"1"}"#);
        assert_eq!(call.get("unreadable"), None);
        let again = story.app.client.approve(&story.ran).await;
        assert_eq!((again.status, again.header("idempotent-replayed")), (200, Some("true")));
        story.assert_continues().await;
    }
}

#[tokio::test]
async fn a_call_with_unreadable_inputs_is_listed_and_never_runs() {
    for inputs in [format!(r#"{{"note":{}}}"#, deep()), "{".to_owned(), "[]".to_owned()] {
        let story = Story::begin().await;
        story.spoil("tool_calls", "arguments", &inputs, &format!("thread_id = '{}'", story.thread)).await;
        story.assert_continues().await;
        let (client, waits) = (&story.app.client, &story.waits);
        let call = client.call(waits).await;
        assert_eq!(
            (&call["unreadable"], &call["input"], &call["state"]),
            (&json!(true), &json!({}), &json!("pending"))
        );
        let refused = client.approve(waits).await;
        refused.failed_with(409, "unreadable");
        let edited = json!({ "toolCallId": waits, "isValidated": true, "validatedInputs": { "note": "3" } });
        assert_eq!(client.validate(&edited).await.code(), "unreadable");
        assert_eq!(client.reject(waits).await.body["state"], "rejected");
        assert_eq!(story.app.ledger.lines(), ["pay 1"]);
    }
}

#[tokio::test]
async fn an_approved_call_with_unreadable_inputs_is_not_started_and_can_be_cancelled() {
    let story = Story::begin().await;
    let (app, waits) = (&story.app, &story.waits);
    let far = "created_at + 100000000000";
    app.commit_yes(waits, "created_at", far).await;
    story.spoil("tool_calls", "validated_inputs", "{", &format!("tool_call_id = '{waits}'")).await;
    let repeat = app.client.approve(waits).await;
    repeat.failed_with(409, "already_decided");
    let cancelled = app.client.post(&format!("/tool_calls/{waits}/cancel"), &Value::Null).await;
    cancelled.has(200, "state", "cancelled");
    story.assert_continues().await;
    assert_eq!(app.ledger.lines(), ["pay 1"]);
}

#[tokio::test]
async fn a_step_with_unreadable_parts_keeps_its_calls() {
    for parts in [deep(), "{".to_owned(), r#"[{"type":"hologram"}]"#.to_owned()] {
        let story = Story::begin().await;
        story.spoil("message_steps", "parts", &parts, "n >= 0").await;
        story.spoil("message_steps", "provider_state", &parts, "n >= 0").await;
        story.assert_continues().await;
        let messages = story.app.client.messages(&story.thread).await;
        let words = json!({ "type": "text", "text": "[What was said here cannot be read.]" });
        assert_eq!(messages[1]["parts"][1], words, "{messages:#?}");
        assert_eq!(messages[1]["parts"][2]["tool_call"]["tool_call_id"], *story.ran);
    }
}

#[tokio::test]
async fn a_run_that_cannot_be_read_keeps_its_answer() {
    let story = Story::begin().await;
    let run = story.app.client.run_of(&story.ran).await;
    story.spoil("runs", "roles", "{", &format!("run_id = '{run}'")).await;
    story.app.scene.answers("Good.");
    assert_eq!(story.app.client.send_message(&story.thread, "and?").await.text(), "Good.");
    let read = format!("{:?}", story.app.scene.requests().last().unwrap().messages);
    assert!(read.contains("please pay 1") && read.contains("Paid."), "{read}");
}

#[tokio::test]
async fn an_open_call_that_cannot_be_read_stops_its_run() {
    let story = Story::begin().await;
    let Story { app, thread, waits, .. } = &story;
    app.rows.drop_guards("tool_calls").await;
    let spoil =
        format!("UPDATE tool_calls SET escalate_at = 1, escalate_to = '{{' WHERE tool_call_id = '{waits}'");
    assert_eq!(app.rows.change(&spoil).await, Ok(1));
    let asked = app.scene.requests().len();
    let stopped = app.client.post(&format!("/qa/chat_streamed/{thread}"), &json!({})).await;
    stopped.has_status(500);
    assert_eq!(app.scene.requests().len(), asked);
}

#[tokio::test]
async fn an_unreadable_event_is_listed_with_its_readable_fields() {
    for (column, value) in [
        ("data", deep()),
        ("data", "{".to_owned()),
        ("data", "[]".to_owned()),
        ("type", "tool.unheard_of".to_owned()),
        ("session_id", "none".to_owned()),
    ] {
        let story = Story::begin().await;
        let of = format!("tool_call_id = '{}'", story.ran);
        story.spoil("events", column, &value, &of).await;
        story.assert_continues().await;
        let reported = story.results(&format!("/tool_calls/{}/events", story.ran)).await;
        let shown = &reported[0][column];
        if column == "data" {
            assert_eq!(shown["tool_name"], "pay");
        } else {
            assert_eq!(*shown, value);
        }
    }
}

#[tokio::test]
async fn a_thread_with_an_unreadable_id_is_omitted_from_the_list() {
    let story = Story::begin().await;
    let none =
        "INSERT INTO threads (thread_id, tenant_id, user_id, session_id, title, created_at, updated_at)
        SELECT 'none', tenant_id, user_id, 'none', title, created_at, updated_at FROM threads";
    assert_eq!(story.app.rows.change(none).await, Ok(1));
    story.assert_continues().await;
}

#[tokio::test]
async fn an_open_feed_continues_after_an_unreadable_row() {
    let app = Embedded::start().await;
    let mut feed = Sse::open(&app.client, "/events").await;
    let mut socket = Socket::open(&app.client, "/ws", &[]).await.unwrap();
    app.rows.drop_guards("events").await;
    let spoils = match app.rows.is_postgres() {
        true => {
            "CREATE FUNCTION spoil() RETURNS trigger LANGUAGE plpgsql AS $$
                 BEGIN NEW.data = '{'; RETURN NEW; END $$;
             CREATE TRIGGER spoil BEFORE INSERT ON events FOR EACH ROW EXECUTE FUNCTION spoil()"
        }
        false => {
            "CREATE TRIGGER spoil AFTER INSERT ON events
                 BEGIN UPDATE events SET data = '{' WHERE event_id = NEW.event_id; END"
        }
    };
    app.rows.change(spoils).await.unwrap();
    let (_, id) = app.held("pay", "1").await;
    let reported = feed.until("run.waiting").await;
    assert_eq!(reported.iter().filter(|event| event["tool_call_id"] == *id).count(), 2, "{reported:#?}");
    app.client.approve(&id).await;
    assert_eq!(feed.until("tool.succeeded").await.last().unwrap()["tool_call_id"], *id);
    while socket.next().await.unwrap().unwrap()["event"]["type"] != "tool.succeeded" {}
}

#[tokio::test]
async fn an_unreadable_row_is_logged_as_an_error_with_its_ids() {
    let settings = [("HOLDPOINT_LOG__FORMAT", "json"), ("HOLDPOINT_LOG__LEVEL", "info")];
    let watched = WatchedServer::start(&settings).await;
    let ann = watched.server.client.as_user("acme", "ann", &[]);
    let thread = ann.thread().await;
    let turn = ann.send_message(&thread, "call pay 1").await;
    let [id] = &turn.pending()[..] else { panic!("{}", turn.raw) };
    assert_eq!(ann.approve(id).await.body["state"], "succeeded");
    let rows = watched.rows().await;
    spoil(&rows, "tool_calls", "output", "{", "held").await;
    spoil(&rows, "message_steps", "parts", "{", "n = 0").await;
    spoil(&rows, "events", "data", "{", "type = 'run.started'").await;
    assert_eq!(ann.messages(&thread).await.len(), 2);
    assert_eq!(Sse::open(&ann, "/events?after=0").await.take(2).await.len(), 2);
    let printed = watched.finish();
    let lines: Vec<Value> = printed.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let errors: Vec<&Value> = lines.iter().filter(|line| line["level"] == "ERROR").collect();
    for (table, field, value) in [
        ("tool_calls", "tool_call_id", Some(id.as_str())),
        ("message_steps", "message_id", None),
        ("events", "seq", None),
    ] {
        let logged = errors.iter().find(|line| line["table"] == table);
        let logged = logged.unwrap_or_else(|| panic!("{table} in {errors:#?}"));
        assert_eq!(logged["message"], "a stored row cannot be read");
        assert!(!logged[field].is_null() && value.is_none_or(|value| logged[field] == value), "{logged}");
    }
}
