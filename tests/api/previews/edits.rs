//! Edited inputs: an approver approves them together with their preview.

use super::{Preview, World, edit, hash, is_stale, preview, preview_hash, server};
use holdpoint::config::{Config, ToolRules};
use holdpoint_testkit::token::with_tokens;
use holdpoint_testkit::{Answer, Embedded, JsonFields, Socket};
use serde_json::{Value, json};
use std::time::Duration;

const WORDS: &str = "deletes {note}";

/// The routes that take edited inputs.
#[derive(Debug, Clone, Copy)]
enum Route {
    ValidateTool,
    ValidateTools,
    ApproveRun,
    WebSocket,
}

/// Approves the call with this note and this hash, and returns the status and the body.
async fn approve(app: &Embedded, route: Route, id: &str, note: &str, hash: Option<&str>) -> (u64, Value) {
    let whole = |answer: Answer| (u64::from(answer.status), answer.body);
    let posted = edit(id, note, hash);
    let decide = json!({
        "tool_call_id": id, "validated_inputs": { "note": note }, "preview_hash": hash,
    });
    match route {
        Route::ValidateTool => whole(app.client.validate(&posted).await),
        Route::ValidateTools => {
            let answer = app.client.post("/qa/validate_tools", &json!({ "decisions": [posted] })).await;
            let result = answer.body["results"][0].clone();
            (result["status"].as_u64().unwrap(), result)
        }
        Route::ApproveRun => {
            let run = app.client.run_of(id).await;
            whole(app.client.post(&format!("/runs/{run}/approve"), &decide).await)
        }
        Route::WebSocket => {
            let mut socket =
                Socket::open(&app.client, "/ws", &[]).await.unwrap_or_else(|status| panic!("{status}"));
            let mut decide = decide;
            decide["decision"] = json!("approve");
            socket.ask(&json!(1), &decide).await
        }
    }
}

#[tokio::test]
async fn an_edit_needs_the_hash_of_its_preview_on_every_route() {
    let world = World::that_reports(WORDS);
    let app = server(&world, |_| {}).await;
    for (n, route) in [Route::ValidateTool, Route::ValidateTools, Route::ApproveRun, Route::WebSocket]
        .into_iter()
        .enumerate()
    {
        let (old, new) = (format!("old-{n}"), format!("new-{n}"));
        let (_, id) = app.held("wipe", &old).await;
        let right = preview_hash(&app.client, &id, &new).await;
        let of_another_edit = preview_hash(&app.client, &id, "other").await;
        let of_the_proposal = app.client.call(&id).await.text("input_hash").to_owned();
        let field = match route {
            Route::ApproveRun => "preview_hash",
            _ => "previewHash",
        };
        for wrong in [None, Some(of_another_edit.as_str()), Some(&of_the_proposal), Some(&"0".repeat(64))] {
            let (status, body) = approve(&app, route, &id, &new, wrong).await;
            assert_eq!(
                (status, &body["error"]["code"]),
                (409, &json!("stale")),
                "{route:?} {wrong:?} {body}"
            );
            let message = body["error"].text("message");
            assert!(message.starts_with(&format!("{field}: expected the hash of a preview")), "{message}");
            assert_eq!(body["error"]["details"], json!({ "state": "pending" }), "no hash to echo");
        }
        assert_eq!(app.client.call(&id).await["state"], "pending");
        assert_eq!(approve(&app, route, &id, &new, Some(&right)).await.0, 200, "{route:?}");
        let call = app.client.becomes(&id, "succeeded").await;
        let text = |note: &str| json!({ "text": format!("deletes {note}") });
        assert_eq!((&call["preview"], &call["validated_preview"]), (&text(&old), &text(&new)));
        assert_eq!(
            (&call["decision"]["input_hash"], &call["decision"]["edited"]),
            (&json!(right), &json!(true))
        );
        let covered = json!(["wipe", { "note": new }, call["schema_hash"], text(&new)]);
        assert_eq!(right, hash(&covered), "{route:?}");
        let events = app.client.get(&format!("/tool_calls/{id}/events")).await.body;
        let events: Vec<&Value> = events.list("results").iter().collect();
        let (refused, moves): (Vec<&Value>, Vec<&Value>) =
            events.iter().copied().partition(|event| event["type"] == "tool.decision_refused");
        assert_eq!(refused.len(), 4, "each wrong hash");
        let [called, held, approved, started, succeeded] = moves[..] else { panic!("{events:?}") };
        for (event, note) in
            [(called, &old), (held, &old), (approved, &new), (started, &new), (succeeded, &new)]
        {
            assert_eq!(event["data"]["preview"], text(note), "{event}");
        }
        // The same decision again needs no hash: nothing runs.
        let (status, again) = approve(&app, route, &id, &new, None).await;
        assert_eq!(status, 200, "{again}");
    }
    assert_eq!(app.ledger.lines(), ["wipe new-0", "wipe new-1", "wipe new-2", "wipe new-3"]);
}

#[tokio::test]
async fn a_preview_that_changed_since_it_was_shown_makes_the_edit_stale() {
    let world = World::that_reports(WORDS);
    let app = server(&world, |config| config.tools.preview_timeout = Duration::from_secs(1)).await;
    let (_, id) = app.held("wipe", "10").await;
    let shown = preview_hash(&app.client, &id, "11").await;
    for says in [
        Preview::Words("deletes {note} and more".to_owned()),
        Preview::Fails("gone".to_owned()),
        Preview::Breaks,
        Preview::Hangs,
    ] {
        world.now(says);
        is_stale(&app.client.validate(&edit(&id, "11", Some(&shown))).await, "previewHash");
    }
    assert_eq!(app.ledger.lines(), Vec::<String>::new());
    world.now_reports(WORDS);
    assert_eq!(app.client.validate(&edit(&id, "11", Some(&shown))).await.body["state"], "succeeded");
    assert_eq!(app.ledger.lines(), ["wipe 11"]);
}

#[tokio::test]
async fn an_edit_whose_preview_failed_in_front_of_the_approver_can_be_approved() {
    let world = World::that_reports(WORDS);
    let app = server(&world, |_| {}).await;
    let (_, id) = app.held("wipe", "10").await;
    world.now(Preview::Fails("the disk is away".to_owned()));
    let shown = preview(&app.client, &id, "11").await;
    assert_eq!(shown.body["preview"], json!({ "failed": "the disk is away" }));
    let hash = shown.body.text("preview_hash");
    assert_eq!(app.client.validate(&edit(&id, "11", Some(hash))).await.body["state"], "succeeded");
    assert_eq!(app.client.call(&id).await["validated_preview"], json!({ "failed": "the disk is away" }));
}

#[tokio::test]
async fn the_proposed_inputs_keep_the_preview_of_the_hold() {
    let world = World::that_reports(WORDS);
    let app = server(&world, |_| {}).await;
    let (_, id) = app.held("wipe", "10").await;
    world.now_reports("changed");
    let same = preview(&app.client, &id, "10").await;
    let call = app.client.call(&id).await;
    let expected = json!({ "preview": { "text": "deletes 10" }, "preview_hash": call["input_hash"] });
    assert_eq!((same.status, &same.body, world.requests().len()), (200, &expected, 1));
    // These inputs are no edit, and a wrong hash is refused all the same.
    is_stale(&app.client.validate(&edit(&id, "10", Some(&"0".repeat(64)))).await, "previewHash");
    let hash = call.text("input_hash");
    assert_eq!(app.client.validate(&edit(&id, "10", Some(hash))).await.body["state"], "succeeded");
    let call = app.client.call(&id).await;
    assert_eq!((&call["decision"]["edited"], call.get("validated_preview")), (&json!(false), None));
}

#[tokio::test]
async fn a_rejection_needs_no_hash_and_ignores_one() {
    let world = World::that_reports(WORDS);
    let app = server(&world, |_| {}).await;
    let (_, id) = app.held("wipe", "10").await;
    let mut no = edit(&id, "11", Some("0"));
    no["isValidated"] = json!(false);
    assert_eq!(app.client.validate(&no).await.body["state"], "rejected");
    let call = app.client.call(&id).await;
    assert_eq!(call["decision"]["input_hash"], call["input_hash"]);
    assert_eq!(world.requests(), ["10"]);
}

#[tokio::test]
async fn a_tool_without_previews_gives_the_hash_alone_and_needs_none() {
    let world = World::that_reports(WORDS);
    let app = server(&world, |_| {}).await;
    let (_, id) = app.held("pay", "10").await;
    let shown = preview(&app.client, &id, "11").await;
    let schema = app.client.call(&id).await["schema_hash"].clone();
    let expected = json!({ "preview_hash": hash(&json!(["pay", { "note": "11" }, schema])) });
    assert_eq!((shown.status, &shown.body), (200, &expected));
    is_stale(&app.client.validate(&edit(&id, "11", Some(&"0".repeat(64)))).await, "previewHash");
    assert_eq!(app.client.validate(&edit(&id, "11", None)).await.body["state"], "succeeded");
    let (_, id) = app.held("pay", "12").await;
    let right = preview_hash(&app.client, &id, "13").await;
    assert_eq!(app.client.validate(&edit(&id, "13", Some(&right))).await.body["state"], "succeeded");
}

#[tokio::test]
async fn a_preview_of_an_edit_passes_the_checks_of_an_approval() {
    let world = World::that_reports(WORDS);
    let mut app = server(&world, |config| {
        with_tokens(config);
        let rules =
            ToolRules { approve_roles: vec!["chief".to_owned()], other_person: true, ..ToolRules::default() };
        config.tools.rules.insert("wipe".to_owned(), rules);
        config.limits.decisions_per_minute = Some(5);
    })
    .await;
    let nobody = app.client.clone();
    let user = |name: &str, roles: &[&str]| nobody.as_user("acme", name, roles);
    app.client = user("alice", &[]);
    let (_, id) = app.held("wipe", "10").await;
    let (alice, other_user, chief) = (app.client.clone(), user("mallory", &[]), user("carol", &["chief"]));
    let refused = async |by: &holdpoint_testkit::Client, id: &str, note: &str| {
        let answer = preview(by, id, note).await;
        (answer.status, answer.code().to_owned())
    };
    let is = |status: u16, code: &str| (status, code.to_owned());
    assert_eq!(refused(&nobody, &id, "11").await.0, 401);
    assert_eq!(refused(&other_user, &id, "11").await, is(404, "not_found"));
    assert_eq!(refused(&user("carol", &["chief", "x"]), "nothing", "11").await, is(404, "not_found"));
    assert_eq!(refused(&alice, &id, "11").await, is(403, "forbidden"), "she may only reject");
    let unfit = preview(&chief, &id, &"x".repeat(101)).await;
    unfit.failed_with(422, "invalid_inputs");
    assert!(unfit.body.to_string().contains("/note"), "{}", unfit.body);
    for body in [json!({}), json!({ "validated_inputs": null }), json!({ "validated_inputs": {}, "x": 1 })] {
        let bad = chief.post(&format!("/tool_calls/{id}/preview"), &body).await;
        assert_eq!(bad.failure(), (400, "bad_request"), "{body}");
    }
    assert_eq!(world.requests(), ["10"], "the tool was not asked");
    let hash = preview_hash(&chief, &id, "11").await;
    assert_eq!(chief.validate(&edit(&id, "11", Some(&hash))).await.body["state"], "succeeded");
    assert_eq!(refused(&chief, &id, "12").await, is(409, "already_decided"));
    assert_eq!(refused(&chief, &id, "12").await, is(429, "rate_limited"), "as a decision counts");
}

#[tokio::test]
async fn an_overdue_call_has_no_preview_of_an_edit() {
    let world = World::that_reports(WORDS);
    let app = server(&world, |_| {}).await;
    let (_, id) = app.held("wipe", "10").await;
    let end = format!("UPDATE tool_calls SET expires_at = created_at WHERE tool_call_id = '{id}'");
    assert_eq!(app.rows.change(&end).await, Ok(1));
    let late = preview(&app.client, &id, "11").await;
    assert_eq!((late.status, late.code(), world.requests().len()), (409, "expired", 1));
}

#[tokio::test]
async fn approvers_agree_on_an_edit_only_with_the_same_preview() {
    let world = World::that_reports(WORDS);
    let mut app = server(&world, |config: &mut Config| {
        with_tokens(config);
        let approve_roles = vec!["chief".to_owned()];
        let rules = ToolRules { approve_roles, approvals: 2, ..ToolRules::default() };
        config.tools.rules.insert("wipe".to_owned(), rules);
    })
    .await;
    let chief = |user: &str| app.client.as_user("acme", user, &["chief"]);
    let (carol, dora, erik) = (chief("carol"), chief("dora"), chief("erik"));
    app.client = app.client.as_user("acme", "alice", &[]);
    let (_, id) = app.held("wipe", "10").await;
    let first = preview_hash(&carol, &id, "11").await;
    carol.validate(&edit(&id, "11", Some(&first))).await.has_status(202);
    world.now_reports("deletes {note} and more");
    let second = preview_hash(&dora, &id, "11").await;
    let alone = dora.validate(&edit(&id, "11", Some(&second))).await;
    assert_eq!((alone.status, &alone.body["state"]), (202, &json!("pending")), "she saw something else");
    is_stale(&erik.validate(&edit(&id, "11", Some(&first))).await, "previewHash");
    assert_eq!(app.ledger.lines(), Vec::<String>::new());
    let done = erik.validate(&edit(&id, "11", Some(&second))).await;
    done.has(200, "state", "succeeded");
    let call = app.client.call(&id).await;
    assert_eq!(call["validated_preview"]["text"], "deletes 11 and more");
    let agreed = format!("SELECT actor FROM decisions WHERE input_hash = '{second}' ORDER BY at");
    let agreed = app.rows.all(&agreed).await;
    assert_eq!(agreed, [json!({ "actor": "user:dora" }), json!({ "actor": "user:erik" })]);
}
