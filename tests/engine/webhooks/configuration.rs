//! Webhooks that keep a server from starting.

use super::SECRETS;
use holdpoint_testkit::{EndedCommand, empty_sqlite, holdpoint};

/// An entry with these lines in place of those with the same keys.
fn entry(lines: &[(&str, &str)]) -> String {
    let usual = [
        ("name", "\"hook\""),
        ("tenant", "\"default\""),
        ("url", "\"https://hooks.example/holdpoint\""),
        ("secret_file", "\"secrets\""),
    ];
    let kept = usual.iter().filter(|(key, _)| lines.iter().all(|(other, _)| other != key));
    let all = kept.chain(lines).filter(|(_, value)| !value.is_empty());
    let all: String = all.map(|(key, value)| format!("{key} = {value}\n")).collect();
    format!("[[webhooks]]\n{all}")
}

fn refused(toml: &str, why: &str) {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("holdpoint.toml"), toml).unwrap();
    std::fs::write(dir.path().join("secrets"), SECRETS[0]).unwrap();
    std::fs::write(dir.path().join("no-secrets"), "hunter2").unwrap();
    let mut command = holdpoint(dir.path(), &empty_sqlite(&dir), &["serve"]);
    let ended = EndedCommand::of(command.env("HOLDPOINT_SERVER__BIND", "127.0.0.1:0").output().unwrap());
    ended.refused_for(why);
}

#[test]
fn a_webhook_that_cannot_be_used_keeps_the_server_from_starting() {
    for (lines, why) in [
        (&[("name", "\"a b\"")][..], "webhooks[0].name: expected 1 to 64 of a-z, A-Z, 0-9, _ and -"),
        (&[("name", "")], "webhooks[0].name: expected a value; it is missing"),
        (&[("tenant", "\"\"")], "webhooks[0].tenant: expected the tenant whose events the endpoint gets"),
        (&[("tenant", "\"acme\"")], "webhooks[0].tenant: expected \"default\", or auth.mode = \"jwt\""),
        (&[("url", "\"http://hooks.example\"")], "webhooks[0].url: expected an https:// URL"),
        (&[("url", "\"https://a:b@hooks.example\"")], "webhooks[0].url: expected a URL without a user name"),
        (&[("url", "\"https://10.0.0.1/\"")], "webhooks[0].url: 10.0.0.1 is not a public address"),
        (&[("secret_file", "\"nowhere\"")], "webhooks[0].secret_file: nowhere:"),
        (&[("secret_file", "\"no-secrets\"")], "webhooks[0].secret_file: expected secrets, one per line"),
        (&[("events", "[\"tool.exploded\"]")], "not \"tool.exploded\""),
        (&[("events", "[]")], "webhooks[0].events: expected types of events"),
        (&[("body", "\"fat\"")], "expected `thin` or `full`, not \"fat\""),
        (&[("timeout", "\"0s\"")], "webhooks[0].timeout: expected more than 0s, and at most 60s"),
        (&[("timeout", "\"61s\"")], "webhooks[0].timeout: expected more than 0s, and at most 60s"),
        (&[("retries", "5")], "webhooks[0].retries: there is no such key"),
    ] {
        refused(&entry(lines), why);
    }
    refused(
        &format!("{}{}", entry(&[]), entry(&[])),
        "webhooks[1].name: expected another name than \"hook\"",
    );
}
