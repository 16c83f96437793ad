//! The functions of `@holdpoint/page` over the messages of pages of AI SDK 5 to 7. The package is installed from its
//! tarball.

use super::decided_elsewhere::{ALL, DECISION, HOLD, OutsideDecision, decide, in_force};
use super::native_approval::{PAY, held_call};
use super::output::Piece;
use super::page::{Page, Version};
use holdpoint::llm::ModelEvent;
use holdpoint_testkit::dialects::{PageApprovals, TestedDialect, ui_dialects};
use holdpoint_testkit::{Embedded, PagePackage};
use serde_json::{Value, json};

/// The pages that use the package, each with its dialect.
fn pages() -> impl Iterator<Item = (Version, &'static str)> {
    let pages_of =
        |dialect: &'static TestedDialect| dialect.sdks.iter().map(move |sdk| (Version(sdk), dialect));
    ui_dialects().flat_map(pages_of).map(|(version, dialect)| (version, dialect.name.as_str()))
}

/// The pages with approvals of their own.
fn native() -> impl Iterator<Item = (Version, &'static str)> {
    pages().filter(|(version, _)| version.is_native())
}

/// The flags of a page that uses the package.
pub(super) fn on(dialect: &'static str) -> [&'static str; 4] {
    ["--package", PagePackage::installed().folder.to_str().unwrap(), "--dialect", dialect]
}

impl Page {
    /// Loads the stored messages, as the package merges them with those of the page.
    async fn load_stored(&mut self) {
        self.act(&json!({ "do": "load" })).await;
        assert_eq!(self.error, None);
    }

    /// What `heldCalls` has about this call.
    fn held(&self, call: &str) -> &Value {
        &self.package["held"][call]
    }

    /// The ids of the calls in this list of the package.
    fn listed(&self, name: &str) -> Vec<&str> {
        self.package[name].as_array().unwrap().iter().map(|id| id.as_str().unwrap()).collect()
    }

    fn needs_reload(&self) -> bool {
        self.package["needsReload"].as_bool().unwrap()
    }
}

#[tokio::test]
async fn a_card_and_the_decision_about_it_are_found_by_the_call() {
    for ((version, dialect), how) in pages().flat_map(|page| ALL.map(|how| (page, how))) {
        println!("{dialect} {how:?}");
        let (app, mut page) = held_call(version, &PAY, &on(dialect)).await;
        let call = page.first();
        let hold = page.data_about(HOLD, &call);
        assert_eq!(page.held(&call), &json!({ "hold": hold, "answered": false }));
        assert_eq!((page.listed("pending"), page.needs_reload()), (vec![call.as_str()], false));
        decide(&app, &call, how).await;
        page.send_nothing().await;
        assert_eq!(page.held(&call)["decision"], in_force(&app, &call, false).await);
        assert_eq!((page.listed("pending").len(), page.listed("late").len()), (0, 0));
        assert_eq!(page.needs_reload(), page.approvals() == PageApprovals::Requests);
        page.load_stored().await;
        assert_eq!((page.needs_reload(), &page.invalid), (false, &None));
        assert_eq!(page.data_about(DECISION, &call), in_force(&app, &call, false).await);
        assert_eq!((page.text().as_str(), page.messages.len()), ("I will pay. Done.", 2));
    }
}

#[tokio::test]
async fn a_late_answer_is_listed_and_stays_so_after_the_messages_are_loaded() {
    for ((version, dialect), how, yes) in
        native().flat_map(|page| ALL.into_iter().flat_map(move |how| [(page, how, true), (page, how, false)]))
    {
        println!("{dialect} {how:?} {yes}");
        let (app, mut page) = held_call(version, &PAY, &on(dialect)).await;
        let call = page.first();
        decide(&app, &call, how).await;
        page.answer(&call, yes).await;
        page.posted_times(2);
        let contradicts = yes != matches!(how, OutsideDecision::Approve | OutsideDecision::Edit);
        assert_eq!(
            (page.listed("late"), page.needs_reload()),
            (vec![call.as_str()], contradicts && page.approvals() == PageApprovals::Requests)
        );
        page.load_stored().await;
        assert_eq!(
            (page.listed("late"), page.needs_reload(), &page.invalid),
            (vec![call.as_str()], false, &None)
        );
        assert_eq!(page.held(&call)["decision"], in_force(&app, &call, true).await);
    }
}

#[tokio::test]
async fn an_answer_that_counts_is_neither_pending_nor_late() {
    for ((version, dialect), yes) in native().flat_map(|page| [(page, true), (page, false)]) {
        let (app, mut page) = held_call(version, &PAY, &on(dialect)).await;
        let call = page.first();
        page.answer(&call, yes).await;
        page.posted_times(2);
        assert_eq!(page.held(&call)["decision"], in_force(&app, &call, false).await);
        assert_eq!(
            (page.listed("pending").len(), page.listed("late").len(), page.needs_reload()),
            (0, 0, false)
        );
        let shown = page.messages.clone();
        page.load_stored().await;
        assert_eq!(page.messages, shown);
    }
}

#[tokio::test]
async fn an_answer_that_is_not_posted_yet_outlives_the_loading_of_the_messages() {
    for (version, dialect) in native() {
        let two = [Piece::Call("pay", "1"), Piece::Call("pay", "2")];
        let (app, mut page) = held_call(version, &two, &on(dialect)).await;
        let [first, second] = &page.call_ids()[..] else { panic!("{page:#?}") };
        page.answer(first, true).await;
        page.posted_times(1);
        for _ in 0..2 {
            assert_eq!(
                (page.listed("pending"), &page.held(first)["answered"]),
                (vec![second.as_str()], &json!(true))
            );
            assert_eq!(page.states(), ["approval-responded", "approval-requested"]);
            page.load_stored().await;
        }
        page.answer(second, true).await;
        assert_eq!((page.error.as_deref(), page.text().as_str()), (None, "Done."));
        assert_eq!((page.listed("pending").len(), page.listed("late").len()), (0, 0));
        let mut lines = app.ledger.lines();
        lines.sort();
        assert_eq!(lines, ["pay 1", "pay 2"]);
    }
}

#[tokio::test]
async fn an_answer_of_the_page_gives_way_to_the_stored_decision() {
    for (version, dialect) in native() {
        let two = [Piece::Call("pay", "1"), Piece::Call("pay", "2")];
        let (app, mut page) = held_call(version, &two, &on(dialect)).await;
        let first = page.first();
        page.answer(&first, true).await;
        decide(&app, &first, OutsideDecision::Reject).await;
        page.load_stored().await;
        assert_eq!(page.states(), ["output-denied", "approval-requested"]);
        assert_eq!((page.listed("pending").len(), page.needs_reload(), &page.invalid), (1, false, &None));
    }
}

#[tokio::test]
async fn a_decision_about_an_earlier_message_is_found_and_asks_for_a_reload() {
    for (version, dialect) in pages() {
        let (app, mut page) = held_call(version, &PAY, &on(dialect)).await;
        let call = page.first();
        page.send("never mind").await;
        decide(&app, &call, OutsideDecision::Reject).await;
        page.send_nothing().await;
        assert_eq!(page.held(&call)["decision"], in_force(&app, &call, false).await);
        assert_eq!((page.listed("pending").len(), page.needs_reload()), (0, true));
        page.load_stored().await;
        assert_eq!((page.needs_reload(), page.messages.len(), &page.invalid), (false, 4, &None));
        assert_eq!(page.held(&call)["decision"], in_force(&app, &call, false).await);
    }
}

#[tokio::test]
async fn a_call_that_is_cancelled_after_its_approval_is_settled_for_the_page() {
    for (version, dialect) in pages() {
        let (app, mut page) = held_call(version, &PAY, &on(dialect)).await;
        let call = page.first();
        // The sweeper takes no call whose approval lies in the future.
        app.commit_yes(&call, "expires_at", "expires_at").await;
        let cancelled = app.client.post(&format!("/tool_calls/{call}/cancel"), &Value::Null).await;
        cancelled.has(200, "state", "cancelled");
        page.send_nothing().await;
        assert_eq!(
            (page.error.as_deref(), page.held(&call)["decision"]["decision"].as_str()),
            (None, Some("approve"))
        );
        page.load_stored().await;
        assert_eq!((page.needs_reload(), page.listed("pending").len(), &page.invalid), (false, 0, &None));
        assert_eq!(page.states(), ["output-error"]);
    }
}

#[tokio::test]
async fn loading_the_newest_messages_keeps_the_older_ones() {
    for (version, dialect) in pages() {
        let (app, mut page) = held_call(version, &PAY, &on(dialect)).await;
        page.send("never mind").await;
        page.load_stored().await;
        let shown = page.messages.clone();
        page.act(&json!({ "do": "load", "options": { "pageSize": 2 } })).await;
        assert_eq!((page.messages.len(), &page.messages), (4, &shown));
        assert_eq!(
            page.requests.last().unwrap()["path"],
            format!("/threads/chat-1/messages?format={dialect}&page_size=2")
        );
        drop(app);
    }
}

#[tokio::test]
async fn a_refused_message_stays_on_the_page_when_the_messages_are_loaded() {
    for (version, dialect) in pages() {
        let (app, mut page) = held_call(version, &PAY, &on(dialect)).await;
        page.send("").await;
        assert_eq!(page.refused().0, 400);
        let shown = page.messages.clone();
        assert_eq!((shown.len(), &shown[2]["role"]), (3, &json!("user")));
        page.act(&json!({ "do": "load" })).await;
        assert_eq!(page.messages, shown);
        // A stored message is not kept twice, and what follows a refused one takes its place.
        page.send("never mind").await;
        assert_eq!(page.error, None);
        page.load_stored().await;
        assert_eq!((page.messages.len(), page.text().as_str(), &page.invalid), (4, "Done.", &None));
        drop(app);
    }
}

#[tokio::test]
async fn a_page_on_the_transport_of_the_package_names_its_dialect() {
    for (version, dialect) in pages() {
        let (_app, mut page) = held_call(version, &PAY, &on(dialect)).await;
        page.resume().await;
        assert_eq!(page.error, None);
        let sent: Vec<&Value> = page.requests.iter().map(|request| &request["dialect"]).collect();
        assert_eq!(sent, [dialect, dialect]);
    }
}

#[tokio::test]
async fn an_error_of_a_page_is_a_sentence() {
    for (version, dialect) in pages() {
        let app = Embedded::start().await;
        app.scene.then(vec![Ok(ModelEvent::Text("Half".to_owned())), Err("secret".to_owned())]);
        let mut page = Page::open_with(&app, version, &on(dialect)).await;
        page.send("hello").await;
        let raw = page.error.clone().unwrap();
        let sentence = raw.strip_prefix("upstream_error: ").unwrap().split_once(" (request ").unwrap().0;
        assert_eq!(page.package["errorText"], sentence);

        page.send("").await;
        let refusal: Value = serde_json::from_str(page.error.as_deref().unwrap()).unwrap();
        assert_eq!(page.package["errorText"], refusal["error"]["message"]);
    }
}
