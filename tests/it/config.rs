//! Configuration: the file, then the environment, then flags; what is wrong is named, what is secret is not.

use crate::support::{Process, Upstream};
use futures::FutureExt;
use poem::IntoResponse;
use serde_json::json;
use std::path::Path;
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// A folder to start the server in.
struct Place(TempDir);

/// How a start ended.
struct Ended {
    ok: bool,
    /// All that it printed.
    said: String,
}

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// With this configuration file.
    fn with_file(toml: &str) -> Self {
        let place = Self::new();
        std::fs::write(place.0.path().join("holdpoint.toml"), toml).unwrap();
        place
    }

    /// Runs `holdpoint migrate`, which reads the whole configuration, opens the database and ends.
    fn migrate(&self, flags: &[&str], variables: &[(&str, &str)]) -> Ended {
        let mut command = Command::new(env!("CARGO_BIN_EXE_holdpoint"));
        command.args(flags).arg("migrate").env_clear().envs(variables.iter().copied());
        let output = command.current_dir(&self.0).output().unwrap();
        let said = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap()).concat();
        Ended { ok: output.status.success(), said }
    }

    /// The databases that were made.
    fn databases(&self) -> Vec<String> {
        let files = std::fs::read_dir(&self.0).unwrap().map(|file| file.unwrap().path());
        let databases = files.filter(|path| path.extension().is_some_and(|it| it == "db"));
        databases.map(|path| Path::file_name(&path).unwrap().to_str().unwrap().to_owned()).collect()
    }
}

impl Ended {
    #[track_caller]
    fn refused_for(&self, key: &str) {
        assert!(!self.ok, "{}", self.said);
        assert!(self.said.contains(key), "{key} is not named: {}", self.said);
    }

    #[track_caller]
    fn went_well(&self) {
        assert!(self.ok, "{}", self.said);
    }
}

#[test]
fn without_any_configuration_it_starts() {
    let place = Place::new();
    place.migrate(&[], &[]).went_well();
    assert_eq!(place.databases(), ["holdpoint.db"]);
}

#[test]
fn a_wrong_value_in_the_file_is_named() {
    for (toml, key) in [
        ("[limits]\nbody_bytes = \"many\"", "limits.body_bytes"),
        ("[limits]\nbody_bytes = -1", "limits.body_bytes"),
        ("[limits]\npending_per_thread = 1.5", "limits.pending_per_thread"),
        ("[model]\nmax_steps = 1.5", "model.max_steps"),
        ("[model]\nprovider = \"oracle\"", "model.provider"),
        ("[model]\nprovider = \"gemini\"", "model.name"),
        ("[model]\nprovider = \"openai\"\nname = \"m\"", "model.base_url"),
        ("[model]\nretries = 11", "model.retries"),
        ("[model]\noptions = 5", "model.options"),
        ("[model]\noptions = \"5\"", "model.options"),
        ("[model]\noptions = \"{\"", "model.options"),
        ("[model.options]\nmessages = []", "model.options"),
        ("[approval]\nlease = \"soon\"", "approval.lease"),
        ("[approval]\nlease = 5", "approval.lease"),
        ("[approval]\nlease = \"0s\"", "approval.lease"),
        ("[approval]\nwhile_pending = \"maybe\"", "approval.while_pending"),
        ("[auth]\nallow_insecure = \"perhaps\"", "auth.allow_insecure"),
        ("[auth]\nmode = \"hope\"", "auth.mode"),
        ("[auth]\nissuer = \"https://issuer.example\"", "auth.mode"),
        ("[server]\nbind = \"nowhere\"", "server.bind"),
        ("[server]\ndocs = \"maybe\"", "server.docs"),
        ("[database]\nmax_connections = 0", "database.max_connections"),
        ("[database]\nurl = 7.5", "database.url"),
        ("[log]\nlevel = \"a=b=c\"", "log.level"),
        ("[log]\nformat = \"xml\"", "log.format"),
        ("limits = 3", "limits"),
    ] {
        let place = Place::with_file(toml);
        place.migrate(&[], &[]).refused_for(key);
        assert_eq!(place.databases(), Vec::<String>::new(), "{toml}");
    }
}

#[test]
fn a_wrong_value_in_the_environment_is_named() {
    for (name, value, key) in [
        ("HOLDPOINT_LIMITS__BODY_BYTES", "many", "limits.body_bytes"),
        ("HOLDPOINT_LIMITS__BODY_BYTES", "-1", "limits.body_bytes"),
        ("HOLDPOINT_LIMITS__BODY_BYTES", "", "limits.body_bytes"),
        ("HOLDPOINT_APPROVAL__PENDING_TTL", "soon", "approval.pending_ttl"),
        ("HOLDPOINT_APPROVAL__WHILE_PENDING", "maybe", "approval.while_pending"),
        ("HOLDPOINT_AUTH__ALLOW_INSECURE", "perhaps", "auth.allow_insecure"),
        ("HOLDPOINT_SERVER__BIND", "localhost:80", "server.bind"),
        ("HOLDPOINT_DATABASE__MAX_CONNECTIONS", "0", "database.max_connections"),
        ("HOLDPOINT_MODEL__PROVIDER", "oracle", "model.provider"),
        ("HOLDPOINT_MODEL__PROVIDER", "openai", "model.name"),
        ("HOLDPOINT_LOG__LEVEL", "a=b=c", "log.level"),
    ] {
        let place = Place::new();
        place.migrate(&[], &[(name, value)]).refused_for(key);
        assert_eq!(place.databases(), Vec::<String>::new(), "{name}={value}");
    }
}

#[test]
fn a_wrong_value_of_a_flag_is_named() {
    let place = Place::new();
    place.migrate(&["--bind", "nowhere"], &[]).refused_for("server.bind");
    place.migrate(&["--database-url", "nowhere"], &[]).refused_for("database.url");
    place.migrate(&["--database-url", ""], &[]).refused_for("cannot be parsed");
    place.migrate(&["--database-url", "mysql://localhost/x"], &[]).refused_for("database.url");
    place.migrate(&["--config", "missing.toml"], &[]).refused_for("missing.toml");
    place.migrate(&["--colour", "red"], &[]).refused_for("--colour");
    assert_eq!(place.databases(), Vec::<String>::new());
}

#[test]
fn a_key_that_nobody_knows_is_refused() {
    Place::with_file("[limits]\nbody_bites = 1").migrate(&[], &[]).refused_for("body_bites");
    Place::with_file("[limit]\nbody_bytes = 1").migrate(&[], &[]).refused_for("limit");
    Place::with_file("bind = \"127.0.0.1:0\"").migrate(&[], &[]).refused_for("bind");
    let place = Place::new();
    place.migrate(&[], &[("HOLDPOINT_LIMITS__BODY_BITES", "1")]).refused_for("body_bites");
    place.migrate(&[], &[("HOLDPOINT_LIMIT__BODY_BYTES", "1")]).refused_for("limit");
    // Other programs' variables are none of ours.
    place.migrate(&[], &[("LIMITS__BODY_BYTES", "many"), ("PORT", "x"), ("HOLD", "x")]).went_well();
}

#[test]
fn the_environment_beats_the_file_and_flags_beat_both() {
    let file = "[database]\nurl = \"sqlite://file.db\"";
    let environment = [("HOLDPOINT_DATABASE__URL", "sqlite://environment.db")];
    let place = Place::with_file(file);
    place.migrate(&[], &[]).went_well();
    assert_eq!(place.databases(), ["file.db"]);
    let place = Place::with_file(file);
    place.migrate(&[], &environment).went_well();
    assert_eq!(place.databases(), ["environment.db"]);
    let place = Place::with_file(file);
    place.migrate(&["--database-url", "sqlite://flag.db"], &environment).went_well();
    assert_eq!(place.databases(), ["flag.db"]);

    let place = Place::with_file("[server]\nbind = \"0.0.0.0:0\"");
    place.migrate(&[], &[]).refused_for("server.bind");
    let loopback = [("HOLDPOINT_SERVER__BIND", "127.0.0.1:0")];
    place.migrate(&[], &loopback).went_well();
    place.migrate(&["--bind", "0.0.0.0:0"], &loopback).refused_for("server.bind");
}

#[test]
fn the_flag_for_the_file_names_another_one() {
    let place = Place::with_file("[database]\nurl = \"sqlite://file.db\"");
    std::fs::write(place.0.path().join("other.conf"), "[database]\nurl = \"sqlite://other.db\"").unwrap();
    place.migrate(&["--config", "other.conf"], &[]).went_well();
    assert_eq!(place.databases(), ["other.db"]);
}

#[test]
fn the_usual_name_of_the_databases_url_is_read_and_our_own_beats_it() {
    let usual = ("DATABASE_URL", "sqlite://usual.db");
    let place = Place::with_file("[database]\nurl = \"sqlite://file.db\"");
    place.migrate(&[], &[usual]).went_well();
    assert_eq!(place.databases(), ["usual.db"]);
    let place = Place::new();
    place.migrate(&[], &[usual, ("HOLDPOINT_DATABASE__URL", "sqlite://own.db")]).went_well();
    assert_eq!(place.databases(), ["own.db"]);
}

#[test]
fn without_authentication_it_faces_only_this_machine() {
    let place = Place::new();
    for bind in ["0.0.0.0:0", "[::]:0", "10.0.0.1:0"] {
        place.migrate(&["--bind", bind], &[]).refused_for("auth.allow_insecure");
        place.migrate(&[], &[("HOLDPOINT_SERVER__BIND", bind)]).refused_for("server.bind");
    }
    assert_eq!(place.databases(), Vec::<String>::new());
    for bind in ["127.0.0.1:0", "127.9.9.9:0", "[::1]:0"] {
        place.migrate(&["--bind", bind], &[]).went_well();
    }
    place.migrate(&["--bind", "0.0.0.0:0"], &[("HOLDPOINT_AUTH__ALLOW_INSECURE", "true")]).went_well();
}

#[test]
fn secrets_are_never_said() {
    const SECRET: &str = "hunter2";
    let files = [
        // Read, and of no use.
        "[database]\nurl = \"mysql://user:hunter2@localhost/x\"",
        "[database]\nurl = \"postgres://user:hunter2@localhost:port/x\"",
        "[database]\nurl = \"hunter2\"",
        "[model]\napi_key = \"hunter2\"\nprovider = \"openai\"",
        // Of a wrong type.
        "[model]\napi_key = [\"hunter2\"]",
        "[database]\nurl = { password = \"hunter2\" }",
        // A known value under a wrong key.
        "[model]\napi_kei = \"hunter2\"",
        // No TOML.
        "[model]\napi_key = \"hunter2",
        "[model]\napi_key = hunter2",
        "[database]\nurl = postgres://user:hunter2@localhost/x",
    ];
    let said = files.map(|toml| (toml, Place::with_file(toml).migrate(&[], &[])));
    let variables = [
        ("DATABASE_URL", "mysql://user:hunter2@localhost/x"),
        ("HOLDPOINT_DATABASE__URL", "postgres://user:hunter2@localhost:port/x"),
        ("HOLDPOINT_MODEL__API_KEI", SECRET),
    ];
    let variables = variables.map(|(name, value)| (name, Place::new().migrate(&[], &[(name, value)])));
    let flag = Place::new().migrate(&["--database-url", "mysql://user:hunter2@localhost/x"], &[]);
    let mut told = Vec::new();
    for (what, ended) in said.into_iter().chain(variables).chain([("--database-url", flag)]) {
        assert!(!ended.ok, "{what}: {}", ended.said);
        if ended.said.contains(SECRET) {
            told.push(format!("{what}\n    said: {}", ended.said));
        }
    }
    assert!(told.is_empty(), "{}", told.join("\n"));
}

#[tokio::test]
async fn on_sqlite_a_second_server_that_finds_the_address_taken_touches_nothing() {
    use crate::support::Embedded;
    let dir = tempfile::tempdir().unwrap();
    let database = format!("sqlite://{}/shared.db", dir.path().display());
    let app = Embedded::with(|config| {
        config.database.url = database.clone().into();
        config.approval.wait = std::time::Duration::ZERO;
    })
    .await;
    let (_, id) = app.held("wait_for_me", "10").await;
    app.client.approve(&id).await;
    app.ledger.wait_begun().await;
    let address = app.client.base.strip_prefix("http://").unwrap().to_owned();
    let mut second = Command::new(env!("CARGO_BIN_EXE_holdpoint"));
    second.args(["--bind", &address, "--database-url", &database]).env_clear().current_dir(dir.path());
    let output = second.output().unwrap();
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("server.bind"), "{output:?}");
    assert_eq!(app.client.call(&id).await["state"], "executing");
    app.ledger.go.add_permits(1);
}

#[tokio::test]
async fn on_sqlite_one_process_serves_from_a_file_and_the_next_one_after_it() {
    use crate::support::{Place, eventually};
    let dir = tempfile::tempdir().unwrap();
    let database = format!("sqlite://{}/shared.db", dir.path().display());
    let place = Place::at(database.clone());
    let (mut first, thread, id) = place.in_mid_tool().await;
    let mut second = Command::new(env!("CARGO_BIN_EXE_holdpoint"));
    second.args(["--bind", "127.0.0.1:0", "--database-url", &database]).env_clear().current_dir(dir.path());
    let mut second = second.stderr(Stdio::piped()).spawn().unwrap();
    // One that serves would never end.
    let ended = eventually("the second one ends", async || second.try_wait().unwrap()).await;
    assert!(!ended.success());
    let output = second.wait_with_output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(told.contains("database.url: another process serves from this database"), "{told}");
    assert_eq!(first.client.call(&id).await["state"], "executing", "and it touched nothing");

    // Nor by another name of the file.
    let alias = dir.path().join("alias.db");
    std::os::unix::fs::symlink(dir.path().join("shared.db"), &alias).unwrap();
    let mut second = Command::new(env!("CARGO_BIN_EXE_holdpoint"));
    let alias = format!("sqlite://{}", alias.display());
    second.args(["--bind", "127.0.0.1:0", "--database-url", &alias]).env_clear().current_dir(dir.path());
    assert!(!second.output().unwrap().status.success());

    // Only to be brought up to date may others open it.
    let mut migrate = Command::new(env!("CARGO_BIN_EXE_holdpoint"));
    migrate.args(["migrate", "--database-url", &database]).env_clear().current_dir(dir.path());
    assert!(migrate.output().unwrap().status.success());
    assert_eq!(first.client.call(&id).await["state"], "executing");

    let thinks = first.client.thread().await;
    let path = first.client.url(&format!("/qa/chat_streamed/{thinks}"));
    let asked = first.client.http.post(path).json(&json!({ "content": "think" })).send().await.unwrap();
    place.wait_begun(&["transfer 10", "think"]).await;
    first.kill();
    drop(asked);
    // No lease is waited for.
    let next = place.start("30s");
    assert_eq!(next.client.call(&id).await["state"], "interrupted");
    assert_eq!(next.client.messages(&thinks).await.pop().unwrap()["status"], "interrupted");
    assert!(next.client.go_on(&thread).await.text().starts_with("The outcome is unknown"));
}

#[tokio::test]
async fn what_a_file_has_for_the_model_goes_out_as_it_is_written() {
    let answer = "data: {\"choices\":[{\"delta\":{\"content\":\"Yes.\"},\"finish_reason\":\"stop\"}]}\n\n";
    let upstream = Upstream::start(move |_| {
        let response = answer.with_content_type("text/event-stream").into_response();
        std::future::ready(response).boxed()
    });
    let upstream = upstream.await;
    let place = Place::with_file(&format!(
        "[model]\nprovider = \"openai\"\nname = \"m\"\nbase_url = \"{}/v1\"\n\
         [model.options]\ntemperature = 0.7\nmaxTokens = 5\nstream_options = {{}}\n\
         [model.options.extraBody]\nthinkingBudget = [1, true, \"x\"]\n",
        upstream.base
    ));
    let server = Process::start(place.0.path(), &[]).await;
    let thread = server.client.thread().await;
    assert_eq!(server.client.say(&thread, "hi").await.text(), "Yes.");
    let [asked] = &upstream.finish(&[])[..] else { panic!("asked once") };
    let (body, extra) = (&asked.body, json!({ "thinkingBudget": [1, true, "x"] }));
    assert_eq!((&body["temperature"], &body["maxTokens"]), (&json!(0.7), &json!(5)));
    assert_eq!((&body["extraBody"], &body["stream_options"]), (&extra, &json!({})));
    assert_eq!((&body["model"], &body["stream"]), (&json!("m"), &json!(true)));
}
