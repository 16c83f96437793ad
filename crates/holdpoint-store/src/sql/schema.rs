//! The schema of Postgres that holds the tables.
//!
//! The entities and the SQL of the store name the schema `holdpoint`. [`Schema::qualify`] puts the configured name in
//! place of it (on SQLite nothing) before a [`Tx`](super::tx::Tx) executes the statement. The migrator finds the schema
//! by the search path of its transaction, which the functions of the triggers keep.

use crate::StoreError;
use sea_orm::sqlx::AssertSqlSafe;
use sea_orm::{ConnectionTrait, DatabaseTransaction, DbBackend, DbErr, Statement};

/// The schema in the texts of the store's statements, before the name of each table. The schema has this name
/// by default.
const WRITTEN: &str = r#""holdpoint"."#;

/// The longest name in Postgres, in bytes.
const NAME_MAX: usize = 63;

/// Makes the schema the first of the search path until the transaction ends.
const ENTER: &str =
    "SELECT pg_catalog.set_config('search_path', pg_catalog.quote_ident($1) || ', pg_temp', true)";

/// Whether no migration has run in the schema. The lookup fails if the role may not use the schema. The search
/// path would ignore such a schema, and the tables would be temporary.
const IS_NEW: &str = "SELECT to_regclass(quote_ident($1) || '.seaql_migrations') IS NULL";

/// Whether the schema `public` holds tables and guards of holdpoint, and is another schema. An application may
/// have tables of the same names there.
const LIES_IN_PUBLIC: &str = "SELECT $1 <> 'public' AND EXISTS (SELECT FROM pg_namespace
    JOIN pg_class ON relnamespace = pg_namespace.oid JOIN pg_proc ON pronamespace = pg_namespace.oid
    WHERE nspname = 'public' AND relname = 'tool_calls' AND proname = 'holdpoint_tool_call_moves')";

const EXISTS: &str = "SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = $1)";

/// The schema of the tables, chosen by the configuration. SQLite has no schemas.
///
/// The names in statements are qualified, because a pooler gives a transaction the session of another client,
/// with any search path.
#[derive(Debug)]
pub(crate) struct Schema {
    name: String,
    /// The text for [`WRITTEN`], if it differs.
    qualifier: Option<String>,
}

impl Schema {
    /// The schema of this name. The configuration has checked the name: lower-case letters, digits and `_`.
    pub(crate) fn new(backend: DbBackend, name: &str) -> Self {
        let qualifier = match backend {
            DbBackend::Sqlite => String::new(),
            _ => format!(r#""{name}"."#),
        };
        Self { name: name.to_owned(), qualifier: Some(qualifier).filter(|qualifier| qualifier != WRITTEN) }
    }

    /// Returns the text of a statement with the name of this schema. The text contains names and words of the
    /// program alone, because every value is a parameter: so nothing else can look like the schema.
    pub(crate) fn qualify(&self, sql: String) -> String {
        match &self.qualifier {
            Some(qualifier) => sql.replace(WRITTEN, qualifier),
            None => sql,
        }
    }

    /// Returns the channel of notifications. Schemas whose names begin with the same 56 bytes share it: a
    /// notification only means that events may have numbers.
    pub(crate) fn channel(&self) -> String {
        channel(&self.name)
    }

    /// Makes the migrator find and create its tables in this schema until the transaction ends. Fails if the
    /// role may not use the schema, or if the tables are in `public`. For Postgres only.
    ///
    /// The functions of the triggers keep this search path. Temporary tables come last in it, so that none
    /// hides a table of the schema.
    pub(crate) async fn enter(&self, tx: &DatabaseTransaction) -> Result<(), StoreError> {
        tx.execute_raw(self.about(ENTER)).await?;
        if self.holds(tx, IS_NEW).await? && self.holds(tx, LIES_IN_PUBLIC).await? {
            return Err(StoreError::InPublic { schema: self.name.clone() });
        }
        Ok(())
    }

    /// Creates the schema if it is missing. If it exists, the role needs no right to create one. For Postgres
    /// only.
    pub(crate) async fn create(&self, tx: &DatabaseTransaction) -> Result<(), DbErr> {
        if !self.holds(tx, EXISTS).await? {
            tx.execute_unprepared(&format!(r#"CREATE SCHEMA "{}""#, self.name)).await?;
        }
        Ok(())
    }

    /// Returns the value of a condition whose parameter is the name of this schema.
    async fn holds(&self, tx: &DatabaseTransaction, condition: &str) -> Result<bool, DbErr> {
        let row = tx.query_one_raw(self.about(condition)).await?;
        row.map_or(Ok(false), |row| row.try_get_by_index(0))
    }

    fn about(&self, sql: &str) -> Statement {
        Statement::from_sql_and_values(DbBackend::Postgres, sql, [self.name.as_str().into()])
    }
}

/// Returns the statement by which a session listens for the notifications of this schema.
pub(crate) fn listen(name: &str) -> AssertSqlSafe<String> {
    AssertSqlSafe(format!(r#"LISTEN "{}""#, channel(name)))
}

fn channel(name: &str) -> String {
    let mut channel = format!("{name}_events");
    channel.truncate(NAME_MAX);
    channel
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
        assert_eq!(channel("holdpoint"), "holdpoint_events");
        assert_eq!(channel(&"s".repeat(NAME_MAX)), "s".repeat(NAME_MAX));
    }
}
