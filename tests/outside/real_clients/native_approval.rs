//! Pending calls on a page of AI SDK 6 or 7. The stream requests the approval, the page answers inside its
//! next post, and the page posts by itself, repeatedly while an answer has no outcome. The tests therefore
//! count the posts.

use super::output::{Piece, read, step};
use super::page::{POST, Page, Version, native, thread};
use holdpoint::tools::ToolRegistry;
use holdpoint_testkit::{Embedded, eventually};
use serde_json::json;

pub(super) const PAY: [Piece; 2] = [Piece::Text("I will pay. "), Piece::Call("pay", "10")];
const TWO: [Piece; 2] = [Piece::Call("pay", "1"), Piece::Call("pay", "2")];

/// A page with the calls of this step, from a model that then completes.
pub(super) async fn held_call(version: Version, pieces: &[Piece], flags: &[&str]) -> (Embedded, Page) {
    let app = Embedded::start().await;
    let page = held_call_of(&app, version, pieces, flags).await;
    (app, page)
}

/// The same, with this server.
pub(super) async fn held_call_of(app: &Embedded, version: Version, pieces: &[Piece], flags: &[&str]) -> Page {
    app.scene.then(step(pieces)).answers("Done.");
    let mut page = Page::open_with(app, version, flags).await;
    page.send("pay").await;
    assert_eq!((page.error.as_deref(), page.requests.len()), (None, 1));
    page
}

impl Page {
    /// The page has settled without an error, after this number of requests.
    pub(super) fn posted_times(&self, count: usize) {
        assert_eq!((self.error.as_deref(), self.requests()), (None, vec![POST.to_owned(); count]));
    }

    /// The first call that the page shows.
    pub(super) fn first(&self) -> String {
        self.call_ids()[0].clone()
    }
}

#[tokio::test]
async fn an_approval_continues_the_same_message() {
    for version in native() {
        let (app, mut page) = held_call(version, &PAY, &[]).await;
        page.looks_like("d-approve.1");
        page.equals_reload(&app).await;
        let (call, message) = (page.first(), page.last()["id"].clone());
        page.approve(&call).await;
        page.posted_times(2);
        page.looks_like("d-approve.2");
        assert_eq!(page.posted()["messageId"], message);
        assert_eq!(page.calls()[0].output, json!({ "paid": "10" }));
        assert_eq!(page.text(), "I will pay. Done.");
        page.equals_reload(&app).await;
        assert_eq!(app.ledger.lines(), ["pay 10"]);
        assert!(read(&app).contains(r#"{\"paid\":\"10\"}"#), "{}", read(&app));
    }
}

#[tokio::test]
async fn a_denial_continues_the_same_message_and_the_model_gets_its_reason() {
    for version in native() {
        let (app, mut page) = held_call(version, &PAY, &[]).await;
        let call = page.first();
        page.answer_because(&call, false, "not that file").await;
        page.posted_times(2);
        page.looks_like("d-deny.2");
        page.equals_reload(&app).await;
        assert!(app.ledger.lines().is_empty());
        let reported = "Tool execution rejected by user. Reason: not that file";
        assert!(read(&app).contains(reported), "{}", read(&app));
        let stored = app.client.call(&call).await;
        assert_eq!(
            (&stored["state"], &stored["decision"]["surface"]),
            (&json!("rejected"), &json!("stream"))
        );
        assert_eq!(stored["decision"]["reason"], "not that file");
    }
}

#[tokio::test]
async fn a_page_may_give_a_reason_for_an_approval() {
    for version in native() {
        let (app, mut page) = held_call(version, &PAY, &[]).await;
        page.answer_because(&page.first(), true, "looks fine").await;
        page.posted_times(2);
        page.looks_like("d-approve-reason.2");
        page.equals_reload(&app).await;
    }
}

#[tokio::test]
async fn of_two_calls_one_is_approved_and_one_denied() {
    for version in native() {
        let (app, mut page) = held_call(version, &TWO, &[]).await;
        page.looks_like("i-two-approvals.1");
        let calls = page.call_ids();
        page.approve(&calls[0]).await;
        page.posted_times(1);
        page.looks_like("i-two-approvals.1b-first-answered");
        assert!(app.ledger.lines().is_empty(), "the other call is still pending");
        page.answer_because(&calls[1], false, "keep it").await;
        page.posted_times(2);
        page.looks_like("i-two-approvals.2");
        page.equals_reload(&app).await;
        assert_eq!(app.ledger.lines(), ["pay 1"]);
    }
}

#[tokio::test]
async fn an_approval_is_requested_next_to_a_call_that_ran_without_one() {
    for version in native() {
        let both = [Piece::Call("look", "Paris"), Piece::Call("pay", "10")];
        let (app, mut page) = held_call(version, &both, &[]).await;
        page.looks_like("j-auto-and-approval.1");
        page.equals_reload(&app).await;
        page.approve(&page.call_ids()[1]).await;
        page.posted_times(2);
        page.looks_like("j-auto-and-approval.2");
        page.equals_reload(&app).await;
    }
}

#[tokio::test]
async fn the_step_after_an_approval_may_request_another_approval() {
    for version in native() {
        let app = Embedded::start().await;
        app.scene.then(step(&PAY)).then(step(&[Piece::Call("pay", "20")])).answers("Both paid.");
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
    for version in native() {
        let (app, mut page) = held_call(version, &PAY, &["--posts", "last"]).await;
        page.approve(&page.first()).await;
        page.posted_times(2);
        page.looks_like("d-approve.2");
        page.equals_reload(&app).await;
    }
}

#[tokio::test]
async fn a_tool_that_fails_after_the_approval_is_shown_with_its_error() {
    for version in native() {
        let asks = [Piece::Call("refuse", "1"), Piece::Call("break", "2")];
        let (app, mut page) = held_call(version, &asks, &[]).await;
        for call in page.call_ids() {
            page.approve(&call).await;
        }
        page.posted_times(2);
        assert_eq!(page.states(), ["output-error"; 2]);
        assert!(!page.last().to_string().contains("secret"), "{}", page.last());
        assert_eq!(page.text(), "Done.");
        page.equals_reload(&app).await;
    }
}

#[tokio::test]
async fn a_page_reads_on_until_a_slow_tool_is_done() {
    for version in native() {
        let app = Embedded::with(|config| config.approval.wait = std::time::Duration::ZERO).await;
        let mut page = held_call_of(&app, version, &[Piece::Call("wait_for_me", "1")], &[]).await;
        page.begin_to_approve(&page.first()).await;
        assert_eq!(page.states(), ["approval-responded"]);
        app.ledger.wait_started().await;
        app.ledger.release.add_permits(1);
        page.settles().await;
        page.posted_times(2);
        assert_eq!(page.states(), ["output-available"]);
        page.equals_reload(&app).await;
    }
}

#[tokio::test]
async fn a_new_message_after_a_pending_call_leaves_it_pending() {
    for version in native() {
        let (app, mut page) = held_call(version, &PAY, &[]).await;
        page.send("never mind").await;
        page.posted_times(2);
        // The SDK's own server of 6 responds with an error here.
        page.looks_like_version(Version::V7, "d3-pending-then-user-message.2");
        page.equals_reload(&app).await;
        assert_eq!(app.client.call(&page.first()).await["state"], "pending");
    }
}

#[tokio::test]
async fn an_answer_that_is_refused_is_raised_once() {
    for version in native() {
        let app = Embedded::start().await;
        drop(held_call_of(&app, version, &PAY, &[]).await);
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
async fn an_output_invented_by_a_page_decides_nothing() {
    for version in native() {
        let (app, mut page) = held_call(version, &PAY, &["--automatically", "outputs"]).await;
        let call = page.first();
        page.set_output(&call, &json!({ "paid": "a million" })).await;
        assert!(page.posted().to_string().contains("a million"), "the page posted the invented output");
        page.posted_times(2);
        assert_eq!(page.states(), ["approval-requested"], "the page gets the approval request again");
        assert_eq!(app.scene.requests().len(), 1, "the model gets no request");
        assert_eq!(app.client.call(&call).await["state"], "pending");
        assert!(app.ledger.lines().is_empty());
    }
}

#[tokio::test]
async fn an_output_invented_by_a_page_is_corrected() {
    for version in native() {
        let (app, mut page) = held_call(version, &PAY, &["--automatically", "outputs"]).await;
        let call = page.first();
        app.client.approve(&call).await;
        page.set_output(&call, &json!({ "paid": "a million" })).await;
        assert!(page.posted().to_string().contains("a million"), "the page posted the invented output");
        page.posted_times(2);
        assert_eq!(page.calls()[0].output, json!({ "paid": "10" }));
        assert!(!read(&app).contains("a million"), "{}", read(&app));
        page.equals_reload_but_for(&app, &[call]).await;
    }
}

#[tokio::test]
async fn a_page_resumes_after_a_decision_made_elsewhere_without_its_own_answer() {
    for version in native() {
        let (app, mut page) = held_call(version, &PAY, &[]).await;
        app.client.approve(&page.first()).await;
        page.send_nothing().await;
        page.posted_times(2);
        assert_eq!(page.states(), ["output-available"]);
        assert_eq!(page.text(), "I will pay. Done.");
        page.equals_reload(&app).await;
    }
}

#[tokio::test]
async fn a_reloaded_page_answers_the_approval_request_that_it_shows() {
    for version in native() {
        let (app, page) = held_call(version, &PAY, &[]).await;
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
async fn a_failure_after_an_approval_starts_no_endless_posts() {
    for version in native() {
        let app = Embedded::start().await;
        app.scene.then(step(&PAY)).then(vec![Err("gone".to_owned())]).answers("Done.");
        let mut page = Page::open(&app, version).await;
        page.send("pay").await;
        page.approve(&page.first()).await;
        assert!(page.error.as_deref().unwrap().starts_with("upstream_error: "), "{:?}", page.error);
        assert_eq!(page.requests.len(), 2);
        assert_eq!(page.states(), ["output-available"]);
        page.equals_reload(&app).await;
        page.send_nothing().await;
        page.posted_times(3);
        assert_eq!(page.text(), "I will pay. Done.");
        page.equals_reload(&app).await;
        assert_eq!(app.ledger.lines(), ["pay 10"]);
    }
}

#[tokio::test]
async fn a_page_that_goes_away_after_its_answer_stops_nothing() {
    for version in native() {
        let (app, mut page) = held_call(version, &[Piece::Call("wait_for_me", "1")], &[]).await;
        let call = page.first();
        page.begin_to_approve(&call).await;
        app.ledger.wait_started().await;
        page.stop().await;
        app.ledger.release.add_permits(1);
        app.client.becomes(&call, "succeeded").await;
        let thread = thread(&app).await;
        let whole = async || {
            let found = app.client.messages(&thread).await.pop();
            found.filter(|message| message["status"] == "complete" && message.to_string().contains("Done."))
        };
        eventually("the run continues", whole).await;
        drop(page);
        let page = Page::load(&app, version).await;
        assert_eq!((page.states(), page.text()), (vec!["output-available".to_owned()], "Done.".to_owned()));
    }
}
