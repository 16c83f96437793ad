//! A migration that fails halfway.

use holdpoint::app::migrate;
use holdpoint::config::Config;
use holdpoint_testkit::{Embedded, Rows, empty_postgres, empty_sqlite, postgres_if_chosen};

#[tokio::test]
async fn a_failed_migration_is_rolled_back_and_the_next_start_completes_it() {
    let dir = tempfile::tempdir().unwrap();
    let url = match postgres_if_chosen().await {
        Some(_) => empty_postgres().await,
        None => empty_sqlite(&dir),
    };
    let rows = if url.starts_with("sqlite:") {
        Rows::open(&format!("{url}?mode=rwc")).await
    } else {
        Rows::open(&url).await
    };
    // A table with this name exists, so the migration fails at that table.
    if rows.is_postgres() {
        rows.change("CREATE SCHEMA holdpoint").await.unwrap();
    }
    rows.change("CREATE TABLE events (theirs INTEGER)").await.unwrap();
    let tables = if rows.is_postgres() {
        "pg_tables WHERE schemaname IN ('public', 'holdpoint')"
    } else {
        "sqlite_master WHERE type = 'table'"
    };
    let mut config = Config::default();
    config.database.url = url.clone().into();
    let failed = migrate(&config).await.unwrap_err().to_string();
    assert!(failed.starts_with("database.url: ") && failed.contains("events"), "{failed}");
    assert_eq!(rows.count(tables).await, 1, "what is theirs");

    rows.change("DROP TABLE events").await.unwrap();
    rows.close().await;
    let app = Embedded::with(|config| config.database.url = url.into()).await;
    let (thread, id) = app.held("pay", "10").await;
    assert_eq!(app.client.approve(&id).await.body["state"], "succeeded");
    app.scene.answers("Paid.");
    assert_eq!(app.client.resume(&thread).await.text(), "Paid.");
    assert_eq!(app.ledger.lines(), ["pay 10"]);
}
