//! Entries that keep a server from starting.

use holdpoint_testkit::{EndedCommand, empty_sqlite, holdpoint};

/// An entry with these lines in place of those with the same keys. An empty value removes a key.
fn entry(lines: &[(&str, &str)]) -> String {
    let usual = [
        ("name", "\"desk\""),
        ("tenant", "\"default\""),
        ("user", "\"local\""),
        ("url", "\"https://ntfy.example\""),
        ("template", "'{\"text\": \"{title}\"}'"),
    ];
    let kept = usual.iter().filter(|(key, _)| lines.iter().all(|(other, _)| other != key));
    let all = kept.chain(lines).filter(|(_, value)| !value.is_empty());
    let all: String = all.map(|(key, value)| format!("{key} = {value}\n")).collect();
    format!("[[notify]]\n{all}")
}

fn refused(toml: &str, why: &str) {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("holdpoint.toml"), toml).unwrap();
    std::fs::write(dir.path().join("template.json"), "{\"text\": \"{titel}\"}").unwrap();
    let mut command = holdpoint(dir.path(), &empty_sqlite(&dir), &["serve"]);
    let ended = EndedCommand::of(command.env("HOLDPOINT_SERVER__BIND", "127.0.0.1:0").output().unwrap());
    ended.refused_for(why);
}

#[test]
fn a_service_or_a_template_that_cannot_be_used_keeps_the_server_from_starting() {
    let either = "notify[0].mail: expected either this, slack, ntfy or url";
    let type_of_body = "notify[0].content_type: expected application/json";
    for (lines, why) in [
        (&[("url", "")][..], either),
        (&[("mail", "\"dana@example.com\"")], either),
        (&[("url", "\"http://ntfy.example\"")], "notify[0].url: expected an https:// URL"),
        (&[("url", "\"https://10.0.0.1/\"")], "notify[0].url: 10.0.0.1 is not a public address"),
        (&[("template", "")], "notify[0].template: expected this or template_file"),
        (
            &[("template_file", "\"template.json\"")],
            "notify[0].template: expected either this or template_file",
        ),
        (&[("template", ""), ("template_file", "\"nowhere\"")], "notify[0].template_file: nowhere:"),
        (
            &[("template", ""), ("template_file", "\"template.json\"")],
            "notify[0].template_file: placeholder {titel}: expected one of {title}, {text}",
        ),
        (&[("template", "'{\"a\": \"{titel}\"}'")], "notify[0].template: placeholder {titel}"),
        (&[("template", "'{\"a\": {title}}'")], "notify[0].template: expected JSON"),
        (&[("template", "\"{title}\"")], "notify[0].template: expected JSON"),
        (&[("template", "'{\"a\": \"{inputs}\"}'")], "placeholder {inputs}: expected share_arguments = true"),
        (&[("template", "'{\"a\": \"{link}\"}'")], "placeholder {link}: expected server.public_url"),
        (&[("content_type", "\"text/html\"")], type_of_body),
        (&[("content_type", "\"text/plain; charset=latin1\"")], type_of_body),
        (
            &[("content_type", "\"text/plain\""), ("template", "\"{title\"")],
            "notify[0].template: placeholder {title: expected a closing brace",
        ),
        (&[("headers", "{ Host = \"a\" }")], "notify[0].headers: Host: the server sets this header"),
        (
            &[("headers", "{ webhook-id = \"a\" }")],
            "notify[0].headers: webhook-id: the server sets this header",
        ),
        (
            &[("headers", "{ \"a b\" = \"hunter2\" }")],
            "notify[0].headers: a b: expected the name of a header",
        ),
        (&[("header_files", "{ a = \"nowhere\" }")], "notify[0].header_files.a: nowhere:"),
        (
            &[("headers", "{ a = \"hunter2\" }"), ("header_files", "{ a = \"template.json\" }")],
            "notify[0].header_files.a: expected either a file or a value, not both",
        ),
        (&[("slack", "\"U1\"")], either),
        (&[("pager", "\"U1\"")], "notify[0].pager: there is no such key"),
        (&[("ntfy", "\"https://ntfy.example/holds\"")], either),
    ] {
        refused(&entry(lines), why);
    }
    let ntfy = |address| [("url", ""), ("template", ""), ("ntfy", address)];
    for (address, why) in [
        ("\"holds\"", "expected an https:// URL"),
        ("\"http://ntfy.example/holds\"", "expected an https:// URL"),
        ("\"https://ntfy.example\"", "expected the address of a topic, as https://ntfy.sh/holds"),
        ("\"https://ntfy.example/a/\"", "expected the address of a topic"),
        ("\"https://10.0.0.1/holds\"", "10.0.0.1 is not a public address"),
    ] {
        refused(&entry(&ntfy(address)), &format!("notify[0].ntfy: {why}"));
    }
    let with_template = [("url", ""), ("ntfy", "\"https://ntfy.example/holds\"")];
    refused(&entry(&with_template), "notify[0].template: expected this with url only");
    let mail = "[mail]\nserver = \"smtp.example\"\nfrom = \"holdpoint@example.com\"\n";
    let by_mail = [("mail", "\"dana@example.com\""), ("url", "")];
    refused(&format!("{mail}{}", entry(&by_mail)), "notify[0].template: expected this with url only");
}
