//! The tables are in a schema of their own, beside the tables of an application.

use holdpoint::app::{AppError, migrate};
use holdpoint::config::Config;
use holdpoint_testkit::{Embedded, Pgbouncer, Rows, Sse, empty_postgres, eventually};
use serde_json::json;

/// The statements that an operator applies to tables in `public`.
const MOVE: &str = include_str!("../../../migrations/move_postgres.sql");
/// The tables, with that of the migrations.
const TABLES: i64 = 23;
/// The functions of the triggers.
const FUNCTIONS: i64 = 36;

fn on(url: &str, schema: &str) -> impl FnOnce(&mut Config) {
    move |config| {
        config.database.url = url.to_owned().into();
        config.database.schema = schema.to_owned();
    }
}

async fn start(url: &str, schema: &str) -> Embedded {
    Embedded::with(on(url, schema)).await
}

async fn migrated(url: &str, schema: &str) -> Result<(), AppError> {
    let mut config = Config::default();
    on(url, schema)(&mut config);
    migrate(&config).await
}

/// How many tables, functions, and functions with a pinned search path this schema has.
async fn contents(rows: &Rows, schema: &str) -> (i64, i64, i64) {
    let functions = format!("pg_proc WHERE pronamespace = to_regnamespace('{schema}')");
    (
        rows.count(&format!("pg_tables WHERE schemaname = '{schema}'")).await,
        rows.count(&functions).await,
        rows.count(&format!("{functions} AND proconfig = '{{\"search_path={schema}, pg_temp\"}}'")).await,
    )
}

/// Runs a held call to the end of its run.
async fn pays(app: &Embedded) -> (String, String) {
    let (thread, id) = app.held("pay", "10").await;
    let approved = app.client.approve(&id).await;
    assert_eq!(approved.body["state"], "succeeded", "{:?}", approved.body);
    app.scene.answers("Paid.");
    assert_eq!(app.client.resume(&thread).await.text(), "Paid.");
    (thread, id)
}

#[tokio::test]
async fn on_postgres_the_default_schema_has_every_table_and_function_and_public_has_none() {
    let url = empty_postgres().await;
    let rows = Rows::open(&url).await;
    let app = Embedded::with(|config| config.database.url = url.clone().into()).await;
    pays(&app).await;
    assert_eq!(contents(&rows, "holdpoint").await, (TABLES, FUNCTIONS, FUNCTIONS));
    assert_eq!(contents(&rows, "public").await, (0, 0, 0));
    let identity = "pg_attribute WHERE attrelid = 'holdpoint.events'::regclass AND attidentity = 'a'";
    assert_eq!(rows.all(&format!("SELECT attname FROM {identity}")).await, [json!({ "attname": "place" })]);
}

/// The tables of an application, with the names of tables of holdpoint and other columns, and with its own
/// migrations.
const THEIRS: &str = "CREATE TABLE public.messages (note TEXT); INSERT INTO public.messages VALUES ('hello');
    CREATE TABLE public.threads (note TEXT); CREATE TABLE public.runs (note TEXT);
    CREATE TABLE public.tool_calls (note TEXT); CREATE TABLE public.events (note TEXT);
    CREATE TABLE public.seaql_migrations (version TEXT NOT NULL PRIMARY KEY, applied_at BIGINT NOT NULL);
    INSERT INTO public.seaql_migrations VALUES ('m2020_theirs', 1)";

#[tokio::test]
async fn on_postgres_tables_of_an_application_with_the_same_names_do_no_harm() {
    let url = empty_postgres().await;
    let rows = Rows::open(&url).await;
    rows.change(THEIRS).await.unwrap();
    let app = Embedded::with(|config| config.database.url = url.clone().into()).await;
    let (thread, _) = pays(&app).await;
    let gone = app.client.delete(&format!("/threads/{thread}")).await;
    gone.has_status(204);
    let purged = app.operate(&["purge", "--older-than", "0s"]).stdout_of_success();
    assert!(purged.starts_with("1 deleted threads are purged"), "{purged}");
    assert_eq!(rows.all("SELECT * FROM public.messages").await, [json!({ "note": "hello" })]);
    for table in ["threads", "runs", "tool_calls", "events"] {
        assert_eq!(rows.count(&format!("public.{table}")).await, 0, "{table}");
    }
    let theirs = "SELECT version FROM public.seaql_migrations";
    assert_eq!(rows.all(theirs).await, [json!({ "version": "m2020_theirs" })]);
    assert_eq!(contents(&rows, "holdpoint").await, (TABLES, FUNCTIONS, FUNCTIONS));
}

/// Uses two servers of one database, each with its own schema. Neither finds a row or an event of the other.
async fn are_apart(one: &Embedded, other: &Embedded) {
    let mut streams =
        [Sse::open(&one.client, "/events?after=0").await, Sse::open(&other.client, "/events?after=0").await];
    let (thread, id) = one.held("pay", "1").await;
    for path in [format!("/threads/{thread}"), format!("/tool_calls/{id}")] {
        assert_eq!(one.client.get(&path).await.status, 200, "{path}");
        assert_eq!(other.client.get(&path).await.status, 404, "{path}");
    }
    let (_, theirs) = other.held("pay", "2").await;
    one.client.approve(&theirs).await.has_status(404);
    for (app, id) in [(one, &id), (other, &theirs)] {
        assert_eq!(app.client.approve(id).await.body["state"], "succeeded");
    }
    for (stream, own) in streams.iter_mut().zip([&id, &theirs]) {
        let reported = stream.until("tool.succeeded").await;
        let seqs: Vec<_> = reported.iter().map(|event| event["seq"].as_i64().unwrap()).collect();
        assert_eq!(seqs, (1..=reported.len() as i64).collect::<Vec<_>>(), "each has its own numbers");
        let calls = reported.iter().map(|event| &event["tool_call_id"]).filter(|call| !call.is_null());
        assert!(calls.into_iter().all(|call| call == own.as_str()), "{reported:?}");
    }
    assert_eq!(
        (one.ledger.lines(), other.ledger.lines()),
        (vec!["pay 1".to_owned()], vec!["pay 2".to_owned()])
    );
}

#[tokio::test]
async fn on_postgres_servers_with_different_schemas_in_one_database_do_not_see_each_other() {
    let url = empty_postgres().await;
    let (one, other) = (start(&url, "tenant_a").await, start(&url, "tenant_b").await);
    let rows = Rows::open(&url).await;
    let listens = async |channel: &str| {
        let sessions = "pg_stat_activity WHERE datname = current_database() AND query";
        rows.count(&format!("{sessions} = 'LISTEN \"{channel}\"'")).await == 1
    };
    for channel in ["tenant_a_events", "tenant_b_events"] {
        eventually(&format!("a server listens at {channel}"), async || listens(channel).await.then_some(()))
            .await;
    }
    are_apart(&one, &other).await;
    for schema in ["tenant_a", "tenant_b"] {
        assert_eq!(contents(&rows, schema).await, (TABLES, FUNCTIONS, FUNCTIONS), "{schema}");
        assert_eq!(rows.count(&format!("{schema}.tool_calls")).await, 1, "{schema}");
    }
    assert_eq!(rows.count("pg_tables WHERE schemaname IN ('public', 'holdpoint')").await, 0);
}

#[tokio::test]
async fn on_postgres_schemas_stay_apart_behind_a_pooler_that_shares_sessions() {
    let url = empty_postgres().await;
    let pooler = Pgbouncer::before(&url, 2).await;
    let pooled = format!("{}?statement-cache-capacity=0", pooler.url(&url));
    let (one, other) = (start(&pooled, "tenant_a").await, start(&pooled, "holdpoint").await);
    are_apart(&one, &other).await;
    let rows = Rows::open(&url).await;
    for schema in ["tenant_a", "holdpoint"] {
        assert_eq!(rows.count(&format!("{schema}.tool_calls")).await, 1, "{schema}");
    }
    assert_eq!(contents(&rows, "public").await, (0, 0, 0));
}

#[tokio::test]
async fn on_postgres_a_start_with_tables_in_public_fails_and_names_two_ways_out_that_work() {
    let url = empty_postgres().await;
    let rows = Rows::open_in(&url, "public").await;
    let held = async |app: &Embedded| app.held("pay", "1").await.1;
    let mut app = start(&url, "public").await;
    let mut open = vec![held(&app).await];
    app.end().await;
    assert_eq!(contents(&rows, "public").await, (TABLES, FUNCTIONS, FUNCTIONS));

    for _ in 0..2 {
        let refused = migrated(&url, "holdpoint").await.unwrap_err().to_string();
        assert!(
            refused.starts_with("database.schema: the tables of holdpoint are in the schema public"),
            "{refused}"
        );
        for way in ["database.schema = \"public\"", "migrations/move_postgres.sql"] {
            assert!(refused.contains(way), "{way}: {refused}");
        }
        assert_eq!(
            rows.count("pg_namespace WHERE nspname = 'holdpoint'").await,
            0,
            "a refused start changes nothing"
        );
    }

    // The first way: the schema is `public`.
    let mut app = start(&url, "public").await;
    open.push(held(&app).await);
    app.end().await;

    // The second way: the tables move. Tables of an earlier migration have functions without a search path.
    rows.change("ALTER FUNCTION public.holdpoint_run_moves() RESET search_path").await.unwrap();
    rows.change("CREATE TABLE public.theirs (note TEXT)").await.unwrap();
    rows.change(MOVE).await.unwrap();
    assert_eq!(contents(&rows, "holdpoint").await, (TABLES, FUNCTIONS, FUNCTIONS));
    assert_eq!(contents(&rows, "public").await, (1, 0, 0));
    let app = start(&url, "holdpoint").await;
    for id in &open {
        assert_eq!(app.client.approve(id).await.body["state"], "succeeded");
    }
    pays(&app).await;
    let numbered = async || (app.rows.count("events WHERE seq IS NULL").await == 0).then_some(());
    eventually("all events have numbers", numbered).await;
}

/// A schema with a table of decisions that approves every call, and with an operator for which texts never
/// differ. The session finds both before those of holdpoint and of Postgres.
const HOSTILE_SCHEMA: &str = "CREATE SCHEMA hostile;
    CREATE TABLE hostile.decisions AS SELECT tool_call_id, TRUE AS final, 'approve'::TEXT AS verdict
        FROM holdpoint.tool_calls;
    CREATE FUNCTION hostile.never(TEXT, TEXT) RETURNS BOOLEAN LANGUAGE sql IMMUTABLE AS 'SELECT FALSE';
    CREATE OPERATOR hostile.<> (LEFTARG = TEXT, RIGHTARG = TEXT, FUNCTION = hostile.never);
    SET search_path = hostile, pg_catalog, holdpoint";
/// The same table among the temporary tables, which a session finds first.
const HOSTILE_TABLE: &str = "CREATE TEMPORARY TABLE decisions AS
    SELECT tool_call_id, TRUE AS final, 'approve'::TEXT AS verdict FROM holdpoint.tool_calls;
    SET search_path = holdpoint";
/// Opens a completed run again.
const REOPEN: &str =
    "UPDATE holdpoint.runs SET status = 'waiting', finished_at = NULL WHERE status = 'completed'";
/// Starts a held call that has no decision.
const START: &str =
    "UPDATE holdpoint.tool_calls SET state = 'approved', validated = TRUE, decided_by = 'user:eve',
        decided_at = 1, start_deadline = 1 WHERE state = 'pending';
    UPDATE holdpoint.tool_calls SET state = 'executing', exec_id = 'x', exec_owner = 'eve', exec_attempt = 1,
        started_at = 1, lease_until = 1 WHERE state = 'approved'";

/// Executes these statements and rolls them back. Returns the error, if any.
async fn tries(session: &Rows, sql: &str) -> Result<(), String> {
    let tried = session.change(&format!("BEGIN; {sql}")).await;
    session.change("ROLLBACK").await.unwrap();
    tried.map(drop)
}

#[tokio::test]
async fn i6_on_postgres_the_search_path_of_a_session_does_not_fool_the_guards() {
    let url = empty_postgres().await;
    let app = Embedded::with(|config| config.database.url = url.clone().into()).await;
    pays(&app).await;
    app.held("pay", "11").await;
    let (with_schema, with_table) = (Rows::open(&url).await, Rows::open(&url).await);
    with_schema.change(HOSTILE_SCHEMA).await.unwrap();
    with_table.change(HOSTILE_TABLE).await.unwrap();
    let attacks = [
        (&with_schema, REOPEN, "illegal transition of a run"),
        (&with_schema, START, "a held call and a call of a worker begin on a decision"),
        (&with_table, START, "a held call and a call of a worker begin on a decision"),
    ];
    for (session, attack, why) in attacks {
        let refused = tries(session, attack).await.unwrap_err();
        assert!(refused.contains(why), "{attack}: {refused}");
    }
    // Each attack works on functions without a search path of their own.
    for function in ["holdpoint_run_moves", "holdpoint_tool_call_moves"] {
        app.rows.change(&format!("ALTER FUNCTION {function}() RESET search_path")).await.unwrap();
    }
    for (session, attack, _) in attacks {
        assert_eq!(tries(session, attack).await, Ok(()), "{attack}");
    }
}

#[tokio::test]
async fn on_postgres_a_schema_that_exists_is_used_by_a_role_that_may_create_none() {
    let url = empty_postgres().await;
    let rows = Rows::open(&url).await;
    let role = "keeps_to_its_schema";
    rows.change(&format!("CREATE ROLE {role} LOGIN")).await.unwrap();
    let as_role = url.replace("postgres@", &format!("{role}@"));
    let refused = migrated(&as_role, "given").await.unwrap_err().to_string();
    assert!(refused.contains("permission denied for database"), "{refused}");
    rows.change("CREATE SCHEMA given").await.unwrap();
    let refused = migrated(&as_role, "given").await.unwrap_err().to_string();
    assert!(refused.contains("permission denied for schema given"), "{refused}");
    rows.change(&format!("GRANT USAGE ON SCHEMA given TO {role}")).await.unwrap();
    let refused = migrated(&as_role, "given").await.unwrap_err().to_string();
    assert!(refused.contains("permission denied for schema given"), "{refused}");
    assert_eq!(contents(&rows, "given").await, (0, 0, 0));
    rows.change(&format!("GRANT CREATE ON SCHEMA given TO {role}")).await.unwrap();
    pays(&start(&as_role, "given").await).await;
    assert_eq!(contents(&rows, "given").await, (TABLES, FUNCTIONS, FUNCTIONS));
}
