//! Secret inputs at the terminal of an approver.

use super::Approver;
use holdpoint_testkit::secrets::{MASK, SECRETS, assert_hidden, held, input, server};
use serde_json::json;

#[tokio::test]
async fn a_call_is_shown_with_masks_and_with_its_secrets_only_on_the_record() {
    let app = server(|_| {}).await;
    let id = held(&app, "login").await;
    let approver = Approver::of(&app);
    for args in [vec!["list"], vec!["show", &id], vec!["show", &id, "--json"], vec!["show", &id, "--full"]] {
        let shown = approver.run(&args).await.stdout_of_success();
        assert_hidden(&shown);
        assert!(shown.contains(MASK), "{shown}");
    }
    assert_eq!(app.rows.count("events WHERE type = 'tool.inputs_revealed'").await, 0);
    let shown = approver.run(&["show", &id, "--reveal"]).await.stdout_of_success();
    assert!(SECRETS.iter().all(|secret| shown.contains(secret)), "{shown}");
    assert_eq!(app.rows.count("events WHERE type = 'tool.inputs_revealed'").await, 1);
}

#[tokio::test]
async fn an_approval_of_a_call_with_masks_is_offered_only_after_its_secrets_were_shown() {
    const REVEAL: &str = "Show the secret inputs? The server records it. [y/N] ";
    let app = server(|_| {}).await;
    let (id, low) = (held(&app, "login").await, held(&app, "login_low").await);
    let approver = Approver::of(&app);
    let masked = approver.start(&["approve", &id]);
    masked.shows(REVEAL).await;
    masked.pty.types("n\n");
    let (code, shown) = masked.ends().await;
    assert_eq!(code, 5, "{shown}");
    assert!(shown.contains("not shown whole: the secret inputs"), "{shown}");
    assert_hidden(&shown);
    assert!(app.ledger.lines().is_empty());

    app.scene.answers("Done.");
    let opened = approver.start(&["approve", &id]);
    opened.shows(REVEAL).await;
    opened.pty.types("y\n");
    opened.shows("Approve this call? [y/N] ").await;
    opened.pty.types("y\n");
    let (code, shown) = opened.ends().await;
    assert_eq!(code, 0, "{shown}");
    assert!(SECRETS.iter().all(|secret| shown.contains(secret)), "{shown}");
    assert_eq!(app.ledger.lines(), [input().to_string()]);
    let by = app.rows.all("SELECT actor FROM events WHERE type = 'tool.inputs_revealed'").await;
    assert_eq!(by, [json!({ "actor": "user:local" })]);

    // What does little harm may be approved with its masks.
    app.scene.answers("Done.");
    let plain = approver.start(&["approve", &low]);
    plain.shows(REVEAL).await;
    plain.pty.types("n\n");
    plain.shows("Approve this call? [y/N] ").await;
    plain.pty.types("y\n");
    let (code, shown) = plain.ends().await;
    assert_eq!(code, 0, "{shown}");
    assert_hidden(&shown);
}
