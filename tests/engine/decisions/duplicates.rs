//! A model that repeats a call which is still pending: the person is asked once, and the model reads that the
//! call is a repeat.

use holdpoint::llm::ModelMessage;
use holdpoint_testkit::ui::{ui_submit, ui_user};
use holdpoint_testkit::{Embedded, JsonFields, Rows, Weigh, call, postgres, probes};
use serde_json::{Value, json};

/// The text that the model reads of a repeat.
const ALREADY: &str = "Already awaiting approval: the same call was made before and waits for a person. This one was \
                       not asked about and did not run. The outcome of the first will be told later; do not repeat \
                       the call.";

fn pay(id: &str, note: &str) -> (String, String, String) {
    call(id, "pay", &json!({ "note": note }))
}

/// The states of the calls with this provider id, oldest first.
async fn states(app: &Embedded, provider_id: &str) -> Vec<Value> {
    let sql =
        format!("SELECT state FROM tool_calls WHERE provider_call_id = '{provider_id}' ORDER BY ordinal");
    app.rows.all(&sql).await.into_iter().map(|row| row["state"].clone()).collect()
}

/// The answers of calls in the model's last request, by wire id.
fn answers(app: &Embedded) -> Vec<(String, String)> {
    let last = app.scene.growing_requests().pop().unwrap();
    let answers = last.messages.into_iter().filter_map(|message| match message {
        ModelMessage::Tool { call_id, text, .. } => Some((call_id, text)),
        _ => None,
    });
    answers.collect()
}

#[tokio::test]
async fn a_repeat_of_a_pending_call_is_not_held_and_the_model_continues() {
    let app = Embedded::start().await;
    let (thread, first) = app.held("pay", "10").await;
    app.scene.calls(&[pay("again", "10")]).answers("It waits already.");
    let turn = app.client.send_message(&thread, "pay it, I said").await;
    assert_eq!((turn.codes().as_str(), turn.text().as_str()), ("fbc9aef0ed", "It waits already."));
    let repeat = turn.one('9').text("toolCallId");
    assert_eq!(*turn.one('a'), json!({ "toolCallId": repeat, "result": { "error": ALREADY } }));
    let [(waits, placeholder), (again, already)] = &answers(&app)[..] else { panic!() };
    assert_eq!((waits.as_str(), again.as_str(), already.as_str()), ("p-10", "again", ALREADY));
    assert!(placeholder.starts_with("Awaiting approval"), "{placeholder}");

    let shown = app.client.call(repeat).await;
    let stands = json!([shown["state"], shown["validated"], shown["held"], shown["result"], shown["input"]]);
    assert_eq!(stands, json!(["cancelled", false, false, ALREADY, { "note": "10" }]));
    let decision = &shown["decision"];
    let by = json!([decision["decision"], decision["by"], decision["surface"]]);
    assert_eq!(by, json!(["cancel", "system:duplicate", "policy"]));
    assert_eq!(shown.get("started_at"), None);
    let events =
        format!("SELECT type, actor, data FROM events WHERE tool_call_id = '{repeat}' ORDER BY event_id");
    let [called, cancelled] = &app.rows.all(&events).await[..] else { panic!() };
    assert_eq!((&called["type"], &called["actor"]), (&json!("tool.called"), &json!("user:local")));
    assert_eq!(
        (&cancelled["type"], &cancelled["actor"]),
        (&json!("tool.cancelled"), &json!("system:duplicate"))
    );
    let data: Value = serde_json::from_str(cancelled.text("data")).unwrap();
    assert_eq!((&data["decision"], &data["duplicate_of"]), (&json!("cancel"), &json!(first)));

    // The repeat is not held: there is no call to decide, and a cancelled call stays cancelled.
    for late in [app.client.approve(repeat).await, app.client.reject(repeat).await] {
        late.failed_with(404, "not_found");
    }
    assert_eq!(app.client.get(&format!("/threads/{thread}")).await.body["pending_count"], 1);
    assert_eq!(app.client.approve(&first).await.body["state"], "succeeded");
    app.scene.answers("It is paid.");
    app.client.send_message(&thread, "and?").await;
    let last = app.scene.growing_requests().pop().unwrap();
    let note = "[tool outcome] pay, call p-10: {\"paid\":\"10\"}".to_owned();
    let notes = last.messages.iter().filter(|message| **message == ModelMessage::User(note.clone()));
    assert_eq!(notes.count(), 1, "{last:#?}");
    assert_eq!(app.ledger.lines(), ["pay 10"]);
}

#[tokio::test]
async fn equivalent_inputs_are_recognised_as_a_repeat() {
    let app = Embedded::start().await;
    let mut tools = probes(&app.ledger);
    tools.register(Weigh(app.ledger.clone())).unwrap();
    let app = app.redeploy(tools).await;
    let thread = app.client.thread().await;
    let weigh = |id: &str, arguments: &str| (id.to_owned(), "weigh".to_owned(), arguments.to_owned());
    app.scene.calls(&[weigh("first", r#"{"amount":100}"#)]);
    assert_eq!(app.client.send_message(&thread, "weigh").await.pending().len(), 1);
    app.scene.calls(&[weigh("again", "{ \"amount\" : 1e2 }")]).answers("It waits.");
    assert_eq!(app.client.send_message(&thread, "weigh it").await.pending(), Vec::<String>::new());
    assert_eq!(states(&app, "again").await, ["cancelled"]);
    app.scene.calls(&[weigh("other", r#"{"amount":100.5}"#)]);
    assert_eq!(app.client.send_message(&thread, "and that").await.pending().len(), 1);
}

#[tokio::test]
async fn identical_calls_within_one_step_are_all_held() {
    let app = Embedded::start().await;
    let thread = app.client.thread().await;
    app.scene.calls(&[pay("one", "10"), pay("two", "10")]);
    let held = app.client.send_message(&thread, "pay it twice").await.pending();
    assert_eq!(held.len(), 2);
    app.scene.calls(&[pay("three", "10"), pay("four", "10")]).answers("Both wait.");
    assert_eq!(app.client.send_message(&thread, "pay them").await.pending(), Vec::<String>::new());
    assert_eq!(
        [states(&app, "three").await, states(&app, "four").await].concat(),
        ["cancelled", "cancelled"]
    );
    for id in &held {
        assert_eq!(app.client.approve(id).await.body["state"], "succeeded");
    }
    assert_eq!(app.ledger.lines(), ["pay 10", "pay 10"]);
}

#[tokio::test]
async fn a_new_call_beside_a_repeat_is_held_and_ends_the_turn() {
    let app = Embedded::start().await;
    let (thread, first) = app.held("pay", "10").await;
    let look = call("seen", "look", &json!({ "note": "1" }));
    app.scene.calls(&[pay("again", "10"), look, pay("more", "11")]);
    let turn = app.client.send_message(&thread, "pay both").await;
    assert_eq!(turn.codes(), "fbcbcbc999aa8ed", "{}", turn.raw);
    let [repeat, _, more] = &turn.all('9')[..] else { panic!("{}", turn.raw) };
    assert_eq!(*turn.one('8'), json!([{ "toolCallId": more["toolCallId"], "validated": "pending" }]));
    assert_eq!(turn.all('a')[0]["toolCallId"], repeat["toolCallId"]);
    let more = more.text("toolCallId");
    app.client.reject(more).await;
    app.scene.answers("One waits still.");
    let went_on = app.client.resume(&thread).await;
    assert_eq!(went_on.text(), "One waits still.");
    assert_eq!(went_on.one('8')[0]["toolCallId"], more, "it lists only the held call");
    assert_eq!(answers(&app)[1], ("again".to_owned(), ALREADY.to_owned()));
    assert_eq!(app.client.call(&first).await["state"], "pending");
}

#[tokio::test]
async fn a_call_with_another_tool_inputs_or_thread_is_no_repeat() {
    let app = Embedded::start().await;
    let (thread, _) = app.held("pay", "10").await;
    for step in [call("tool", "mumble", &json!({ "note": "10" })), pay("inputs", "10 ")] {
        app.scene.calls(&[step]);
        assert_eq!(app.client.send_message(&thread, "go on").await.pending().len(), 1);
    }
    let (_, elsewhere) = app.held("pay", "10").await;
    assert_eq!(app.client.call(&elsewhere).await["state"], "pending");
    assert_eq!(app.client.get(&format!("/threads/{thread}")).await.body["pending_count"], 3);
}

#[tokio::test]
async fn a_repeat_of_a_decided_or_overdue_call_is_held() {
    let app = Embedded::with(|config| config.approval.sweep = std::time::Duration::from_secs(3600)).await;
    let thread = app.client.thread().await;
    for (n, close) in ["approve", "reject", "cancel", "overdue"].into_iter().enumerate() {
        app.scene.calls(&[pay(&format!("{n}"), "10")]);
        let [id] = &app.client.send_message(&thread, "pay").await.pending()[..] else {
            panic!("{n}: {close}")
        };
        match close {
            "approve" => assert_eq!(app.client.approve(id).await.body["state"], "succeeded"),
            "reject" => assert_eq!(app.client.reject(id).await.body["state"], "rejected"),
            "cancel" => {
                assert_eq!(
                    app.client.post(&format!("/tool_calls/{id}/cancel"), &json!({})).await.status,
                    200
                );
            }
            _ => {
                let overdue =
                    format!("UPDATE tool_calls SET expires_at = created_at WHERE tool_call_id = '{id}'");
                assert_eq!(app.rows.change(&overdue).await, Ok(1));
            }
        }
    }
    app.scene.calls(&[pay("last", "10")]);
    assert_eq!(app.client.send_message(&thread, "pay").await.pending().len(), 1);
    assert_eq!(app.rows.count("tool_calls WHERE NOT held").await, 0);
}

#[tokio::test]
async fn a_call_is_no_repeat_if_the_first_is_decided_while_the_model_streams() {
    let app = Embedded::start().await;
    let (thread, first) = app.held("pay", "10").await;
    let gate = app.scene.gate();
    app.scene.calls(&[pay("again", "10")]);
    let decide = async {
        gate.add_permits(3);
        let written = async || (gate.available_permits() == 0).then_some(());
        holdpoint_testkit::eventually("the model has written the call", written).await;
        assert_eq!(app.client.approve(&first).await.body["state"], "succeeded");
        gate.add_permits(1);
    };
    let (turn, ()) = tokio::join!(app.client.send_message(&thread, "and?"), decide);
    let [again] = &turn.pending()[..] else { panic!("{}", turn.raw) };
    assert_eq!(app.client.approve(again).await.body["state"], "succeeded");
    assert_eq!(app.ledger.lines(), ["pay 10", "pay 10"], "each after its own approval");
}

#[tokio::test]
async fn on_postgres_a_repeat_is_detected_under_the_thread_lock() {
    let url = postgres().await;
    let beside = Rows::open(&url).await;
    let app = Embedded::with(|config| config.database.url = url.into()).await;
    let (thread, first) = app.held("pay", "10").await;
    let gate = app.scene.gate();
    app.scene.calls(&[pay("again", "10")]);
    let decide = async {
        gate.add_permits(3);
        let written = async || (gate.available_permits() == 0).then_some(());
        holdpoint_testkit::eventually("the model has written the call", written).await;
        app.rows.change("BEGIN; SELECT 1 FROM threads FOR UPDATE").await.unwrap();
        gate.add_permits(1);
        beside.wait_for_lock_waiter().await;
        app.commit_yes(&first, "created_at", "expires_at").await;
        app.rows.change("COMMIT").await.unwrap();
    };
    let (turn, ()) = tokio::join!(app.client.send_message(&thread, "and?"), decide);
    assert_eq!(turn.pending().len(), 1, "{}", turn.raw);
}

#[tokio::test]
async fn a_repeat_is_reported_as_a_repeat_at_the_limit_of_pending_calls() {
    let app = Embedded::with(|config| config.limits.pending_per_thread = 1).await;
    let (thread, _) = app.held("pay", "10").await;
    app.scene.calls(&[pay("again", "10"), pay("more", "11")]).answers("One waits.");
    app.client.send_message(&thread, "pay both").await;
    assert_eq!(states(&app, "again").await, ["cancelled"]);
    assert_eq!(states(&app, "more").await, ["invalid"]);
}

#[tokio::test]
async fn pages_of_every_dialect_show_a_repeat_as_a_call_that_was_not_held() {
    let app = Embedded::start().await;
    for dialect in ["ui-v5", "ui-v6"] {
        let (thread, _) = app.held("pay", "10").await;
        app.scene.calls(&[pay("again", "10")]).answers("It waits already.");
        let turn = app.client.ui_turn_as(dialect, &ui_submit(&thread, &[ui_user("u", "pay it")])).await;
        let kinds = [
            "start",
            "start-step",
            "tool-input-start",
            "tool-input-delta",
            "tool-input-available",
            "tool-output-error",
            "finish-step",
            "start-step",
            "text-start",
            "text-delta",
            "text-end",
            "finish-step",
            "finish",
        ];
        let live: Vec<_> = turn.kinds().into_iter().filter(|kind| *kind != "message-metadata").collect();
        assert_eq!(live, kinds, "{dialect}: {}", turn.raw);
        let id = &turn.one("tool-input-available")["toolCallId"];
        assert_eq!(turn.one("tool-input-available")["input"], json!({ "note": "10" }));
        let error = turn.one("tool-output-error");
        assert_eq!((&error["toolCallId"], &error["errorText"]), (id, &json!(ALREADY)));

        let shown = app.client.get(&format!("/threads/{thread}/messages?format={dialect}")).await.body;
        let parts = shown.list("results").last().unwrap()["parts"].clone();
        let part = json!({ "type": "tool-pay", "toolCallId": id, "state": "output-error",
                           "input": { "note": "10" }, "errorText": ALREADY });
        assert_eq!(parts[1], part, "{dialect}");
        assert!(!parts.to_string().contains("data-tool-validation"), "{parts}");
    }
    let (thread, _) = app.held("pay", "10").await;
    app.scene.calls(&[pay("again", "10")]).answers("It waits already.");
    app.client.send_message(&thread, "pay it").await;
    let shown = app.client.get(&format!("/threads/{thread}/messages?format=v4")).await.body;
    let answer = shown.list("results").last().unwrap().clone();
    assert_eq!(answer["toolInvocations"][0]["result"], json!({ "error": ALREADY }));
    assert_eq!(answer.get("annotations"), None, "no approval was requested");
}

#[tokio::test]
async fn a_repeat_of_an_interrupted_call_is_held() {
    let app = Embedded::start().await;
    let (thread, first) = app.held("pay", "10").await;
    app.scene.calls(&[pay("anew", "10")]);
    let history = json!({ "messages": [{ "role": "user", "content": "please pay 10" }] });
    let turn = app.client.turn(&thread, &history).await;
    assert_eq!(turn.pending().len(), 1, "{}", turn.raw);
    assert_eq!(app.client.call(&first).await["state"], "cancelled");
}
