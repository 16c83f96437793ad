//! The keys of `[[mcp]]`.

use crate::support::holdpoint;

/// The error of a server with this configuration, or what it prints as its configuration.
fn config(toml: &str) -> Result<String, String> {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("holdpoint.toml"), toml).unwrap();
    std::fs::write(dir.path().join("token"), "hunter2\n").unwrap();
    let ended = holdpoint(dir.path(), "sqlite://x.db", &["config"]).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    if ended.status.success() { Ok(text(ended.stdout)) } else { Err(text(ended.stderr)) }
}

#[test]
fn a_wrong_entry_is_refused_with_its_key() {
    for (lines, expected) in [
        ("name = \"a__b\"\ncommand = \"x\"", "mcp[0].name: expected a name without __"),
        ("name = \"a_\"\ncommand = \"x\"", "mcp[0].name: expected a name without __"),
        ("name = \"a b\"\ncommand = \"x\"", "mcp[0].name: expected 1 to 32"),
        ("name = \"a\"", "mcp[0].command: expected either this or url"),
        (
            "name = \"a\"\ncommand = \"x\"\nurl = \"https://x.example\"",
            "mcp[0].command: expected either this or url",
        ),
        ("name = \"a\"\nurl = \"http://127.0.0.1/mcp\"", "mcp[0].url: expected an https:// URL"),
        (
            "name = \"a\"\nurl = \"https://x.example\"\nargs = [\"y\"]",
            "mcp[0].command: expected this with args",
        ),
        ("name = \"a\"\ncommand = \"x\"\nheaders = { a = \"b\" }", "mcp[0].headers: expected none"),
        ("name = \"a\"\nurl = \"https://x.example\"\nheaders = { Accept = \"b\" }", "mcp[0].headers: Accept"),
        ("name = \"a\"\ncommand = \"x\"\nenv = { \"a=b\" = \"c\" }", "mcp[0].env: expected the names"),
        (
            "name = \"a\"\ncommand = \"x\"\ntools = [\"read\"]\nrequire_approval = [\"write\"]",
            "mcp[0].require_approval: \"write\" is not in tools; expected one of [read]",
        ),
        ("name = \"a\"\ncommand = \"x\"\nrequire_approval = [\"write\"]", "mcp[0].tools: expected the list"),
        ("name = \"a\"\ncommand = \"x\"\ntimeout = \"0s\"", "mcp[0].timeout: expected more than 0s"),
        ("name = \"a\"\ncommand = \"x\"\nprotocol = \"old\"", "mcp[0].protocol"),
        ("name = \"a\"\ncommand = \"x\"\nstart_timeout = \"0s\"", "mcp[0].start_timeout: expected more than"),
        (
            "name = \"a\"\nurl = \"https://x.example\"\nstart_timeout = \"5s\"",
            "mcp[0].start_timeout: expected none",
        ),
        ("name = \"a\"\ncommand = \"x\"\ntimeout = \"2h\"", "mcp[0].timeout: expected at most tools.timeout"),
        (
            "name = \"a\"\ncommand = \"x\"\nresult_deadline = \"0s\"",
            "mcp[0].result_deadline: expected more than 0s",
        ),
        ("name = \"a\"\ncommand = \"x\"\nresult_deadline = \"4000 days\"", "mcp[0].result_deadline"),
        ("name = \"a\"\ncommand = \"x\"\nrisk = \"some\"", "mcp[0].risk"),
        ("name = \"a\"\ncommand = \"x\"\nhints = true", "mcp[0].hints"),
        (
            "name = \"a\"\ncommand = \"x\"\n[[mcp]]\nname = \"a\"\ncommand = \"y\"",
            "mcp[1].name: expected another name",
        ),
    ] {
        let said = config(&format!("[[mcp]]\n{lines}\n")).unwrap_err();
        assert!(said.contains(expected), "{lines}\n{said}");
    }
}

#[test]
fn the_configuration_in_force_names_variables_and_headers_without_their_values() {
    let shown = config(
        r#"
        [[mcp]]
        name = "a"
        command = "x"
        env = { API_KEY = "hunter2" }
        env_files = { TOKEN = "token" }
        [[mcp]]
        name = "b"
        url = "https://x.example/mcp?token=hunter2"
        headers = { Authorization = "Bearer hunter2" }
        tools = []
        "#,
    )
    .unwrap();
    assert!(!shown.contains("hunter2"), "{shown}");
    for line in
        ["API_KEY = \"***\"", "TOKEN = \"token\"", "Authorization = \"***\"", "inherit_env = [\"PATH\"]"]
    {
        assert!(shown.contains(line), "{line}\n{shown}");
    }
}
