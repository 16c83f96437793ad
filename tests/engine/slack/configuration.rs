//! Sections and entries that keep a server from starting.

use holdpoint_testkit::{EndedCommand, empty_sqlite, holdpoint};

const SECTION: &str = "[slack]\ntoken = \"xoxb-1\"\nsigning_secret = \"hunter2\"\n";

fn entry(lines: &str) -> String {
    format!("[[notify]]\nname = \"desk\"\ntenant = \"default\"\n{lines}\n")
}

fn refused(toml: &str, why: &str) {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("holdpoint.toml"), toml).unwrap();
    let mut command = holdpoint(dir.path(), &empty_sqlite(&dir), &["serve"]);
    let ended = EndedCommand::of(command.env("HOLDPOINT_SERVER__BIND", "127.0.0.1:0").output().unwrap());
    ended.refused_for(why);
}

#[test]
fn an_application_or_an_entry_that_cannot_be_used_keeps_the_server_from_starting() {
    let local = "user = \"local\"\nslack = \"U1\"";
    for (toml, why) in [
        (entry(local), "notify[0].slack: expected a section [slack]"),
        (
            format!("{SECTION}{}", entry("user = \"local\"\nslack = \"#general\"")),
            "notify[0].slack: expected the id",
        ),
        (
            format!("{SECTION}{}", entry("user = \"local\"\nslack = \"u1\"")),
            "notify[0].slack: expected the id",
        ),
        (
            format!("{SECTION}{}", entry("user = \"local\"\nslack = \"U1\"\nmail = \"a@example.com\"")),
            "notify[0].mail: expected either this, slack, ntfy or url",
        ),
        (
            format!("{SECTION}{}", entry("user = \"local\"\nslack = \"U1\"\ntemplate = \"x\"")),
            "notify[0].template: expected this with url only",
        ),
        (format!("{SECTION}url = \"x\"\n"), "slack.url: there is no such key"),
        ("[slack]\ntoken = \"xoxb-1\"\n".to_owned(), "signing_secret"),
        ("[slack]\nsigning_secret = \"x\"\n".to_owned(), "token"),
        (SECTION.replace("xoxb-1", ""), "slack.token: expected characters"),
        (SECTION.replace("hunter2", "hunter 2"), "slack.signing_secret: expected characters"),
        (
            format!("{SECTION}token_file = \"token\"\n"),
            "slack.token_file: expected either this or slack.token",
        ),
        (SECTION.replace("token = \"xoxb-1\"", "token_file = \"nowhere\""), "slack.token_file: nowhere:"),
        (
            format!("{SECTION}api_url = \"http://slack.example/api\"\n"),
            "slack.api_url: expected an https:// URL",
        ),
        (
            format!("{SECTION}api_url = \"https://user@slack.com/api\"\n"),
            "slack.api_url: expected an https:// URL",
        ),
    ] {
        refused(&toml, why);
    }
    let tokens = "[auth]\nmode = \"jwt\"\nsecret = \"0123456789abcdef0123456789abcdef\"\nissuer = \"a\"\naudience = \"b\"\n";
    let of_acme = |lines: &str| entry(lines).replace("\"default\"", "\"acme\"");
    let role = format!("{SECTION}{tokens}{}", of_acme("role = \"manager\"\nslack = \"U1\""));
    refused(&role, "notify[0].user: expected the user of the Slack account");
    let dana = of_acme("user = \"dana\"\nslack = \"U1\"");
    let eve = dana.replace("dana", "eve").replace("desk", "other");
    refused(
        &format!("{SECTION}{tokens}{dana}{eve}"),
        "notify[1].slack: expected one user for this Slack account",
    );
}
