//! Entries of `[[http_tools]]` and `[egress]` that cannot be used, each named by its key.

use super::{HERE, Office, tool};
use holdpoint_testkit::{EndedCommand, ServiceAction};

/// Runs `holdpoint` in this office with this argument to its end.
fn run(office: &Office, argument: &str) -> EndedCommand {
    EndedCommand::of(
        office.command(&[("HOLDPOINT_SERVER__BIND", "127.0.0.1:0")]).arg(argument).output().unwrap(),
    )
}

/// A configuration with one tool at this URL and with these lines.
fn one(url: &str, lines: &str) -> String {
    format!("{HERE}{}", tool("pay", url, lines))
}

#[tokio::test]
async fn a_wrong_value_of_an_entry_is_an_error_that_names_it() {
    let url = "https://tools.example/pay";
    let public = "server.public_url = \"https://chat.example\"\n";
    let office = Office::new(ServiceAction::Hangs, "").await;
    for (toml, key) in [
        ("http_tools = 5".to_owned(), "http_tools"),
        (one(url, "").replace("name = \"pay\"", ""), "http_tools[0].name"),
        (one(url, "").replace("\"pay\"", "\"pay it\""), "http_tools[0].name"),
        (one(url, "").replace("Does it elsewhere.", " "), "http_tools[0].description"),
        (one(url, "").replace("secret_file = \"secrets\"", ""), "http_tools[0].secret_file"),
        (one(url, "secret = \"hunter2\""), "http_tools[0].secret"),
        (one(url, "hil = \"perhaps\""), "http_tools[0].hil"),
        (one(url, "risk = \"huge\""), "http_tools[0].risk"),
        (one(url, "idempotent = \"perhaps\""), "http_tools[0].idempotent"),
        (one(url, "timeout = 5"), "http_tools[0].timeout"),
        (one(url, "timeout = \"0s\""), "http_tools[0].timeout"),
        (one(url, "timeout = \"61s\""), "http_tools[0].timeout"),
        (one(url, "result_deadline = \"1h\""), "http_tools[0].result_deadline"),
        (format!("{public}{}", one(url, "result_deadline = \"0s\"")), "http_tools[0].result_deadline"),
        (format!("{public}{}", one(url, "result_deadline = \"4000 days\"")), "http_tools[0].result_deadline"),
        (format!("{public}{}", one(url, "result_deadline = 5")), "http_tools[0].result_deadline"),
        (one(url, "constants = 5"), "http_tools[0].constants"),
        (one(url, "input_schema_file = \"schema.json\""), "http_tools[0].input_schema"),
        (one("http://tools.example/pay", ""), "http_tools[0].url"),
        (one("http://10.0.0.1/pay", ""), "http_tools[0].url"),
        (one("https://me:hunter2@tools.example/pay", ""), "http_tools[0].url"),
        (one("https://tools.example/pay#top", ""), "http_tools[0].url"),
        (one("ftp://tools.example/pay", ""), "http_tools[0].url"),
        (one("pay", ""), "http_tools[0].url"),
        (one(url, "verify_url = \"http://tools.example/x\""), "http_tools[0].verify_url"),
        (one(url, "preview_url = \"http://tools.example/x\""), "http_tools[0].preview_url"),
        (format!("{}{}", one(url, ""), tool("pay", url, "")), "http_tools[1].name"),
        (
            format!(
                "{HERE}[[http_tools]]\nname = \"pay\"\ndescription = \"d\"\nurl = \"{url}\"\nsecret_file = \"s\""
            ),
            "http_tools[0].input_schema",
        ),
        ("egress.allow = [\"10.0.0.0/33\"]".to_owned(), "egress.allow"),
        ("egress.allow = [\"https://tools.example\"]".to_owned(), "egress.allow"),
        ("egress.allow = [\"*.example\"]".to_owned(), "egress.allow"),
        ("egress.allow = [\"tools.example:443\"]".to_owned(), "egress.allow"),
        ("egress.deny = []".to_owned(), "egress.deny"),
        ("tools.demo = \"perhaps\"".to_owned(), "tools.demo"),
    ] {
        std::fs::write(office.dir.path().join("holdpoint.toml"), &toml).unwrap();
        let ended = run(&office, "config");
        ended.refused_for(&format!("configuration: {key}"));
        assert!(!ended.stderr.contains("hunter2") || key.ends_with("secret"), "{ended:?}");
    }
}

#[tokio::test]
async fn a_tool_that_cannot_be_used_keeps_the_server_from_starting() {
    let url = "https://tools.example/pay";
    let office = Office::new(ServiceAction::Hangs, "").await;
    let write = |name: &str, text: &str| std::fs::write(office.dir.path().join(name), text).unwrap();
    write("short", "whsec_c2hvcnQtaHVudGVyMg==");
    write("broken.json", "{ \"type\": ");
    let file = one(url, "input_schema_file = \"schema.json\"");
    let file = file.split("[http_tools.input_schema]").next().unwrap().to_owned();
    for (toml, why) in [
        (
            one(url, "").replace("\"secrets\"", "\"missing\""),
            "http_tools[0].secret_file: missing: No such file",
        ),
        (one(url, "").replace("\"secrets\"", "\"short\""), "http_tools[0].secret_file: expected secrets"),
        (file.clone(), "http_tools[0].input_schema_file: schema.json: No such file"),
        (file.replace("schema.json", "broken.json"), "http_tools[0].input_schema_file: broken.json: "),
        (one("https://10.0.0.1/pay", ""), "http_tools[0].url: 10.0.0.1 is not a public address"),
        (one("https://[::ffff:10.0.0.1]/pay", ""), "http_tools[0].url: "),
        (
            one("https://169.254.169.254/pay", ""),
            "http_tools[0].url: 169.254.169.254 is not a public address",
        ),
        (one(url, "constants = { path = \"x\" }"), "tool \"pay\": the constant \"path\""),
        (one(url, "constants = { id = 9007199254740993 }"), "tool \"pay\": the constant \"/id\""),
        (one(url, "headline = \"Pay {nothing}?\""), "tool \"pay\": the headline"),
        (one(url, "").replace("\"object\"", "\"string\""), "tool \"pay\": the input schema"),
        (
            one(url, "").replace("demo = false", "demo = true").replace("\"pay\"", "\"read_file\""),
            "tool \"read_file\" is registered twice",
        ),
        (
            format!("{}[tools.read_file]\nrun_roles = [\"a\"]\n", one(url, "")),
            "tools.read_file: there is no such tool",
        ),
    ] {
        write("holdpoint.toml", &toml);
        let ended = run(&office, "serve");
        ended.refused_for(why);
        assert!(!ended.stderr.contains("c2hvcnQtaHVudGVyMg"), "{ended:?}");
    }
}

#[tokio::test]
async fn the_schema_of_a_file_keeps_its_order() {
    let file = one("{url}", "input_schema_file = \"schema.json\"");
    let office =
        Office::new(ServiceAction::Hangs, file.split("[http_tools.input_schema]").next().unwrap()).await;
    let schema = r#"{"type":"object","properties":{"zebra":{"type":"string"},"ape":{"type":"string"}}}"#;
    std::fs::write(office.dir.path().join("schema.json"), schema).unwrap();
    let server = office.start(&[]);
    let tool = server.client.get("/tools/pay").await.body;
    let names: Vec<_> = tool["input_schema"]["properties"].as_object().unwrap().keys().cloned().collect();
    assert_eq!(names, ["zebra", "ape"]);
}

#[tokio::test]
async fn the_configuration_in_force_shows_the_tools_without_their_secrets() {
    let lines =
        "timeout = \"20s\"\nresult_deadline = \"2h\"\nrisk = \"medium\"\nconstants = { account = \"a\" }";
    let toml = one("https://tools.example/pay?token=hunter2", lines);
    let toml = format!("server.public_url = \"https://chat.example\"\n{toml}");
    let office = Office::new(ServiceAction::Hangs, &toml).await;
    let shown = run(&office, "config").stdout_of_success();
    for line in [
        "allow = [\"127.0.0.1\"]",
        "demo = false",
        "[[http_tools]]",
        "url = \"https://tools.example/pay?token=***\"",
        "secret_file = \"secrets\"",
        "timeout = \"20s\"",
        "result_deadline = \"2h\"",
        "public_url = \"https://chat.example\"",
        "risk = \"medium\"",
        "account = \"a\"",
    ] {
        assert!(shown.contains(line), "{line} in {shown}");
    }
    assert!(!shown.contains("hunter2"), "{shown}");
    // The output is a configuration.
    std::fs::write(office.dir.path().join("holdpoint.toml"), &shown).unwrap();
    assert_eq!(run(&office, "config").stdout_of_success(), shown);
}
