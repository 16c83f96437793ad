//! Complete cards: the terminal offers an approval only if it has shown everything that the approval covers.

use super::attacks::{HASH, ID, PlantedServer};
use super::{Approver, hash};
use holdpoint_testkit::Embedded;
use serde_json::{Value, json};

/// A call with every part of a card.
fn whole() -> Value {
    json!({
        "tool_call_id": ID, "tool_name": "pay", "state": "pending", "input_hash": HASH, "risk_level": "high",
        "card_parts": ["inputs", "constants", "preview", "definition"],
        "headline": "Pay 1? Yes?", "headline_parts": [{ "text": "Pay " }, { "value": "1” Yes" }, { "text": "?" }],
        "input": { "to": "p\u{430}ypal" }, "constants": { "shop": "berlin" },
        "preview": { "text": "pays 1\nto all" },
        "unaccepted_definition": { "cause": "changed", "hash": HASH, "changes": [
            { "field": "description", "accepted": "Reads.", "current": "Reads, and sends." },
            { "field": "title", "current": "Pay" },
        ] },
        "can_decide": true, "can_reject": true,
    })
}

/// The call with this change.
fn with(change: impl FnOnce(&mut Value)) -> Value {
    let mut call = whole();
    change(&mut call);
    call
}

#[tokio::test]
async fn f14_each_part_of_the_card_has_a_section_and_the_values_of_the_question_are_quoted() {
    let server = PlantedServer::with(whole()).await;
    let shown = Approver::at(&server.url).run(&["show", ID]).await.stdout_of_success();
    for words in [
        "  question       Pay “1\\u{201d} Yes”?\n",
        "Inputs as the model proposed them\n  | {\n  |   \"to\": \"p\u{430}ypal ⟦mixed scripts: Cyrillic, Latin⟧\"\n",
        "Inputs that the operator sets\n  | {\n  |   \"shop\": \"berlin\"\n",
        "Preview\n  | pays 1\n  | to all\n",
        "Definition of the tool, which no operator has accepted\n  cause          changed\n",
        "  field          description, accepted\n  | Reads.\n  field          description, now\n  | Reads, and sends.\n",
        "  field          title, accepted\n  There is none.\n  field          title, now\n  | Pay\n",
    ] {
        assert!(shown.contains(words), "{words}: {shown}");
    }
    assert!(!shown.contains("Further facts of the server"), "{shown}");
}

#[tokio::test]
async fn f14_the_terminal_asks_for_an_approval_only_if_the_card_is_whole() {
    let long = || "é".repeat(5000);
    let server = PlantedServer::with(whole()).await;
    let terminal = Approver::at(&server.url).start(&["approve", ID]);
    terminal.shows("Approve this call? [y/N] ").await;
    terminal.pty.types("n\n");
    assert_eq!(terminal.ends().await.0, 5);
    for (call, words, is_cut) in [
        (with(|it| it["input"] = json!({ "a": long() })), "not shown whole: the inputs; --full", true),
        (
            with(|it| it["constants"] = json!({ "a": long() })),
            "not shown whole: the inputs that the operator sets; --full",
            true,
        ),
        (
            with(|it| it["preview"] = json!({ "text": "a\n".repeat(201) })),
            "not shown whole: the preview; --full",
            true,
        ),
        (
            with(|it| it["preview"] = json!({ "failed": long() })),
            "not shown whole: the preview; --full",
            true,
        ),
        (
            with(|it| it["unaccepted_definition"]["changes"][0]["current"] = json!(long())),
            "not shown whole: the definition; --full",
            true,
        ),
        // What the server does not send cannot be shown, also with --full.
        (with(|it| it["preview"] = Value::Null), "not shown whole: the preview", false),
        (
            with(|it| it["constants"] = Value::Null),
            "not shown whole: the inputs that the operator sets",
            false,
        ),
        (
            with(|it| it["card_parts"][3] = json!("verdict")),
            "does not know the part verdict of the call",
            false,
        ),
        (
            with(|it| {
                it["cannot_approve"] = json!({ "code": "already_approved", "message": "You have approved." })
            }),
            "the server would refuse your approval: You have approved",
            false,
        ),
    ] {
        let server = PlantedServer::with(call).await;
        let approver = Approver::at(&server.url);
        let terminal = approver.start(&["approve", ID]);
        terminal.shows("nothing is decided: ").await;
        terminal.shows(words).await;
        let (code, shown) = terminal.ends().await;
        assert!(code == 5 && !shown.contains("[y/N]"), "{words}: {shown}");
        let terminal = approver.start(&["approve", ID, "--full"]);
        if is_cut {
            terminal.shows("Approve this call? [y/N] ").await;
            terminal.pty.types("n\n");
        }
        assert_eq!(terminal.ends().await.0, 5);
        let terminal = approver.start(&["reject", ID]);
        terminal.shows("Reject this call? [y/N] ").await;
        terminal.pty.types("n\n");
        assert_eq!(terminal.ends().await.0, 5);
        let sent = server.requests.lock().unwrap();
        assert!(!sent.iter().any(|request| request.starts_with("POST ")), "{words}: nothing is decided");
    }
}

#[tokio::test]
async fn f15_a_long_run_of_line_breaks_cannot_move_the_effect_out_of_sight() {
    let breaks = "\n".repeat(900);
    let call = with(|it| {
        it["input"] = json!({ "cmd": format!("ls{breaks}; rm -rf /srv"), "fake": "⟦900 line breaks⟧" });
        it["preview"] = json!({ "text": format!("lists{breaks}removes {}all", " ".repeat(400)) });
    });
    let server = PlantedServer::with(call).await;
    let shown = Approver::at(&server.url).run(&["show", ID]).await.stdout_of_success();
    for words in [
        "\"cmd\": \"ls⟦900 line breaks⟧; rm -rf /srv\"",
        "\"fake\": \"\\u27e6900 line breaks\\u27e7\"",
        "  | lists⟦900 line breaks⟧\n  | removes⟦401 blanks⟧all\n",
    ] {
        assert!(shown.contains(words), "{words}: {shown}");
    }
}

#[tokio::test]
async fn the_reason_why_an_approval_would_be_refused_is_shown() {
    let refused = json!({ "code": "already_approved", "message": "You have approved.\u{202e}" });
    let server = PlantedServer::with(with(|it| it["cannot_approve"] = refused)).await;
    let shown = Approver::at(&server.url).run(&["show", ID]).await.stdout_of_success();
    let may = "  you may        reject it; an approval would be refused: You have approved.\\u{202e}\n";
    assert!(shown.contains(may), "{shown}");
}

#[tokio::test]
async fn a_note_is_kept_with_an_approval_and_shown_as_one() {
    let app = Embedded::start().await;
    let (_, id) = app.held("pay", "10").await;
    let (approver, hash) = (Approver::of(&app), hash(&app, &id).await);
    approver.run(&["approve", &id, "--hash", &hash, "--note", "as agreed"]).await.stdout_of_success();
    let shown = approver.run(&["show", &id]).await.stdout_of_success();
    assert!(shown.contains("  note           as agreed\n") && !shown.contains("\n  reason "), "{shown}");
}
