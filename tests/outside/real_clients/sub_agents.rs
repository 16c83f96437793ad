//! A page while a sub-agent runs for a call of its message.

use super::output::{Piece, step};
use super::page::{Page, all, native, thread};
use holdpoint_testkit::runs::run_becomes;
use holdpoint_testkit::subagents::{hold_in, start};
use holdpoint_testkit::{Embedded, JsonFields};
use serde_json::Value;

/// The pending call in the page's session.
async fn hold(app: &Embedded) -> String {
    hold_in(&app.client, &thread(app).await).await
}

#[tokio::test]
async fn a_page_does_not_post_while_a_sub_agent_runs_and_reads_its_answer_after_the_approval() {
    for version in all() {
        let app = start().await;
        app.scene.then(step(&[Piece::Text("I will ask. "), Piece::Call("helper", "pay 10")]));
        app.scene.then(step(&[Piece::Call("pay", "10")]));
        let mut page = Page::open(&app, version).await;
        page.send("pay").await;
        assert_eq!((page.error.as_deref(), page.requests.len()), (None, 1), "the page does not post again");
        page.equals_reload(&app).await;
        let call = page.call_ids()[0].clone();
        let hold = hold(&app).await;

        let gate = app.scene.gate();
        app.scene.answers("Paid below.");
        app.scene.then(step(&[Piece::Text("Paid. "), Piece::Call("look", "1")])).answers("All done.");
        gate.add_permits(2);
        app.client.approve(&hold).await.has_status(200);
        app.client.becomes(&call, "succeeded").await;
        run_becomes(&app.client, &app.client.run_of(&call).await, "running").await;
        page.begin_to_resume().await;
        gate.add_permits(100);
        page.settles().await;
        assert_eq!((page.error.as_deref(), page.text().as_str()), (None, "I will ask. Paid. All done."));
        assert!(page.last().to_string().contains("Paid below."), "{:#}", page.last());
        page.equals_reload(&app).await;
        assert_eq!(app.ledger.lines(), ["pay 10", "look 1"]);
    }
}

#[tokio::test]
async fn a_page_that_approves_a_sub_agent_posts_once_and_waits_for_the_answer() {
    for version in native() {
        let app = start().await;
        app.scene.then(step(&[Piece::Text("May I? "), Piece::Call("errand", "pay 10")]));
        let mut page = Page::open(&app, version).await;
        page.send("pay").await;
        app.scene.then(step(&[Piece::Call("pay", "10")]));
        page.begin_to_approve(&page.call_ids()[0]).await;
        let hold = hold(&app).await;
        app.scene.answers("Paid below.").answers("All done.");
        app.client.approve(&hold).await.has_status(200);
        page.settles().await;
        assert_eq!((page.error.as_deref(), page.text().as_str()), (None, "May I? All done."));
        assert_eq!(page.requests.len(), 2);
        let output = |part: &Value| part["output"] == "Paid below.";
        assert!(page.last().list("parts").iter().any(output), "{:#}", page.last());
        page.equals_reload(&app).await;
    }
}
