//! What tools say about their progress while their calls run.

use super::sessions::Session;
use holdpoint_testkit::{Client, JsonFields, eventually};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Waits until the call shows this message.
async fn says(client: &Client, id: &str, message: &str) -> Value {
    let shown = async || Some(client.call(id).await).filter(|call| call["progress"]["message"] == message);
    eventually("the report is on the call", shown).await
}

/// The events of the call of this type.
async fn events(client: &Client, id: &str, event_type: &str) -> Vec<Value> {
    let listed = client.get(&format!("/tool_calls/{id}/events")).await;
    listed.has_status(200);
    let results = listed.body.list("results").iter();
    results.filter(|event| event["type"] == event_type).cloned().collect()
}

#[tokio::test]
async fn the_last_report_of_a_call_is_on_its_card_and_in_its_events() {
    let mut session = Session::start(&json!({})).await;
    let ann = session.ann.clone();
    let id = session.call(&ann, "slow").await;
    assert_eq!(ann.call(&id).await.get("progress"), None);
    session.does(&json!([{ "say": "slow", "words": ["opens", "copies <b>\u{0}"], "total": 7 }]));
    let call = says(&ann, &id, "copies <b>\u{fffd}").await;
    assert_eq!(
        (&call["state"], &call["progress"]["done"], &call["progress"]["total"]),
        (&json!("executing"), &json!(2.0), &json!(7.0))
    );
    assert!(call["progress"]["at"].is_string());
    let thread = call.text("thread_id");
    let messages = ann.get(&format!("/threads/{thread}/messages")).await.body.to_string();
    assert!(messages.contains("copies <b>"), "{messages}");
    let [event] = &events(&ann, &id, "tool.progressed").await[..] else { panic!("one event") };
    assert_eq!(event["data"]["progress"]["message"], "copies <b>\u{fffd}");
    assert_eq!((&event["data"]["attempt"], &event["data"]["state"]), (&json!(1), &Value::Null));

    // The last one is stored with the outcome, if it is not stored yet. What comes after the outcome changes nothing.
    session.does(&json!([{ "say": "slow", "words": ["closes"] }, { "fail": "slow" }, { "say": "slow", "words": ["late"] }]));
    let unknown = ann.becomes(&id, "interrupted").await;
    assert_eq!((&unknown["progress"]["message"], unknown["progress"].get("total")), (&json!("closes"), None));
    let [ended] = &events(&ann, &id, "tool.interrupted").await[..] else { panic!("one event") };
    assert_eq!(ended["data"]["progress"]["message"], "closes");
    let next = session.call(&ann, "next").await;
    session.does(&json!([{ "say": "slow", "words": ["too late"] }, { "say": "next", "words": ["in time"] }]));
    says(&ann, &next, "in time").await;
    assert_eq!(ann.call(&id).await["progress"]["message"], "closes");
    assert_eq!(events(&ann, &id, "tool.progressed").await.len(), 1);
}

#[tokio::test]
async fn a_flood_of_reports_is_a_few_writes_and_the_last_one_stays() {
    let mut session = Session::start(&json!({})).await;
    let ann = session.ann.clone();
    let rows = &session.server.rows;
    rows.change("CREATE TABLE written (n INTEGER)").await.unwrap();
    let count = "INSERT INTO written (n) VALUES (1)";
    let counts = if rows.is_postgres() {
        vec![
            format!("CREATE FUNCTION counts() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$ BEGIN {count}; RETURN NULL; END $$"),
            "CREATE TRIGGER counted AFTER UPDATE OF progress ON tool_calls FOR EACH ROW EXECUTE FUNCTION counts()".to_owned(),
        ]
    } else {
        vec![format!("CREATE TRIGGER counted AFTER UPDATE OF progress ON tool_calls BEGIN {count}; END")]
    };
    for statement in counts {
        rows.change(&statement).await.unwrap();
    }
    let id = session.call(&ann, "flood").await;
    let words: Vec<String> = (0..10_000).map(|n| format!("row {n} {}", "x".repeat(n % 700))).collect();
    session.does(&json!([{ "say": "flood", "words": words, "total": 10_000 }, { "finish": "flood" }]));
    let call = ann.becomes(&id, "succeeded").await;
    let last = call["progress"].text("message");
    assert!(last.starts_with("row 9999 xxx") && last.chars().count() <= 500, "{last}");
    assert_eq!(call["progress"]["done"], 10_000.0);
    // Two or three while the messages are read, and one with the outcome.
    let written = session.server.rows.count("written").await;
    assert!((1..=5).contains(&written), "{written} writes");
    assert!(events(&ann, &id, "tool.progressed").await.len() <= 4);
}

#[tokio::test]
async fn a_long_report_is_cut() {
    let mut session = Session::start(&json!({})).await;
    let ann = session.ann.clone();
    let id = session.call(&ann, "long").await;
    session.does(&json!([{ "say": "long", "words": ["ü".repeat(501)] }]));
    says(&ann, &id, &format!("{} […cut]", "ü".repeat(493))).await;
}

#[tokio::test]
async fn a_task_shows_what_its_server_says_about_it() {
    let mut session = Session::start(&json!({})).await;
    let ann = session.ann.clone();
    let id = session.call(&ann, "job").await;
    session.does(&json!([{ "task": "job" }]));
    says(&ann, &id, "working on job").await;
    assert!(ann.call(&id).await["result_deadline"].is_string(), "it is a task");
}

#[tokio::test]
async fn a_report_that_cannot_be_stored_keeps_no_outcome_from_being_stored() {
    let mut session = Session::start(&json!({})).await;
    let ann = session.ann.clone();
    let rows = &session.server.rows;
    // Each report names a table that does not exist.
    let fails = "INSERT INTO nowhere (n) VALUES (1)";
    let guards = if rows.is_postgres() {
        vec![
            format!("CREATE FUNCTION fails() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {fails}; RETURN NULL; END $$"),
            "CREATE TRIGGER failing AFTER UPDATE OF progress ON tool_calls FOR EACH ROW EXECUTE FUNCTION fails()".to_owned(),
        ]
    } else {
        vec![format!("CREATE TRIGGER failing AFTER UPDATE OF progress ON tool_calls BEGIN {fails}; END")]
    };
    for statement in guards {
        rows.change(&statement).await.unwrap();
    }
    let id = session.call(&ann, "told").await;
    session.does(&json!([{ "say": "told", "words": ["in vain"] }, { "finish": "told" }]));
    let began = Instant::now();
    let call = ann.becomes(&id, "succeeded").await;
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    assert_eq!(call.get("progress"), None, "{call}");
}
