//! Sections that keep a server from starting.

use holdpoint_testkit::{EndedCommand, empty_sqlite, holdpoint};

/// The lines of a table, with these lines in place of those with the same keys. An empty value removes a key.
fn table(head: &str, usual: &[(&str, &str)], lines: &[(&str, &str)]) -> String {
    let kept = usual.iter().filter(|(key, _)| lines.iter().all(|(other, _)| other != key));
    let all = kept.chain(lines).filter(|(_, value)| !value.is_empty());
    let all: String = all.map(|(key, value)| format!("{key} = {value}\n")).collect();
    format!("{head}\n{all}")
}

fn mail(lines: &[(&str, &str)]) -> String {
    let usual = [("server", "\"smtp.example\""), ("from", "\"holdpoint@example.com\"")];
    table("[mail]", &usual, lines)
}

fn notify(lines: &[(&str, &str)]) -> String {
    let usual = [
        ("name", "\"dana\""),
        ("tenant", "\"default\""),
        ("user", "\"local\""),
        ("mail", "\"dana@example.com\""),
    ];
    table("[[notify]]", &usual, lines)
}

fn refused(toml: &str, why: &str) {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("holdpoint.toml"), toml).unwrap();
    std::fs::write(dir.path().join("no-certificate"), "hunter2").unwrap();
    std::fs::write(dir.path().join("secrets"), "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
    let mut command = holdpoint(dir.path(), &empty_sqlite(&dir), &["serve"]);
    let ended = EndedCommand::of(command.env("HOLDPOINT_SERVER__BIND", "127.0.0.1:0").output().unwrap());
    ended.refused_for(why);
}

#[test]
fn a_mail_server_that_cannot_be_used_keeps_the_server_from_starting() {
    let no_password = "mail.password: expected this or mail.password_file beside mail.user";
    for (lines, why) in [
        (&[("server", "")][..], "mail.server: expected a value; it is missing"),
        (&[("server", "\"smtp.example/path\"")], "mail.server: expected a host name or an address"),
        (&[("server", "\"me:hunter2@smtp.example\"")], "mail.server: expected a host name or an address"),
        (&[("server", "\"smtp.example:99999\"")], "mail.server: expected a host name or an address"),
        (&[("tls", "\"maybe\"")], "expected one of `starttls`, `implicit`, `none`, not \"maybe\""),
        (&[("tls", "\"none\"")], "mail.tls: expected \"starttls\" or \"implicit\""),
        (&[("ca_file", "\"nowhere\"")], "mail.ca_file: nowhere:"),
        (&[("ca_file", "\"no-certificate\"")], "mail.ca_file: no-certificate: expected certificates in PEM"),
        (&[("from", "\"holdpoint\"")], "mail.from: expected a mail address"),
        (&[("from", "\"a@example.com\\r\\nBcc: b@example.com\"")], "mail.from: expected a mail address"),
        (&[("from", "\"é@example.com\"")], "mail.from: expected a mail address in ASCII"),
        (&[("user", "\"holdpoint\"")], no_password),
        (&[("password", "\"hunter2\"")], "mail.user: expected this beside mail.password"),
        (&[("password_file", "\"nowhere\"")], "mail.password_file: nowhere:"),
        (&[("timeout", "\"0s\"")], "mail.timeout: expected more than 0s, and at most 60s"),
        (&[("pool", "5")], "mail.pool: there is no such key"),
    ] {
        refused(&format!("{}{}", mail(lines), notify(&[])), why);
    }
}

#[test]
fn a_recipient_that_cannot_be_used_keeps_the_server_from_starting() {
    let one_user = "notify[0].user: expected \"local\" and no role";
    for (lines, why) in [
        (&[("name", "\"a b\"")][..], "notify[0].name: expected 1 to 64 of a-z, A-Z, 0-9, _ and -"),
        (&[("tenant", "\"acme\"")], "notify[0].tenant: expected \"default\""),
        (&[("user", "")], "notify[0].user: expected this or role, or both"),
        (&[("user", "\" \"")], "notify[0].user: expected a name"),
        (&[("user", "\"dana\"")], one_user),
        (&[("role", "\"manager\"")], one_user),
        (&[("mail", "\"dana\"")], "notify[0].mail: expected a mail address"),
        (&[("mail", "\"\"")], "notify[0].mail: expected a mail address"),
        (&[("share_arguments", "\"perhaps\"")], "notify[0].share_arguments"),
        (&[("time_zone", "\"Mars/Base\"")], "notify[0].time_zone: expected the IANA name of a time zone"),
        (&[("quiet", "\"22-7\"")], "notify[0].quiet: expected two different times of the day"),
        (&[("quiet", "\"22:00-24:00\"")], "notify[0].quiet: expected two different times of the day"),
        (&[("quiet", "\"+2:00-07:00\"")], "notify[0].quiet: expected two different times of the day"),
        (&[("quiet", "\"07:00-07:00\"")], "notify[0].quiet: expected two different times of the day"),
        (&[("pager", "\"U1\"")], "notify[0].pager: there is no such key"),
    ] {
        refused(&format!("{}{}", mail(&[]), notify(lines)), why);
    }
    refused(&notify(&[]), "notify[0].mail: expected a section [mail]");
    let twice = format!("{}{}{}", mail(&[]), notify(&[]), notify(&[]));
    refused(&twice, "notify[1].name: expected another name than \"dana\"");
    let webhook = "[[webhooks]]\nname = \"dana\"\ntenant = \"default\"\nurl = \"https://hooks.example\"\n\
                   secret_file = \"secrets\"\n";
    refused(
        &format!("{}{webhook}{}", mail(&[]), notify(&[])),
        "notify[0].name: expected another name than \"dana\"",
    );
}
