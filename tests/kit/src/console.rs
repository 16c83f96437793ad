//! Scenarios of the console in a real Chromium (`tests/browser/console.mjs`).

use crate::{Driver, temporary};
use serde_json::{Value, json};
use std::sync::OnceLock;

/// Runs a scenario against the server at this address. `facts` is what the scenario knows besides. All tests of this
/// process share one Chromium.
pub async fn play(scenario: &str, server: &str, mut facts: Value) {
    static CHROMIUM: OnceLock<Driver> = OnceLock::new();
    facts["server"] = server.into();
    let folder = temporary().join("console").join(scenario);
    let driver = CHROMIUM.get_or_init(|| Driver::start("console.mjs", None));
    let command = json!({ "scenario": scenario, "facts": facts, "folder": folder });
    if let Err(error) = driver.answer(command).await {
        panic!("{scenario}: {error}\n{} shows the tabs", folder.display());
    }
}
