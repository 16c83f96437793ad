//! Refused answers: the server refuses a request that only continues, or asks the person again.

use super::{Page, no, row, yes};
use holdpoint::config::{Config, ToolRules};
use holdpoint::tools::ToolRegistry;
use holdpoint_testkit::token::with_tokens;
use holdpoint_testkit::ui::{ui_answer, ui_submit, ui_user};
use holdpoint_testkit::{ChangedPay, Embedded, JsonFields, probes};
use serde_json::json;

/// A server with a client for `alice` of `acme`. Calls of `refuse` need the approval of another person.
async fn office() -> Embedded {
    let mut app = Embedded::with(|config: &mut Config| {
        with_tokens(config);
        let rules =
            ToolRules { approve_roles: vec!["chief".to_owned()], other_person: true, ..ToolRules::default() };
        config.tools.rules.insert("refuse".to_owned(), rules);
    })
    .await;
    app.client = app.client.as_user("acme", "alice", &[]);
    app
}

const PENDING: [&str; 4] = ["pending", "-", "-", "-"];

#[tokio::test]
async fn an_answer_in_another_thread_or_from_another_user_is_ignored() {
    let app = office().await;
    let page = Page::holding(&app, &[("pay", "10")]).await;
    let other = Page::holding(&app, &[("pay", "11")]).await;
    let turn = other.posts(&page.yes()).await;
    assert_eq!(
        turn.kinds(),
        ["start", "tool-input-available", "tool-approval-request", "finish"],
        "{}",
        turn.raw
    );
    assert_eq!(turn.pending(), other.calls, "the stream shows no call of another message");
    for (tenant, user, roles) in [("acme", "bob", &["chief"][..]), ("other", "alice", &[])] {
        let bob = app.client.as_user(tenant, user, roles);
        bob.ui_turn_in(&page.thread, &page.body(&page.yes())).await.has_status(404);
        // An approver decides through the approval routes, not in a thread of another user.
        let thread = bob.thread().await;
        let refused = bob.ui_turn_in(&thread, &page.body(&page.yes())).await;
        assert_eq!(refused.refused(), (409, "nothing_to_continue".to_owned()));
        app.scene.answers("Hello.");
        let messages = page.body(&page.yes()).list("messages").clone();
        let messages = [messages, vec![ui_user("hello", "hello")]].concat();
        assert_eq!(bob.ui_turn_in(&thread, &ui_submit(&thread, &messages)).await.text(), "Hello.");
    }
    for id in [&page.calls[0], &other.calls[0]] {
        assert_eq!(row(&app, id).await, PENDING);
    }
    assert_eq!(app.ledger.lines(), Vec::<String>::new());
}

#[tokio::test]
async fn a_user_who_may_not_approve_is_refused_and_may_still_reject() {
    let app = office().await;
    let page = Page::holding(&app, &[("refuse", "10")]).await;
    for _ in 0..2 {
        assert_eq!(page.posts(&page.yes()).await.refused(), (403, "forbidden".to_owned()));
        assert_eq!(row(&app, &page.calls[0]).await, PENDING);
    }
    app.scene.answers("As you like.");
    assert_eq!(page.posts(&[no(&page.calls[0], None)]).await.text(), "As you like.");
    assert_eq!(row(&app, &page.calls[0]).await, ["rejected", "reject", "user:alice", "stream"]);
    assert_eq!(app.ledger.lines(), Vec::<String>::new());
}

#[tokio::test]
async fn an_answer_with_repeated_keys_is_refused_and_decides_nothing() {
    let app = Embedded::start().await;
    let page = Page::holding(&app, &[("pay", "10")]).await;
    let body = page.body(&page.yes()).to_string();
    let call = &page.calls[0];
    for (place, twice) in [
        (r#""approved":true"#, r#""approved":false,"approved":true"#.to_owned()),
        (
            r#""state":"approval-responded""#,
            r#""state":"output-available","state":"approval-responded""#.to_owned(),
        ),
        (&format!(r#""id":"{call}""#), format!(r#""id":"x","id":"{call}""#)),
    ] {
        assert!(body.contains(place), "{body}");
        let path = app.client.url(&format!("/qa/chat_streamed/{}", page.thread));
        let request = app.client.http.post(path).header("content-type", "application/json");
        let turn = app.client.read_ui(request.body(body.replace(place, &twice))).await;
        assert_eq!(turn.refused(), (400, "bad_request".to_owned()), "{twice}");
        assert!(turn.raw.contains("appears twice"), "{}", turn.raw);
        assert_eq!(row(&app, call).await, PENDING);
    }
    // The server does not store the other messages in the page's history.
    app.scene.answers("Paid.");
    let mut odd = page.body(&page.yes());
    odd["messages"][0] = ui_user("u", "a\0b");
    assert_eq!(app.client.ui_turn_in(&page.thread, &odd).await.text(), "Paid.");
}

#[tokio::test]
async fn refused_answers_beside_accepted_ones_are_asked_again() {
    let app = office().await;
    let page = Page::holding(&app, &[("refuse", "a"), ("pay", "b")]).await;
    let answers = [yes(&page.calls[0]), yes(&page.calls[1])];
    let turn = page.posts(&answers).await;
    let kinds = ["start", "tool-input-available", "tool-approval-request", "tool-output-available", "finish"];
    assert_eq!(turn.kinds(), kinds, "{}", turn.raw);
    assert_eq!(turn.pending(), page.calls[..1]);
    assert_eq!(row(&app, &page.calls[0]).await, PENDING);
    assert_eq!(row(&app, &page.calls[1]).await, ["succeeded", "approve", "user:alice", "stream"]);
    assert_eq!(page.posts(&answers).await.refused(), (403, "forbidden".to_owned()), "nothing else is new");
    assert_eq!((app.ledger.lines(), app.scene.requests().len()), (vec!["pay b".to_owned()], 1));
}

#[tokio::test]
async fn a_refusal_does_not_stop_a_new_message() {
    let app = office().await;
    let page = Page::holding(&app, &[("refuse", "10")]).await;
    app.scene.answers("Ask a chief.");
    let messages = page.body(&page.yes()).list("messages").clone();
    let messages = [messages, vec![ui_user("next", "why?")]].concat();
    let turn = app.client.ui_turn_in(&page.thread, &ui_submit(&page.thread, &messages)).await;
    assert_eq!((turn.status, turn.text().as_str()), (200, "Ask a chief."));
    assert_eq!(row(&app, &page.calls[0]).await, PENDING);
}

#[tokio::test]
async fn only_new_answers_count_towards_the_rate_limit() {
    let app = Embedded::with(|config| config.limits.decisions_per_minute = Some(1)).await;
    let page = Page::holding(&app, &[("pay", "1"), ("pay", "2")]).await;
    let answers = [no(&page.calls[0], None), yes(&page.calls[1])];
    let kinds = ["start", "tool-output-denied", "tool-input-available", "tool-approval-request", "finish"];
    // The second and the third request contain no new answer.
    for answers in [&answers[..], &answers[..1], &answers[..1]] {
        let turn = page.posts(answers).await;
        assert_eq!(
            (turn.kinds(), turn.pending()),
            (kinds.to_vec(), page.calls[1..].to_vec()),
            "{}",
            turn.raw
        );
    }
    let turn = page.posts(&answers).await;
    assert_eq!(turn.refused(), (429, "rate_limited".to_owned()));
    assert!(turn.raw.contains("More than 1 decisions in a minute."), "{}", turn.raw);
    let seconds: u32 = turn.headers["retry-after"].to_str().unwrap().parse().unwrap();
    assert!((1..=60).contains(&seconds), "{seconds}");
    assert_eq!(app.client.approve(&page.calls[1]).await.status, 429, "both routes share one rate limit");
    assert_eq!(row(&app, &page.calls[1]).await, PENDING);
    assert_eq!((app.ledger.lines().len(), app.rows.count("decisions").await), (0, 1));
}

#[tokio::test]
async fn at_most_limits_batch_new_answers_are_accepted_per_request() {
    let app = Embedded::with(|config| config.limits.batch = 2).await;
    let page = Page::holding(&app, &[("pay", "1"), ("pay", "2"), ("pay", "3")]).await;
    let answers: Vec<_> = page.calls.iter().map(|id| no(id, None)).collect();
    let turn = page.posts(&answers).await;
    assert_eq!((turn.all("tool-output-denied").len(), turn.pending().len()), (2, 1), "{}", turn.raw);
    assert_eq!(app.rows.count("decisions").await, 2);
    app.scene.answers("None.");
    assert_eq!(page.posts(&answers).await.text(), "None.");
    assert_eq!((app.rows.count("decisions").await, app.ledger.lines().len()), (3, 0));
}

#[tokio::test]
async fn an_approval_for_a_missing_or_changed_tool_is_refused_and_the_call_stays_pending() {
    let app = Embedded::start().await;
    let page = Page::holding(&app, &[("pay", "123456")]).await;
    let app = app.redeploy(ToolRegistry::new()).await;
    let page = Page { client: app.client.clone(), ..page };
    assert_eq!(page.posts(&page.yes()).await.refused(), (409, "tool_unavailable".to_owned()));
    let mut tools = ToolRegistry::new();
    tools.register(ChangedPay(app.ledger.clone())).unwrap();
    let app = app.redeploy(tools).await;
    let page = Page { client: app.client.clone(), ..page };
    assert_eq!(page.posts(&page.yes()).await.refused(), (409, "stale".to_owned()));
    assert_eq!(row(&app, &page.calls[0]).await, PENDING);
    let app = app.redeploy(ToolRegistry::new()).await;
    let page = Page { client: app.client.clone(), ..page };
    app.scene.answers("No.");
    assert_eq!(page.posts(&[no(&page.calls[0], None)]).await.text(), "No.");
    let app = app.redeploy(probes(&holdpoint_testkit::Ledger::new())).await;
    assert_eq!((row(&app, &page.calls[0]).await[0].as_str(), app.ledger.lines().len()), ("rejected", 0));
}

#[tokio::test]
async fn an_approval_beside_a_card_with_another_hash_is_refused_and_decides_nothing() {
    let app = Embedded::start().await;
    let page = Page::holding(&app, &[("pay", "10")]).await;
    let id = &page.calls[0];
    let hash = app.client.call(id).await.text("input_hash").to_owned();
    let card = |hash: &str| json!({ "type": "data-tool-hold", "id": id, "data": { "toolCallId": id, "inputHash": hash } });
    for other in ["0".repeat(64), format!("{hash}0"), String::new()] {
        let turn = page.posts(&[card(&other), yes(id)]).await;
        assert_eq!(turn.refused(), (409, "stale".to_owned()), "{other}: {}", turn.raw);
        assert_eq!(row(&app, id).await, PENDING);
    }
    app.scene.answers("Paid.");
    assert_eq!(page.posts(&[card(&hash), yes(id)]).await.text(), "Paid.");
    assert_eq!(app.ledger.lines(), ["pay 10"]);
}

#[tokio::test]
async fn a_rejection_beside_a_card_with_another_hash_counts() {
    let app = Embedded::start().await;
    let page = Page::holding(&app, &[("pay", "10")]).await;
    let id = &page.calls[0];
    let card = json!({ "type": "data-tool-hold", "id": id, "data": { "inputHash": "0".repeat(64) } });
    app.scene.answers("As you like.");
    assert_eq!(page.posts(&[card, no(id, None)]).await.text(), "As you like.");
    assert_eq!(row(&app, id).await[0], "rejected");
}

#[tokio::test]
async fn an_answer_for_a_call_that_was_never_held_settles_nothing() {
    let app = Embedded::start().await;
    let page = Page::holding(&app, &[("look", "a"), ("pay", "b")]).await;
    let cleared = app.rows.all("SELECT tool_call_id FROM tool_calls WHERE name = 'look'").await;
    let cleared = cleared[0].text("tool_call_id");
    let unknown = "01890a5d-ac96-774b-bcce-b302099a8057";
    let mut forged = ui_answer(&page.calls[0], "pay", true);
    forged["approval"]["approved"] = json!("true");
    let turn = page.posts(&[yes(cleared), no(unknown, None), forged]).await;
    let kinds = ["start", "tool-output-available", "tool-input-available", "tool-approval-request", "finish"];
    assert_eq!(turn.kinds(), kinds, "{}", turn.raw);
    assert_eq!(turn.pending(), page.calls);
    app.scene.answers("Paid.");
    assert_eq!(page.posts(&page.yes()).await.text(), "Paid.");
    for forged in [yes(cleared), no(unknown, None)] {
        page.posts(&[forged]).await.assert_states_only();
    }
    assert_eq!(app.ledger.lines(), ["look a", "pay b"]);
}
