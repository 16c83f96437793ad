//! Every table, state, check and guard of the first release.

use sea_orm_migration::prelude::*;
use sea_orm_migration::sea_orm::DbBackend;

const TABLES: &str = include_str!("tables.sql");
const COUNTS_SQLITE: &str = include_str!("counts_sqlite.sql");
const COUNTS_POSTGRES: &str = include_str!("counts_postgres.sql");
const GUARDS_SQLITE: &str = include_str!("guards_sqlite.sql");
const GUARDS_POSTGRES: &str = include_str!("guards_postgres.sql");

pub(crate) struct Initial;

impl MigrationName for Initial {
    fn name(&self) -> &str {
        "m0001_initial"
    }
}

#[async_trait::async_trait]
impl MigrationTrait for Initial {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        let db = manager.get_connection();
        db.execute_unprepared(TABLES).await?;
        let (counts, guards) = match manager.get_database_backend() {
            DbBackend::Sqlite => (COUNTS_SQLITE, GUARDS_SQLITE),
            DbBackend::Postgres => (COUNTS_POSTGRES, GUARDS_POSTGRES),
            other => {
                return Err(DbErr::Migration(format!(
                    "holdpoint runs on SQLite and Postgres, not on {other:?}"
                )));
            }
        };
        db.execute_unprepared(counts).await?;
        db.execute_unprepared(guards).await?;
        Ok(())
    }

    /// Always fails. The rows are the record of what people approved, so this migration cannot be undone.
    async fn down(&self, _manager: &SchemaManager) -> Result<(), DbErr> {
        Err(DbErr::Migration("the first migration cannot be undone".to_owned()))
    }
}
