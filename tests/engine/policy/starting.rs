//! Errors and warnings at the start, for a policy that does less than it seems to.

use super::{names, rule};
use holdpoint::app::{App, AppError};
use holdpoint::config::{Config, RuleEffect};
use holdpoint::handlers::Deferred;
use holdpoint_testkit::{Ledger, token};
use holdpoint_testkit::{Process, Scene, postgres_if_chosen, probes, sqlite};
use serde_json::Value;
use std::process::Command;
use std::sync::Arc;

/// Builds a server with the probe tools and this change to its policy.
async fn built(change: impl FnOnce(&mut Config)) -> Result<(), AppError> {
    let dir = tempfile::tempdir().unwrap();
    let mut config = Config::default();
    config.database.url = sqlite(&dir).into();
    change(&mut config);
    let app = App::builder(config).tools(probes(&Ledger::new())).model(Arc::new(Scene::new()));
    Box::pin(app.handler(Deferred).build()).await.map(drop)
}

#[tokio::test]
async fn an_unknown_tool_name_is_refused_and_the_error_lists_the_tools() {
    let misspelt = |key: &'static str| {
        move |config: &mut Config| {
            let list = match key {
                "approval.always_deny" => &mut config.approval.always_deny,
                _ => &mut config.approval.always_allow,
            };
            *list = names(&["look", "payy"]);
        }
    };
    for key in ["approval.always_deny", "approval.always_allow"] {
        let refused = built(misspelt(key)).await.unwrap_err().to_string();
        assert!(refused.contains(&format!("{key}: there is no tool \"payy\"")), "{refused}");
        assert!(refused.contains("expected one of [break, "), "{refused}");
    }
    let wrong = |config: &mut Config| {
        config.approval.rules = vec![rule(RuleEffect::Deny, "pay", "*"), rule(RuleEffect::Deny, "payy", "*")];
        config.approval.rules[0].name = "other".to_owned();
    };
    let refused = built(wrong).await.unwrap_err().to_string();
    assert!(refused.contains("approval.rules[1].tools: there is no tool \"payy\""), "{refused}");
    // A pattern may refer to tools of another build.
    built(|config| config.approval.always_deny = names(&["payy*", "look"])).await.unwrap();
}

/// The warnings of the server's binary at its start, with this file and these variables: keys and messages.
async fn warnings(toml: &str, variables: &[(&str, &str)]) -> Vec<(String, String)> {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("holdpoint.toml"), toml).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_holdpoint"));
    if let Some(url) = postgres_if_chosen().await {
        command.env("HOLDPOINT_DATABASE__URL", url);
    }
    let command = command.current_dir(dir.path()).envs(variables.iter().copied());
    let printed = Process::spawn_captured(command).finish();
    let lines = printed.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let warned = lines.filter(|line| line["level"] == "WARN");
    let text = |value: &Value| value.as_str().map(str::to_owned);
    warned.filter_map(|line| Some((text(&line["key"])?, text(&line["message"])?))).collect()
}

fn keys(warnings: &[(String, String)]) -> Vec<&str> {
    warnings.iter().map(|(key, _)| key.as_str()).collect()
}

#[tokio::test]
async fn patterns_that_match_nothing_are_warned_of() {
    let toml = "
        [approval]
        always_deny = [\"rm_*\", \"*_file\"]
        always_allow = [\"list_?iles\", \"show*\"]
        [[approval.rules]]
        name = \"one\"
        effect = \"ask\"
        tools = [\"read_*\", \"pay*\", \"write_file\"]
        when = [{ argument = \"/path\", matches = \"a*\" }, { argument = \"/amount\", above = 5 }]
        [[approval.rules]]
        name = \"two\"
        effect = \"deny\"
        tools = [\"write_file\"]
        when = [{ argument = \"/path/0\", equals = \"a\" }]";
    let warned = warnings(toml, &[]).await;
    let expected = [
        ("approval.always_deny", "\"rm_*\""),
        ("approval.always_allow", "\"show*\""),
        ("approval.rules[0].tools", "\"pay*\""),
        ("approval.rules[0].when[1].argument", "\"/amount\", so the condition holds: read_file, write_file"),
        ("approval.rules[1].when[0].argument", "\"/path/0\", so the condition holds: write_file"),
    ];
    assert_eq!(keys(&warned), expected.map(|(key, _)| key), "{warned:?}");
    for ((_, output), (_, expected)) in warned.iter().zip(expected) {
        assert!(output.contains(expected), "{expected} in {output}");
    }
}

#[tokio::test]
async fn settings_that_skip_approvals_or_authentication_are_warned_of() {
    assert_eq!(warnings("", &[]).await, []);
    for (toml, expected) in [
        ("[approval]\nmode = \"auto-approve\"", &["approval.mode"][..]),
        ("[approval]\nalways_allow = [\"list_files\", \"*\"]", &["approval.always_allow"]),
        ("[approval]\nalways_allow = [\"**\"]", &["approval.always_allow"]),
        ("[approval]\nalways_allow = [\"*_file\"]\nmode = \"auto-deny\"", &[]),
        ("[auth]\nallow_insecure = true", &["auth.allow_insecure"]),
    ] {
        let warned = warnings(toml, &[]).await;
        assert_eq!(keys(&warned), expected, "{toml}: {warned:?}");
    }
}

#[tokio::test]
async fn an_address_reachable_from_other_machines_is_warned_of() {
    let dir = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_holdpoint"));
    if let Some(url) = postgres_if_chosen().await {
        command.env("HOLDPOINT_DATABASE__URL", url);
    }
    // The flag overrides the address that is set for every server of these tests.
    command.args(["--bind", "0.0.0.0:0"]).envs(token::VARIABLES).current_dir(dir.path());
    let printed = Process::spawn_captured(&mut command).finish();
    let warned = printed.lines().filter(|line| line.contains("\"server.bind\"")).collect::<Vec<_>>();
    assert_eq!(warned.len(), 1, "{printed}");
    assert!(warned[0].contains("\"WARN\"") && warned[0].contains("0.0.0.0:"), "{printed}");
}
