//! Every table, state, check and guard of the first release.
//!
//! An empty line ends a statement in the SQL files. Each statement is executed on its own, because extensions
//! that distribute tables take no text of several statements.

mod checks;

use checks::{Unchecked, take_checks};
use sea_orm_migration::prelude::*;
use sea_orm_migration::sea_orm::DbBackend;
use std::borrow::Cow;

const TABLES: &str = include_str!("tables.sql");
const COUNTS_SQLITE: &str = include_str!("counts_sqlite.sql");
const COUNTS_POSTGRES: &str = include_str!("counts_postgres.sql");
const GUARDS_SQLITE: &str = include_str!("guards_sqlite.sql");
const GUARDS_POSTGRES: &str = include_str!("guards_postgres.sql");

/// The table whose CHECKs are a trigger on Postgres.
const CHECKED_BY_TRIGGER: &str = "tool_calls";

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
        let (counts, guards) = match backend {
            DbBackend::Sqlite => (COUNTS_SQLITE, GUARDS_SQLITE),
            DbBackend::Postgres => (COUNTS_POSTGRES, GUARDS_POSTGRES),
            other => {
                return Err(DbErr::Migration(format!(
                    "holdpoint runs on SQLite and Postgres, not on {other:?}"
                )));
            }
        };
        for statement in [TABLES, counts, guards].into_iter().flat_map(statements) {
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
    statement.lines().filter(|line| !line.ends_with("-- Postgres only")).collect::<Vec<_>>().join("\n")
}

/// Returns the statements on Postgres for this one.
fn for_postgres(statement: &str) -> Vec<Cow<'_, str>> {
    match take_checks(statement, CHECKED_BY_TRIGGER) {
        Some(Unchecked { table, function, trigger }) => [table, function, trigger].map(Cow::Owned).into(),
        None => vec![Cow::Borrowed(statement)],
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
        for file in [TABLES, COUNTS_SQLITE, COUNTS_POSTGRES, GUARDS_SQLITE, GUARDS_POSTGRES] {
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
        let functions = [COUNTS_POSTGRES, GUARDS_POSTGRES].into_iter().flat_map(str::lines);
        for function in functions.filter(|line| line.starts_with(FUNCTION)) {
            assert!(function.ends_with(" SET search_path FROM CURRENT AS $$"), "{function}");
        }
    }

    #[test]
    fn the_tables_of_both_databases_differ_in_the_identity_of_events_and_a_covering_index() {
        let shared = statements(TABLES).map(for_sqlite).collect::<Vec<_>>().join("\n\n");
        let only_postgres: Vec<_> =
            TABLES.lines().filter(|line| !shared.lines().any(|other| other == *line)).collect();
        let identity = "    place        BIGINT GENERATED ALWAYS AS IDENTITY, -- Postgres only";
        let covering = "    INCLUDE (state) -- Postgres only";
        // The comment at the beginning of the file is no statement.
        assert_eq!(
            only_postgres.into_iter().filter(|line| !line.starts_with("--")).collect::<Vec<_>>(),
            [covering, identity]
        );
    }
}
