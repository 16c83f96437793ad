//! The console in a real Chromium (`tests/browser/console.mjs`). Each test runs one scenario.

mod around;
mod definitions;
mod files;
mod seen;
mod sign_in;
mod views;

use holdpoint::config::{Config, ExactNumbers, ToolRules};
use holdpoint_testkit::console::play;
use holdpoint_testkit::{Embedded, Process, call, eventually, token};
use serde_json::json;

fn roles(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// A server with tokens, where this number of chiefs approves payments.
async fn office(approvals: u8) -> Embedded {
    Embedded::with(move |config: &mut Config| {
        token::with_tokens(config);
        config.auth.operator_roles = roles(&["admin"]);
        let approved = ToolRules { approve_roles: roles(&["chief"]), approvals, ..ToolRules::default() };
        config.tools.rules.insert("pay".to_owned(), approved);
    })
    .await
}

#[tokio::test]
async fn e15_a_call_is_approved_with_two_actions_and_a_press_on_a_new_card_does_nothing() {
    let app = Embedded::start().await;
    let (_, id) = app.held("pay", "10").await;
    play("approve", &app.client.base, json!({})).await;
    assert_eq!(app.ledger.lines(), ["pay 10"]);
    assert_eq!(app.rows.count("decisions").await, 1);
    // The server continues the run: no page has to.
    let run = app.client.run_of(&id).await;
    let ended =
        async || (app.client.get(&format!("/runs/{run}")).await.body["status"] != "waiting").then_some(());
    eventually("the run goes on", ended).await;
}

#[tokio::test]
async fn a_call_is_denied_with_a_reason_by_the_keyboard_alone() {
    let app = Embedded::start().await;
    let (_, older) = app.held("pay", "1").await;
    app.held("pay", "2").await;
    play("keyboard", &app.client.base, json!({})).await;
    let decision = app.client.call(&older).await["decision"].clone();
    assert_eq!(
        (&decision["decision"], &decision["reason"]),
        (&json!("reject"), &json!("Too much.\nAsk <b>again</b>."))
    );
    assert!(app.ledger.lines().is_empty());
}

#[tokio::test]
async fn edited_inputs_keep_the_digits_of_large_numbers() {
    let app = Embedded::with(|config| config.approval.exact_numbers = ExactNumbers::Allow).await;
    let mut tools = holdpoint_testkit::probes(&app.ledger);
    tools.register(holdpoint_testkit::Count(app.ledger.clone())).unwrap();
    let app = app.redeploy_with(tools, |config| config.approval.exact_numbers = ExactNumbers::Allow).await;
    app.scene.calls(&[call("c-1", "count", &json!({ "to": 9_007_199_254_740_993_u64 }))]);
    let thread = app.client.thread().await;
    let turn = app.client.send_message(&thread, "count").await;
    let facts = json!({ "proposed": "9007199254740993", "edited": "18446744073709551615" });
    play("edit", &app.client.base, facts).await;
    assert_eq!(app.ledger.lines(), ["count 18446744073709551615"]);
    assert_eq!(app.client.call(&turn.pending()[0]).await["decision"]["edited"], true);
}

#[tokio::test]
async fn f12_markup_and_hidden_characters_in_every_field_have_no_effect() {
    let app = Embedded::start().await;
    let markup = r#"<img src=x onerror="alert(1)"><script>window.planted=1</script>"#;
    let (_, id) = app.held("pay", &format!("{markup}\u{202e}\u{200b}\u{e0041}")).await;
    play("planted", &app.client.base, json!({ "markup": markup })).await;
    assert_eq!(app.client.call(&id).await["decision"]["reason"], markup);
}

#[tokio::test]
async fn of_two_approvers_at_once_one_decides_and_the_other_learns_it() {
    let mut app = office(1).await;
    app.client = app.client.as_user("acme", "<b>alice</b>", &[]);
    let (_, id) = app.held("pay", "10").await;
    let chief = |user: &str| token::token("acme", user, &["chief"]);
    let facts = json!({ "carol": chief("carol"), "dave": chief("dave"), "erin": chief("erin") });
    play("two", &app.client.base, facts).await;
    let ran = app.client.call(&id).await["state"] == "succeeded";
    assert_eq!(app.ledger.lines().len(), usize::from(ran));
    assert_eq!(app.rows.count("decisions").await, 1);
}

#[tokio::test]
async fn a_call_that_two_people_have_to_approve_shows_who_did() {
    let mut app = office(2).await;
    app.client = app.client.as_user("acme", "alice", &[]);
    app.held("pay", "10").await;
    let chief = |user: &str| token::token("acme", user, &["chief"]);
    play("votes", &app.client.base, json!({ "carol": chief("carol"), "dave": chief("dave") })).await;
    assert_eq!(app.ledger.lines(), ["pay 10"]);
}

#[tokio::test]
async fn a_refused_decision_says_why_and_whether_to_repeat_it() {
    let app = Embedded::start().await;
    app.held("pay", "1").await;
    app.held("pay", "2").await;
    play("late", &app.client.base, json!({})).await;
    assert!(app.ledger.lines().is_empty());
    assert_eq!(app.rows.count("tool_calls WHERE state = 'rejected'").await, 1);
}

#[tokio::test]
async fn all_calls_of_one_tool_are_approved_with_the_hashes_that_were_shown() {
    let app = Embedded::start().await;
    app.held("refuse", "0").await;
    app.held("pay", "1").await;
    let (_, denied) = app.held("pay", "2").await;
    app.held("pay", "3").await;
    play("batch", &app.client.base, json!({ "denied": denied })).await;
    let mut lines = app.ledger.lines();
    lines.sort();
    assert_eq!(lines, ["pay 1", "pay 3"]);
}

#[tokio::test]
async fn an_approval_is_remembered_as_its_facts_say_and_revoked() {
    let app = Embedded::start().await;
    let (thread, third) = app.held("pay", "/etc/c").await;
    let second = app.hold_in(&thread, "pay", "/srv/data/b").await;
    let first = app.hold_in(&thread, "pay", "/srv/data/a").await;
    let hash = app.client.call(&second).await["input_hash"].clone();
    let facts = json!({ "first": first, "second": second, "third": third, "hash": hash });
    play("remember", &app.client.base, facts).await;
    let grants = app.client.get(&format!("/sessions/{thread}/grants")).await;
    assert_eq!(grants.body["results"], json!([]));
    assert_eq!(app.rows.count("decisions WHERE remember = 'session'").await, 2);
    assert_eq!(app.ledger.lines(), ["pay /srv/data/a", "pay /srv/data/b", "pay /etc/c"]);
}

#[tokio::test]
async fn new_calls_are_announced_and_nothing_moves_on_sqlite() {
    let dir = tempfile::tempdir().unwrap();
    let server = Process::start(dir.path(), &[]).await;
    play("live", &server.client.base, json!({})).await;
}

#[tokio::test]
async fn of_ten_thousand_waiting_calls_the_first_page_shows_at_most_two_hundred_on_sqlite() {
    const WAITING: u64 = 10_000;
    let dir = tempfile::tempdir().unwrap();
    let app = Embedded::on_sqlite(&dir).await;
    let (_, one) = app.held("pay", "one of many").await;
    let like_the_one = format!(
        "WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < {WAITING})
         INSERT INTO tool_calls (tool_call_id, thread_id, tenant_id, message_id, step, ordinal, run_id, provider_call_id,
             wire_call_id, name, arguments, schema_hash, held, idempotent, risk_level, reason, state, exec_attempt,
             created_at, expires_at, listed_for)
         SELECT substr(tool_call_id, 1, 24) || printf('%012x', n), thread_id, tenant_id, message_id, step, n, run_id,
             printf('%012x', n), printf('%012x', n), name, arguments, schema_hash, held, idempotent, risk_level, reason,
             state, exec_attempt, created_at, expires_at, listed_for
         FROM tool_calls, numbers WHERE tool_call_id = '{one}'"
    );
    assert_eq!(app.rows.change(&like_the_one).await, Ok(WAITING));
    play("many", &app.client.base, json!({})).await;
}

#[tokio::test]
async fn d11_a_server_with_tokens_asks_for_one_and_the_tab_alone_keeps_it() {
    let mut app = office(1).await;
    app.client = app.client.as_user("acme", "alice", &[]);
    app.held("pay", "10").await;
    let facts = json!({
        "bob": token::token("acme", "bob", &[]),
        "oscar": token::token("acme", "oscar", &["admin"]),
    });
    play("token", &app.client.base, facts).await;
}

#[tokio::test]
async fn the_progress_of_a_running_call_is_on_its_card() {
    let app = holdpoint_testkit::workers::start().await;
    let (_, id) = app.held("ship", "1").await;
    let dir = tempfile::tempdir().unwrap();
    let seen = dir.path().join("seen");
    let facts = json!({ "seen": seen });
    let works = async {
        let job = holdpoint_testkit::workers::Job::of(
            &holdpoint_testkit::workers::ask(&app.client, &["ship"], 60).await,
        )
        .unwrap();
        let progress = json!({ "message": "packs <b>\u{202e}", "done": 3, "total": 7 });
        let body = json!({ "permit": job.permit, "progress": progress });
        app.client.post(&format!("/tool_calls/{id}/renew"), &body).await.has_status(200);
        eventually("the page shows it", async || seen.exists().then_some(())).await;
        job.succeed(&app.client, &json!("done")).await;
    };
    tokio::join!(play("progress", &app.client.base, facts), works);
}

#[tokio::test]
async fn the_outcome_of_a_running_call_appears_by_itself() {
    let app = Embedded::start().await;
    app.held("wait_for_me", "1").await;
    let dir = tempfile::tempdir().unwrap();
    let release = dir.path().join("release");
    let facts = json!({ "release": release });
    let released = async {
        eventually("the page shows that it runs", async || release.exists().then_some(())).await;
        app.ledger.release.add_permits(1);
    };
    tokio::join!(play("running", &app.client.base, facts), released);
    assert_eq!(app.ledger.lines(), ["wait_for_me 1"]);
}
