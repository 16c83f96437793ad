//! Previews on pages of all versions, and in the client of the package.

use super::decided_elsewhere::{HOLD, load, pages};
use super::native_approval::held_call_of;
use super::output::Piece;
use super::package::on;
use super::page::Version;
use holdpoint_testkit::previews::{World, server};
use serde_json::{Value, json};

const WIPE: [Piece; 2] = [Piece::Text("I will wipe. "), Piece::Call("wipe", "10")];

#[tokio::test]
async fn a_card_has_the_preview_live_and_after_a_reload_and_the_page_decides_as_before() {
    for (version, flags) in pages() {
        let world = World::that_reports("deletes {note}\n<b>and\u{202e} 3</b>");
        let app = server(&world, |_| {}).await;
        let page = held_call_of(&app, version, &WIPE, flags).await;
        let call = page.first();
        let preview = json!({ "text": "deletes 10\n<b>and\\u{202e} 3</b>" });
        let card = page.data_about(HOLD, &call);
        assert_eq!((page.invalid.as_deref(), &card["preview"]), (None, &preview), "{version:?}");
        assert_eq!(card["inputHash"], app.client.call(&call).await["input_hash"]);
        page.equals_reload(&app).await;
        let loaded = load(&app, &page).await;
        assert_eq!((loaded.invalid.as_deref(), loaded.data_about(HOLD, &call)), (None, card), "{version:?}");
        assert_eq!(app.client.approve(&call).await.body["state"], "succeeded");
    }
}

#[tokio::test]
async fn the_client_of_the_package_previews_an_edit_and_approves_it_with_the_hash() {
    let world = World::that_reports("deletes {note}");
    let app = server(&world, |_| {}).await;
    let mut page = held_call_of(&app, Version::V7, &WIPE, &on("ui-v7")).await;
    let call = page.first();
    let edit = json!({ "approved": true, "input": { "note": "11" } });
    let unseen = page.tries_method("decide", json!([call, edit])).await;
    assert_eq!(unseen["error"]["code"], "stale");
    let shown = page.calls_method("preview", json!([call, { "input": { "note": "11" } }])).await;
    assert_eq!(shown["preview"], json!({ "text": "deletes 11" }));
    let as_text = page.calls_method("preview", json!([call, { "inputText": "{\"note\":\"11\"}" }])).await;
    assert_eq!(as_text, shown);
    world.now_reports("deletes all");
    let mut decision: Value = edit;
    decision["previewHash"] = shown["preview_hash"].clone();
    let stale = page.tries_method("decide", json!([call, decision])).await;
    assert_eq!((&stale["error"]["status"], &stale["error"]["code"]), (&json!(409), &json!("stale")));
    let shown = page.calls_method("preview", json!([call, { "input": { "note": "11" } }])).await;
    decision["previewHash"] = shown["preview_hash"].clone();
    assert_eq!(page.calls_method("decide", json!([call, decision])).await["state"], "succeeded");
    assert_eq!(app.ledger.lines(), ["wipe 11"]);
}
