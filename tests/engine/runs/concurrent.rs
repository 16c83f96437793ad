//! Concurrent decisions of the last calls of a run, at any process, beside continuations by clients: the run
//! resumes once.

use super::{approve, decide_in, last_words, model_requests, run_becomes};
use holdpoint::config::Config;
use holdpoint_testkit::{Embedded, call, postgres};
use serde_json::json;
use std::time::Duration;

const ROUNDS: usize = 8;
/// The words of the model after the outcomes.
const WORDS: &str = "All told.";

fn watchful(config: &mut Config) {
    config.approval.sweep = Duration::from_millis(20);
}

async fn alone() -> Embedded {
    Embedded::with(watchful).await
}

async fn side_by_side() -> [Embedded; 2] {
    let url = postgres().await;
    let start = async || {
        let at = |config: &mut Config| {
            watchful(config);
            config.database.url = url.clone().into();
        };
        Embedded::with(at).await
    };
    [start().await, start().await]
}

/// Asserts that a page that posted saw the answer, came too late for it, or came before the last decision.
fn told_late_or_asked(turn: &holdpoint_testkit::Turn) {
    let states = turn.text().is_empty() && !turn.raw.is_empty();
    assert!(turn.status == 200 && (turn.text() == WORDS || states), "{}", turn.raw);
}

async fn decided_everywhere_at_once(at: [&Embedded; 2]) {
    let [one, other] = at;
    let same = std::ptr::eq(one, other);
    let asked_at_both = || model_requests(one) + if same { 0 } else { model_requests(other) };
    let mut effects = Vec::new();
    for round in 0..ROUNDS {
        let thread = one.client.thread().await;
        let notes: Vec<_> = (0..4).map(|n| format!("{round}-{n}")).collect();
        let calls: Vec<_> = notes.iter().map(|note| call(note, "pay", &json!({ "note": note }))).collect();
        one.scene.calls(&calls);
        let ids = one.client.send_message(&thread, "pay").await.pending();
        let run = one.client.run_of(&ids[0]).await;
        let before = asked_at_both();
        one.scene.answers(WORDS);
        if !same {
            other.scene.answers(WORDS);
        }
        let resume = json!({ "toolCallId": ids[2], "isValidated": true, "resume": true });
        let reject = json!({ "toolCallId": ids[3], "isValidated": false, "resume": true });
        let (at_run, again, in_session, by_page, rejected, posted, mounted) = tokio::join!(
            approve(&one.client, &ids[0]),
            approve(&other.client, &ids[0]),
            decide_in(&other.client, &thread, &ids[1], "allow_once"),
            one.client.validate(&resume),
            other.client.validate(&reject),
            one.client.resume(&thread),
            other
                .client
                .read(other.client.http.get(other.client.url(&format!("/qa/chat_streamed/{thread}")))),
        );
        for answer in [at_run, again, in_session, by_page, rejected] {
            answer.has(200, "success", true);
        }
        told_late_or_asked(&posted);
        assert_eq!(mounted.status, 200, "{}", mounted.raw);
        run_becomes(&other.client, &run, "completed").await;
        assert_eq!(last_words(&one.client, &thread).await, WORDS);
        assert_eq!(asked_at_both(), before + 1, "round {round}: one continuation");
        let resumed = format!("events WHERE run_id = '{run}' AND type = 'run.resumed'");
        assert_eq!(one.rows.count(&resumed).await, 1);
        effects.extend(notes[..3].iter().map(|note| format!("pay {note}")));
        for app in at {
            app.scene.forget();
        }
    }
    let mut ran = one.ledger.lines();
    if !same {
        ran.extend(other.ledger.lines());
    }
    ran.sort();
    assert_eq!(ran, effects);
}

#[tokio::test]
async fn calls_of_a_run_decided_everywhere_at_once_have_one_continuation() {
    let app = alone().await;
    decided_everywhere_at_once([&app, &app]).await;
}

#[tokio::test]
async fn on_postgres_calls_of_a_run_decided_at_two_processes_at_once_have_one_continuation() {
    let [one, other] = side_by_side().await;
    decided_everywhere_at_once([&one, &other]).await;
}
