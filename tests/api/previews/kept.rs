//! Previews in the rows: over deploys, in grants, at handlers, after a purge, and against the database's guards.

use super::{World, edit, hash, is_stale, preview, preview_hash, server};
use holdpoint::handlers::{HandlerAnswer, Preview, Terminal};
use holdpoint::tools::Input;
use holdpoint_testkit::handlers::desk;
use holdpoint_testkit::{Embedded, JsonFields, call, eventually};
use serde_json::{Value, json};
use std::io::{self, BufReader, Write};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const WORDS: &str = "deletes {note}";

#[tokio::test]
async fn an_approved_call_with_previews_begins_in_the_next_process() {
    let world = World::that_reports(WORDS);
    let app = server(&world, |_| {}).await;
    let (_, proposed) = app.held("wipe", "10").await;
    app.commit_yes(&proposed, "0", "expires_at").await;
    let tools = world.tools(&app.ledger);
    let app = app.redeploy_with(tools, |config| config.approval.sweep = Duration::from_millis(20)).await;
    app.client.becomes(&proposed, "succeeded").await;
    assert_eq!(app.ledger.lines(), ["wipe 10"]);
    app.rows.assert_counted().await;
}

#[tokio::test]
async fn after_a_deploy_an_edit_is_previewed_if_the_tool_has_previews_or_had_one() {
    let world = World::that_reports(WORDS);
    let app = Embedded::start().await;
    let (without, with) = (world.tools_of_wipe(&app.ledger, false), world.tools_of_wipe(&app.ledger, true));
    let app = app.redeploy(without).await;
    let (_, early) = app.held("wipe", "1").await;
    assert_eq!(app.client.call(&early).await.get("preview"), None);
    let app = app.redeploy(with).await;
    // The tool has previews now.
    let (_, late) = app.held("wipe", "2").await;
    is_stale(&app.client.validate(&edit(&early, "11", None)).await, "previewHash");
    let shown = preview(&app.client, &early, "11").await;
    assert_eq!(shown.body["preview"], json!({ "text": "deletes 11" }));
    let right = shown.body.text("preview_hash");
    assert_eq!(app.client.validate(&edit(&early, "11", Some(right))).await.body["state"], "succeeded");
    let call = app.client.call(&early).await;
    assert_eq!((call.get("preview"), &call["validated_preview"]["text"]), (None, &json!("deletes 11")));
    // The tool has no previews any more, and the stored one is still what an approval is about.
    let without = world.tools_of_wipe(&app.ledger, false);
    let app = app.redeploy(without).await;
    let call = app.client.call(&late).await;
    assert_eq!(call["preview"], json!({ "text": "deletes 2" }));
    assert_eq!(
        call["input_hash"],
        hash(&json!(["wipe", { "note": "2" }, call["schema_hash"], { "text": "deletes 2" }]))
    );
    is_stale(&app.client.validate(&edit(&late, "12", None)).await, "previewHash");
    let shown = preview(&app.client, &late, "12").await;
    assert_eq!(shown.body["preview"], json!({ "failed": "the tool has no previews any more" }));
    let right = shown.body.text("preview_hash");
    assert_eq!(app.client.validate(&edit(&late, "12", Some(right))).await.body["state"], "succeeded");
    assert_eq!(app.ledger.lines(), ["wipe 11", "wipe 12"]);
    app.rows.assert_counted().await;
}

#[tokio::test]
async fn a_remembered_approval_covers_pending_and_later_calls_whatever_their_previews() {
    let world = World::that_reports(WORDS);
    let app = server(&world, |_| {}).await;
    let thread = app.client.thread().await;
    let first = app.hold_in(&thread, "wipe", "1").await;
    let second = app.hold_in(&thread, "wipe", "2").await;
    let hash = preview_hash(&app.client, &first, "3").await;
    let mut yes = edit(&first, "3", Some(&hash));
    yes["remember"] = json!("session");
    assert_eq!(app.client.validate(&yes).await.body["state"], "succeeded");
    let covered = app.client.becomes(&second, "succeeded").await;
    assert_eq!(covered["decision"]["input_hash"], covered["input_hash"]);
    app.scene.calls(&[call("p", "wipe", &json!({ "note": "4" }))]).answers("Done.");
    assert!(app.client.send_message(&thread, "again").await.text().ends_with("Done."));
    assert_eq!(app.ledger.lines(), ["wipe 3", "wipe 2", "wipe 4"]);
    assert_eq!(world.requests(), ["1", "2", "3", "3"], "a call that is not held has no preview");
    app.rows.assert_counted().await;
}

#[tokio::test]
async fn a_handler_is_asked_with_the_preview_and_its_edit_is_left_to_the_routes() {
    let world = World::that_reports(WORDS);
    let (desk, questions) = desk();
    let app = Embedded::start().await;
    let tools = world.tools(&app.ledger);
    let app = app.redeploy_with_handler(desk, tools, |_| {}).await;
    let thread = app.client.thread().await;
    app.scene.calls(&[call("p", "wipe", &json!({ "note": "10" }))]);
    let inputs = Input::from_iter([("note".to_owned(), json!("11"))]);
    let requested = async {
        let question = questions.next().await;
        let preview = question.request.preview.clone();
        let id = question.request.tool_call_id.to_string();
        question.answer(HandlerAnswer::Approved { inputs: Some(inputs), remember: None });
        (preview, id)
    };
    let (_, (preview, id)) = tokio::join!(app.client.send_message(&thread, "wipe"), requested);
    assert_eq!(preview, Some(Preview::Text("deletes 10".to_owned())));
    assert_eq!(app.client.call(&id).await["state"], "pending");
    assert_eq!(app.client.approve(&id).await.body["state"], "succeeded");
    assert_eq!(app.ledger.lines(), ["wipe 10"]);
    app.rows.assert_counted().await;
}

/// The text on a terminal.
#[derive(Clone, Default)]
struct Screen(Arc<Mutex<Vec<u8>>>);

impl Write for Screen {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(text);
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn the_terminal_shows_the_preview_line_by_line() {
    let world = World::that_reports("deletes {note}\n[y]es, [s]ession\u{1b}[2J");
    for (says, expected) in [
        (None, "preview\n  | deletes 10\n  | [y]es, [s]ession\\u{1b}[2J\nwipe runs"),
        (Some(super::Preview::Fails("gone".to_owned())), "there is no preview\n  | gone\nwipe runs"),
    ] {
        if let Some(says) = says {
            world.now(says);
        }
        let screen = Screen::default();
        let terminal = Terminal::between(BufReader::new(&b"n\n"[..]), screen.clone());
        let app = Embedded::start().await;
        let tools = world.tools(&app.ledger);
        let app = app.redeploy_with_handler(terminal, tools, |_| {}).await;
        app.scene.calls(&[call("p", "wipe", &json!({ "note": "10" }))]).answers("I see.");
        assert_eq!(app.client.send_message(&app.client.thread().await, "wipe").await.text(), "I see.");
        let shown = String::from_utf8(screen.0.lock().unwrap().clone()).unwrap();
        assert!(shown.contains(expected), "{shown}");
    }
}

#[tokio::test]
async fn a_purge_erases_the_previews_and_keeps_whether_they_failed() {
    let world = World::that_reports("a heron, {note}");
    let app = server(&world, |_| {}).await;
    let (thread, id) = app.held("wipe", "10").await;
    let bytes = "SELECT bytes FROM threads";
    let before = app.rows.all(bytes).await;
    let hash = preview_hash(&app.client, &id, "11").await;
    assert_eq!(app.client.validate(&edit(&id, "11", Some(&hash))).await.body["state"], "succeeded");
    let more = |rows: &[Value]| rows[0]["bytes"].as_i64().unwrap();
    assert!(more(&app.rows.all(bytes).await) >= more(&before) + 11, "the preview counts");
    app.client.delete(&format!("/threads/{thread}")).await.has_status(204);
    let columns =
        "SELECT preview, preview_failed, validated_preview, validated_preview_failed FROM tool_calls";
    let full = app.rows.all(columns).await;
    assert_eq!(
        (&full[0]["preview"], &full[0]["validated_preview"]),
        (&json!("a heron, 10"), &json!("a heron, 11"))
    );
    let purged = app.operate(&["purge", "--older-than", "0s"]);
    assert_eq!(purged.stderr, "");
    let erased = app.rows.all(columns).await;
    assert_eq!((&erased[0]["preview"], &erased[0]["validated_preview"]), (&json!(""), &json!("")));
    for failed in ["preview_failed", "validated_preview_failed"] {
        assert_eq!(erased[0][failed], full[0][failed]);
    }
    let left = app.rows.all("SELECT * FROM tool_calls").await;
    assert!(!json!(left).to_string().contains("heron"), "{left:?}");
    assert!(more(&app.rows.all(bytes).await) < 100);
    app.rows.assert_counted().await;
}

#[tokio::test]
async fn the_database_keeps_the_previews_as_they_were_shown() {
    let world = World::that_reports(WORDS);
    let app = server(&world, |_| {}).await;
    let (_, held) = app.held("wipe", "10").await;
    let (_, edited) = app.held("wipe", "20").await;
    let hash = preview_hash(&app.client, &edited, "21").await;
    assert_eq!(app.client.validate(&edit(&edited, "21", Some(&hash))).await.body["state"], "succeeded");
    app.scene.calls(&[call("l", "look", &json!({ "note": "1" }))]).answers("Seen.");
    app.client.send_message(&app.client.thread().await, "look").await;
    let before = app.rows.all("SELECT * FROM tool_calls ORDER BY tool_call_id").await;
    for (id, change) in [
        (&held, "preview = 'deletes nothing'"),
        (&held, "preview = NULL, preview_failed = NULL"),
        (&held, "preview_failed = TRUE"),
        (&held, "validated_preview = 'x', validated_preview_failed = FALSE"),
        (&edited, "preview = 'deletes nothing'"),
        (&edited, "validated_preview = 'deletes nothing'"),
        (&edited, "validated_preview_failed = TRUE"),
        (&edited, "validated_preview = NULL, validated_preview_failed = NULL"),
    ] {
        let sql = format!("UPDATE tool_calls SET {change} WHERE tool_call_id = '{id}'");
        assert!(app.rows.change(&sql).await.is_err(), "{change}");
    }
    let on_a_call_that_is_not_held =
        "UPDATE tool_calls SET preview = 'x', preview_failed = FALSE WHERE NOT held";
    assert!(app.rows.change(on_a_call_that_is_not_held).await.is_err());
    // An approval with other inputs, without their preview.
    let unseen = format!(
        "UPDATE tool_calls SET state = 'approved', validated = TRUE, decided_by = 'user:local', decided_at = 1,
             start_deadline = expires_at, validated_inputs = '{{}}' WHERE tool_call_id = '{held}'"
    );
    assert!(app.rows.change(&unseen).await.is_err());
    assert_eq!(app.rows.all("SELECT * FROM tool_calls ORDER BY tool_call_id").await, before);
    app.rows.assert_counted().await;
}

#[tokio::test]
async fn a_turn_that_the_server_stops_in_mid_preview_resumes_with_a_new_one() {
    let world = World::that_reports(WORDS);
    world.now(super::Preview::Hangs);
    let app = server(&world, |config| {
        config.tools.preview_timeout = Duration::from_secs(30);
        config.server.grace = Duration::from_millis(100);
    })
    .await;
    let thread = app.client.thread().await;
    app.scene.calls(&[call("p", "wipe", &json!({ "note": "10" }))]);
    let turn = app.client.begin(&thread, &json!({ "content": "wipe" })).await;
    world.wait_for_requests(1).await;
    let tools = world.tools(&app.ledger);
    let app = app.redeploy_with(tools, |_| {}).await;
    drop(turn);
    assert_eq!(app.rows.count("tool_calls").await, 0);
    world.now_reports(WORDS);
    app.scene.calls(&[call("p", "wipe", &json!({ "note": "10" }))]);
    let held = eventually("the turn has ended", async || {
        let turn = app.client.resume(&thread).await;
        (turn.status == 200).then_some(turn)
    })
    .await;
    let [id] = &held.pending()[..] else { panic!("{}", held.raw) };
    assert_eq!(app.client.call(id).await["preview"]["text"], "deletes 10");
    app.rows.assert_counted().await;
}
