//! What a card shows besides the inputs: previews, and definitions of MCP tools that no operator has accepted.

use super::{DECIDED, OPENED, asked_for};
use holdpoint_testkit::mcp::{SteeredServer, definition};
use holdpoint_testkit::previews::{World, server};
use holdpoint_testkit::{Browser, Embedded, JsonFields, call, eventually};
use serde_json::json;

const CARD: &str = "wipe";
/// The texts of the card under their labels.
const FIGURES: &str = "[...document.querySelectorAll('.call figure')].map(it =>
    [...it.querySelectorAll('figcaption, dt, pre')].map(it => it.textContent).filter(it => it !== '').join('\\n'))";
/// What the tool says about the inputs of the form.
const PREVIEW_RESULT: &str = "document.querySelector('.preview-result')?.innerText ?? null";
const BUTTONS: &str = "[...document.querySelectorAll('.edit button')].map(it => it.innerText)";

#[tokio::test]
async fn a_card_shows_what_the_tool_says_that_the_call_would_do() {
    let world = World::that_reports("wipes {note}\n<b>and\u{202e} more</b>");
    let app = server(&world, |_| {}).await;
    app.scene.calls(&[call("p-1", "wipe", &json!({ "note": "10" }))]).answers("Wiped.");
    let browser = Browser::start(&app.client.base, "previews").await;
    let tab = browser.tab("tab").await;
    tab.sends("wipe it").await;
    let shown = json!([
        "Inputs\nnote\n\"10\"",
        "What the tool says that it would do\nwipes 10\n<b>and\\u{202e} more</b>",
    ]);
    tab.becomes(FIGURES, shown.clone()).await;
    assert_eq!(tab.faults().await, Vec::<String>::new());
    tab.reloads().await;
    tab.becomes(FIGURES, shown).await;
    tab.approves("wipe", 0).await;
    tab.becomes("shown().lines.at(-1)", "Wiped.").await;
    assert_eq!(app.ledger.lines(), ["wipe 10"]);
    asked_for(&tab, &[OPENED, DECIDED]).await;
    browser.close().await;
}

#[tokio::test]
async fn an_edit_is_approved_after_what_the_tool_says_about_it() {
    let world = World::that_reports("wipes {note}");
    let app = server(&world, |_| {}).await;
    app.scene.calls(&[call("p-1", "wipe", &json!({ "note": "10" }))]).answers("Wiped.");
    let browser = Browser::start(&app.client.base, "previews_edits").await;
    let tab = browser.tab("tab").await;
    tab.sends("wipe it").await;
    tab.clicks_in(CARD, "Edit").await;
    tab.becomes("document.activeElement.labels?.[0].innerText", "note").await;
    tab.fills_in(CARD, "note", "11").await;
    tab.becomes(BUTTONS, json!(["Preview edited inputs", "Back"])).await;
    tab.clicks_in(CARD, "Preview edited inputs").await;
    let label = "What the tool says that it would do with these inputs";
    tab.becomes(PREVIEW_RESULT, format!("{label}\nwipes 11")).await;
    tab.becomes("document.activeElement.className", "preview-result").await;
    tab.becomes(BUTTONS, json!(["Approve edited inputs", "Back"])).await;
    assert_eq!(tab.faults().await, Vec::<String>::new());
    // Other inputs need a preview of their own.
    tab.fills_in(CARD, "note", "12").await;
    tab.becomes(BUTTONS, json!(["Preview edited inputs", "Back"])).await;
    tab.clicks_in(CARD, "Preview edited inputs").await;
    tab.becomes(PREVIEW_RESULT, format!("{label}\nwipes 12")).await;

    world.now_reports("wipes all");
    tab.clicks_in(CARD, "Approve edited inputs").await;
    tab.becomes(BUTTONS, json!(["Preview edited inputs", "Back"])).await;
    tab.becomes("document.querySelectorAll('.edit [role=alert]').length", 1).await;
    assert_eq!(app.ledger.lines(), Vec::<String>::new());
    tab.clicks_in(CARD, "Preview edited inputs").await;
    tab.becomes(PREVIEW_RESULT, format!("{label}\nwipes all")).await;
    tab.becomes("document.querySelectorAll('.edit [role=alert]').length", 0).await;
    tab.clicks_in(CARD, "Approve edited inputs").await;
    tab.becomes("shown().lines.at(-1)", "Wiped.").await;
    assert_eq!(app.ledger.lines(), ["wipe 12"]);
    browser.close().await;
}

#[tokio::test]
async fn a_card_shows_what_a_server_changed_about_its_tool() {
    let steered = SteeredServer::with("act");
    let server = Box::pin(Embedded::with(|config| config.mcp = vec![steered.entry("s", &json!({}))])).await;
    let tool =
        async || Some(server.client.get("/tools/s__act").await.body).filter(|tool| tool["mcp"].is_object());
    eventually("the tool is there", &tool).await;
    steered.lists(&json!([definition("act", "Acts\u{202e} on <b>all</b>.")]));
    let changed = async || tool().await.filter(|tool| tool["unaccepted_definition"].is_object());
    let changes = eventually("the definition has changed", changed).await;
    let accepted = changes["unaccepted_definition"]["changes"][0].text("accepted");
    server.scene.calls(&[call("p-1", "s__act", &json!({ "note": "10" }))]).answers("Acted.");
    let browser = Browser::start(&server.client.base, "definitions").await;
    let tab = browser.tab("tab").await;
    tab.sends("act").await;
    let cause =
        "The server of the tool has changed what it says about the tool, and no operator has accepted that";
    let shown = json!([
        "Inputs\nnote\n\"10\"",
        format!(
            "{cause}\ndescription, as accepted\n{accepted}\ndescription, now\nActs\\u{{202e}} on <b>all</b>."
        ),
    ]);
    tab.becomes(FIGURES, shown).await;
    let facts =
        "[...document.querySelectorAll('.call dl > div')].map(it => it.innerText.replace(/\\s+/g, ' '))";
    tab.becomes(&format!("{facts}.includes('MCP server s')"), true).await;
    assert_eq!(tab.faults().await, Vec::<String>::new());
    tab.approves("s__act", 0).await;
    tab.becomes("shown().lines.at(-1)", "Acted.").await;
    tab.becomes("document.querySelectorAll('.call [data-part=definition]').length", 0).await;
    assert_eq!(steered.called(), ["act"]);
    browser.close().await;
}

#[tokio::test]
async fn an_approval_of_a_card_that_has_changed_runs_nothing_and_the_new_card_is_read_first() {
    let steered = SteeredServer::with("act");
    let server = Box::pin(Embedded::with(|config| config.mcp = vec![steered.entry("s", &json!({}))])).await;
    let tool =
        async || Some(server.client.get("/tools/s__act").await.body).filter(|tool| tool["mcp"].is_object());
    eventually("the tool is there", &tool).await;
    server.scene.calls(&[call("p-1", "s__act", &json!({ "note": "10" }))]).answers("Acted.");
    let browser = Browser::start(&server.client.base, "changes").await;
    let tab = browser.tab("tab").await;
    tab.sends("act").await;
    let parts = "[...document.querySelectorAll('.call [data-part]')].map(it => it.dataset.part)";
    tab.becomes(parts, json!(["inputs"])).await;
    let buttons = "[...document.querySelectorAll('.call .buttons button')].map(it => it.innerText)";
    tab.becomes(buttons, json!(["Approve", "Deny", "Edit"])).await;
    // The page learns of the change by its refused approval. The events of the hold would have it load the new card: a
    // page that was loaded again has its messages twice, and then reads no event.
    tab.reloads().await;
    tab.becomes(buttons, json!(["Approve", "Deny", "Edit"])).await;
    let loads = "performance.getEntriesByType('resource').filter(it => /\\/messages/.test(it.name)).length";
    tab.becomes(&format!("{loads} >= 2"), true).await;
    let text = format!("Acts on all.{}", "\nIt does.".repeat(60));
    steered.lists(&json!([definition("act", &text)]));
    let changed = async || tool().await.filter(|tool| tool["unaccepted_definition"].is_object());
    eventually("the definition has changed", changed).await;
    tab.approves("s__act", 0).await;
    tab.becomes(parts, json!(["inputs", "definition"])).await;
    tab.becomes(&format!("{buttons}[0].startsWith('Read on: ')"), true).await;
    tab.becomes("document.querySelector('.call [role=alert]') !== null", true).await;
    assert_eq!(steered.called(), Vec::<String>::new());
    tab.approves("s__act", 0).await;
    tab.becomes("shown().lines.at(-1)", "Acted.").await;
    assert_eq!(steered.called(), ["act"]);
    browser.close().await;
}
