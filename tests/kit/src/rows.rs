//! The rows of a server's database, read on a separate connection.

use super::eventually;
use crate::JsonFields;
use sea_orm::{
    ConnectOptions, ConnectionTrait, Database, DatabaseConnection, FromQueryResult, JsonValue, Statement,
};
use serde_json::Value;

/// The sessions of this database that wait for a lock. A transaction sees a snapshot from its first read.
const LOCK_WAITS: &str = "pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";

/// A separate connection to a server's database.
#[derive(Debug)]
pub struct Rows(DatabaseConnection);

impl Rows {
    pub async fn open(url: &str) -> Self {
        Self::open_in(url, "holdpoint").await
    }

    /// Finds the tables of this schema by their bare names, and then those of `public`. On SQLite there are no
    /// schemas.
    pub async fn open_in(url: &str, schema: &str) -> Self {
        let mut options = ConnectOptions::new(url);
        options.max_connections(1).sqlx_logging(false);
        // A session of a pooler belongs to other clients too.
        if !url.contains("statement-cache-capacity=0") {
            options.set_schema_search_path(format!("{schema},public"));
        }
        // A pooler may be in between.
        options.map_sqlx_postgres_opts(|postgres| postgres.extra_float_digits(None));
        Self(Database::connect(options).await.unwrap())
    }

    /// Closes the connection, for commands that allow no other connection.
    pub async fn close(self) {
        self.0.close().await.unwrap();
    }

    pub fn is_postgres(&self) -> bool {
        self.0.get_database_backend() == sea_orm::DbBackend::Postgres
    }

    /// Lets the database make no claim of a call, without an error: each claim finds that the call cannot be
    /// claimed. So an approval is committed without one, as by a process that is stopping.
    pub async fn forbid_claims(&self) {
        let forbid = if self.is_postgres() {
            "CREATE SEQUENCE refused_claims;
             CREATE FUNCTION not_now() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
                 BEGIN PERFORM nextval('refused_claims'); RETURN NULL; END $$;
             CREATE TRIGGER not_now BEFORE UPDATE ON tool_calls FOR EACH ROW
                 WHEN (NEW.state = 'executing') EXECUTE FUNCTION not_now()"
        } else {
            "CREATE TRIGGER not_now BEFORE UPDATE ON tool_calls WHEN NEW.state = 'executing'
                 BEGIN SELECT RAISE(IGNORE); END"
        };
        self.change(forbid).await.unwrap();
    }

    /// The number of claims that Postgres has refused, in transactions of any end.
    pub async fn refused_claims(&self) -> i64 {
        let refused = "SELECT CASE WHEN is_called THEN last_value ELSE 0 END AS count FROM refused_claims";
        self.all(refused).await[0]["count"].as_i64().unwrap()
    }

    /// Lets the database make claims again.
    pub async fn allow_claims(&self) {
        let on = if self.is_postgres() { " ON tool_calls" } else { "" };
        self.change(&format!("DROP TRIGGER not_now{on}")).await.unwrap();
    }

    /// The rows of a query. On Postgres events get their numbers shortly after their commit, so the rows of
    /// `SELECT * FROM events` omit the number.
    pub async fn all(&self, sql: &str) -> Vec<Value> {
        let statement = Statement::from_string(self.0.get_database_backend(), sql);
        let mut found = JsonValue::find_by_statement(statement).all(&self.0).await.unwrap();
        for (table, number) in [("events", "seq"), ("event_sequence", "last")] {
            if sql.starts_with(&format!("SELECT * FROM {table}")) {
                found.iter_mut().for_each(|row| drop(row.as_object_mut().unwrap().remove(number)));
            }
        }
        found
    }

    /// The number of rows of this `FROM` clause.
    pub async fn count(&self, from: &str) -> i64 {
        let sql = format!("SELECT count(*) FROM {from}");
        let statement = Statement::from_string(self.0.get_database_backend(), sql);
        self.0.query_one_raw(statement).await.unwrap().unwrap().try_get_by_index(0).unwrap()
    }

    /// The number of rows of this table, and of entries of its indexes, that all sessions have read. Waits for the end
    /// of the other sessions, because Postgres adds the counts of a session when the session ends.
    pub async fn read_of(&self, table: &str) -> i64 {
        let sessions = "pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()";
        let alone = async || (self.count(sessions).await == 0).then_some(());
        super::eventually("no other session is open", alone).await;
        self.all("SELECT CAST(pg_stat_force_next_flush() AS TEXT) AS flushed").await;
        let sql = format!(
            "SELECT CAST((SELECT COALESCE(sum(idx_tup_read), 0) FROM pg_stat_user_indexes WHERE relname = '{table}')
            + (SELECT seq_tup_read FROM pg_stat_user_tables WHERE relname = '{table}') AS BIGINT) AS rows"
        );
        self.all(&sql).await[0]["rows"].as_i64().unwrap()
    }

    /// Executes a statement that changes rows, as an operator at a prompt would. Returns the error's text if
    /// the statement is refused.
    pub async fn change(&self, sql: &str) -> Result<u64, String> {
        let done = self.0.execute_unprepared(sql).await;
        done.map(|result| result.rows_affected()).map_err(|error| error.to_string())
    }

    /// Drops the triggers that guard the rows of this table.
    pub async fn drop_guards(&self, table: &str) {
        if self.is_postgres() {
            self.change(&format!("ALTER TABLE {table} DISABLE TRIGGER USER")).await.unwrap();
            return;
        }
        let named = format!("SELECT name FROM sqlite_master WHERE type = 'trigger' AND tbl_name = '{table}'");
        for trigger in self.all(&named).await {
            let name = trigger.text("name");
            self.change(&format!("DROP TRIGGER {name}")).await.unwrap();
        }
    }

    /// Waits until a session waits for a lock in this database, which is on Postgres.
    pub async fn wait_for_lock_waiter(&self) {
        let waits = async || (self.count(LOCK_WAITS).await > 0).then_some(());
        eventually("somebody waits for a lock", waits).await;
    }

    /// Waits until no session waits for a lock.
    pub async fn wait_for_no_lock_waiter(&self) {
        let waits = async || (self.count(LOCK_WAITS).await == 0).then_some(());
        eventually("nobody waits for a lock", waits).await;
    }
}
