//! Whole stories, from the call of a sub-agent to its answer.

use super::{
    Errand, answers, helper, hold_in, resumed, run_of_becomes, start, unwatchful, watchful, with_agents,
};
use holdpoint_testkit::runs::{
    approve, decide_in, events_of, last_words, model_requests, reject, run_becomes,
};
use holdpoint_testkit::token::with_tokens;
use holdpoint_testkit::{Embedded, JsonFields, call};
use serde_json::{Value, json};
use std::num::NonZeroU32;

const LONG_AGO: &str = "1000000";

#[tokio::test]
async fn a_childs_hold_is_decided_at_every_surface_and_both_runs_resume_by_themselves() {
    let app = start().await;
    for side in ["validate_tool", "session", "run"] {
        let (errand, hold) = Errand::held(&app).await;
        let delegated = app.client.call(&errand.call).await;
        let stands = (&delegated["state"], &delegated["validated"], &delegated["held"]);
        assert_eq!(stands, (&json!("executing"), &json!(true), &json!(false)));
        let child = errand.child(&app.client).await;
        let below = errand.child_thread(&app.client).await;
        run_becomes(&app.client, &errand.run, "waiting").await;
        run_becomes(&app.client, &child, "waiting").await;

        // The child is a thread of the session, with the task as its question. Its hold shows in every inbox.
        let thread = app.client.get(&format!("/threads/{below}")).await.body;
        assert_eq!(thread["parent_id"], json!(errand.thread), "{thread}");
        assert_eq!(thread["session_id"], json!(errand.thread), "{thread}");
        assert_eq!((&thread["title"], &thread["pending_count"]), (&json!("helper"), &json!(1)), "{thread}");
        assert_eq!(app.client.questions(&below).await, ["pay 10"]);
        let inbox = app.client.get("/approvals").await.body;
        assert_eq!(inbox["results"][0]["tool_call_id"], json!(hold), "{inbox}");
        assert_eq!(inbox["results"][0]["thread_id"], json!(below), "{inbox}");
        assert_eq!(inbox.list("results").len(), 1, "{inbox}");
        let parent = app.client.get(&format!("/runs/{}", errand.run)).await.body;
        assert_eq!(parent["pending"], json!([]), "the parent itself holds no call");

        app.scene.answers("I paid 10.").answers("All is paid.");
        let decided = match side {
            "validate_tool" => app.client.approve(&hold).await,
            "session" => decide_in(&app.client, &errand.thread, &hold, "allow_once").await,
            _ => approve(&app.client, &hold).await,
        };
        assert_eq!(decided.status, 200, "{side}: {:?}", decided.body);
        run_becomes(&app.client, &errand.run, "completed").await;
        run_becomes(&app.client, &child, "completed").await;
        assert_eq!(last_words(&app.client, &below).await, "I paid 10.");
        assert_eq!(last_words(&app.client, &errand.thread).await, "All is paid.");
        let ended = app.client.call(&errand.call).await;
        let end = (&ended["state"], &ended["result"], &ended["output"]);
        assert_eq!(end, (&json!("succeeded"), &json!("I paid 10."), &json!("I paid 10.")));
        assert_eq!(answers(&app.scene.requests().pop().unwrap()), ["I paid 10."]);

        let of_parent = [
            "run.started",
            "tool.called",
            "tool.started",
            "run.waiting",
            "tool.succeeded",
            "run.resumed",
            "run.completed",
        ];
        assert_eq!(events_of(&app.rows, &errand.run).await, of_parent);
        let of_child = [
            "run.started",
            "run.waiting",
            "run.resumed",
            "tool.called",
            "tool.requires_approval",
            "run.waiting",
            "tool.approved",
            "tool.started",
            "tool.succeeded",
            "run.resumed",
            "run.completed",
        ];
        assert_eq!(events_of(&app.rows, &child).await, of_child);
    }
    assert_eq!(app.ledger.lines(), ["pay 10", "pay 10", "pay 10"]);
    assert_eq!(model_requests(&app), 12, "four times each");
    app.rows.assert_counted().await;
}

#[tokio::test]
async fn a_sub_agent_that_asks_starts_on_approval_and_the_approver_gets_202_at_once() {
    let app = start().await;
    let (thread, id) = app.held("errand", "look").await;
    assert_eq!(app.rows.count("threads WHERE parent_id IS NOT NULL").await, 0);
    app.scene.calls(&[call("p", "pay", &json!({ "note": "10" }))]);
    let yes = app.client.approve(&id).await;
    let expected = json!({ "success": false, "toolCallId": id, "state": "executing" });
    assert_eq!((yes.status, &yes.body["state"]), (202, &expected["state"]), "{:?}", yes.body);
    let hold = hold_in(&app.client, &thread).await;
    let again = app.client.approve(&id).await;
    assert_eq!((again.status, again.header("idempotent-replayed")), (202, Some("true")), "{:?}", again.body);

    app.scene.answers("Paid below.").answers("Paid.");
    app.client.approve(&hold).await;
    run_of_becomes(&app.client, &id, "completed").await;
    assert_eq!(last_words(&app.client, &thread).await, "Paid.");
    let done = app.client.approve(&id).await;
    done.has(200, "result", "Paid below.");
    app.rows.assert_counted().await;
}

#[tokio::test]
async fn a14_a_session_grant_for_a_sub_agent_does_not_cover_the_calls_of_its_child() {
    let app = start().await;
    let (thread, id) = app.held("errand", "pay 10").await;
    app.scene.calls(&[call("p", "pay", &json!({ "note": "10" }))]);
    let yes = json!({ "toolCallId": id, "isValidated": true, "remember": "session" });
    app.client.validate(&yes).await.has_status(202);
    let hold = hold_in(&app.client, &thread).await;
    assert_eq!(
        (app.client.call(&hold).await["tool_name"].clone(), app.ledger.lines().len()),
        (json!("pay"), 0)
    );

    // The approval of that one call does not cover the same call made again.
    app.scene.calls(&[call("p", "pay", &json!({ "note": "10" }))]);
    app.client.approve(&hold).await.has_status(200);
    let again = hold_in(&app.client, &thread).await;
    assert_ne!(again, hold);
    app.scene.answers("I see.").answers("So be it.");
    app.client.reject(&again).await;
    run_of_becomes(&app.client, &id, "completed").await;
    assert_eq!(app.ledger.lines(), ["pay 10"]);
    app.rows.assert_counted().await;
}

#[tokio::test]
async fn a_rejected_sub_agent_never_starts() {
    let app = start().await;
    let (thread, id) = app.held("errand", "look").await;
    app.scene.answers("As you like.");
    reject(&app.client, &id, "not now").await.has_status(200);
    run_of_becomes(&app.client, &id, "completed").await;
    assert_eq!(last_words(&app.client, &thread).await, "As you like.");
    assert_eq!(app.rows.count("threads WHERE parent_id IS NOT NULL").await, 0);
    assert_eq!(app.client.call(&id).await.get("child_run_id"), None);
    app.rows.assert_counted().await;
}

#[tokio::test]
async fn an_edited_task_reaches_the_child_and_the_parents_model_reads_the_change() {
    let app = start().await;
    let (_, id) = app.held("errand", "look everywhere").await;
    app.scene.answers("Seen here.").answers("Told.");
    let inputs = json!({ "note": "look here" });
    let edit = json!({ "toolCallId": id, "isValidated": true, "validatedInputs": inputs });
    app.client.validate(&edit).await.has_status(202);
    run_of_becomes(&app.client, &id, "completed").await;
    let sent = "A person changed the inputs from {\"note\":\"look everywhere\"} to {\"note\":\"look here\"} before \
                approving. Seen here.";
    assert_eq!(answers(&app.scene.requests().pop().unwrap()), [sent]);
    let child = app.scene.requests().into_iter().nth(1).unwrap();
    assert!(format!("{:?}", child.messages).contains("look here"), "{:?}", child.messages);
    app.rows.assert_counted().await;
}

#[tokio::test]
async fn a_child_resumes_after_a_rejection_and_after_an_expiry() {
    let app = watchful().await;
    let (errand, hold) = Errand::held(&app).await;
    app.scene.answers("They would not.").answers("So be it.");
    app.client.reject(&hold).await.has_status(200);
    run_becomes(&app.client, &errand.run, "completed").await;
    assert_eq!(app.client.call(&errand.call).await["result"], "They would not.");

    let (errand, hold) = Errand::held(&app).await;
    app.scene.answers("Nobody answered.").answers("Then later.");
    let late = format!("UPDATE tool_calls SET expires_at = {LONG_AGO} WHERE tool_call_id = '{hold}'");
    assert_eq!(app.rows.change(&late).await, Ok(1));
    run_becomes(&app.client, &errand.run, "completed").await;
    assert_eq!(app.client.call(&hold).await["state"], "expired");
    assert_eq!(app.client.call(&errand.call).await["result"], "Nobody answered.");
    assert_eq!(app.ledger.lines(), Vec::<String>::new());
    app.rows.assert_counted().await;
}

#[tokio::test]
async fn a_child_that_fails_fails_its_call_and_the_parent_resumes() {
    let app = start().await;
    app.scene.calls(&[helper("p", "x")]).then(vec![Err("down".to_owned())]).answers("It broke.");
    let errand = Errand::begin(&app, "get help").await;
    run_becomes(&app.client, &errand.run, "completed").await;
    let failed = app.client.call(&errand.call).await;
    let sent = "The tool failed: the sub-agent broke off, and part of its task may have been done: The model could not \
                be reached, or refused.";
    assert_eq!((&failed["state"], &failed["result"]), (&json!("failed"), &json!(sent)));
    assert_eq!(last_words(&app.client, &errand.thread).await, "It broke.");
    app.rows.assert_counted().await;
}

#[tokio::test]
async fn a_task_that_cannot_be_built_fails_the_call_in_the_same_turn() {
    let app = start().await;
    app.scene.calls(&[call("p", "clumsy", &json!({ "note": "x" }))]).answers("It broke.");
    let thread = app.client.thread().await;
    let turn = app.client.send_message(&thread, "get help").await;
    assert_eq!(turn.text(), "It broke.", "{}", turn.raw);
    assert_eq!(turn.one('a')["result"]["error"], "The tool failed: the tool broke", "{}", turn.raw);
    assert_eq!(app.rows.count("threads WHERE parent_id IS NOT NULL").await, 0);
    app.rows.assert_counted().await;
}

#[tokio::test]
async fn the_parent_resumes_after_two_children_and_a_tool_have_ended() {
    let app = start().await;
    let look = call("c", "look", &json!({ "note": "3" }));
    app.scene.calls(&[helper("a", "1"), helper("b", "2"), look]);
    app.scene.answers("Done below.").answers("Done below.").answers("All done.");
    let thread = app.client.thread().await;
    let turn = app.client.send_message(&thread, "get help").await;
    assert_eq!(turn.one('a')["result"], json!({ "seen": "3" }), "{}", turn.raw);
    let run = turn.headers["x-run-id"].to_str().unwrap();
    run_becomes(&app.client, run, "completed").await;
    assert_eq!(last_words(&app.client, &thread).await, "All done.");
    assert_eq!(
        answers(&app.scene.requests().pop().unwrap()),
        ["Done below.", "Done below.", "{\"seen\":\"3\"}"]
    );
    assert_eq!(model_requests(&app), 4);
    assert_eq!(resumed(&app.rows, run).await, 1);
    app.rows.assert_counted().await;
}

#[tokio::test]
async fn the_parent_waits_for_both_its_child_and_its_own_hold() {
    let app = start().await;
    let pay = call("b", "pay", &json!({ "note": "2" }));
    app.scene.calls(&[helper("a", "1"), pay]);
    app.scene.answers("Done below.");
    let thread = app.client.thread().await;
    let turn = app.client.send_message(&thread, "get help").await;
    let [hold] = turn.pending().try_into().unwrap();
    let delegated = turn.all('9')[0].text("toolCallId").to_owned();
    app.client.becomes(&delegated, "succeeded").await;
    assert_eq!(model_requests(&app), 2, "the parent waits for the person");
    app.scene.answers("All done.");
    approve(&app.client, &hold).await;
    run_of_becomes(&app.client, &hold, "completed").await;
    assert_eq!(answers(&app.scene.requests().pop().unwrap()), ["Done below.", "{\"paid\":\"2\"}"]);
    app.rows.assert_counted().await;
}

#[tokio::test]
async fn sub_agents_are_nested_up_to_the_limit_and_not_beyond_it() {
    let app = with_agents(|config| {
        unwatchful(config);
        config.limits.agent_depth = NonZeroU32::new(2).unwrap();
    })
    .await;
    app.scene.calls(&[helper("p", "1")]).calls(&[helper("p", "2")]).calls(&[helper("p", "3")]);
    app.scene.answers("Too deep.").answers("They could not.").answers("So be it.");
    let errand = Errand::begin(&app, "get help").await;
    run_becomes(&app.client, &errand.run, "completed").await;
    assert_eq!(last_words(&app.client, &errand.thread).await, "So be it.");
    assert_eq!(app.client.call(&errand.call).await["result"], "They could not.");
    assert_eq!(app.rows.count("threads WHERE parent_id IS NOT NULL").await, 2);
    let sessions = app.rows.count(&format!("threads WHERE session_id = '{}'", errand.thread)).await;
    assert_eq!(sessions, 3, "all threads belong to one session");
    let sent = answers(&app.scene.requests().into_iter().nth(3).unwrap());
    let too_deep = "The tool failed: sub-agents may not be nested any deeper here (limits.agent_depth); nothing was begun";
    assert_eq!(sent, [too_deep]);
    app.rows.assert_counted().await;
}

/// A server that allows a run at most this many sub-agents.
async fn with_few_agents(most: u32) -> Embedded {
    with_agents(|config| {
        unwatchful(config);
        config.limits.agents_per_run = NonZeroU32::new(most).unwrap();
    })
    .await
}

const TOO_MANY: &str =
    "The tool failed: this run may begin no more sub-agents (limits.agents_per_run); nothing was begun";

#[tokio::test]
async fn the_limit_of_a_runs_sub_agents_includes_nested_ones() {
    let app = with_few_agents(2).await;
    app.scene.calls(&[helper("p", "1")]).calls(&[helper("p", "2")]).calls(&[helper("p", "3")]);
    app.scene.answers("Too many.").answers("They could not.");
    // Sub-agents of earlier steps count.
    app.scene.calls(&[helper("q", "4")]).answers("So be it.");
    let errand = Errand::begin(&app, "get help").await;
    run_becomes(&app.client, &errand.run, "completed").await;
    assert_eq!(last_words(&app.client, &errand.thread).await, "So be it.");
    assert_eq!(app.rows.count("threads WHERE parent_id IS NOT NULL").await, 2);
    let requests = app.scene.requests();
    assert_eq!(answers(&requests[3]), [TOO_MANY]);
    assert_eq!(answers(&requests[6]), ["They could not.", TOO_MANY]);

    // The user's next message starts another run.
    app.scene.calls(&[helper("r", "5")]).answers("Done.").answers("All done.");
    let turn = app.client.send_message(&errand.thread, "again").await;
    run_becomes(&app.client, turn.headers["x-run-id"].to_str().unwrap(), "completed").await;
    assert_eq!(last_words(&app.client, &errand.thread).await, "All done.");
    app.rows.assert_counted().await;
}

#[tokio::test]
async fn sub_agents_started_concurrently_in_several_threads_do_not_exceed_the_limit() {
    let app = with_few_agents(5).await;
    // The root asks for three sub-agents, and each of those asks for three at the same time.
    let three = [helper("a", "1"), helper("b", "2"), helper("c", "3")];
    for _ in 0..4 {
        app.scene.calls(&three);
    }
    for _ in 0..20 {
        app.scene.answers("Done.");
    }
    let thread = app.client.thread().await;
    let turn = app.client.send_message(&thread, "get help").await;
    run_becomes(&app.client, turn.headers["x-run-id"].to_str().unwrap(), "completed").await;
    assert_eq!(app.rows.count("threads WHERE parent_id IS NOT NULL").await, 5);
    assert_eq!(app.rows.count(&format!("tool_calls WHERE result = '{TOO_MANY}'")).await, 7);
    app.rows.assert_counted().await;
}

#[tokio::test]
async fn a_hold_of_the_innermost_child_shows_in_the_session_of_the_root() {
    let app = start().await;
    app.scene.calls(&[helper("p", "1")]).calls(&[helper("p", "2")]);
    app.scene.calls(&[call("p", "pay", &json!({ "note": "10" }))]);
    let errand = Errand::begin(&app, "get help").await;
    let hold = hold_in(&app.client, &errand.thread).await;
    app.scene.answers("Paid.").answers("It is paid.").answers("All is paid.");
    decide_in(&app.client, &errand.thread, &hold, "allow_once").await.has_status(200);
    run_becomes(&app.client, &errand.run, "completed").await;
    assert_eq!(app.client.call(&errand.call).await["result"], "It is paid.");
    app.rows.assert_counted().await;
}

#[tokio::test]
async fn a_child_has_its_own_instructions_and_no_tool_that_its_parent_lacks() {
    let app = start().await;
    app.scene.calls(&[call("p", "clerk", &json!({ "note": "x" }))]).answers("Found.").answers("Good.");
    let errand = Errand::begin(&app, "look it up").await;
    run_becomes(&app.client, &errand.run, "completed").await;
    let [first, child, last] = app.scene.requests().try_into().unwrap();
    assert_eq!(child.system.as_deref(), Some("You are a clerk."));
    let names: Vec<_> = child.tools.iter().map(|tool| tool.name.as_str()).collect();
    assert_eq!(names, ["look"]);
    assert_eq!((&first.system, &first.tools), (&last.system, &last.tools));

    // The child gets no tool that the parent's run was not given.
    app.scene.calls(&[call("q", "clerk", &json!({ "note": "x" }))]).answers("Nothing.").answers("Pity.");
    let thread = app.client.thread().await;
    let turn =
        app.client.turn(&thread, &json!({ "content": "look", "tool_selection": ["clerk", "pay"] })).await;
    let run = turn.headers["x-run-id"].to_str().unwrap();
    run_becomes(&app.client, run, "completed").await;
    let child = app.scene.requests().into_iter().nth(4).unwrap();
    assert!(child.tools.is_empty(), "{:?}", child.tools);
    app.rows.assert_counted().await;
}

#[tokio::test]
async fn a_session_grant_covers_the_calls_of_a_child() {
    let app = start().await;
    let thread = app.client.thread().await;
    let first = app.hold_in(&thread, "pay", "1").await;
    app.scene.answers("Paid.");
    decide_in(&app.client, &thread, &first, "allow_session").await.has_status(200);
    run_of_becomes(&app.client, &first, "completed").await;
    app.scene.calls(&[helper("p", "pay 2")]).calls(&[call("p", "pay", &json!({ "note": "2" }))]);
    app.scene.answers("Paid below.").answers("Both paid.");
    let turn = app.client.send_message(&thread, "get help").await;
    run_becomes(&app.client, turn.headers["x-run-id"].to_str().unwrap(), "completed").await;
    assert_eq!(app.ledger.lines(), ["pay 1", "pay 2"]);
    app.rows.assert_counted().await;
}

#[tokio::test]
async fn a_child_is_hidden_from_other_users_and_its_calls_run_for_its_own_user() {
    let mut app = with_agents(with_tokens).await;
    let (mallory, bob) = (app.client.as_user("other", "alice", &[]), app.client.as_user("acme", "bob", &[]));
    app.client = app.client.as_user("acme", "alice", &[]);
    let (errand, hold) = Errand::held(&app).await;
    let child = errand.child(&app.client).await;
    let below = errand.child_thread(&app.client).await;
    for other_user in [&mallory, &bob] {
        for path in [
            format!("/threads/{below}"),
            format!("/threads/{below}/messages"),
            format!("/runs/{child}"),
            format!("/tool_calls/{hold}"),
            format!("/tool_calls/{}", errand.call),
            format!("/sessions/{}/approvals", errand.thread),
        ] {
            assert_eq!(other_user.get(&path).await.status, 404, "{path}");
        }
        assert_eq!(other_user.get("/approvals").await.body["results"], json!([]));
        other_user.approve(&hold).await.has_status(404);
        let cancel = other_user.post(&format!("/runs/{child}/cancel"), &Value::Null).await;
        cancel.has_status(404);
    }
    let owners =
        app.rows.all("SELECT DISTINCT tenant_id, user_id FROM threads WHERE parent_id IS NOT NULL").await;
    assert_eq!(owners, [json!({ "tenant_id": "acme", "user_id": "alice" })]);
    app.scene.answers("Paid.").answers("Done.");
    app.client.approve(&hold).await.has_status(200);
    run_becomes(&app.client, &errand.run, "completed").await;
    app.rows.assert_counted().await;
}

#[tokio::test]
async fn a_sub_agent_is_listed_like_any_other_tool() {
    let app = start().await;
    let helper = app.client.get("/tools/helper").await.body;
    assert_eq!((&helper["hil"], &helper["idempotent"]), (&json!(false), &json!(true)), "{helper}");
    let (_, id) = app.held("errand", "look").await;
    assert_eq!(app.client.call(&id).await["risk_level"], "high");
    let run = app.client.run_of(&id).await;
    assert_eq!(app.client.get(&format!("/runs/{run}")).await.body["pending"], json!([id]));
    app.rows.assert_counted().await;
}
