//! The rows of the database, read directly and not through a server.

use crate::json::JsonPointer;
use anyhow::{Context, Result};
use sea_orm::{ConnectionTrait, DatabaseConnection, FromQueryResult, JsonValue, QueryResult, Statement};
use serde::Deserialize;
use serde::de::{DeserializeOwned, Deserializer};
use serde_json::Value;

/// The counts of each thread. A step counts after its end.
const COUNTS: &str = concat!(
    "SELECT thread_id, messages, bytes,
    (SELECT count(*) FROM messages WHERE messages.thread_id = threads.thread_id) AS true_messages, ",
    include_str!("../../tests/kit/src/thread_bytes.sql"),
    " AS true_bytes FROM threads"
);

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct CallRow {
    pub(crate) tool_call_id: String,
    pub(crate) thread_id: String,
    pub(crate) message_id: String,
    pub(crate) step: i64,
    pub(crate) wire_call_id: String,
    pub(crate) name: String,
    pub(crate) arguments: String,
    #[serde(deserialize_with = "boolean")]
    pub(crate) held: bool,
    #[serde(deserialize_with = "boolean")]
    pub(crate) idempotent: bool,
    pub(crate) state: String,
    #[serde(deserialize_with = "optional_boolean")]
    pub(crate) validated: Option<bool>,
    pub(crate) validated_inputs: Option<String>,
    pub(crate) decided_by: Option<String>,
    pub(crate) decided_at: Option<i64>,
    pub(crate) expires_at: Option<i64>,
    pub(crate) exec_id: Option<String>,
    pub(crate) exec_attempt: i64,
    pub(crate) lease_until: Option<i64>,
    pub(crate) child_run_id: Option<String>,
    pub(crate) result_deadline: Option<i64>,
    pub(crate) cancel_requested_at: Option<i64>,
    pub(crate) output: Option<String>,
    pub(crate) result: Option<String>,
    pub(crate) finished_at: Option<i64>,
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct DecisionRow {
    pub(crate) tool_call_id: String,
    pub(crate) actor: String,
    pub(crate) verdict: String,
    #[serde(rename = "final", deserialize_with = "boolean")]
    pub(crate) is_final: bool,
    pub(crate) input_hash: String,
    pub(crate) surface: String,
    pub(crate) at: i64,
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct EventRow {
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) at: i64,
    pub(crate) actor: String,
    pub(crate) tool_call_id: Option<String>,
    pub(crate) data: String,
}

/// A text about a call in requests to the model.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct SentRow {
    pub(crate) tool_call_id: String,
    pub(crate) n: i64,
    pub(crate) text: String,
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct RunRow {
    pub(crate) run_id: String,
    pub(crate) status: String,
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct ThreadRow {
    pub(crate) thread_id: String,
    pub(crate) tenant_id: String,
    pub(crate) user_id: String,
}

/// The counts of a thread, and the sums over its rows.
#[derive(Debug, Clone)]
pub(crate) struct ThreadCounts {
    pub(crate) thread_id: String,
    pub(crate) messages: i64,
    pub(crate) bytes: i64,
    pub(crate) true_messages: i64,
    pub(crate) true_bytes: i64,
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct MessageRow {
    pub(crate) thread_id: String,
    pub(crate) content: Option<String>,
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct StepRow {
    pub(crate) message_id: String,
    pub(crate) n: i64,
    pub(crate) parts: String,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Rows {
    pub(crate) calls: Vec<CallRow>,
    pub(crate) decisions: Vec<DecisionRow>,
    pub(crate) events: Vec<EventRow>,
    pub(crate) sent: Vec<SentRow>,
    pub(crate) runs: Vec<RunRow>,
    pub(crate) threads: Vec<ThreadRow>,
    pub(crate) counts: Vec<ThreadCounts>,
    pub(crate) messages: Vec<MessageRow>,
    pub(crate) steps: Vec<StepRow>,
}

impl CallRow {
    /// Returns the inputs of the execution: the inputs of the decision, or else those of the model.
    pub(crate) fn effective_inputs(&self) -> Option<Value> {
        serde_json::from_str(self.validated_inputs.as_ref().unwrap_or(&self.arguments)).ok()
    }

    pub(crate) fn is_open(&self) -> bool {
        matches!(self.state.as_str(), "pending" | "approved" | "executing")
    }
}

impl StepRow {
    pub(crate) fn text(&self) -> String {
        let parts: Value = serde_json::from_str(&self.parts).unwrap_or_default();
        let texts = parts.as_array().into_iter().flatten().filter(|part| part.at("/type") == "text");
        texts.filter_map(|part| part.at("/text").as_str()).collect()
    }
}

impl Rows {
    pub(crate) async fn read(db: &DatabaseConnection) -> Result<Self> {
        Ok(Self {
            calls: all(db, "SELECT * FROM tool_calls").await?,
            decisions: all(db, "SELECT * FROM decisions").await?,
            events: all(db, "SELECT * FROM events").await?,
            sent: all(db, "SELECT * FROM sent_answers ORDER BY tool_call_id, n").await?,
            runs: all(db, "SELECT * FROM runs").await?,
            threads: all(db, "SELECT * FROM threads").await?,
            counts: thread_counts(db).await?,
            messages: all(db, "SELECT * FROM messages").await?,
            steps: all(db, "SELECT * FROM message_steps ORDER BY message_id, n").await?,
        })
    }
}

async fn all<T: DeserializeOwned>(db: &DatabaseConnection, sql: &'static str) -> Result<Vec<T>> {
    let statement = Statement::from_string(db.get_database_backend(), sql);
    let rows = JsonValue::find_by_statement(statement).all(db).await.context(sql)?;
    rows.into_iter().map(|row| serde_json::from_value(row).context(sql)).collect()
}

/// Reads the counts by their places, because JSON lacks the sums of SQLite, which have no declared type.
async fn thread_counts(db: &DatabaseConnection) -> Result<Vec<ThreadCounts>> {
    let statement = Statement::from_string(db.get_database_backend(), COUNTS);
    let rows = db.query_all_raw(statement).await.context(COUNTS)?;
    let read = |row: &QueryResult| {
        Ok(ThreadCounts {
            thread_id: row.try_get_by_index(0)?,
            messages: row.try_get_by_index(1)?,
            bytes: row.try_get_by_index(2)?,
            true_messages: row.try_get_by_index(3)?,
            true_bytes: row.try_get_by_index(4)?,
        })
    };
    rows.iter().map(read).collect()
}

pub(crate) async fn count(db: &DatabaseConnection, sql: &'static str) -> Result<i64> {
    let statement = Statement::from_string(db.get_database_backend(), sql);
    let row = db.query_one_raw(statement).await?.context("a count gives a row")?;
    Ok(row.try_get_by_index(0)?)
}

/// Reads a boolean, which is a number in SQLite.
fn boolean<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    Ok(optional_boolean(deserializer)?.unwrap_or_default())
}

fn optional_boolean<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<bool>, D::Error> {
    Ok(match Value::deserialize(deserializer)? {
        Value::Bool(boolean) => Some(boolean),
        Value::Number(number) => Some(number.as_i64() != Some(0)),
        _ => None,
    })
}
