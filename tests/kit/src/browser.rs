//! The example pages in a real Chromium, driven by a process of Node (`tests/browser`).

use super::{Driver, PagePackage};
use crate::temporary;
use serde::Serialize;
use serde_json::{Value, json};
use std::sync::OnceLock;

/// The driver of the example pages. All tests of this process share it.
fn driver() -> &'static Driver {
    static SHARED: OnceLock<Driver> = OnceLock::new();
    SHARED.get_or_init(|| {
        let package = PagePackage::installed().folder.join("node_modules/@holdpoint/page");
        Driver::start("drive.mjs", Some(&package))
    })
}

/// A browser of one test. It has to be closed. If the test fails before that, the contents of its tabs are
/// written to `target/tmp/browser`.
pub struct Browser {
    test: &'static str,
}

pub struct Tab {
    test: &'static str,
    name: &'static str,
}

impl Browser {
    /// Starts a browser with `examples/page`, which talks to the server at this address, under the test's unique
    /// name.
    pub async fn start(server: &str, test: &'static str) -> Self {
        Self::start_example("page", server, test).await
    }

    /// Starts a browser with the page in this folder of `examples`.
    pub async fn start_example(example: &str, server: &str, test: &'static str) -> Self {
        let command = json!({ "do": "start", "test": test, "server": server, "example": example });
        driver().command(command).await;
        Self { test }
    }

    /// Opens a tab with the page, which creates its own chat.
    pub async fn tab(&self, name: &'static str) -> Tab {
        self.tab_at(name, "/").await
    }

    /// Opens a tab with the page at this path.
    pub async fn tab_at(&self, name: &'static str, path: &str) -> Tab {
        let tab = Tab { test: self.test, name };
        tab.command("open", json!({ "at": path })).await;
        tab
    }

    pub async fn close(self) {
        driver().command(json!({ "do": "close", "test": self.test })).await;
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let folder = temporary().join("browser").join(self.test);
            let command = json!({ "do": "fail", "test": self.test, "folder": folder });
            // The driver does this while the test unwinds.
            let _answer = driver().send(command);
        }
    }
}

impl Tab {
    async fn command(&self, what: &str, mut command: Value) -> Value {
        command["test"] = self.test.into();
        command["tab"] = self.name.into();
        command["do"] = what.into();
        driver().command(command).await
    }

    /// The id of the tab's chat, from the URL.
    pub async fn chat(&self) -> String {
        let url = self.command("url", json!({})).await;
        url.as_str().unwrap().strip_prefix("/?chat=").unwrap().to_owned()
    }

    pub async fn sends(&self, words: &str) {
        self.command("say", json!({ "text": words })).await;
    }

    /// Waits until the conversation has exactly these lines, and the page is idle.
    pub async fn shows(&self, lines: &[impl Serialize]) {
        self.command("shows", json!({ "lines": lines, "busy": false })).await;
    }

    /// Waits until the conversation has exactly these lines, while the page waits for more.
    pub async fn shows_so_far(&self, lines: &[impl Serialize]) {
        self.command("shows", json!({ "lines": lines, "busy": true })).await;
    }

    /// Approves a call of this tool; index 0 is the first.
    pub async fn approves(&self, tool: &str, index: usize) {
        self.command("approve", json!({ "tool": tool, "index": index })).await;
    }

    /// Rejects a call of this tool, with a reason.
    pub async fn denies(&self, tool: &str, index: usize, reason: &str) {
        self.command("deny", json!({ "tool": tool, "index": index, "reason": reason })).await;
    }

    /// Clicks the button of this name.
    pub async fn clicks(&self, button: &str) {
        self.command("click", json!({ "name": button })).await;
    }

    /// Follows the link of this name.
    pub async fn clicks_link(&self, link: &str) {
        self.command("click", json!({ "name": link, "role": "link" })).await;
    }

    /// Clicks a button in the card of the first call of this tool.
    pub async fn clicks_in(&self, tool: &str, button: &str) {
        self.command("clickInCard", json!({ "tool": tool, "name": button })).await;
    }

    /// Fills a field in the card of the first call of this tool: with a text, or with whether a box is checked.
    pub async fn fills_in(&self, tool: &str, label: &str, value: impl Into<Value>) {
        let value = value.into();
        self.command("fillInCard", json!({ "tool": tool, "label": label, "value": value })).await;
    }

    /// Chooses an option of a field in the card of the first call of this tool.
    pub async fn chooses_in(&self, tool: &str, label: &str, value: &str) {
        self.command("chooseInCard", json!({ "tool": tool, "label": label, "value": value })).await;
    }

    /// Presses a key, such as `Tab`.
    pub async fn presses(&self, key: &str) {
        self.command("press", json!({ "key": key })).await;
    }

    /// Types a text into whatever has the focus.
    pub async fn types(&self, text: &str) {
        self.command("type", json!({ "text": text })).await;
    }

    /// Brings all of the first cards that wait into view.
    pub async fn reads(&self, count: usize) {
        self.command("read", json!({ "count": count })).await;
    }

    /// What is wrong with the approvals that the page offers while cards of this seed are read in a window of this size.
    pub async fn faults_of_cards(&self, seed: u32, width: u32, height: u32) -> Vec<String> {
        let command = json!({ "seed": seed, "count": 4, "width": width, "height": height });
        texts(&self.command("cards", command).await)
    }

    /// What is wrong with a page that shows each card of this seed whole, and the approvals that it offers.
    pub async fn faults_of_whole_cards(&self, seed: u32) -> Vec<String> {
        texts(&self.command("wholeCards", json!({ "seed": seed, "count": 8 })).await)
    }

    pub async fn resizes(&self, width: u32, height: u32) {
        self.command("resize", json!({ "width": width, "height": height })).await;
    }

    /// Emulates a preference of the user, such as `{"colorScheme": "dark"}`.
    pub async fn prefers(&self, media: Value) {
        self.command("emulate", json!({ "media": media })).await;
    }

    /// Loses every later request whose URL has this form.
    pub async fn loses(&self, form: &str) {
        self.command("cut", json!({ "path": form })).await;
    }

    /// The value of a JavaScript expression in the page.
    pub async fn value_of(&self, script: &str) -> Value {
        self.command("evaluate", json!({ "script": script })).await
    }

    /// Waits until a JavaScript expression in the page has this value.
    pub async fn becomes(&self, script: &str, value: impl Into<Value>) {
        let value = value.into();
        self.command("becomes", json!({ "script": script, "value": value })).await;
    }

    /// What axe finds wrong with the page, and whether the page is wider than its window.
    pub async fn faults(&self) -> Vec<String> {
        texts(&self.command("faults", json!({})).await)
    }

    pub async fn reloads(&self) {
        self.command("reload", json!({})).await;
    }

    /// Reloads the page up to its request for the running turn, which is held until it is released.
    pub async fn reloads_held(&self) {
        self.command("reloadHeld", json!({})).await;
    }

    /// Makes the next request whose URL has this form wait until it is released.
    pub async fn holds_back(&self, form: &str) {
        self.command("hold", json!({ "path": form })).await;
    }

    /// Releases the request, which has to come.
    pub async fn releases(&self) {
        self.command("release", json!({})).await;
    }

    /// The error that the page shows.
    pub async fn alert(&self) -> String {
        self.command("alert", json!({})).await.as_str().unwrap().to_owned()
    }

    /// The page's requests and their statuses, oldest first, with `{chat}` in place of the chat's id.
    pub async fn requests(&self) -> Vec<String> {
        let chat = self.chat().await;
        let requests = self.command("requests", json!({})).await;
        let line = |line: &Value| line.as_str().unwrap().replace(&chat, "{chat}");
        requests.as_array().unwrap().iter().map(line).collect()
    }

    /// The errors in the page's console.
    pub async fn errors(&self) -> Vec<String> {
        texts(&self.command("errors", json!({})).await)
    }
}

fn texts(list: &Value) -> Vec<String> {
    list.as_array().unwrap().iter().map(|text| text.as_str().unwrap().to_owned()).collect()
}
