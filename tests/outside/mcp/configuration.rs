//! The keys of `[[mcp]]`.

use holdpoint_testkit::holdpoint;

/// The error of a server with this configuration, or what it prints as its configuration.
fn config(toml: &str) -> Result<String, String> {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("holdpoint.toml"), toml).unwrap();
    std::fs::write(dir.path().join("token"), "hunter2\n").unwrap();
    let ended = holdpoint(dir.path(), "sqlite://x.db", &["config"]).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    if ended.status.success() { Ok(text(ended.stdout)) } else { Err(text(ended.stderr)) }
}

/// The beginning of an entry, and of its section for tokens.
const HTTP: &str = "name = \"a\"\nurl = \"https://x.example\"\n";
const OAUTH: &str = "\n[mcp.oauth]\nclient_secret = \"hunter2\"\nclient_id = ";

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
        ("name = \"a\"\ncommand = \"x\"\nheaders = { a = \"{user_id}\" }", "mcp[0].headers: expected none"),
        (&format!("name = \"a\"\ncommand = \"x\"\n{OAUTH}\"b\""), "mcp[0].oauth: expected none"),
        (&format!("{HTTP}{OAUTH}\"\""), "mcp[0].oauth.client_id: expected the name"),
        (
            &format!("{HTTP}[mcp.oauth]\nclient_id = \"a\""),
            "mcp[0].oauth.client_secret: expected either this",
        ),
        (
            &format!("{HTTP}{OAUTH}\"b\"\nclient_secret_file = \"token\""),
            "mcp[0].oauth.client_secret: expected either this",
        ),
        (&format!("{HTTP}{OAUTH}\"b\"\nissuer = \"x\""), "mcp[0].oauth.issuer: expected an https:// URL"),
        (
            &format!("{HTTP}{OAUTH}\"b\"\ntoken_url = \"http://a.example\""),
            "mcp[0].oauth.token_url: expected an https:// URL, or http:// on this machine",
        ),
        (
            &format!("{HTTP}{OAUTH}\"b\"\ntoken_url = \"http://127.0.0.1/token\""),
            "mcp[0].oauth.token_url: expected an https:// URL, or http:// to a host that egress.allow names",
        ),
        (
            &format!(
                "{HTTP}{OAUTH}\"b\"\nissuer = \"https://a.example\"\ntoken_url = \"https://a.example/t\""
            ),
            "mcp[0].oauth.token_url: expected either this or issuer",
        ),
        (&format!("{HTTP}{OAUTH}\"b\"\nresource = \"a\""), "mcp[0].oauth.resource: expected a URL"),
        (
            &format!("{HTTP}{OAUTH}\"b\"\nresource = \"https://a.example/#b\""),
            "mcp[0].oauth.resource: expected a URL without a fragment",
        ),
        (&format!("{HTTP}{OAUTH}\"b\"\nscopes = \"a\""), "mcp[0].oauth.scopes"),
        (
            &format!("{HTTP}headers = {{ Authorization = \"a\" }}\n{OAUTH}\"b\""),
            "mcp[0].headers: Authorization: expected either this header or oauth",
        ),
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
        assert!(!said.contains("hunter2"), "{said}");
    }
}

#[test]
fn a_placeholder_that_would_stay_as_it_is_keeps_the_server_from_starting() {
    for (lines, expected) in [
        (
            format!("{HTTP}headers = {{ x-user = \"{{user}}\" }}"),
            "mcp[0].headers: x-user: placeholder {user}: expected one of {tenant_id}, {user_id}, {thread_id}, {session_id}",
        ),
        (
            "name = \"a\"\ncommand = \"x\"\nenv = { USER = \"{user_id}\" }".to_owned(),
            "mcp[0].env: expected no {user_id}: only the headers of a url name who calls",
        ),
        (
            "name = \"a\"\ncommand = \"x\"\nargs = [\"--for={tenant_id}\"]".to_owned(),
            "mcp[0].args: expected no {tenant_id}",
        ),
    ] {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("holdpoint.toml"), format!("[[mcp]]\n{lines}\n")).unwrap();
        let ended = holdpoint(dir.path(), "sqlite://x.db", &[]).output().unwrap();
        let said = String::from_utf8(ended.stderr).unwrap();
        assert!(!ended.status.success() && said.contains(expected), "{lines}\n{said}");
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
        [[mcp]]
        name = "c"
        url = "https://x.example/mcp"
        [mcp.oauth]
        client_id = "holdpoint"
        client_secret = "hunter2"
        token_url = "https://x.example/token?key=hunter2"
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
