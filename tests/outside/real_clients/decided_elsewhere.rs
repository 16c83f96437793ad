//! Cards and decisions on pages of all versions: what a person decides on, and a decision that came from
//! elsewhere, in time or before the page's own answer. The SDK's own check of stored messages accepts what a page
//! of 5 and 7 holds; a page of 6 has to load its messages again.

use super::native_approval::{PAY, held_call};
use super::page::{Page, Version, header, reload_as};
use holdpoint::tools::ToolRegistry;
use holdpoint_testkit::dialects::{PageApprovals, TestedDialect, dialects};
use holdpoint_testkit::{ChangedPay, Embedded, JsonFields, eventually};
use serde_json::{Value, json};
use std::sync::LazyLock;

/// A page of each dialect, with its flags.
static PAGES: LazyLock<Vec<(Version, &'static [&'static str])>> = LazyLock::new(|| {
    let page = |dialect: &'static TestedDialect| {
        let version = Version(&dialect.sdks[0]);
        (version, &*flags_of(version, dialect).leak())
    };
    dialects().iter().map(page).collect()
});
pub(super) const HOLD: &str = "data-tool-hold";
pub(super) const DECISION: &str = "data-tool-decision";

/// How a call is decided outside the page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OutsideDecision {
    Approve,
    Edit,
    Reject,
    Expire,
    Cancel,
}

pub(super) fn pages() -> Vec<(Version, &'static [&'static str])> {
    PAGES.clone()
}

/// The pages with approvals of their own, or those without.
fn pages_with_approvals(with: bool) -> impl Iterator<Item = (Version, &'static [&'static str])> {
    pages().into_iter().filter(move |(version, _)| version.is_native() == with)
}

/// The flags of a page of this version that reads this dialect.
fn flags_of(version: Version, dialect: &TestedDialect) -> Vec<&'static str> {
    if *dialect == *version.dialect() { Vec::new() } else { vec!["--header", header(dialect).leak()] }
}

pub(super) const ALL: [OutsideDecision; 5] = [
    OutsideDecision::Approve,
    OutsideDecision::Edit,
    OutsideDecision::Reject,
    OutsideDecision::Expire,
    OutsideDecision::Cancel,
];

pub(super) async fn decide(app: &Embedded, call: &str, how: OutsideDecision) {
    let body = |yes: bool| json!({ "toolCallId": call, "isValidated": yes });
    let answer = match how {
        OutsideDecision::Approve => app.client.validate(&body(true)).await,
        OutsideDecision::Edit => {
            let mut edit = body(true);
            edit["validatedInputs"] = json!({ "note": "7" });
            app.client.validate(&edit).await
        }
        OutsideDecision::Reject => {
            let mut no = body(false);
            no["reason"] = json!("too much");
            app.client.validate(&no).await
        }
        OutsideDecision::Expire => {
            let end = format!("UPDATE tool_calls SET expires_at = created_at WHERE tool_call_id = '{call}'");
            assert_eq!(app.rows.change(&end).await, Ok(1));
            let late = app.client.validate(&body(true)).await;
            late.failed_with(409, "expired");
            return;
        }
        OutsideDecision::Cancel => app.client.post(&format!("/tool_calls/{call}/cancel"), &Value::Null).await,
    };
    assert_eq!(answer.status, 200, "{how:?} {:?}", answer.body);
}

/// The decision in force, as a page has to show it.
pub(super) async fn in_force(app: &Embedded, call: &str, late: bool) -> Value {
    let stored = app.client.call(call).await;
    let decision = &stored["decision"];
    let mut expected = json!({
        "toolCallId": call,
        "decision": decision["decision"],
        "by": decision["by"],
        "at": decision["at"],
        "edited": decision["edited"],
    });
    for (name, value) in [("input", &stored["validated_inputs"]), ("reason", &decision["reason"])] {
        if !value.is_null() {
            expected[name] = value.clone();
        }
    }
    if late {
        expected["late"] = json!(true);
    }
    expected
}

/// A page with the messages of a reload.
pub(super) async fn load(app: &Embedded, page: &Page) -> Page {
    let messages = json!(reload_as(app, &page.dialect.format).await).to_string();
    let flags = flags_of(page.version, page.dialect);
    Page::open_with(app, page.version, &[&flags[..], &["--messages", &messages]].concat()).await
}

/// After a reload the page shows the same decision, and the SDK accepts its messages.
async fn is_right_after_a_reload(app: &Embedded, page: &Page, call: &str) {
    let loaded = load(app, page).await;
    assert_eq!(loaded.invalid, None, "{:?}", loaded.version);
    assert_eq!(loaded.data_about(DECISION, call), in_force(app, call, false).await);
    assert_eq!(loaded.data_about(HOLD, call)["input"], json!({ "note": "10" }), "the proposal");
}

#[tokio::test]
async fn a_hold_comes_with_its_card_live_and_after_a_reload() {
    for (version, flags) in pages() {
        let (app, page) = held_call(version, &PAY, flags).await;
        let call = page.first();
        let stored = app.client.call(&call).await;
        let card = json!({
            "toolCallId": call,
            "toolName": "pay",
            "title": "Pay",
            "description": "A probe.",
            "cardParts": ["inputs"],
            "input": { "note": "10" },
            "risk": "high",
            "reason": stored["reason"],
            "expiresAt": stored["expires_at"],
            "inputHash": stored["input_hash"],
            "requestedBy": "user:local",
            "canEdit": true,
            "canRemember": true,
            "approvalsNeeded": 1,
        });
        assert_eq!(page.data_about(HOLD, &call), card);
        assert_eq!((page.invalid.as_deref(), page.data_about(DECISION, &call)), (None, Value::Null));
        page.equals_reload(&app).await;
        assert_eq!(load(&app, &page).await.data_about(HOLD, &call), card);
    }
}

#[tokio::test]
async fn a_card_has_the_headline_of_the_tool_as_long_as_the_tool_exists() {
    for (version, flags) in pages() {
        let (app, page) = held_call(version, &PAY, flags).await;
        let call = page.first();
        let hash = page.data_about(HOLD, &call)["inputHash"].clone();
        let mut tools = ToolRegistry::new();
        tools.register(ChangedPay(app.ledger.clone())).unwrap();
        let app = app.redeploy(tools).await;
        let card = load(&app, &page).await.data_about(HOLD, &call);
        assert_eq!(card["headline"], "Pay 10?");
        assert_ne!(card["inputHash"], hash, "the schema of the tool changed");
        let app = app.redeploy(ToolRegistry::new()).await;
        let card = load(&app, &page).await.data_about(HOLD, &call);
        for absent in ["headline", "description"] {
            assert_eq!(card.get(absent), None, "{card}");
        }
        assert_eq!((&card["title"], &card["input"]), (&json!("Pay"), &json!({ "note": "10" })));
        assert_eq!((&card["canEdit"], &card["canRemember"]), (&json!(false), &json!(false)));
    }
}

#[tokio::test]
async fn a_page_that_continues_receives_the_decision_that_came_from_elsewhere() {
    for ((version, flags), how) in pages().into_iter().flat_map(|page| ALL.map(|how| (page, how))) {
        println!("{version:?} {how:?}");
        let (app, mut page) = held_call(version, &PAY, flags).await;
        let call = page.first();
        decide(&app, &call, how).await;
        match version.is_ui() {
            true => page.send_nothing().await,
            false => page.resume().await,
        }
        assert_eq!((page.error.as_deref(), page.text().as_str()), (None, "I will pay. Done."));
        assert_eq!(page.data_about(DECISION, &call), in_force(&app, &call, false).await);
        assert_eq!(
            page.invalid.is_some(),
            page.approvals() == PageApprovals::Requests,
            "{:?} {how:?}",
            page.invalid
        );
        // A page of 4 gets the inputs of an edit as data. The row of a call that expires gets another deadline here.
        let differs = how == OutsideDecision::Expire || (!version.is_ui() && how == OutsideDecision::Edit);
        let outside = if differs { vec![call.clone()] } else { vec![] };
        page.equals_reload_but_for(&app, &outside).await;
        is_right_after_a_reload(&app, &page, &call).await;
    }
}

#[tokio::test]
async fn an_answer_that_came_too_late_is_marked() {
    for ((version, flags), how, yes) in pages_with_approvals(true)
        .flat_map(|page| ALL.into_iter().flat_map(move |how| [(page, how, true), (page, how, false)]))
    {
        println!("{version:?} {how:?} {yes}");
        let (app, mut page) = held_call(version, &PAY, flags).await;
        let call = page.first();
        decide(&app, &call, how).await;
        page.answer_because(&call, yes, "I say so").await;
        page.posted_times(2);
        assert_eq!(page.data_about(DECISION, &call), in_force(&app, &call, true).await);
        assert_eq!(page.text(), "I will pay. Done.");
        let part = page.last().list("parts").iter().find(|part| part["toolCallId"] == call);
        let runs = matches!(how, OutsideDecision::Approve | OutsideDecision::Edit);
        if page.approvals() == PageApprovals::RequestsAndDecisions {
            assert_eq!(page.invalid, None, "{how:?} {yes}");
            assert_eq!(part.unwrap()["approval"]["approved"], runs);
            assert!(!part.unwrap().to_string().contains("I say so"), "{part:?}");
        }
        assert_eq!(page.states()[0] == "output-available", runs);
        is_right_after_a_reload(&app, &page, &call).await;
        assert_eq!(app.ledger.lines().len(), usize::from(runs));
    }
}

#[tokio::test]
async fn a_page_without_approvals_whose_answer_is_refused_as_late_continues_and_receives_the_decision() {
    for ((version, flags), how, yes) in pages_with_approvals(false)
        .flat_map(|page| ALL.into_iter().flat_map(move |how| [(page, how, true), (page, how, false)]))
    {
        println!("{version:?} {how:?} {yes}");
        let (app, mut page) = held_call(version, &PAY, flags).await;
        let call = page.first();
        decide(&app, &call, how).await;
        let answer = app.client.validate(&json!({ "toolCallId": call, "isValidated": yes })).await;
        // The same answer as the one in force is no late one.
        let agrees = (how == OutsideDecision::Approve && yes) || (how == OutsideDecision::Reject && !yes);
        assert_eq!(answer.status, if agrees { 200 } else { 409 }, "{:?}", answer.body);
        match version.is_ui() {
            true => page.send_nothing().await,
            false => page.resume().await,
        }
        assert_eq!((page.error.as_deref(), page.text().as_str()), (None, "I will pay. Done."));
        assert_eq!(page.data_about(DECISION, &call), in_force(&app, &call, false).await);
        assert_eq!(
            page.states(),
            [if !version.is_ui() {
                "result"
            } else if matches!(how, OutsideDecision::Approve | OutsideDecision::Edit) {
                "output-available"
            } else {
                "output-error"
            }]
        );
        is_right_after_a_reload(&app, &page, &call).await;
        assert_eq!(
            app.ledger.lines().len(),
            usize::from(matches!(how, OutsideDecision::Approve | OutsideDecision::Edit))
        );
    }
}

#[tokio::test]
async fn an_answer_that_counts_is_not_marked_as_late() {
    for (version, flags) in pages_with_approvals(true) {
        for yes in [true, false] {
            let (app, mut page) = held_call(version, &PAY, flags).await;
            let call = page.first();
            page.answer(&call, yes).await;
            page.posted_times(2);
            assert_eq!(page.data_about(DECISION, &call), in_force(&app, &call, false).await);
            assert_eq!(page.invalid, None);
            page.equals_reload(&app).await;
        }
    }
}

#[tokio::test]
async fn a_page_that_continues_receives_the_end_of_its_card_once() {
    for (version, flags) in pages() {
        let (app, mut page) = held_call(version, &PAY, flags).await;
        let call = page.first();
        decide(&app, &call, OutsideDecision::Reject).await;
        page.send("and?").await;
        assert_eq!((page.error.as_deref(), page.messages.len()), (None, 4));
        assert_eq!(page.data_about(DECISION, &call), in_force(&app, &call, false).await);
        page.equals_reload_but_for(&app, std::slice::from_ref(&call)).await;
        app.scene.answers("Yes.");
        page.send("sure?").await;
        assert_eq!((page.error.as_deref(), page.text().as_str()), (None, "Yes."));
        if version.is_ui() {
            assert!(!page.last().to_string().contains(DECISION), "{}", page.last());
        }
    }
}

/// A GET cannot say what the page shows, so a page of 4 receives nothing about a run that has ended: such a page loads its
/// messages.
async fn a_page_of_4_reads_nothing_and_receives_the_decision_by_a_reload(
    app: &Embedded,
    page: &mut Page,
    call: &str,
) {
    let shown = (page.messages.clone(), page.data.clone());
    page.resume().await;
    assert_eq!((page.error.as_deref(), page.requests.last().unwrap()["status"].as_u64()), (None, Some(200)));
    assert_eq!((page.messages.clone(), page.data.clone()), shown);
    is_right_after_a_reload(app, page, call).await;
}

#[tokio::test]
async fn a_page_that_continues_after_the_run_was_cancelled_receives_the_decision() {
    for (version, flags) in pages() {
        let (app, mut page) = held_call(version, &PAY, flags).await;
        let call = page.first();
        let run = app.client.run_of(&call).await;
        app.client.post(&format!("/runs/{run}/cancel"), &Value::Null).await.has_status(200);
        if !version.is_ui() {
            a_page_of_4_reads_nothing_and_receives_the_decision_by_a_reload(&app, &mut page, &call).await;
            continue;
        }
        page.send_nothing().await;
        page.posted_times(2);
        assert_eq!(page.data_about(DECISION, &call), in_force(&app, &call, false).await);
    }
}

#[tokio::test]
async fn a_page_that_continues_after_the_server_did_gets_the_rest_of_the_message() {
    for (version, flags) in pages() {
        let (app, mut page) = held_call(version, &PAY, flags).await;
        let call = page.first();
        let stored = app.client.call(&call).await;
        let path = format!("/sessions/{}/approvals/{call}", stored.text("session_id"));
        app.client.post(&path, &json!({ "decision": "allow_once" })).await.has_status(200);
        let run = format!("/runs/{}", stored.text("run_id"));
        let completed = async || (app.client.get(&run).await.body["status"] == "completed").then_some(());
        eventually("the server resumes the run", completed).await;
        if !version.is_ui() {
            a_page_of_4_reads_nothing_and_receives_the_decision_by_a_reload(&app, &mut page, &call).await;
            assert_eq!(load(&app, &page).await.text(), "I will pay. Done.");
            continue;
        }
        for requests in [2, 3] {
            page.send_nothing().await;
            page.posted_times(requests);
            assert_eq!((page.text().as_str(), page.messages.len()), ("I will pay. Done.", 2));
            assert_eq!(page.data_about(DECISION, &call), in_force(&app, &call, false).await);
            page.equals_reload(&app).await;
        }
        assert_eq!(app.scene.requests().len(), 2, "the model gets no further request");
    }
}

#[tokio::test]
async fn a_page_without_the_call_in_its_last_message_receives_the_end_of_the_earlier_one() {
    for (version, flags) in pages() {
        let (app, mut page) = held_call(version, &PAY, flags).await;
        let call = page.first();
        page.send("never mind").await;
        page.posted_times(2);
        decide(&app, &call, OutsideDecision::Reject).await;
        if !version.is_ui() {
            a_page_of_4_reads_nothing_and_receives_the_decision_by_a_reload(&app, &mut page, &call).await;
            continue;
        }
        page.send_nothing().await;
        page.posted_times(3);
        assert_eq!(page.data_about(DECISION, &call), in_force(&app, &call, false).await);
        assert_eq!((page.text().as_str(), page.messages.len()), ("Done.", 4));
    }
}
