//! The schema of Postgres that holds the tables.

use super::StoreError;
use sea_orm::{ConnectionTrait, DatabaseTransaction, DbBackend, DbErr, Statement};
use std::sync::Arc;

/// How the statements of this module's parent name the schema: before the name of each table. The schema has
/// this name by default.
const WRITTEN: &str = r#""holdpoint"."#;

/// The longest name in Postgres, in bytes.
const NAME_MAX: usize = 63;

/// The schema of the tables, chosen by the configuration. SQLite has no schemas.
///
/// The names in statements are qualified, because a pooler gives a transaction the session of another client,
/// with any search path.
#[derive(Debug, Clone)]
pub(super) struct Schema {
    name: Arc<str>,
    /// The text for [`WRITTEN`], if it differs.
    qualifier: Option<Arc<str>>,
}

impl Schema {
    /// The schema of this name. The configuration has checked the name: lower-case letters, digits and `_`.
    pub(super) fn new(backend: DbBackend, name: &str) -> Self {
        let qualifier = match backend {
            DbBackend::Sqlite => String::new(),
            _ => format!(r#""{name}"."#),
        };
        let qualifier = (qualifier != WRITTEN).then(|| qualifier.into());
        Self { name: name.into(), qualifier }
    }

    /// Returns the text of a statement with the name of this schema. The text must contain no values: every
    /// value that a client can choose is a parameter.
    pub(super) fn qualify(&self, sql: String) -> String {
        match &self.qualifier {
            Some(qualifier) => sql.replace(WRITTEN, qualifier),
            None => sql,
        }
    }

    /// Returns the channel of notifications. Schemas whose names begin with the same 56 bytes share it: a
    /// notification only means that events may have numbers.
    pub(super) fn channel(name: &str) -> String {
        let mut channel = format!("{name}_events");
        channel.truncate(NAME_MAX);
        channel
    }

    /// Returns the channel of this schema.
    pub(super) fn own_channel(&self) -> String {
        Self::channel(&self.name)
    }

    /// Makes the migrator find and create its tables in this schema until the transaction ends. Fails if the
    /// role may not use the schema. For Postgres only.
    ///
    /// The functions of the triggers keep this search path. Temporary tables come last, so that they stand for
    /// no table of the schema.
    pub(super) async fn enter(&self, tx: &DatabaseTransaction) -> Result<(), StoreError> {
        let Self { name, .. } = self;
        tx.execute_unprepared(&format!(r#"SET LOCAL search_path = "{name}", pg_temp"#)).await?;
        // Looks the name up, which needs the right to use the schema. An unusable schema in the search path is
        // no error, and the tables would be temporary.
        let is_new = found(tx, &format!(r#"to_regclass('"{name}".seaql_migrations') IS NULL"#)).await?;
        if is_new && &**name != "public" && found(tx, LIES_IN_PUBLIC).await? {
            return Err(StoreError::InPublic { schema: name.to_string() });
        }
        Ok(())
    }

    /// Creates the schema if it is missing. Otherwise the role needs no right to create one. For Postgres only.
    pub(super) async fn create(&self, tx: &DatabaseTransaction) -> Result<(), DbErr> {
        let Self { name, .. } = self;
        let exists = format!("EXISTS (SELECT FROM pg_namespace WHERE nspname = '{name}')");
        if !found(tx, &exists).await? {
            tx.execute_unprepared(&format!(r#"CREATE SCHEMA "{name}""#)).await?;
        }
        Ok(())
    }
}

/// Whether the schema `public` holds the tables and guards of holdpoint. An application may have tables of the
/// same names there.
const LIES_IN_PUBLIC: &str = "EXISTS (SELECT FROM pg_namespace
    JOIN pg_class ON relnamespace = pg_namespace.oid JOIN pg_proc ON pronamespace = pg_namespace.oid
    WHERE nspname = 'public' AND relname = 'tool_calls' AND proname = 'holdpoint_tool_call_moves')";

/// Returns the value of a condition.
async fn found(tx: &DatabaseTransaction, condition: &str) -> Result<bool, DbErr> {
    let statement = Statement::from_string(DbBackend::Postgres, format!("SELECT {condition} AS found"));
    let row = tx.query_one_raw(statement).await?;
    row.map_or(Ok(false), |row| row.try_get("", "found"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SELECT: &str = r#"SELECT "runs"."run_id" FROM "holdpoint"."runs" JOIN "holdpoint".threads ON $1"#;

    #[test]
    fn a_statement_names_the_configured_schema_and_none_on_sqlite() {
        let of = |backend, name| Schema::new(backend, name).qualify(SELECT.to_owned());
        assert_eq!(of(DbBackend::Postgres, "holdpoint"), SELECT);
        assert_eq!(
            of(DbBackend::Postgres, "tenant_a"),
            r#"SELECT "runs"."run_id" FROM "tenant_a"."runs" JOIN "tenant_a".threads ON $1"#
        );
        for name in ["holdpoint", "tenant_a"] {
            let expected = r#"SELECT "runs"."run_id" FROM "runs" JOIN threads ON $1"#;
            assert_eq!(of(DbBackend::Sqlite, name), expected);
        }
    }

    #[test]
    fn a_channel_is_named_after_its_schema_and_is_never_too_long() {
        assert_eq!(Schema::channel("holdpoint"), "holdpoint_events");
        let long = Schema::channel(&"s".repeat(NAME_MAX));
        assert_eq!(long, "s".repeat(NAME_MAX));
    }
}
