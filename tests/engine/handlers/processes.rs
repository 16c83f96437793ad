//! A handler in one process, with other processes on the same Postgres.

use super::{desk, pays, words};
use holdpoint::config::Config;
use holdpoint::handlers::{Deferred, HandlerAnswer};
use holdpoint_testkit::runs::{last_words, run_becomes};
use holdpoint_testkit::{Embedded, call, eventually, postgres};
use serde_json::json;
use std::time::Duration;

#[tokio::test]
async fn on_postgres_a_page_attaches_at_another_process_and_a_person_decides_there() {
    let url = postgres().await;
    let change = |config: &mut Config| {
        config.database.url = url.clone().into();
        config.approval.lease = Duration::from_secs(6);
    };
    let (desk, questions) = desk();
    let asks = Embedded::with_handler(desk, change).await;
    let other = Embedded::with_handler(Deferred, change).await;
    for by_person in [false, true] {
        let thread = asks.client.thread().await;
        pays(&asks, &["1", "2"], "All told.");
        let path = format!("/qa/chat_streamed/{thread}");
        let reads = async {
            let (first, second) = (questions.next().await, questions.next().await);
            let mut reads = Vec::new();
            reads.push(other.client.http.get(other.client.url(&path)).send().await.unwrap());
            let ui = other.client.http.get(other.client.url(&format!("{path}/stream")));
            reads.push(ui.header("x-stream-protocol", "ui-v6").send().await.unwrap());
            let no = second.id();
            second.answer(HandlerAnswer::denied("no"));
            if by_person {
                assert_eq!(other.client.approve(&first.id()).await.body["state"], "succeeded");
                first.until_over().await;
            } else {
                first.answer(HandlerAnswer::approved());
            }
            other.client.becomes(&no, "rejected").await;
            let ui = reads.pop().unwrap();
            let data = reads.pop().unwrap();
            tokio::join!(other.client.read_on(data), other.client.read_ui_on(ui))
        };
        let (turn, (read, ui)) = tokio::join!(asks.client.send_message(&thread, "pay"), reads);
        assert_eq!(turn.text(), "All told.", "{}", turn.raw);
        assert_eq!(read.text(), "All told.", "{}", read.raw);
        assert_eq!(read.codes().matches('e').count(), 3, "{}", read.raw);
        for read in [&turn, &read] {
            let mut last = words(read);
            let last = last.split_off(last.len() - 2);
            assert!(last.contains(&"approved") || last.contains(&"rejected"), "{}", read.raw);
            assert_eq!(read.all('a').len(), 2, "{}", read.raw);
        }
        assert_eq!(ui.text(), "All told.", "{}", ui.raw);
        assert_eq!(
            (ui.all("tool-output-available").len(), ui.all("tool-output-denied").len()),
            (1, 1),
            "{}",
            ui.raw
        );
    }
}

#[tokio::test]
async fn on_postgres_a_call_of_a_dead_process_with_a_handler_is_decided_elsewhere() {
    let url = postgres().await;
    let change = |config: &mut Config| {
        config.database.url = url.clone().into();
        config.approval.sweep = Duration::from_millis(20);
    };
    let (desk, questions) = desk();
    let asks = Embedded::with_handler(desk, change).await;
    let other = Embedded::with_handler(Deferred, change).await;
    let thread = asks.client.thread().await;
    pays(&asks, &["10"], "Never said.");
    let _response = asks.client.begin(&thread, &json!({ "content": "pay" })).await;
    let question = questions.next().await;
    let id = question.id();
    // Simulates the death of the turn's process: the lease ends, and a sweeper closes the turn.
    let over = async || {
        asks.rows.change("UPDATE runs SET lease_until = 1 WHERE status = 'running'").await.unwrap();
        let runs = asks.rows.all("SELECT status FROM runs").await;
        (runs[0]["status"] == "failed").then_some(())
    };
    eventually("the turn is closed", over).await;
    assert_eq!(other.client.call(&id).await["state"], "pending");
    assert_eq!(other.client.approve(&id).await.body["state"], "succeeded");
    other.scene.answers("Paid, elsewhere.");
    assert_eq!(other.client.resume(&thread).await.text(), "Paid, elsewhere.");
    drop(question);
}

#[tokio::test]
async fn on_postgres_a_turn_that_was_reaped_leaves_its_run_to_the_resumer() {
    let url = postgres().await;
    let change = |config: &mut Config| config.database.url = url.clone().into();
    let (desk, questions) = desk();
    // Only the other process reaps dead turns during this test.
    let rarely = |config: &mut Config| {
        change(config);
        config.approval.sweep = Duration::from_hours(1);
    };
    let often = |config: &mut Config| {
        change(config);
        config.approval.sweep = Duration::from_millis(200);
    };
    let asks = Embedded::with_handler(desk, rarely).await;
    let other = Embedded::with_handler(Deferred, often).await;
    for note in ["1", "2", "3"] {
        let thread = asks.client.thread().await;
        asks.scene.calls(&[call(note, "wait_for_me", &json!({ "note": note }))]);
        let _response = asks.client.begin(&thread, &json!({ "content": "wait" })).await;
        let id = questions.answer(HandlerAnswer::approved()).await;
        asks.client.becomes(&id, "executing").await;
        let run = asks.client.run_of(&id).await;
        let lapse = format!("UPDATE runs SET lease_until = 1 WHERE run_id = '{run}'");
        assert_eq!(asks.rows.change(&lapse).await, Ok(1));
        run_becomes(&asks.client, &run, "failed").await;
        // Either process may resume the run.
        asks.scene.answers("Waited.");
        other.scene.answers("Waited.");
        asks.ledger.release.add_permits(1);
        run_becomes(&asks.client, &run, "completed").await;
        assert_eq!(last_words(&asks.client, &thread).await, "Waited.");
        for scene in [&asks.scene, &other.scene] {
            scene.forget();
        }
    }
    assert_eq!(asks.ledger.lines(), ["wait_for_me 1", "wait_for_me 2", "wait_for_me 3"]);
}
