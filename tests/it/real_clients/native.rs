//! What a page of AI SDK 6 or 7 shows of calls that wait for a person. It is asked by the stream, answers inside its
//! next post, and posts by itself: as long as an answer shows no outcome, again and again. So how often it posted is
//! counted everywhere.

use super::page::{CHAT, NATIVE, POST, Page, Version, thread};
use super::saying::{Piece, read, step};
use crate::support::{Embedded, eventually};
use holdpoint::tools::ToolRegistry;
use serde_json::{Value, json};

const PAY: [Piece; 2] = [Piece::Text("I will pay. "), Piece::Call("pay", "10")];
const TWO: [Piece; 2] = [Piece::Call("pay", "1"), Piece::Call("pay", "2")];

/// A page that was asked about a step of these, by a model that then says that it is done.
async fn asked(version: Version, pieces: &[Piece], flags: &[&str]) -> (Embedded, Page) {
    let app = Embedded::start().await;
    let page = asked_by(&app, version, pieces, flags).await;
    (app, page)
}

async fn asked_by(app: &Embedded, version: Version, pieces: &[Piece], flags: &[&str]) -> Page {
    app.scene.then(step(pieces)).says("Done.");
    let mut page = Page::open_with(app, version, flags).await;
    page.send("pay").await;
    assert_eq!((page.error.as_deref(), page.requests.len()), (None, 1));
    page
}

impl Page {
    /// Settled without an error, with so many requests in all.
    fn posted_times(&self, count: usize) {
        assert_eq!((self.error.as_deref(), self.asked()), (None, vec![POST.to_owned(); count]));
    }

    /// The call that it shows first.
    fn first(&self) -> String {
        self.call_ids()[0].clone()
    }
}

/// Ends the time to answer a call.
async fn overdue(app: &Embedded, call: &str) {
    let end = format!("UPDATE tool_calls SET expires_at = created_at WHERE tool_call_id = '{call}'");
    assert_eq!(app.rows.change(&end).await, Ok(1));
}

#[tokio::test]
async fn an_approval_goes_on_in_the_same_message() {
    for version in NATIVE {
        let (app, mut page) = asked(version, &PAY, &[]).await;
        page.looks_like("d-approve.1");
        page.equals_reload(&app).await;
        let (call, message) = (page.first(), page.last()["id"].clone());
        page.approve(&call).await;
        page.posted_times(2);
        page.looks_like("d-approve.2");
        assert_eq!(page.posted()["messageId"], message);
        assert_eq!(page.calls()[0].output, json!({ "paid": "10" }));
        assert_eq!(page.said(), "I will pay. Done.");
        page.equals_reload(&app).await;
        assert_eq!(app.ledger.lines(), ["pay 10"]);
        assert!(read(&app).contains(r#"{\"paid\":\"10\"}"#), "{}", read(&app));
    }
}

#[tokio::test]
async fn a_denial_goes_on_in_the_same_message_and_the_model_is_told_why() {
    for version in NATIVE {
        let (app, mut page) = asked(version, &PAY, &[]).await;
        let call = page.first();
        page.answer_because(&call, false, "not that file").await;
        page.posted_times(2);
        page.looks_like("d-deny.2");
        page.equals_reload(&app).await;
        assert!(app.ledger.lines().is_empty());
        let told = "Tool execution rejected by user. Reason: not that file";
        assert!(read(&app).contains(told), "{}", read(&app));
        let stored = app.client.call(&call).await;
        assert_eq!(
            (&stored["state"], &stored["decision"]["surface"]),
            (&json!("rejected"), &json!("stream"))
        );
        assert_eq!(stored["decision"]["reason"], "not that file");
    }
}

#[tokio::test]
async fn a_page_may_say_why_it_approves() {
    for version in NATIVE {
        let (app, mut page) = asked(version, &PAY, &[]).await;
        page.answer_because(&page.first(), true, "looks fine").await;
        page.posted_times(2);
        page.looks_like("d-approve-reason.2");
        page.equals_reload(&app).await;
    }
}

#[tokio::test]
async fn of_two_calls_one_is_approved_and_one_denied() {
    for version in NATIVE {
        let (app, mut page) = asked(version, &TWO, &[]).await;
        page.looks_like("i-two-approvals.1");
        let calls = page.call_ids();
        page.approve(&calls[0]).await;
        page.posted_times(1);
        page.looks_like("i-two-approvals.1b-first-answered");
        assert!(app.ledger.lines().is_empty(), "the other is not answered yet");
        page.answer_because(&calls[1], false, "keep it").await;
        page.posted_times(2);
        page.looks_like("i-two-approvals.2");
        page.equals_reload(&app).await;
        assert_eq!(app.ledger.lines(), ["pay 1"]);
    }
}

#[tokio::test]
async fn a_call_is_asked_about_beside_one_that_ran_by_itself() {
    for version in NATIVE {
        let both = [Piece::Call("look", "Paris"), Piece::Call("pay", "10")];
        let (app, mut page) = asked(version, &both, &[]).await;
        page.looks_like("j-auto-and-approval.1");
        page.equals_reload(&app).await;
        page.approve(&page.call_ids()[1]).await;
        page.posted_times(2);
        page.looks_like("j-auto-and-approval.2");
        page.equals_reload(&app).await;
    }
}

#[tokio::test]
async fn what_follows_an_approval_may_ask_again() {
    for version in NATIVE {
        let app = Embedded::start().await;
        app.scene.then(step(&PAY)).then(step(&[Piece::Call("pay", "20")])).says("Both paid.");
        let mut page = Page::open(&app, version).await;
        page.send("pay").await;
        page.approve(&page.first()).await;
        page.posted_times(2);
        page.looks_like("j2-two-rounds.2");
        page.equals_reload(&app).await;
        page.approve(&page.call_ids()[1]).await;
        page.posted_times(3);
        page.looks_like("j2-two-rounds.3");
        page.equals_reload(&app).await;
        assert_eq!(app.ledger.lines(), ["pay 10", "pay 20"]);
    }
}

#[tokio::test]
async fn a_page_may_answer_with_its_last_message_alone() {
    for version in NATIVE {
        let (app, mut page) = asked(version, &PAY, &["--posts", "last"]).await;
        page.approve(&page.first()).await;
        page.posted_times(2);
        page.looks_like("d-approve.2");
        page.equals_reload(&app).await;
    }
}

#[tokio::test]
async fn a_tool_that_fails_after_the_yes_is_shown_with_why() {
    for version in NATIVE {
        let asks = [Piece::Call("refuse", "1"), Piece::Call("break", "2")];
        let (app, mut page) = asked(version, &asks, &[]).await;
        for call in page.call_ids() {
            page.approve(&call).await;
        }
        page.posted_times(2);
        assert_eq!(page.states(), ["output-error"; 2]);
        assert!(!page.last().to_string().contains("secret"), "{}", page.last());
        assert_eq!(page.said(), "Done.");
        page.equals_reload(&app).await;
    }
}

#[tokio::test]
async fn a_page_reads_on_until_a_slow_tool_is_done() {
    for version in NATIVE {
        let app = Embedded::with(|config| config.approval.wait = std::time::Duration::ZERO).await;
        let mut page = asked_by(&app, version, &[Piece::Call("wait_for_me", "1")], &[]).await;
        page.begin_to_approve(&page.first()).await;
        assert_eq!(page.states(), ["approval-responded"]);
        app.ledger.wait_begun().await;
        app.ledger.go.add_permits(1);
        page.settles().await;
        page.posted_times(2);
        assert_eq!(page.states(), ["output-available"]);
        page.equals_reload(&app).await;
    }
}

#[tokio::test]
async fn an_approval_and_then_a_new_message_are_both_heard() {
    for version in NATIVE {
        let (app, mut page) = asked(version, &PAY, &["--automatically", "never"]).await;
        let call = page.first();
        page.approve(&call).await;
        page.posted_times(1);
        page.send("and thanks").await;
        page.posted_times(2);
        assert_eq!((page.messages.len(), page.said().as_str()), (4, "Done."));
        // What the SDK's own server breaks off at.
        assert_eq!(page.states(), ["approval-responded"]);
        app.client.becomes(&call, "succeeded").await;
        assert_eq!(app.ledger.lines(), ["pay 10"]);
        page.equals_reload_but_for(&app, &page.call_ids()).await;
        let reloaded = Page::load(&app, version).await;
        assert_eq!(reloaded.states(), ["output-available"]);
    }
}

#[tokio::test]
async fn a_message_past_a_call_leaves_it_waiting() {
    for version in NATIVE {
        let (app, mut page) = asked(version, &PAY, &[]).await;
        page.send("never mind").await;
        page.posted_times(2);
        // The server of 6 answers that with an error.
        page.looks_like_version(Version::V7, "d3-pending-then-user-message.2");
        page.equals_reload(&app).await;
        assert_eq!(app.client.call(&page.first()).await["state"], "pending");
    }
}

#[tokio::test]
async fn an_answer_for_an_earlier_message_is_shown_there_and_told_to_the_model_in_time() {
    for (version, yes) in NATIVE.into_iter().flat_map(|version| [(version, true), (version, false)]) {
        let (app, mut page) = asked(version, &PAY, &["--automatically", "any"]).await;
        let call = page.first();
        page.send("never mind").await;
        page.posted_times(2);
        app.scene.says("I see.");
        page.answer(&call, yes).await;
        page.posted_times(3);
        assert_eq!(page.posted()["messageId"], page.messages[1]["id"]);
        assert_eq!(page.messages.len(), 4);
        let (state, word) = if yes { ("output-available", "paid") } else { ("output-denied", "rejected") };
        assert_eq!(page.states(), [state]);
        assert_eq!(app.scene.requests().len(), 2, "nobody goes on behind a later message");
        page.equals_reload(&app).await;
        page.send("well?").await;
        page.posted_times(4);
        assert_eq!(page.said(), "I see.");
        assert!(read(&app).contains("[tool outcome]") && read(&app).contains(word), "{}", read(&app));
        page.equals_reload(&app).await;
    }
}

#[tokio::test]
async fn an_answer_that_another_tab_gave_first_is_the_one_that_counts() {
    for (version, first, later) in NATIVE.into_iter().flat_map(|version| {
        [(version, true, true), (version, true, false), (version, false, true), (version, false, false)]
    }) {
        let (app, mut page) = asked(version, &PAY, &[]).await;
        let call = page.first();
        let body = json!({ "toolCallId": call, "isValidated": first });
        assert_eq!(app.client.validate(&body).await.status, 200);
        page.answer(&call, later).await;
        page.posted_times(2);
        assert_eq!(page.states(), [if first { "output-available" } else { "output-denied" }]);
        assert_eq!(page.said(), "I will pay. Done.");
        // What it noted of its own answer stays with it.
        page.equals_reload_but_for(&app, if first == later { &[] } else { std::slice::from_ref(&call) })
            .await;
        assert_eq!(app.ledger.lines().len(), usize::from(first));
    }
}

#[tokio::test]
async fn a_tab_that_answers_what_another_one_went_on_with_becomes_whole() {
    for version in NATIVE {
        let app = Embedded::start().await;
        let mut page = asked_by(&app, version, &PAY, &[]).await;
        app.client.approve(&page.first()).await;
        let elsewhere = app.client.turn_by_id(&json!({ "id": CHAT })).await;
        assert_eq!(elsewhere.text(), "Done.");
        page.approve(&page.first()).await;
        page.posted_times(2);
        assert_eq!(page.said(), "I will pay. Done.");
        assert_eq!(app.scene.requests().len(), 2, "no model is asked again");
        page.equals_reload(&app).await;
    }
}

#[tokio::test]
async fn two_tabs_that_answer_one_after_the_other_both_become_whole() {
    for version in NATIVE {
        let (app, mut page) = asked(version, &PAY, &[]).await;
        let mut other = Page::load(&app, version).await;
        let call = page.first();
        page.approve(&call).await;
        other.approve(&call).await;
        page.posted_times(2);
        other.posted_times(1);
        for page in [&page, &other] {
            assert_eq!(page.said(), "I will pay. Done.");
            page.equals_reload(&app).await;
        }
        assert_eq!((app.ledger.lines().len(), app.scene.requests().len()), (1, 2));
    }
}

#[tokio::test]
async fn two_tabs_that_answer_at_once_run_a_call_once_and_both_become_whole() {
    for version in NATIVE {
        let (app, mut page) = asked(version, &PAY, &[]).await;
        let mut other = Page::load(&app, version).await;
        let call = page.first();
        futures::join!(page.approve(&call), other.approve(&call));
        page.posted_times(2);
        other.posted_times(1);
        for page in [&page, &other] {
            assert_eq!(page.said(), "I will pay. Done.");
            page.equals_reload(&app).await;
        }
        assert_eq!((app.ledger.lines().len(), app.scene.requests().len()), (1, 2));
    }
}

#[tokio::test]
async fn one_tab_says_yes_and_the_other_no_and_both_show_the_one_that_counts() {
    for version in NATIVE {
        let (app, mut page) = asked(version, &PAY, &[]).await;
        let mut other = Page::load(&app, version).await;
        let call = page.first();
        futures::join!(page.approve(&call), other.deny(&call));
        page.posted_times(2);
        other.posted_times(1);
        assert_eq!(page.states(), other.states());
        let ran = app.ledger.lines().len();
        assert_eq!(page.states(), [if ran == 1 { "output-available" } else { "output-denied" }]);
        for page in [&page, &other] {
            assert_eq!(page.said(), "I will pay. Done.");
            page.equals_reload_but_for(&app, &page.call_ids()).await;
        }
        assert_eq!(app.scene.requests().len(), 2);
    }
}

#[tokio::test]
async fn inputs_that_another_tab_edited_are_shown_before_the_output() {
    for version in NATIVE {
        let (app, mut page) = asked(version, &PAY, &[]).await;
        let edited = json!({ "note": "7" });
        let body = json!({ "toolCallId": page.first(), "validatedInputs": edited, "isValidated": true });
        assert_eq!(app.client.validate(&body).await.status, 200);
        page.approve(&page.first()).await;
        page.posted_times(2);
        page.looks_like("d-approve.2");
        let [call] = &page.calls()[..] else { panic!("{page:#?}") };
        assert_eq!((&call.input, &call.output), (&edited, &json!({ "paid": "7" })));
        page.equals_reload(&app).await;
    }
}

#[tokio::test]
async fn an_answer_that_comes_too_late_is_shown_to_have_failed() {
    for (version, yes) in NATIVE.into_iter().flat_map(|version| [(version, true), (version, false)]) {
        let (app, mut page) = asked(version, &PAY, &[]).await;
        let call = page.first();
        overdue(&app, &call).await;
        page.answer(&call, yes).await;
        page.posted_times(2);
        assert_eq!(page.states(), [if yes { "output-error" } else { "output-denied" }]);
        assert_eq!(app.client.call(&call).await["state"], "expired");
        // The card that is loaded anew does not know of the yes.
        page.equals_reload_but_for(&app, &[call]).await;
        assert!(app.ledger.lines().is_empty());
    }
}

#[tokio::test]
async fn an_answer_to_what_was_withdrawn_is_shown_to_have_failed() {
    for (version, yes) in NATIVE.into_iter().flat_map(|version| [(version, true), (version, false)]) {
        for whole_run in [false, true] {
            let (app, mut page) = asked(version, &PAY, &[]).await;
            let call = page.first();
            let path = if whole_run {
                let run = app.client.call(&call).await["run_id"].as_str().unwrap().to_owned();
                format!("/runs/{run}/cancel")
            } else {
                format!("/tool_calls/{call}/cancel")
            };
            assert_eq!(app.client.post(&path, &Value::Null).await.status, 200);
            page.answer(&call, yes).await;
            page.posted_times(2);
            assert_eq!(page.states(), [if yes { "output-error" } else { "output-denied" }]);
            page.equals_reload_but_for(&app, &[call]).await;
            assert!(app.ledger.lines().is_empty());
        }
    }
}

#[tokio::test]
async fn an_answer_that_is_refused_is_raised_once() {
    for version in NATIVE {
        let app = Embedded::start().await;
        drop(asked_by(&app, version, &PAY, &[]).await);
        // A deploy without the tool.
        let app = app.redeploy(ToolRegistry::new()).await;
        let mut page = Page::load(&app, version).await;
        let call = page.first();
        page.approve(&call).await;
        assert_eq!((page.refused(), page.requests.len()), ((409, "tool_unavailable".to_owned()), 1));
        assert_eq!(page.states(), ["approval-responded"]);
        assert_eq!(app.client.call(&call).await["state"], "pending");
    }
}

#[tokio::test]
async fn an_output_that_a_page_makes_up_decides_nothing() {
    for version in NATIVE {
        let (app, mut page) = asked(version, &PAY, &["--automatically", "outputs"]).await;
        let call = page.first();
        page.give(&call, &json!({ "paid": "a million" })).await;
        assert!(page.posted().to_string().contains("a million"), "it was claimed");
        page.posted_times(2);
        assert_eq!(page.states(), ["approval-requested"], "the page is asked again");
        assert_eq!(app.scene.requests().len(), 1, "no model is asked");
        assert_eq!(app.client.call(&call).await["state"], "pending");
        assert!(app.ledger.lines().is_empty());
    }
}

#[tokio::test]
async fn an_output_that_a_page_makes_up_is_corrected() {
    for version in NATIVE {
        let (app, mut page) = asked(version, &PAY, &["--automatically", "outputs"]).await;
        let call = page.first();
        app.client.approve(&call).await;
        page.give(&call, &json!({ "paid": "a million" })).await;
        assert!(page.posted().to_string().contains("a million"), "it was claimed");
        page.posted_times(2);
        assert_eq!(page.calls()[0].output, json!({ "paid": "10" }));
        assert!(!read(&app).contains("a million"), "{}", read(&app));
        page.equals_reload_but_for(&app, &[call]).await;
    }
}

#[tokio::test]
async fn a_page_that_was_told_of_a_decision_goes_on_without_an_answer_of_its_own() {
    for version in NATIVE {
        let (app, mut page) = asked(version, &PAY, &[]).await;
        app.client.approve(&page.first()).await;
        page.send_nothing().await;
        page.posted_times(2);
        assert_eq!(page.states(), ["output-available"]);
        assert_eq!(page.said(), "I will pay. Done.");
        page.equals_reload(&app).await;
    }
}

#[tokio::test]
async fn a_page_that_is_loaded_anew_answers_what_it_is_shown() {
    for version in NATIVE {
        let (app, page) = asked(version, &PAY, &[]).await;
        drop(page);
        let mut page = Page::load(&app, version).await;
        assert_eq!(page.states(), ["approval-requested"]);
        page.approve(&page.first()).await;
        page.posted_times(1);
        page.looks_like("d-approve.2");
        page.equals_reload(&app).await;
    }
}

#[tokio::test]
async fn a_failure_behind_an_approval_does_not_have_the_page_post_for_ever() {
    for version in NATIVE {
        let app = Embedded::start().await;
        app.scene.then(step(&PAY)).then(vec![Err("gone".to_owned())]).says("Done.");
        let mut page = Page::open(&app, version).await;
        page.send("pay").await;
        page.approve(&page.first()).await;
        assert!(page.error.as_deref().unwrap().starts_with("upstream_error: "), "{:?}", page.error);
        assert_eq!(page.requests.len(), 2);
        assert_eq!(page.states(), ["output-available"]);
        page.equals_reload(&app).await;
        page.send_nothing().await;
        page.posted_times(3);
        assert_eq!(page.said(), "I will pay. Done.");
        page.equals_reload(&app).await;
        assert_eq!(app.ledger.lines(), ["pay 10"]);
    }
}

#[tokio::test]
async fn a_page_that_goes_away_after_its_answer_stops_nothing() {
    for version in NATIVE {
        let (app, mut page) = asked(version, &[Piece::Call("wait_for_me", "1")], &[]).await;
        let call = page.first();
        page.begin_to_approve(&call).await;
        app.ledger.wait_begun().await;
        page.stop().await;
        app.ledger.go.add_permits(1);
        app.client.becomes(&call, "succeeded").await;
        let thread = thread(&app).await;
        let whole = async || {
            let found = app.client.messages(&thread).await.pop();
            found.filter(|message| message["status"] == "complete" && message.to_string().contains("Done."))
        };
        eventually("the run goes on", whole).await;
        drop(page);
        let page = Page::load(&app, version).await;
        assert_eq!((page.states(), page.said()), (vec!["output-available".to_owned()], "Done.".to_owned()));
    }
}
