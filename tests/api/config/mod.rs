//! Configuration from the file, the environment and flags. Errors name the key and hide secrets.

mod defaults;
mod value_kinds;
mod wrong_values;

use futures::FutureExt;
use holdpoint::config::Provider;
use holdpoint_testkit::{Process, Upstream};
use poem::IntoResponse;
use serde_json::json;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;
use wrong_values::rules;

/// A folder to start the server in.
struct Deployment(TempDir);

/// The end of a process.
struct EndedProcess {
    ok: bool,
    /// Its whole output.
    printed: String,
}

impl Deployment {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// A folder with this configuration file.
    fn with_file(toml: &str) -> Self {
        let deployment = Self::new();
        std::fs::write(deployment.0.path().join("holdpoint.toml"), toml).unwrap();
        deployment
    }

    /// Runs `holdpoint migrate`, which reads the whole configuration, opens the database and ends.
    fn migrate(&self, flags: &[&str], variables: &[(&str, &str)]) -> EndedProcess {
        let mut command = Command::new(env!("CARGO_BIN_EXE_holdpoint"));
        command.args(flags).arg("migrate").env_clear().envs(variables.iter().copied());
        let output = command.current_dir(&self.0).output().unwrap();
        let printed = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap()).concat();
        EndedProcess { ok: output.status.success(), printed }
    }

    /// The output of `holdpoint config` with these variables.
    fn in_force(&self, variables: &[(&str, &str)]) -> String {
        let mut command = Command::new(env!("CARGO_BIN_EXE_holdpoint"));
        command.arg("config").env_clear().envs(variables.iter().copied()).current_dir(&self.0);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        assert!(output.stderr.is_empty(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// The database files in the folder.
    fn databases(&self) -> Vec<String> {
        let files = std::fs::read_dir(&self.0).unwrap().map(|file| file.unwrap().path());
        let databases = files.filter(|path| path.extension().is_some_and(|it| it == "db"));
        databases.map(|path| Path::file_name(&path).unwrap().to_str().unwrap().to_owned()).collect()
    }
}

impl EndedProcess {
    #[track_caller]
    fn refused_for(&self, key: &str) {
        assert!(!self.ok, "{}", self.printed);
        assert!(self.printed.contains(key), "{key} is not named: {}", self.printed);
    }

    #[track_caller]
    fn went_well(&self) {
        assert!(self.ok, "{}", self.printed);
    }
}

#[test]
fn the_server_starts_without_any_configuration() {
    let deployment = Deployment::new();
    deployment.migrate(&[], &[]).went_well();
    assert_eq!(deployment.databases(), ["holdpoint.db"]);
}

#[test]
fn a_wrong_value_in_the_environment_is_named() {
    for (name, value, key) in [
        ("HOLDPOINT_LIMITS__BODY_BYTES", "many", "limits.body_bytes"),
        ("HOLDPOINT_LIMITS__BODY_BYTES", "-1", "limits.body_bytes"),
        ("HOLDPOINT_LIMITS__BODY_BYTES", "", "limits.body_bytes"),
        ("HOLDPOINT_APPROVAL__PENDING_TTL", "soon", "approval.pending_ttl"),
        ("HOLDPOINT_APPROVAL__WHILE_PENDING", "maybe", "approval.while_pending"),
        ("HOLDPOINT_STREAM__DEFAULT_UI_DIALECT", "v5", "stream.default_ui_dialect"),
        ("HOLDPOINT_STREAM__KEEP_ALIVE", "-1s", "stream.keep_alive"),
        ("HOLDPOINT_AUTH__ALLOW_INSECURE", "perhaps", "auth.allow_insecure"),
        ("HOLDPOINT_SERVER__BIND", "localhost:80", "server.bind"),
        ("HOLDPOINT_DATABASE__MAX_CONNECTIONS", "0", "database.max_connections"),
        ("HOLDPOINT_MODEL__PROVIDER", "oracle", "model.provider"),
        ("HOLDPOINT_MODEL__PROVIDER", "openai", "model.name"),
        ("HOLDPOINT_LOG__LEVEL", "a=b=c", "log.level"),
    ] {
        let deployment = Deployment::new();
        deployment.migrate(&[], &[(name, value)]).refused_for(key);
        assert_eq!(deployment.databases(), Vec::<String>::new(), "{name}={value}");
    }
}

#[test]
fn a_wrong_value_of_a_flag_is_named() {
    let deployment = Deployment::new();
    deployment.migrate(&["--bind", "nowhere"], &[]).refused_for("server.bind");
    deployment.migrate(&["--database-url", "nowhere"], &[]).refused_for("database.url");
    deployment.migrate(&["--database-url", ""], &[]).refused_for("database.url");
    deployment.migrate(&["--database-url", "mysql://localhost/x"], &[]).refused_for("database.url");
    deployment.migrate(&["--config", "missing.toml"], &[]).refused_for("missing.toml");
    deployment.migrate(&["--colour", "red"], &[]).refused_for("--colour");
    assert_eq!(deployment.databases(), Vec::<String>::new());
}

#[test]
fn the_error_for_an_unreachable_database_names_the_cause_and_no_password() {
    let port = holdpoint_testkit::free_port();
    for pooler in ["", "?statement-cache-capacity=0"] {
        let url = format!("postgres://holdpoint:swordfish@127.0.0.1:{port}/holdpoint{pooler}");
        let ended = Deployment::new().migrate(&["--database-url", &url], &[]);
        ended.refused_for("database.url");
        ended.refused_for("Connection refused");
        assert!(!ended.printed.contains("swordfish"), "{}", ended.printed);
    }
}

#[test]
fn the_error_for_an_unknown_choice_lists_the_valid_ones() {
    let providers: Vec<_> = Provider::all().map(|it| format!("`{}`", it.as_str())).collect();
    assert!(providers.len() >= 6 && providers[..2] == ["`scripted`", "`openai`"], "{providers:?}");
    let known = providers.join(", ");
    let providers = format!("model.provider: expected one of {known}, not \"opnai\"");
    for (toml, printed) in [
        ("model.provider = \"opnai\"", &*providers),
        (
            "approval.mode = \"yolo\"",
            "approval.mode: expected one of `manual`, `auto-approve`, `auto-deny`, not",
        ),
        (
            "approval.while_pending = \"x\"",
            "approval.while_pending: expected one of `defer`, `reject`, `cancel`",
        ),
        ("approval.remember = \"disk\"", "approval.remember: expected `store` or `memory`, not \"disk\""),
        ("approval.remember_inputs = \"x\"", "approval.remember_inputs: expected `any` or `equal`"),
        ("auth.mode = \"hope\"", "auth.mode: expected `none` or `jwt`"),
        (
            "stream.default_ui_dialect = \"ui-v0\"",
            "stream.default_ui_dialect: expected one of `ui-v5`, `ui-v6`, `ui-v7`",
        ),
        ("log.format = \"xml\"", "log.format: expected `text` or `json`"),
        (&rules("effect = \"askk\""), "approval.rules[0].effect: expected `ask` or `deny`, not \"askk\""),
    ] {
        Deployment::with_file(toml).migrate(&[], &[]).refused_for(printed);
    }
    let variable = [("HOLDPOINT_MODEL__PROVIDER", "oracle")];
    Deployment::new().migrate(&[], &variable).refused_for("model.provider: expected one of `scripted`");
}

#[test]
fn a_missing_field_is_named_by_its_full_key() {
    let missing =
        Deployment::with_file("[[approval.rules]]\nname = \"a\"\neffect = \"ask\"").migrate(&[], &[]);
    missing.refused_for("approval.rules[0].tools: expected a value; it is missing");
    let missing = Deployment::with_file(&rules("when = [{ argument = \"/a\", above = 1 }, { above = 5 }]"));
    missing.migrate(&[], &[]).refused_for("approval.rules[0].when[1].argument");
}

#[test]
fn an_unusable_path_is_named() {
    let deployment = Deployment::new();
    std::fs::write(deployment.0.path().join("taken"), "").unwrap();
    let start = |key: &str, value: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_holdpoint"));
        command.args(["--bind", "127.0.0.1:0"]).env_clear().env(key, value).current_dir(&deployment.0);
        let output = command.stdout(Stdio::null()).output().unwrap();
        EndedProcess { ok: output.status.success(), printed: String::from_utf8(output.stderr).unwrap() }
    };
    start("HOLDPOINT_TOOLS__FILES_DIR", "taken/files").refused_for("tools.files_dir: taken/files: ");
    start("HOLDPOINT_DATABASE__URL", "sqlite://taken/x.db").refused_for("database.url: taken/x.db: ");
    deployment
        .migrate(&["--database-url", "sqlite://none/x.db"], &[])
        .refused_for("database.url: none/x.db: ");
    std::fs::write(
        deployment.0.path().join("text.db"),
        "no database, but a text as long as its head ".repeat(20),
    )
    .unwrap();
    deployment.migrate(&["--database-url", "sqlite://text.db"], &[]).refused_for("database.url: text.db: ");
}

#[test]
fn an_unsupported_database_url_is_refused_without_its_password() {
    for url in ["mysql://me:hunter2@localhost/x", "postgre://me:hunter2@localhost/x", "hunter2", ""] {
        let ended = Deployment::new().migrate(&["--database-url", url], &[]);
        ended.refused_for("database.url: expected a URL that begins with sqlite: or postgres://");
        assert!(!ended.printed.contains("hunter2"), "{}", ended.printed);
    }
}

#[test]
fn an_error_is_printed_with_its_causes_and_without_a_backtrace() {
    let ended =
        Deployment::with_file("limits.body_bytes = \"many\"").migrate(&[], &[("RUST_BACKTRACE", "1")]);
    ended.refused_for("configuration: limits.body_bytes: ");
    assert_eq!(ended.printed.lines().count(), 1, "{}", ended.printed);
}

#[test]
fn a_variable_without_a_section_is_refused_with_a_suggestion() {
    let deployment = Deployment::new();
    for (name, likely) in [
        ("HOLDPOINT_BIND", "HOLDPOINT_SERVER__BIND"),
        ("HOLDPOINT_SERVER_BIND", "HOLDPOINT_SERVER__BIND"),
        ("HOLDPOINT_APPROVAL_ALWAYS_DENY", "HOLDPOINT_APPROVAL__ALWAYS_DENY"),
        ("HOLDPOINT_MODE", "HOLDPOINT_AUTH__MODE or HOLDPOINT_APPROVAL__MODE"),
        ("HOLDPOINT_API_KEY_FILE", "HOLDPOINT_MODEL__API_KEY_FILE"),
        ("HOLDPOINT_PORT", "HOLDPOINT_<SECTION>__<KEY>"),
        ("HOLDPOINT_", "HOLDPOINT_<SECTION>__<KEY>"),
        ("HOLDPOINT___PORT", "HOLDPOINT_<SECTION>__<KEY>"),
        ("HOLDPOINT_SERVER__", "HOLDPOINT_<SECTION>__<KEY>"),
    ] {
        let ended = deployment.migrate(&[], &[(name, "7411")]);
        ended.refused_for(&format!("{name}: "));
        ended.refused_for(likely);
        assert!(!ended.printed.contains("7411"), "{}", ended.printed);
    }
    assert_eq!(deployment.databases(), Vec::<String>::new());
    // Kubernetes sets these variables for services named `holdpoint` and `holdpoint-db`.
    let services = [
        ("HOLDPOINT_SERVICE_HOST", "10.0.0.1"),
        ("HOLDPOINT_SERVICE_PORT", "8080"),
        ("HOLDPOINT_SERVICE_PORT_HTTP", "8080"),
        ("HOLDPOINT_PORT", "tcp://10.0.0.1:8080"),
        ("HOLDPOINT_PORT_8080_TCP", "tcp://10.0.0.1:8080"),
        ("HOLDPOINT_PORT_8080_TCP_PROTO", "tcp"),
        ("HOLDPOINT_PORT_8080_TCP_PORT", "8080"),
        ("HOLDPOINT_PORT_8080_TCP_ADDR", "10.0.0.1"),
        ("HOLDPOINT_DB_SERVICE_HOST", "10.0.0.2"),
        ("HOLDPOINT_DB_PORT", "tcp://10.0.0.2:5432"),
        ("HOLDPOINT_DB_PORT_5432_TCP_ADDR", "10.0.0.2"),
    ];
    deployment.migrate(&[], &services).went_well();
}

#[test]
fn an_unknown_key_is_refused() {
    Deployment::with_file("[limits]\nbody_bites = 1").migrate(&[], &[]).refused_for("limits.body_bites");
    Deployment::with_file("[limit]\nbody_bytes = 1").migrate(&[], &[]).refused_for("limit");
    Deployment::with_file("bind = \"127.0.0.1:0\"").migrate(&[], &[]).refused_for("bind");
    let deployment = Deployment::new();
    deployment.migrate(&[], &[("HOLDPOINT_LIMITS__BODY_BITES", "1")]).refused_for("limits.body_bites");
    deployment.migrate(&[], &[("HOLDPOINT_LIMIT__BODY_BYTES", "1")]).refused_for("limit");
    // The server ignores the variables of other programs.
    deployment.migrate(&[], &[("LIMITS__BODY_BYTES", "many"), ("PORT", "x"), ("HOLD", "x")]).went_well();
}

#[test]
fn the_environment_overrides_the_file_and_flags_override_both() {
    let file = "[database]\nurl = \"sqlite://file.db\"";
    let environment = [("HOLDPOINT_DATABASE__URL", "sqlite://environment.db")];
    let deployment = Deployment::with_file(file);
    deployment.migrate(&[], &[]).went_well();
    assert_eq!(deployment.databases(), ["file.db"]);
    let deployment = Deployment::with_file(file);
    deployment.migrate(&[], &environment).went_well();
    assert_eq!(deployment.databases(), ["environment.db"]);
    let deployment = Deployment::with_file(file);
    deployment.migrate(&["--database-url", "sqlite://flag.db"], &environment).went_well();
    assert_eq!(deployment.databases(), ["flag.db"]);

    let deployment = Deployment::with_file("[server]\nbind = \"0.0.0.0:0\"");
    deployment.migrate(&[], &[]).refused_for("server.bind");
    let loopback = [("HOLDPOINT_SERVER__BIND", "127.0.0.1:0")];
    deployment.migrate(&[], &loopback).went_well();
    deployment.migrate(&["--bind", "0.0.0.0:0"], &loopback).refused_for("server.bind");
}

#[test]
fn the_config_flag_names_another_file() {
    let deployment = Deployment::with_file("[database]\nurl = \"sqlite://file.db\"");
    std::fs::write(deployment.0.path().join("other.conf"), "[database]\nurl = \"sqlite://other.db\"")
        .unwrap();
    deployment.migrate(&["--config", "other.conf"], &[]).went_well();
    assert_eq!(deployment.databases(), ["other.db"]);
}

#[test]
fn database_url_is_read_and_the_holdpoint_variable_overrides_it() {
    let usual = ("DATABASE_URL", "sqlite://usual.db");
    let deployment = Deployment::with_file("[database]\nurl = \"sqlite://file.db\"");
    deployment.migrate(&[], &[usual]).went_well();
    assert_eq!(deployment.databases(), ["usual.db"]);
    let deployment = Deployment::new();
    deployment.migrate(&[], &[usual, ("HOLDPOINT_DATABASE__URL", "sqlite://own.db")]).went_well();
    assert_eq!(deployment.databases(), ["own.db"]);
}

#[test]
fn without_authentication_the_server_binds_to_loopback_only() {
    let deployment = Deployment::new();
    for bind in ["0.0.0.0:0", "[::]:0", "10.0.0.1:0"] {
        deployment.migrate(&["--bind", bind], &[]).refused_for("auth.allow_insecure");
        deployment.migrate(&[], &[("HOLDPOINT_SERVER__BIND", bind)]).refused_for("server.bind");
    }
    assert_eq!(deployment.databases(), Vec::<String>::new());
    for bind in ["127.0.0.1:0", "127.9.9.9:0", "[::1]:0"] {
        deployment.migrate(&["--bind", bind], &[]).went_well();
    }
    deployment.migrate(&["--bind", "0.0.0.0:0"], &[("HOLDPOINT_AUTH__ALLOW_INSECURE", "true")]).went_well();
}

#[test]
fn errors_never_contain_secrets() {
    const SECRET: &str = "hunter2";
    let files = [
        // Readable values that are invalid.
        "[database]\nurl = \"mysql://user:hunter2@localhost/x\"",
        "[database]\nurl = \"postgres://user:hunter2@localhost:port/x\"",
        "[database]\nurl = \"hunter2\"",
        "[model]\napi_key = \"hunter2\"\nprovider = \"openai\"",
        // Values of a wrong type.
        "[model]\napi_key = [\"hunter2\"]",
        "[database]\nurl = { password = \"hunter2\" }",
        // A value in place of its section.
        "database = \"postgres://user:hunter2@localhost/x\"",
        // A known value under an unknown key.
        "[model]\napi_kei = \"hunter2\"",
        // Text that is not TOML.
        "[model]\napi_key = \"hunter2",
        "[model]\napi_key = hunter2",
        "[database]\nurl = postgres://user:hunter2@localhost/x",
    ];
    let printed = files.map(|toml| (toml, Deployment::with_file(toml).migrate(&[], &[])));
    let variables = [
        ("DATABASE_URL", "mysql://user:hunter2@localhost/x"),
        ("HOLDPOINT_DATABASE__URL", "postgres://user:hunter2@localhost:port/x"),
        ("HOLDPOINT_MODEL__API_KEI", SECRET),
    ];
    let variables = variables.map(|(name, value)| (name, Deployment::new().migrate(&[], &[(name, value)])));
    let flag = Deployment::new().migrate(&["--database-url", "mysql://user:hunter2@localhost/x"], &[]);
    let mut reported = Vec::new();
    for (what, ended) in printed.into_iter().chain(variables).chain([("--database-url", flag)]) {
        assert!(!ended.ok, "{what}: {}", ended.printed);
        if ended.printed.contains(SECRET) {
            reported.push(format!("{what}\n    said: {}", ended.printed));
        }
    }
    assert!(reported.is_empty(), "{}", reported.join("\n"));
}

#[test]
fn the_effective_configuration_is_printed_as_an_equivalent_file() {
    let deployment = Deployment::with_file("server.grace = \"90s\"\n[tools.pay]\nrun_roles = [\"clerk\"]");
    let variables =
        [("HOLDPOINT_MODEL__OPTIONS", "{\"temperature\":0.5}"), ("HOLDPOINT_AUTH__DEFAULT_TENANT", "me")];
    let printed = deployment.in_force(&variables);
    for line in [
        "bind = \"127.0.0.1:8080\"",
        "grace = \"1m 30s\"",
        "docs = true",
        "url = \"sqlite://holdpoint.db\"",
        "run_roles = [\"clerk\"]",
        "temperature = 0.5",
        "default_tenant = \"me\"",
        "pending_ttl = \"1day\"",
        "default_ui_dialect = \"ui-v6\"",
        "keep_alive = \"15s\"",
        "requests_per_minute = 0",
        "body_bytes = 262144",
    ] {
        assert!(printed.lines().any(|printed| printed == line), "{line} in {printed}");
    }
    assert_eq!(Deployment::with_file(&printed).in_force(&[]), printed);
    let without = [("HOLDPOINT_MODEL__OPTIONS", "{\"stop\":null}")];
    assert!(deployment.in_force(&without).contains("options = '{\"stop\":null}'"), "TOML has no null");
    assert_eq!(deployment.databases(), Vec::<String>::new(), "and nothing is touched");

    let jwt =
        "auth = { mode = \"jwt\", jwks_url = \"https://id.example/keys\", issuer = \"i\", audience = \"a\" }";
    assert!(
        Deployment::with_file(jwt).in_force(&[]).contains("requests_per_minute = 600"),
        "with authentication the limit has a default"
    );
}

#[test]
fn the_effective_configuration_is_printed_without_its_secrets() {
    let secret = format!("secret = \"{}\"", "hunter2".repeat(5));
    let printed = [&secret, "jwks_url = \"https://id.example/?token=hunter2\""].map(|keys| {
        let deployment = Deployment::with_file(&format!(
            "[database]\nurl = \"postgres://me:hunter2@db/x\"\n\
             [model]\napi_key = \"hunter2\"\nbase_url = \"https://me:hunter2@m.example/v1\"\n\
             [auth]\nmode = \"jwt\"\nissuer = \"i\"\naudience = \"a\"\n{keys}",
        ));
        deployment.in_force(&[])
    });
    let printed = printed.concat();
    assert!(!printed.contains("hunter2"), "{printed}");
    for line in [
        "url = \"postgres://me:***@db/x\"",
        "api_key = \"***\"",
        "base_url = \"https://me:***@m.example/v1\"",
        "secret = \"***\"",
        "jwks_url = \"https://id.example/?token=***\"",
    ] {
        assert!(printed.lines().any(|printed| printed == line), "{line} in {printed}");
    }
}

#[test]
fn a_secret_can_be_read_from_a_file_of_its_own() {
    let deployment = Deployment::with_file("[database]\nurl_file = \"url\"\n[model]\napi_key_file = \"key\"");
    std::fs::write(deployment.0.path().join("url"), "sqlite://kept.db\n").unwrap();
    deployment.migrate(&[], &[]).refused_for("model.api_key_file");
    std::fs::write(deployment.0.path().join("key"), "hunter2\r\n").unwrap();
    deployment.migrate(&[], &[]).went_well();
    assert_eq!(deployment.databases(), ["kept.db"]);
    assert!(deployment.in_force(&[]).contains("api_key = \"***\""));
    let key = [("HOLDPOINT_MODEL__API_KEY", "hunter3")];
    deployment.migrate(&[], &key).refused_for("expected either this or model.api_key, not both");
    let secret = [("HOLDPOINT_AUTH__SECRET_FILE", "/nowhere/secret")];
    Deployment::new().migrate(&[], &secret).refused_for("auth.secret_file: /nowhere/secret");
}

#[tokio::test]
async fn on_sqlite_a_second_server_at_a_taken_address_changes_nothing() {
    use holdpoint_testkit::Embedded;
    let dir = tempfile::tempdir().unwrap();
    let database = format!("sqlite://{}/shared.db", dir.path().display());
    let app = Embedded::with(|config| {
        config.database.url = database.clone().into();
        config.approval.wait = std::time::Duration::ZERO;
    })
    .await;
    let (_, id) = app.held("wait_for_me", "10").await;
    app.client.approve(&id).await;
    app.ledger.wait_started().await;
    let address = app.client.base.strip_prefix("http://").unwrap().to_owned();
    let mut second = Command::new(env!("CARGO_BIN_EXE_holdpoint"));
    second.args(["--bind", &address, "--database-url", &database]).env_clear().current_dir(dir.path());
    let output = second.output().unwrap();
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("server.bind"), "{output:?}");
    assert_eq!(app.client.call(&id).await["state"], "executing");
    app.ledger.release.add_permits(1);
}

#[tokio::test]
async fn on_sqlite_one_process_serves_from_a_file_and_the_next_one_after_it() {
    use holdpoint_testkit::{Deployment, eventually};
    let dir = tempfile::tempdir().unwrap();
    let database = format!("sqlite://{}/shared.db", dir.path().display());
    let deployment = Deployment::at(database.clone());
    let (mut first, thread, id) = deployment.in_mid_tool().await;
    let mut second = Command::new(env!("CARGO_BIN_EXE_holdpoint"));
    second.args(["--bind", "127.0.0.1:0", "--database-url", &database]).env_clear().current_dir(dir.path());
    let mut second = second.stderr(Stdio::piped()).spawn().unwrap();
    // A process that serves would not exit.
    let ended = eventually("the second one ends", async || second.try_wait().unwrap()).await;
    assert!(!ended.success());
    let output = second.wait_with_output().unwrap();
    let reported = String::from_utf8_lossy(&output.stderr);
    assert!(reported.contains("database.url: another process serves from this database"), "{reported}");
    assert_eq!(first.client.call(&id).await["state"], "executing", "and it touched nothing");

    // The lock also covers other names of the file.
    let alias = dir.path().join("alias.db");
    std::os::unix::fs::symlink(dir.path().join("shared.db"), &alias).unwrap();
    let mut second = Command::new(env!("CARGO_BIN_EXE_holdpoint"));
    let alias = format!("sqlite://{}", alias.display());
    second.args(["--bind", "127.0.0.1:0", "--database-url", &alias]).env_clear().current_dir(dir.path());
    assert!(!second.output().unwrap().status.success());

    // Other processes may open the database only to migrate it.
    let mut migrate = Command::new(env!("CARGO_BIN_EXE_holdpoint"));
    migrate.args(["migrate", "--database-url", &database]).env_clear().current_dir(dir.path());
    assert!(migrate.output().unwrap().status.success());
    assert_eq!(first.client.call(&id).await["state"], "executing");

    let thinks = first.client.thread().await;
    let path = first.client.url(&format!("/qa/chat_streamed/{thinks}"));
    let requested = first.client.http.post(path).json(&json!({ "content": "think" })).send().await.unwrap();
    deployment.wait_started(&["transfer 10", "think"]).await;
    first.kill();
    drop(requested);
    // The next server does not wait for a lease to end.
    let next = deployment.start("30s");
    assert_eq!(next.client.call(&id).await["state"], "interrupted");
    assert_eq!(next.client.messages(&thinks).await.pop().unwrap()["status"], "interrupted");
    assert!(next.client.resume(&thread).await.text().starts_with("The outcome is unknown"));
}

#[tokio::test]
async fn on_sqlite_a_deleted_or_replaced_lock_file_lets_no_second_server_start() {
    use holdpoint_testkit::{Deployment, eventually};
    let dir = tempfile::tempdir().unwrap();
    let database = format!("sqlite://{}/shared.db", dir.path().display());
    let lock = dir.path().join("shared.db.lock");
    let deployment = Deployment::at(database.clone());
    let (mut first, _, id) = deployment.in_mid_tool().await;
    let second = async || {
        let mut second = Command::new(env!("CARGO_BIN_EXE_holdpoint"));
        second
            .args(["--bind", "127.0.0.1:0", "--database-url", &database])
            .env_clear()
            .current_dir(dir.path());
        let mut second = second.stderr(Stdio::piped()).spawn().unwrap();
        let ended = eventually("the second one ends", async || second.try_wait().unwrap());
        let ended = tokio::time::timeout(Duration::from_secs(60), ended).await;
        if ended.is_err() {
            second.kill().unwrap();
        }
        let reported = String::from_utf8(second.wait_with_output().unwrap().stderr).unwrap();
        assert!(reported.contains("database.url: another process"), "{reported}");
        assert_eq!(first.client.call(&id).await["state"], "executing", "and it touched nothing");
    };
    let mine = std::fs::read(&lock).unwrap();
    std::fs::remove_file(&lock).unwrap();
    second().await;
    // The first server has created the lock file again.
    second().await;
    std::fs::write(&lock, "").unwrap();
    second().await;
    // A copy of the lock file is another file.
    std::fs::remove_file(&lock).unwrap();
    std::fs::write(&lock, mine).unwrap();
    second().await;

    // The lock on the database ends with the process.
    first.kill();
    let next = deployment.start("0s");
    assert_eq!(next.client.call(&id).await["state"], "interrupted");
}

#[tokio::test]
async fn the_model_options_of_the_file_are_sent_unchanged() {
    let answer = "data: {\"choices\":[{\"delta\":{\"content\":\"Yes.\"},\"finish_reason\":\"stop\"}]}\n\n";
    let upstream = Upstream::start(move |_| {
        let response = answer.with_content_type("text/event-stream").into_response();
        std::future::ready(response).boxed()
    });
    let upstream = upstream.await;
    let deployment = Deployment::with_file(&format!(
        "[model]\nprovider = \"openai\"\nname = \"m\"\nbase_url = \"{}/v1\"\n\
         [model.options]\ntemperature = 0.7\nmaxTokens = 5\nstream_options = {{}}\n\
         [model.options.extraBody]\nthinkingBudget = [1, true, \"x\"]\n",
        upstream.base
    ));
    let server = Process::start(deployment.0.path(), &[]).await;
    let thread = server.client.thread().await;
    assert_eq!(server.client.send_message(&thread, "hi").await.text(), "Yes.");
    let [requested] = &upstream.finish(&[])[..] else { panic!("asked once") };
    let (body, extra) = (&requested.body, json!({ "thinkingBudget": [1, true, "x"] }));
    assert_eq!((&body["temperature"], &body["maxTokens"]), (&json!(0.7), &json!(5)));
    assert_eq!((&body["extraBody"], &body["stream_options"]), (&extra, &json!({})));
    assert_eq!((&body["model"], &body["stream"]), (&json!("m"), &json!(true)));
}
