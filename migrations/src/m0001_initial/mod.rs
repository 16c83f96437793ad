//! Every table, state, check and guard of the first release.
//!
//! An empty line ends a statement in the SQL files. Each statement is executed on its own, because extensions
//! that distribute tables take no text of several statements.

mod round_tables;

use round_tables::{RoundTable, round_table};
use sea_orm_migration::prelude::*;
use sea_orm_migration::sea_orm::DbBackend;

const TABLES: &str = include_str!("tables.sql");
const GUARDS_SQLITE: &str = include_str!("guards_sqlite.sql");
const GUARDS_POSTGRES: &str = include_str!("guards_postgres.sql");

const POSTGRES_ONLY: &str = "-- Postgres only";
const SQLITE_ONLY: &str = "-- SQLite only";

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
        let backend = manager.get_database_backend();
        let guards = match backend {
            DbBackend::Sqlite => GUARDS_SQLITE,
            DbBackend::Postgres => GUARDS_POSTGRES,
            other => {
                return Err(DbErr::Migration(format!(
                    "holdpoint runs on SQLite and Postgres, not on {other:?}"
                )));
            }
        };
        for statement in [TABLES, guards].into_iter().flat_map(statements) {
            match backend {
                DbBackend::Sqlite => {
                    db.execute_unprepared(&for_sqlite(statement)).await?;
                }
                _ => {
                    for statement in for_postgres(statement) {
                        db.execute_unprepared(&statement).await?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Always fails. The rows are the record of what people approved, so this migration cannot be undone.
    async fn down(&self, _manager: &SchemaManager) -> Result<(), DbErr> {
        Err(DbErr::Migration("the first migration cannot be undone".to_owned()))
    }
}

/// Returns the statements of a file, with their comments.
fn statements(file: &str) -> impl Iterator<Item = &str> {
    let is_statement = |part: &&str| part.lines().any(|line| !line.starts_with("--"));
    file.split("\n\n").filter(is_statement)
}

/// Returns the statement without the lines for Postgres only.
fn for_sqlite(statement: &str) -> String {
    statement.lines().filter(|line| !line.ends_with(POSTGRES_ONLY)).collect::<Vec<_>>().join("\n")
}

/// Returns the statements on Postgres for this one.
fn for_postgres(statement: &str) -> Vec<String> {
    let lines = statement.lines().filter(|line| !line.ends_with(SQLITE_ONLY));
    let lines: Vec<_> = lines.map(|line| line.trim_end_matches(POSTGRES_ONLY).trim_end()).collect();
    let statement = lines.join("\n");
    match round_table(&statement) {
        Some(RoundTable { table, function, trigger }) => vec![table, function, trigger],
        None => vec![statement],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first words of a statement.
    const BEGINNINGS: [&str; 5] =
        ["CREATE TABLE ", "CREATE INDEX ", "CREATE UNIQUE INDEX ", "CREATE TRIGGER ", "INSERT INTO "];
    const FUNCTION: &str = "CREATE FUNCTION ";

    fn begins(line: &str) -> bool {
        BEGINNINGS.iter().chain([&FUNCTION]).any(|beginning| line.starts_with(beginning))
    }

    #[test]
    fn each_part_of_a_file_is_one_statement() {
        for file in [TABLES, GUARDS_SQLITE, GUARDS_POSTGRES] {
            let mut found = 0;
            for statement in statements(file) {
                let mut lines = statement.lines().skip_while(|line| line.starts_with("--"));
                assert!(lines.next().is_some_and(begins), "{statement}");
                assert!(!lines.any(begins), "{statement}");
                assert!(statement.trim_end().ends_with(';'), "{statement}");
                found += 1;
            }
            assert_eq!(found, file.lines().filter(|line| begins(line)).count());
        }
    }

    #[test]
    fn each_function_keeps_the_search_path_of_the_migration() {
        for function in GUARDS_POSTGRES.lines().filter(|line| line.starts_with(FUNCTION)) {
            assert!(function.ends_with(" SET search_path FROM CURRENT AS $$"), "{function}");
        }
    }

    #[test]
    fn the_tables_of_both_databases_differ_in_the_places_of_events_the_target_of_a_key_and_a_covering_index()
    {
        let lines = |marker: &str| -> Vec<&str> {
            let marked = TABLES.lines().filter(|line| line.ends_with(marker) && !line.starts_with("--"));
            marked.map(|line| line.trim_end_matches(marker).trim()).collect()
        };
        assert_eq!(
            lines(POSTGRES_ONLY),
            ["INCLUDE (state)", "place        BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,"]
        );
        assert_eq!(
            lines(SQLITE_ONLY),
            ["UNIQUE (thread_id, tenant_id),", "place        INTEGER PRIMARY KEY,"]
        );
    }

    #[test]
    fn a_statement_for_one_database_has_no_line_for_the_other() {
        for statement in statements(TABLES) {
            assert!(!for_sqlite(statement).contains(POSTGRES_ONLY));
            for on_postgres in for_postgres(statement) {
                assert!(!on_postgres.contains(SQLITE_ONLY), "{on_postgres}");
                assert!(!on_postgres.contains(POSTGRES_ONLY), "{on_postgres}");
            }
        }
    }
}
