//! The pages of the documentation in a real browser: those of the README of `packages/page` for AI SDK 5 to 7, and that of
//! docs/pages.md for AI SDK 4.

use holdpoint_testkit::mcp::{SteeredServer, definition};
use holdpoint_testkit::previews::{World, server};
use holdpoint_testkit::{
    Embedded, JsonFields, SamplePage, call, code_of, eventually, in_repository, scratch,
};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

/// A folder of this name with the page of this version, its configuration of Vite, and the installed packages that it imports.
fn page_of(name: &str, version: &str) -> PathBuf {
    let folder = scratch().join("sample_pages").join(name);
    if folder.exists() {
        fs::remove_dir_all(&folder).unwrap();
    }
    let modules = folder.join("node_modules");
    fs::create_dir_all(modules.join("@ai-sdk")).unwrap();
    let readme = fs::read_to_string(in_repository("packages/page/README.md")).unwrap();
    let guide = fs::read_to_string(in_repository("docs/pages.md")).unwrap();
    let files = match version {
        "4" => code_of(&guide, "AI SDK 4"),
        "5" => ["Client", "Card", "AI SDK 6 and 7", "AI SDK 5"].map(|it| code_of(&readme, it)).concat(),
        _ => ["Client", "Card", "AI SDK 6 and 7"].map(|it| code_of(&readme, it)).concat(),
    };
    // The later one of two files with a name counts.
    for (file, code) in &files {
        let code = code.replace("dialect: 'ui-v7'", &format!("dialect: 'ui-v{version}'"));
        fs::write(folder.join(file), code).unwrap();
    }
    let main = files.iter().find(|(file, _)| file.starts_with("main.")).unwrap().0;
    let html = format!(r#"<div id="root"></div><script type="module" src="/{main}"></script>"#);
    fs::write(folder.join("index.html"), html).unwrap();
    fs::write(folder.join("package.json"), r#"{"type": "module"}"#).unwrap();
    let config = code_of(&guide, "Development proxy and CORS");
    let [(file, config), ..] = &config[..] else { panic!("{config:?}") };
    assert!(config.contains("'http://127.0.0.1:8080'"), "{config}");
    fs::write(folder.join(file), config.replace("'http://127.0.0.1:8080'", "process.env.HOLDPOINT_URL"))
        .unwrap();
    let (example, wire) =
        (in_repository("examples/page/node_modules"), in_repository("tests/wire/node_modules"));
    for name in ["react", "react-dom", "vite"] {
        symlink(example.join(name), modules.join(name)).unwrap();
    }
    symlink(wire.join(format!("react{version}")), modules.join("@ai-sdk/react")).unwrap();
    if version != "4" {
        symlink(wire.join(format!("ai{version}")), modules.join("ai")).unwrap();
    }
    folder
}

/// Decides the only pending call outside the page.
async fn decide(app: &Embedded, more: Value) {
    let pending = app.client.get("/approvals").await.body;
    let [call] = &pending.list("results")[..] else { panic!("{pending}") };
    let mut answer = json!({ "toolCallId": call["tool_call_id"], "isValidated": true });
    answer.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let answer = app.client.validate(&answer).await;
    answer.has_status(200);
}

/// An idle page shows the end of a call that was decided elsewhere, that it decides too late, and that it
/// decides after the conversation went on.
async fn shows_what_became_of_a_call(version: &str) {
    let app = server(&World::that_reports("wipes {note}\u{202e} lines"), |_| {}).await;
    let mut page = SamplePage::start(&page_of(version, version), &app.client.base);

    app.scene.calls(&[call("p-1", "pay", &json!({ "note": "10" }))]).answers("Paid.");
    page.opens().await;
    page.sends("pay the bill").await;
    page.shows(&["Pay", "Inputs", r#""10""#, "Risk: high.", "Approve", "Deny"], &["Decision"]).await;
    assert!(page.is_enabled("Stop").await, "a call that waits can be cancelled");
    decide(&app, json!({ "resume": true, "validatedInputs": { "note": "7" } })).await;
    let shown =
        ["Decision: approve, by user:local.", "Edited. Proposed by the model:", r#""paid": "7""#, "Paid."];
    page.shows(&shown, &["Deny", "Approve"]).await;
    assert_eq!(page.alerts().await, Vec::<String>::new());

    app.scene.calls(&[call("p-2", "pay", &json!({ "note": "20" }))]).answers("Understood.");
    page.opens_without_events().await;
    page.sends("pay the rest").await;
    page.shows(&[r#""20""#, "Deny"], &[]).await;
    decide(&app, json!({})).await;
    page.clicks("Deny").await;
    page.shows(
        &["Decision: approve, by user:local.", r#""paid": "20""#, "Understood."],
        &["Deny", "Approve"],
    )
    .await;
    match version {
        "4" | "5" => {
            let alerts = page.alerts().await;
            let [alert] = &alerts[..] else { panic!("{alerts:?}") };
            assert!(alert.contains("decided already"), "{alert}");
        }
        _ => {
            page.shows(&["Your answer came too late."], &[]).await;
            assert_eq!(page.alerts().await, Vec::<String>::new());
        }
    }

    app.scene.calls(&[call("p-3", "wipe", &json!({ "note": "30" }))]).answers("Sunny.");
    page.opens().await;
    page.sends("wipe it all").await;
    let preview = ["What the tool says that it would do", r"wipes 30\u{202e} lines"];
    page.shows(&[r#""30""#, preview[0], preview[1], "Deny"], &[]).await;
    page.sends("and the weather?").await;
    page.shows(&["Sunny.", "Deny"], &["Decision"]).await;
    page.clicks("Approve").await;
    page.shows(&["Decision: approve, by user:local.", r#""wiped": "30""#], &["Deny", "Approve"]).await;
    assert_eq!(page.alerts().await, Vec::<String>::new());
    assert_eq!(app.ledger.lines(), ["pay 7", "pay 20", "wipe 30"]);
}

/// An approval of a card that has changed runs nothing, and the page shows the new card.
async fn asks_again_about_a_changed_card(version: &str) {
    let steered = SteeredServer::with("act");
    let app = Box::pin(Embedded::with(|config| config.mcp = vec![steered.entry("s", &json!({}))])).await;
    let tool =
        async || Some(app.client.get("/tools/s__act").await.body).filter(|tool| tool["mcp"].is_object());
    eventually("the tool is there", &tool).await;
    let mut page = SamplePage::start(&page_of(&format!("{version}-changed"), version), &app.client.base);
    app.scene.calls(&[call("p-1", "s__act", &json!({ "note": "10" }))]).answers("Acted.");
    // The page learns of the change by its refused approval. The events of the hold would have it load the new card.
    page.opens_without_events().await;
    page.sends("act").await;
    page.shows(&[r#""10""#, "Approve", "Deny"], &["no operator has accepted that"]).await;
    steered.lists(&json!([definition("act", "Acts on all.")]));
    let changed = async || tool().await.filter(|tool| tool["unaccepted_definition"].is_object());
    eventually("the definition has changed", changed).await;
    page.clicks("Approve").await;
    page.shows(&["no operator has accepted that", "Acts on all.", "Approve", "Deny"], &["Decision"]).await;
    assert_eq!(steered.called(), Vec::<String>::new());
    page.clicks("Approve").await;
    page.shows(&["Decision: approve, by user:local.", "Acted."], &["Deny", "Approve"]).await;
    assert_eq!(steered.called(), ["act"]);
}

#[tokio::test]
async fn the_page_of_ai_sdk_4_asks_again_about_a_changed_card_on_sqlite() {
    asks_again_about_a_changed_card("4").await;
}

#[tokio::test]
async fn the_page_of_ai_sdk_5_asks_again_about_a_changed_card_on_sqlite() {
    asks_again_about_a_changed_card("5").await;
}

#[tokio::test]
async fn the_page_of_ai_sdk_6_asks_again_about_a_changed_card_on_sqlite() {
    asks_again_about_a_changed_card("6").await;
}

#[tokio::test]
async fn the_page_of_ai_sdk_7_asks_again_about_a_changed_card_on_sqlite() {
    asks_again_about_a_changed_card("7").await;
}

#[tokio::test]
async fn the_page_of_ai_sdk_4_shows_what_became_of_a_call_on_sqlite() {
    shows_what_became_of_a_call("4").await;
}

#[tokio::test]
async fn the_page_of_ai_sdk_5_shows_what_became_of_a_call_on_sqlite() {
    shows_what_became_of_a_call("5").await;
}

#[tokio::test]
async fn the_page_of_ai_sdk_6_shows_what_became_of_a_call_on_sqlite() {
    shows_what_became_of_a_call("6").await;
}

#[tokio::test]
async fn the_page_of_ai_sdk_7_shows_what_became_of_a_call_on_sqlite() {
    shows_what_became_of_a_call("7").await;
}
