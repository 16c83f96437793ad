//! `approvals show`.

use super::{Approver, hash};
use holdpoint::config::ToolRules;
use holdpoint_testkit::previews::{World, server};
use holdpoint_testkit::token::with_tokens;
use holdpoint_testkit::{Embedded, JsonFields, call};
use serde_json::{Value, json};
use std::io::Write;

#[tokio::test]
async fn an_approver_sees_everything_about_the_call_of_another_user() {
    let mut app = Embedded::with(|config| {
        with_tokens(config);
        let approve_roles = vec!["chief".to_owned()];
        let rules = ToolRules { approve_roles, approvals: 2, ..ToolRules::default() };
        config.tools.rules.insert("pay".to_owned(), rules);
    })
    .await;
    app.client = app.client.as_user("acme", "alice", &[]);
    let (thread, id) = app.held("pay", "10").await;
    app.client.approve(&id).await;
    let carol = Approver::named(&app, "carol", &["chief"]);

    let shown = carol.run(&["show", &id]).await.stdout_of_success();
    let facts = app.client.call(&id).await;
    let expected = [
        "pay  high risk  pending",
        "requested by   user:alice",
        "tool           A probe.",
        "you may        approve it or reject it",
        "approvals      1 of 2 people approved these inputs: user:alice",
        "  | {\n  |   \"note\": \"10\"\n  | }\n",
        "tool.requires_approval",
        &format!("input hash     {}", facts.text("input_hash")),
        &format!("schema hash    {}", facts.text("schema_hash")),
        &format!("held because   {}", facts.text("reason")),
        &format!("expires        {}", facts.text("expires_at")),
        &format!("thread         {thread}"),
        &format!("call           {id}"),
    ];
    for words in expected {
        assert!(shown.contains(words), "{words}: {shown}");
    }
    assert!(!shown.contains("Schema of the inputs"), "{shown}");
    let full = carol.run(&["show", &id, "--full"]).await.stdout_of_success();
    assert!(full.contains("Schema of the inputs") && full.contains("\"maxLength\": 100"), "{full}");

    let json: Value =
        serde_json::from_str(&carol.run(&["show", &id, "--json"]).await.stdout_of_success()).unwrap();
    let chief = app.client.as_user("acme", "carol", &["chief"]);
    for (name, value) in chief.get("/approvals").await.body["results"][0].as_object().unwrap() {
        assert_eq!(&json[name], value, "{name}");
    }

    // An operator sees the call and decides nothing; another user does not see it.
    Approver::named(&app, "eve", &[]).run(&["show", &id]).await.fails(1, "There is nothing here");
    app.client.reject(&id).await;
    let ended = carol.run(&["show", &id]).await.stdout_of_success();
    for words in
        ["pay  high risk  rejected", "verdict        reject", "by             user:alice", "tool.rejected"]
    {
        assert!(ended.contains(words), "{words}: {ended}");
    }
}

#[tokio::test]
async fn a_call_that_ran_is_shown_with_its_output_and_one_that_was_not_held_too() {
    let app = Embedded::start().await;
    let (_, id) = app.held("pay", "10").await;
    app.client.approve(&id).await;
    let approver = Approver::of(&app);
    let shown = approver.run(&["show", &id]).await.stdout_of_success();
    for words in ["pay  high risk  succeeded", "Output\n  | {\n  |   \"paid\": \"10\"", "tool.succeeded"] {
        assert!(shown.contains(words), "{words}: {shown}");
    }
    app.scene.calls(&[call("p-1", "look", &json!({ "note": "11" }))]).answers("done");
    let turn = app.client.send_message(&app.client.thread().await, "look").await;
    let unheld = turn.one('9').text("toolCallId");
    let shown = approver.run(&["show", unheld]).await.stdout_of_success();
    assert!(shown.contains("look  ") && shown.contains("\"note\": \"11\""), "{shown}");
}

#[tokio::test]
async fn previews_of_the_call_and_of_an_edit_are_shown() {
    let app = server(&World::that_reports("Wipes {note}.\nAll of it."), |_| {}).await;
    let (_, id) = app.held("wipe", "10").await;
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(br#"{"note":"11"}"#).unwrap();
    let path = file.path().to_str().unwrap();
    let shown = Approver::of(&app).run(&["show", &id, "--edit", path]).await.stdout_of_success();
    let previewed = json!({ "validated_inputs": { "note": "11" } });
    let previewed = app.client.post(&format!("/tool_calls/{id}/preview"), &previewed).await.body;
    for words in [
        "Preview\n  | Wipes 10.\n  | All of it.\n",
        "Inputs that you set\n  | {\n  |   \"note\": \"11\"\n",
        "Preview with the inputs that you set\n  | Wipes 11.\n",
        &format!("preview hash   {}", previewed.text("preview_hash")),
        &format!("input hash     {}", hash(&app, &id).await),
    ] {
        assert!(shown.contains(words), "{words}: {shown}");
    }
}

#[tokio::test]
async fn a_pending_call_is_found_by_the_beginning_or_the_end_of_its_id() {
    let app = Embedded::start().await;
    let (_, one) = app.held("pay", "10").await;
    let (_, other) = app.held("pay", "11").await;
    let approver = Approver::of(&app);
    let shown = approver.run(&["show", &one[one.len() - 8..]]).await.stdout_of_success();
    assert!(shown.contains(&one) && !shown.contains(&other), "{shown}");
    let begin =
        one.char_indices().map(|(at, _)| &one[..at]).find(|it| it.len() > 3 && !other.starts_with(it));
    let begin = begin.unwrap().to_uppercase();
    assert!(approver.run(&["show", &begin]).await.stdout_of_success().contains(&one));
    // Ids begin with the time.
    let both = approver.run(&["show", &one[..4]]).await;
    both.fails(1, "2 pending calls have an id that begins or ends with");
    assert!(both.stderr.contains(&one) && both.stderr.contains(&other), "{both:?}");
    approver.run(&["show", "0000-nothing"]).await.fails(2, "expected the id of a call");
    approver.run(&["show", "012"]).await.fails(2, "at least 4 characters");
    approver.run(&["show", "ffffffff"]).await.fails(1, "no pending call has an id");
    app.client.reject(&one).await;
    approver.run(&["show", &begin]).await.fails(1, "the whole id also finds other calls");
    assert!(approver.run(&["show", &one]).await.stdout_of_success().contains("rejected"));
}
