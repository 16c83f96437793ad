//! An acknowledged change is on the disk of Postgres, whatever the settings of the role or the database.

use holdpoint_testkit::{
    Cluster, Deployment, DiskSync, Embedded, EndedCommand, Process, Rows, empty_postgres, eventually,
    holdpoint,
};
use serde_json::{Value, json};
use std::time::Duration;

/// Has the database record the settings in force for each statement of a writing server. The schema is
/// created before the server's tables, the triggers after.
const NOTE_SCHEMA: &str = "
    CREATE TABLE public.noted (what text, setting text);
    CREATE FUNCTION note_schema() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN
        IF current_setting('application_name') = 'holdpoint' THEN
            INSERT INTO public.noted VALUES ('schema', current_setting('synchronous_commit'));
        END IF;
    END $$;
    CREATE EVENT TRIGGER note_schema ON ddl_command_end EXECUTE FUNCTION note_schema()";
const NOTE_ROWS: &str = "
    CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        IF current_setting('application_name') = 'holdpoint' THEN
            INSERT INTO public.noted VALUES (TG_TABLE_NAME, current_setting('synchronous_commit'));
        END IF;
        RETURN NULL;
    END $$;
    DO $$ DECLARE name text; BEGIN
        FOR name IN SELECT tablename FROM pg_tables WHERE schemaname = 'holdpoint' LOOP
            EXECUTE format('CREATE TRIGGER note AFTER INSERT OR UPDATE OR DELETE ON %I
                FOR EACH STATEMENT EXECUTE FUNCTION note()', name);
        END LOOP;
    END $$";

#[tokio::test]
async fn on_postgres_every_writing_transaction_commits_synchronously() {
    for (set, in_force) in [
        ("off", "on"),
        ("local", "on"),
        ("remote_write", "on"),
        ("on", "on"),
        ("remote_apply", "remote_apply"),
    ] {
        let url = empty_postgres().await;
        let rows = Rows::open(&url).await;
        let name = url.rsplit_once('/').unwrap().1;
        rows.change(&format!("ALTER DATABASE {name} SET synchronous_commit = '{set}'")).await.unwrap();
        rows.change(NOTE_SCHEMA).await.unwrap();
        // A running server locks its tables in another order than the statement that adds the triggers.
        let dir = tempfile::tempdir().unwrap();
        EndedCommand::of(holdpoint(dir.path(), &url, &["migrate"]).output().unwrap()).stdout_of_success();
        rows.change(NOTE_ROWS).await.unwrap();
        let app = Embedded::with(|config| config.database.url = url.into()).await;
        let (thread, id) = app.held("pay", "10").await;
        assert_eq!(app.client.approve(&id).await.body["state"], "succeeded");
        app.scene.answers("Paid.");
        assert_eq!(app.client.resume(&thread).await.text(), "Paid.");
        let noted = rows.all("SELECT DISTINCT setting FROM noted").await;
        assert_eq!(noted, [json!({ "setting": in_force })], "{set}");
        let what: Vec<Value> = rows.all("SELECT DISTINCT what FROM noted ORDER BY what").await;
        for table in ["decisions", "events", "messages", "runs", "schema", "threads", "tool_calls"] {
            assert!(what.contains(&json!({ "what": table })), "{table} in {what:?}");
        }
    }
}

#[tokio::test]
async fn on_postgres_an_executed_approval_survives_a_crash_of_a_database_with_asynchronous_commit() {
    let cluster = Cluster::start();
    let url = cluster.database().await;
    // The database writes its log by itself only long after the crash.
    let lazy = Rows::open(&cluster.url("postgres")).await;
    for setting in
        ["synchronous_commit = 'off'", "wal_writer_delay = '10s'", "wal_writer_flush_after = '1GB'"]
    {
        lazy.change(&format!("ALTER SYSTEM SET {setting}")).await.unwrap();
    }
    lazy.change("SELECT pg_reload_conf()").await.unwrap();
    let app = Embedded::with(|config| config.database.url = url.into()).await;
    let (_, id) = app.held("pay", "10").await;
    assert_eq!(app.client.approve(&id).await.body["state"], "succeeded");
    cluster.stop_now();
    cluster.start_again();
    let ready = async || (app.client.get("/readyz").await.status == 200).then_some(());
    eventually("the server has its database again", ready).await;
    assert_eq!(app.client.call(&id).await["state"], "succeeded");
    assert_eq!(app.client.approve(&id).await.header("idempotent-replayed"), Some("true"));
    assert_eq!(app.ledger.lines(), ["pay 10"]);
}

#[tokio::test]
async fn on_postgres_a_decision_is_acknowledged_only_after_a_synchronous_standby_has_it() {
    let cluster = Cluster::start();
    let url = cluster.database().await;
    let (standby, eye) = (Rows::open(&cluster.url("postgres")).await, Rows::open(&url).await);
    let require = async |standbys: &str| {
        let set = format!("ALTER SYSTEM SET synchronous_standby_names = '{standbys}'");
        standby.change(&set).await.unwrap();
        standby.change("SELECT pg_reload_conf()").await.unwrap();
    };
    let app = Embedded::with(|config| {
        config.database.url = url.into();
        config.approval.sweep = Duration::from_secs(3600);
    })
    .await;
    let (_, yes) = app.held("pay", "10").await;
    let (_, no) = app.held("pay", "11").await;
    // A pass that numbers events would wait for the standby too, on one of the two urgent connections.
    let numbered = async || (eye.count("events WHERE seq IS NULL").await == 0).then_some(());
    eventually("all events have their number", numbered).await;
    require("absent").await;
    let away = async {
        let refused = app.client.reject(&no).await;
        refused.failed_with(503, "unavailable");
        // The approval is in doubt, and its process looks for its claim.
        eye.wait_for_lock_waiter().await;
        assert_eq!(app.ledger.lines(), Vec::<String>::new());
        require("").await;
    };
    let (approved, ()) = tokio::join!(app.client.approve(&yes), away);
    approved.has(200, "state", "succeeded");
    let again = app.client.reject(&no).await;
    again.has(200, "state", "rejected");
    assert_eq!(again.header("idempotent-replayed"), Some("true"));
    assert_eq!(app.ledger.lines(), ["pay 10"]);
}

/// The settings that a server warns about at startup on this cluster.
async fn warned_of(cluster: &Cluster) -> Vec<String> {
    let deployment = Deployment::at(cluster.database().await);
    let server = Process::spawn_captured(deployment.command("0s").env("HOLDPOINT_LOG__LEVEL", "warn"));
    let printed = server.finish();
    let lines = printed.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    lines.filter_map(|line| line["setting"].as_str().map(str::to_owned)).collect()
}

#[tokio::test]
async fn on_postgres_the_server_warns_about_settings_that_lose_commits_in_a_crash() {
    let unsafe_cluster = Cluster::start();
    let rows = Rows::open(&unsafe_cluster.url("postgres")).await;
    rows.change("ALTER SYSTEM SET full_page_writes = off").await.unwrap();
    rows.change("SELECT pg_reload_conf()").await.unwrap();
    assert_eq!(warned_of(&unsafe_cluster).await, ["fsync", "full_page_writes"]);
    assert_eq!(warned_of(&Cluster::start_with(DiskSync::Yes)).await, Vec::<String>::new());
}
