//! Pages whose calls an approval handler decides during the stream.

use super::output::{Piece, step};
use super::page::{Page, Version, all};
use holdpoint::handlers::HandlerAnswer;
use holdpoint_testkit::Embedded;
use holdpoint_testkit::handlers::{Questions, desk};
use serde_json::json;

async fn office() -> (Embedded, Questions) {
    let (desk, questions) = desk();
    (Embedded::with_handler(desk, |_| {}).await, questions)
}

/// A page whose turn holds calls of `pay` with these notes. The handler answers each call by its note, and
/// the model then completes.
async fn decided(
    version: Version,
    notes: &[&'static str],
    answer: impl Fn(&str) -> HandlerAnswer,
) -> (Embedded, Page) {
    let (app, questions) = office().await;
    let mut pieces = vec![Piece::Text("I will pay. ")];
    pieces.extend(notes.iter().map(|note| Piece::Call("pay", note)));
    app.scene.then(step(&pieces)).answers("Done.");
    let mut page = Page::open(&app, version).await;
    let answers = async {
        for _ in notes {
            let question = questions.next().await;
            let answer = answer(question.note());
            question.answer(answer);
        }
    };
    tokio::join!(page.send("pay"), answers);
    assert_eq!(page.error, None);
    (app, page)
}

#[tokio::test]
async fn an_answer_of_the_handler_is_shown_in_the_same_message_and_equals_the_reload() {
    for version in all() {
        for yes in [true, false] {
            let answer = |_: &str| if yes { HandlerAnswer::approved() } else { HandlerAnswer::denied("no") };
            let (app, page) = decided(version, &["10"], answer).await;
            assert_eq!((page.messages.len(), page.text().as_str()), (2, "I will pay. Done."));
            assert_eq!(page.requests().len(), 1, "the page does not post again");
            let [call] = &page.calls()[..] else { panic!("{page:?}") };
            let state = match (version, yes) {
                (Version::V4, _) => "result",
                (_, true) => "output-available",
                (Version::V5, false) => "output-error",
                (_, false) => "output-denied",
            };
            assert_eq!(call.state, state);
            if yes {
                assert_eq!(call.output, json!({ "paid": "10" }));
            }
            page.equals_reload(&app).await;
        }
    }
}

#[tokio::test]
async fn each_of_several_calls_is_shown_with_its_own_answer() {
    for version in all() {
        let answer = |note: &str| match note {
            "1" => HandlerAnswer::approved(),
            "2" => HandlerAnswer::Cancelled { reason: Some("later".to_owned()) },
            _ => HandlerAnswer::denied("no"),
        };
        let (app, page) = decided(version, &["1", "2", "3"], answer).await;
        assert_eq!(page.text(), "I will pay. Done.");
        assert_eq!(page.requests().len(), 1, "the page does not post again");
        page.equals_reload(&app).await;
        assert_eq!(app.ledger.lines(), ["pay 1"]);
    }
}

#[tokio::test]
async fn a_call_that_the_handler_deferred_is_shown_as_pending_next_to_an_approved_one() {
    for version in all() {
        let answer =
            |note: &str| if note == "1" { HandlerAnswer::approved() } else { HandlerAnswer::Deferred };
        let (app, page) = decided(version, &["1", "2"], answer).await;
        assert_eq!(page.text(), "I will pay. ");
        page.equals_reload(&app).await;
        let [paid, held_call] = &page.states()[..] else { panic!("{page:?}") };
        let (done, waits) = match version {
            Version::V4 => ("result", "call"),
            Version::V5 => ("output-available", "input-available"),
            _ => ("output-available", "approval-requested"),
        };
        assert_eq!((paid.as_str(), held_call.as_str()), (done, waits));
    }
}

#[tokio::test]
async fn a_page_sends_the_next_message_after_the_handler_has_answered() {
    for version in all() {
        let (app, mut page) = decided(version, &["10"], |_| HandlerAnswer::approved()).await;
        app.scene.answers("You are welcome.");
        page.send("thank you").await;
        assert_eq!((page.error.clone(), page.text().as_str()), (None, "You are welcome."));
        assert_eq!(app.ledger.lines(), ["pay 10"]);
    }
}
