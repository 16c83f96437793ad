//! The previews of held calls, made before the hold.

use super::{Preview, World, hash, server};
use holdpoint::config::{ApprovalRule, RuleCondition, RuleEffect, ToolRules};
use holdpoint_testkit::token::with_tokens;
use holdpoint_testkit::ui::{ui_submit, ui_user};
use holdpoint_testkit::{Embedded, JsonFields, call, eventually};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Barrier;

const WORDS: &str = "deletes {note}\n\tand 3 more";

/// The data of all cards in a JSON value.
fn cards(value: &Value) -> Vec<Value> {
    let inside = match value {
        Value::Object(fields) if value["type"] == "data-tool-hold" => return vec![fields["data"].clone()],
        Value::Object(fields) => fields.values().collect(),
        Value::Array(items) => items.iter().collect::<Vec<_>>(),
        _ => Vec::new(),
    };
    inside.into_iter().flat_map(cards).collect()
}

#[tokio::test]
async fn a_held_call_shows_its_preview_on_every_surface_and_its_hash_covers_the_preview() {
    let world = World::that_reports(WORDS);
    let app = server(&world, |_| {}).await;
    let thread = app.client.thread().await;
    app.scene.calls(&[call("p", "wipe", &json!({ "note": "10" }))]);
    let turn = app.client.send_message(&thread, "wipe").await;
    let [id] = &turn.pending()[..] else { panic!("{}", turn.raw) };
    let preview = json!({ "text": "deletes 10\n\tand 3 more" });

    let shown = app.client.call(id).await;
    let expected = hash(&json!(["wipe", { "note": "10" }, shown["schema_hash"], preview]));
    assert_eq!((&shown["preview"], &shown["input_hash"]), (&preview, &json!(expected)));
    assert_eq!(shown.get("validated_preview"), None);
    let card = &turn.parts[0]["data"];
    assert_eq!((&card["preview"], &card["inputHash"]), (&preview, &json!(expected)));
    let inbox = app.client.get("/approvals").await.body;
    assert_eq!(
        (&inbox["results"][0]["preview"], &inbox["results"][0]["input_hash"]),
        (&preview, &json!(expected))
    );
    let events = app.client.get(&format!("/tool_calls/{id}/events")).await.body;
    let events = events.list("results");
    assert_eq!(events.len(), 2, "{events:?}");
    for event in events {
        assert_eq!((&event["data"]["preview"], &event["data"]["input_hash"]), (&preview, &json!(expected)));
    }
    let tool = app.client.get("/tools/wipe").await.body;
    assert_eq!(tool["preview"], true);

    // After a reload, and after a restart without the tool.
    let app = app.redeploy(holdpoint_testkit::probes(&holdpoint_testkit::Ledger::new())).await;
    for format in ["v4", "ui-v5", "ui-v6", "ui-v7"] {
        let messages = app.client.get(&format!("/threads/{thread}/messages?format={format}")).await.body;
        let cards = cards(&messages);
        assert_eq!(cards.len(), 1, "{format}: {messages}");
        assert_eq!((&cards[0]["preview"], &cards[0]["inputHash"]), (&preview, &json!(expected)), "{format}");
    }
    let stored = app.rows.all("SELECT data FROM events").await;
    assert!(!json!(stored).to_string().contains("and 3 more"), "events hold hashes only");
    assert_eq!(world.requests(), ["10"], "once");
}

#[tokio::test]
async fn a_call_of_a_tool_without_previews_has_the_hash_of_its_inputs_alone() {
    let world = World::that_reports(WORDS);
    let app = server(&world, |_| {}).await;
    let (_, id) = app.held("pay", "10").await;
    let shown = app.client.call(&id).await;
    assert_eq!(shown["input_hash"], hash(&json!(["pay", { "note": "10" }, shown["schema_hash"]])));
    assert_eq!(shown.get("preview"), None);
    assert_eq!(app.client.get("/tools/pay").await.body["preview"], false);
    assert_eq!(world.requests(), Vec::<String>::new());
}

#[tokio::test]
async fn an_approval_with_the_hash_runs_the_call_and_one_with_the_hash_of_another_preview_is_stale() {
    let world = World::that_reports(WORDS);
    let app = server(&world, |_| {}).await;
    let (_, id) = app.held("wipe", "10").await;
    let shown = app.client.call(&id).await;
    // The world changes, and what was shown and stored does not.
    world.now_reports("deletes everything");
    let other = json!({ "text": "deletes everything" });
    let decide = |preview: &Value| {
        let hash = hash(&json!(["wipe", { "note": "10" }, shown["schema_hash"], preview]));
        json!({ "toolCallId": id, "isValidated": true, "inputHash": hash })
    };
    let stale = app.client.validate(&decide(&other)).await;
    stale.failed_with(409, "stale");
    assert_eq!(stale.body["error"]["details"]["input_hash"], shown["input_hash"]);
    let done = app.client.validate(&decide(&shown["preview"])).await;
    done.has(200, "state", "succeeded");
    let call = app.client.call(&id).await;
    assert_eq!(
        (&call["preview"], &call["decision"]["input_hash"]),
        (&shown["preview"], &shown["input_hash"])
    );
    assert_eq!((world.requests().len(), app.ledger.lines()), (1, vec!["wipe 10".to_owned()]));
}

#[tokio::test]
async fn a_preview_that_fails_is_shown_as_failed_and_the_call_is_held_all_the_same() {
    let world = World::that_reports("");
    let app = server(&world, |config| config.tools.preview_timeout = Duration::from_secs(1)).await;
    for (n, (says, why)) in [
        (Preview::Fails("no such\nfolder".to_owned()), "no such\nfolder"),
        (Preview::Fails("a\u{202e}b".to_owned()), "a\\u{202e}b"),
        (Preview::OutcomeUnknown, "the tool did not say why"),
        (Preview::Breaks, "the tool broke"),
        (Preview::Hangs, "the tool did not say it in time"),
    ]
    .into_iter()
    .enumerate()
    {
        world.now(says.clone());
        let (_, id) = app.held("wipe", &n.to_string()).await;
        let call = app.client.call(&id).await;
        let failed = json!({ "failed": why });
        assert_eq!((&call["preview"], &call["state"]), (&failed, &json!("pending")), "{says:?}");
        let note = json!({ "note": n.to_string() });
        assert_eq!(call["input_hash"], hash(&json!(["wipe", note, call["schema_hash"], failed])));
        assert_eq!(app.client.approve(&id).await.body["state"], "succeeded", "{says:?}");
    }
    world.wait_dropped().await;
}

#[tokio::test]
async fn a_huge_preview_is_cut_and_hidden_characters_are_spelled_out() {
    let world = World::that_reports("");
    let app = server(&world, |_| {}).await;
    let long = "é".repeat(1 << 20);
    for (n, (says, begins, ends)) in [
        (Preview::Words(long.clone()), "éé", "é […cut]"),
        (Preview::Fails(long.clone()), "éé", "é […cut]"),
        (
            Preview::Words("to bob\u{202e}\u{0}\u{1b}[2J\r\nok".to_owned()),
            "to bob\\u{202e}\\u{0}\\u{1b}[2J\n",
            "\nok",
        ),
        (Preview::Words(String::new()), "", ""),
    ]
    .into_iter()
    .enumerate()
    {
        world.now(says);
        let (_, id) = app.held("wipe", &n.to_string()).await;
        let call = app.client.call(&id).await;
        let preview = call["preview"].as_object().unwrap().values().next().unwrap().as_str().unwrap();
        assert!(preview.starts_with(begins) && preview.ends_with(ends), "{preview}");
        assert!(preview.len() <= 8192, "{}", preview.len());
        assert_eq!(app.client.approve(&id).await.body["state"], "succeeded");
    }
}

#[tokio::test]
async fn all_previews_of_a_step_are_made_at_once_and_before_its_other_calls_run() {
    let world = World::that_reports("");
    world.now(Preview::Together(Arc::new(Barrier::new(3))));
    let app = server(&world, |_| {}).await;
    let calls = ["1", "2", "3"].map(|note| call(note, "wipe", &json!({ "note": note })));
    let calls = [&calls[..], &[call("l", "look", &json!({ "note": "4" }))]].concat();
    app.scene.calls(&calls);
    let turn = app.client.send_message(&app.client.thread().await, "wipe").await;
    assert_eq!(turn.parts.len(), 3, "{}", turn.raw);
    for part in &turn.parts {
        assert_eq!(part["data"]["preview"]["text"], part["data"]["input"]["note"], "each has its own");
    }
    assert_eq!(app.ledger.lines(), ["look 4"]);
}

#[tokio::test]
async fn only_calls_that_are_held_are_previewed() {
    let world = World::that_reports(WORDS);
    let app = server(&world, |_| {}).await;
    let thread = app.client.thread().await;
    // Allowed, unreadable, unfit.
    app.scene.calls(&[
        call("a", "peek", &json!({ "note": "1" })),
        ("b".to_owned(), "wipe".to_owned(), "{\"note\":".to_owned()),
        call("c", "wipe", &json!({ "note": 3 })),
    ]);
    app.scene.answers("Well.");
    assert_eq!(app.client.send_message(&thread, "go").await.text(), "Well.");
    assert_eq!(world.requests(), Vec::<String>::new());
    // A duplicate of a pending call.
    let first = app.hold_in(&thread, "wipe", "10").await;
    app.scene.calls(&[call("again", "wipe", &json!({ "note": "10" }))]).answers("I wait.");
    assert_eq!(app.client.send_message(&thread, "and again").await.text(), "I wait.");
    assert_eq!(world.requests(), ["10"]);
    assert_eq!(app.client.call(&first).await["state"], "pending");
}

#[tokio::test]
async fn the_policy_of_a_session_that_holds_a_call_has_it_previewed() {
    let world = World::that_reports(WORDS);
    let app = server(&world, |_| {}).await;
    let thread = app.client.thread().await;
    let policy = json!({ "tools": { "peek": "ask" } });
    let put = app.client.http.put(app.client.url(&format!("/sessions/{thread}/policy"))).json(&policy);
    app.client.send(put).await.has_status(200);
    let id = app.hold_in(&thread, "peek", "10").await;
    assert_eq!(app.client.call(&id).await["preview"]["text"], "deletes 10\n\tand 3 more");
}

#[tokio::test]
async fn a_preview_acts_for_the_user_of_the_thread() {
    let world = World::that_reports(WORDS);
    let mut app = server(&world, |config| {
        with_tokens(config);
        let rules = ToolRules { approve_roles: vec!["chief".to_owned()], ..ToolRules::default() };
        config.tools.rules.insert("wipe".to_owned(), rules);
    })
    .await;
    let chief = app.client.as_user("acme", "carol", &["chief"]);
    app.client = app.client.as_user("acme", "alice", &[]);
    let (_, id) = app.held("wipe", "10").await;
    super::preview_hash(&chief, &id, "11").await;
    let requested = world.requests.lock().unwrap().clone();
    assert_eq!(requested, [["10", "acme", "alice"], ["11", "acme", "alice"]].map(|it| it.map(str::to_owned)));
}

/// A turn that is stopped while its preview hangs. Returns its run.
async fn stopped(app: &Embedded, world: &World, thread: &str) -> String {
    app.scene
        .calls(&[call("p", "wipe", &json!({ "note": "10" })), call("l", "look", &json!({ "note": "4" }))]);
    let turn = app.client.begin(thread, &json!({ "content": "wipe" })).await;
    world.wait_for_requests(1).await;
    let run = turn.headers()["x-run-id"].to_str().unwrap().to_owned();
    let began = Instant::now();
    let cancelled = app.client.post(&format!("/threads/{thread}/cancel"), &Value::Null).await;
    assert!(matches!(cancelled.status, 200 | 202), "{:?}", cancelled.body);
    turn.text().await.unwrap();
    assert!(began.elapsed() < Duration::from_secs(20), "the preview delays no stop");
    run
}

#[tokio::test]
async fn stopping_the_turn_ends_the_preview_and_nothing_is_held_and_nothing_runs() {
    let world = World::that_reports("");
    world.now(Preview::Hangs);
    let app = server(&world, |config| config.tools.preview_timeout = Duration::from_secs(30)).await;
    let thread = app.client.thread().await;
    let run = stopped(&app, &world, &thread).await;
    world.wait_dropped().await;
    let ended = async || {
        let run = app.client.get(&format!("/runs/{run}")).await.body;
        (run["status"] == "cancelled").then_some(())
    };
    eventually("the run is cancelled", ended).await;
    assert_eq!((app.rows.count("tool_calls").await, app.ledger.lines()), (0, Vec::new()));
    world.now_reports("fine");
    let id = app.hold_in(&thread, "wipe", "11").await;
    assert_eq!(app.client.call(&id).await["preview"]["text"], "fine");
}

#[tokio::test]
async fn no_transaction_is_open_while_a_preview_is_made() {
    let world = World::that_reports("");
    world.now(Preview::Hangs);
    let app = server(&world, |config| config.tools.preview_timeout = Duration::from_secs(30)).await;
    let thread = app.client.thread().await;
    app.scene.calls(&[call("p", "wipe", &json!({ "note": "10" }))]);
    let turn = app.client.begin(&thread, &json!({ "content": "wipe" })).await;
    world.wait_for_requests(1).await;
    // A writer of the same thread does not wait.
    let renamed = app.client.patch(&format!("/threads/{thread}"), &json!({ "title": "other" })).await;
    renamed.has_status(200);
    assert_eq!(*world.dropped.lock().unwrap(), 0, "the preview is still being made");
    app.client.post(&format!("/threads/{thread}/cancel"), &Value::Null).await;
    drop(turn);
}

#[tokio::test]
async fn a_rule_that_forbids_the_call_keeps_its_tool_from_being_asked() {
    let world = World::that_reports(WORDS);
    let rule = ApprovalRule {
        name: "not-ten".to_owned(),
        effect: RuleEffect::Deny,
        tools: vec!["wipe".to_owned()],
        when: vec![RuleCondition {
            argument: "/note".to_owned(),
            equals: Some(json!("10")),
            ..RuleCondition::default()
        }],
        roles: Vec::new(),
        unless_roles: Vec::new(),
        escalate_after: None,
        escalate_to: Vec::new(),
        reason: None,
    };
    let app = server(&world, |config| config.approval.rules = vec![rule]).await;
    app.scene.calls(&[call("a", "wipe", &json!({ "note": "10" }))]).answers("I may not.");
    let turn = app.client.ui_turn(&ui_submit("chat", &[ui_user("u", "wipe")])).await;
    assert_eq!((turn.text().as_str(), world.requests().len()), ("I may not.", 0));
    let (_, id) = app.held("wipe", "11").await;
    let refused = super::preview(&app.client, &id, "10").await;
    refused.failed_with(422, "invalid_inputs");
    assert_eq!(world.requests(), ["11"]);
}
