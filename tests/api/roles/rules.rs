//! The rules of tools: their sources, and the errors that name their keys.

use holdpoint::app::App;
use holdpoint::config::{Answers, Config, Flags, ToolRules};
use holdpoint::handlers::Deferred;
use holdpoint_testkit::{Embedded, JsonFields, Ledger, Process, Scene, probes};
use serde_json::json;
use std::sync::Arc;

fn load(toml: &str) -> Result<Config, String> {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("rules.toml");
    std::fs::write(&file, toml).unwrap();
    Config::load(&Flags { file: Some(file), ..Flags::default() }).map_err(|error| error.to_string())
}

#[test]
fn the_rules_of_a_tool_are_read_by_its_name() {
    let read = load(
        "[tools]\ntimeout = \"3s\"\n[tools.pay]\nrun_roles = [\"clerk\", \"chief clerk\"]\n\
         [tools.sendMail]\nrun_roles = \"a, b\"\napprove_roles = [\"chief\"]\nother_person = true\n\
         approvals = 3\nanswers = \"one\"\n[auth]\nmode = \"jwt\"\nsecret = \"0123456789abcdef0123456789abcdef\"\nissuer = \"i\"\n\
         audience = \"a\"\n",
    );
    let tools = read.unwrap().tools;
    let roles = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    assert_eq!(tools.timeout.as_secs(), 3);
    assert_eq!(tools.files_dir.to_str(), Some("holdpoint-files"));
    let pay = ToolRules { run_roles: roles(&["clerk", "chief clerk"]), ..ToolRules::default() };
    let mail = ToolRules {
        run_roles: roles(&["a", "b"]),
        approve_roles: roles(&["chief"]),
        other_person: true,
        approvals: 3,
        answers: Answers::One,
        exact_numbers: None,
    };
    assert_eq!(tools.rules, [("pay".to_owned(), pay), ("sendMail".to_owned(), mail)].into());
}

#[test]
fn invalid_rules_are_refused_by_their_key() {
    for (toml, key) in [
        ("[tools.pay]\nrun_roles = [\"clerk\", \"\"]", "tools.pay.run_roles"),
        ("[tools.pay]\nrun_roles = [\" clerk\"]", "tools.pay.run_roles"),
        ("[tools.pay]\napprove_roles = [\"chief\\t\"]", "tools.pay.approve_roles"),
        // Neither of these two may mean every user.
        ("[tools.pay]\nrun_roles = []", "tools.pay.run_roles"),
        ("[tools.pay]\nrun_roles = \" , \"", "tools.pay.run_roles"),
        ("[tools.pay]\nrun_roles = 5", "tools.pay.run_roles"),
        ("[tools.pay]\nrun_roles = [5, []]", "tools.pay.run_roles"),
        ("[tools.pay]\nother_person = \"perhaps\"", "tools.pay.other_person"),
        ("[tools.pay]\nother_person = true", "tools.pay.approve_roles"),
        ("[tools.pay]\napproval_roles = \"a\"\napprovals = 2", "tools.pay.approval_roles"),
        ("[tools.pay]\napprovals = 2", "tools.pay.approve_roles"),
        ("[tools.pay]\napprovals = 0", "tools.pay.approvals"),
        ("[tools.pay]\napprove_roles = \"a\"\napprovals = 11", "tools.pay.approvals"),
        ("[tools.pay]\napprove_roles = \"a\"\napprovals = 300", "tools.pay.approvals"),
        ("[tools.pay]\napprove_roles = \"a\"\napprovals = -1", "tools.pay.approvals"),
        // Without authentication all requests come from one user.
        ("[tools.pay]\napprove_roles = \"a\"\napprovals = 2", "tools.pay.approvals"),
        ("[tools.pay]\nroles = [\"clerk\"]", "tools.pay.roles"),
        ("[tools]\npay = 5", "tools.pay"),
        ("[tools]\ntimout = \"3s\"", "tools.timout"),
        ("[tools]\ntimeout = \"soon\"", "tools.timeout"),
        ("[tools.timeout]\nrun_roles = [\"clerk\"]", "tools.timeout"),
        ("tools = 5", "tools"),
    ] {
        let reported = load(toml).map(|config| config.tools).unwrap_err();
        assert!(reported.contains(key), "{toml}: {reported}");
    }
}

#[tokio::test]
async fn a_rule_for_an_unknown_tool_is_refused_by_its_key_before_the_database_opens_on_sqlite() {
    let clerk = || vec!["clerk".to_owned()];
    let run = ToolRules { run_roles: clerk(), ..ToolRules::default() };
    let dir = tempfile::tempdir().unwrap();
    let mut config = Config::default();
    config.database.url = format!("sqlite://{}/rules.db", dir.path().display()).into();
    config.tools.rules.insert("pey".to_owned(), run);
    let built = App::builder(config).tools(probes(&Ledger::new())).model(Arc::new(Scene::new()));
    let built = built.handler(Deferred).build().await;
    let reported = built.err().unwrap().to_string();
    let expected = "tools.pey: there is no such tool; expected one of [break, ";
    assert!(reported.contains(expected), "{reported}");
    assert!(!dir.path().join("rules.db").exists());
}

#[tokio::test]
async fn rules_are_read_from_the_environment_too() {
    let dir = tempfile::tempdir().unwrap();
    let server = Process::start(
        dir.path(),
        &[
            ("HOLDPOINT_TOOLS__DELETE_FILE__RUN_ROLES", "chief, clerk"),
            ("HOLDPOINT_TOOLS__WRITE_FILE__APPROVE_ROLES", "chief"),
            ("HOLDPOINT_TOOLS__WRITE_FILE__OTHER_PERSON", "true"),
            ("HOLDPOINT_TOOLS__TIMEOUT", "9s"),
        ],
    )
    .await;
    let tools = server.client.get("/tools").await;
    let names = tools.body.list("results").iter().map(|tool| tool["tool_name"].clone());
    let names: Vec<_> = names.collect();
    assert_eq!(
        names,
        [json!("list_files"), json!("read_file"), json!("write_file")],
        "the local user has no role"
    );

    let thread = server.client.thread().await;
    let turn = server.client.send_message(&thread, "write hello to a.txt").await;
    let [call] = &turn.pending()[..] else { panic!("one call is held: {}", turn.raw) };
    assert_eq!(server.client.approve(call).await.status, 403, "the rule requires another person");
    assert_eq!(server.client.reject(call).await.body["state"], "rejected");
}

#[tokio::test]
async fn without_authentication_the_local_user_has_no_role() {
    let app = Embedded::with(|config| {
        let rules = ToolRules { run_roles: vec!["clerk".to_owned()], ..ToolRules::default() };
        config.tools.rules.insert("look".to_owned(), rules);
    })
    .await;
    let thread = app.client.thread().await;
    app.scene.answers("hello");
    app.client.send_message(&thread, "hello").await;
    let offered = &app.scene.requests()[0].tools;
    assert!(!offered.iter().any(|tool| tool.name == "look"), "{offered:?}");
    assert!(offered.iter().any(|tool| tool.name == "pay"), "{offered:?}");
}
