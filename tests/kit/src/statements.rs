//! The statements that a server executes on Postgres, counted by `pg_stat_statements` and sorted by their
//! purpose.

use super::{Cluster, Rows};
use crate::JsonFields;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// The work of a request or a turn.
    Work,
    /// A pass that numbers events, or a look at the last number.
    Numbering,
    /// A look of a background task for work.
    Look,
    /// The frame of a transaction, or a setting.
    Frame,
    /// The counting itself.
    Count,
}

/// The purposes that are known by the text: how the text begins, or what the text contains. Any other statement
/// is work.
const KNOWN: [(Purpose, TextMatch, &str); 22] = [
    (Purpose::Count, TextMatch::Contains, "pg_stat_statements"),
    (Purpose::Frame, TextMatch::Begins, "BEGIN"),
    (Purpose::Frame, TextMatch::Begins, "COMMIT"),
    (Purpose::Frame, TextMatch::Begins, "ROLLBACK"),
    (Purpose::Frame, TextMatch::Begins, "SET "),
    (Purpose::Frame, TextMatch::Begins, "PRAGMA "),
    (Purpose::Frame, TextMatch::Begins, "DEALLOCATE"),
    // The time and the settings of a writing transaction.
    (Purpose::Frame, TextMatch::Contains, "set_config("),
    // The time of a view.
    (Purpose::Frame, TextMatch::Begins, "SELECT (EXTRACT(EPOCH FROM clock_timestamp())"),
    // The lock of a pass, the pass, and the last number.
    (Purpose::Numbering, TextMatch::Contains, "event_sequence"),
    // The users and roles that new events touch.
    (Purpose::Numbering, TextMatch::Begins, "SELECT DISTINCT tenant_id, user_id, NULL AS role FROM"),
    // A listening connection shows that it is alive.
    (Purpose::Numbering, TextMatch::Begins, r#"LISTEN "holdpoint_events""#),
    // The sweeper and the resumer: whether there is work.
    (Purpose::Look, TextMatch::Contains, r#"AS "unanswered""#),
    (Purpose::Look, TextMatch::Contains, r#"AS "children""#),
    // The sweeper: executing calls with an ended lease, calls whose owner did not report in time, approved calls past their start deadline, approved
    // calls that no process has claimed, pending calls past their deadline, and those to remind of or to escalate.
    (
        Purpose::Look,
        TextMatch::Begins,
        r#"SELECT "tool_calls"."tool_call_id", "tool_calls"."due_at" AS "due_at" FROM"#,
    ),
    // The sweeper: links of messages that have expired.
    (Purpose::Look, TextMatch::Begins, r#"DELETE FROM "holdpoint"."links""#),
    // The sweeper: sign-ins whose time is over.
    (Purpose::Look, TextMatch::Begins, r#"DELETE FROM "holdpoint"."sign_ins""#),
    // The sweeper: turns with an ended lease.
    (
        Purpose::Look,
        TextMatch::Begins,
        r#"SELECT "runs"."run_id" FROM "holdpoint"."runs" WHERE "runs"."status" ="#,
    ),
    // The sweeper: interrupted calls whose tool may know the outcome.
    (
        Purpose::Look,
        TextMatch::Begins,
        r#"SELECT "tool_calls"."tool_call_id", "tool_calls"."name", "tool_calls"."schema_hash", "tool_calls"."exec_id""#,
    ),
    // The sweeper: work of MCP servers that no process polls.
    (Purpose::Look, TextMatch::Contains, r#"ORDER BY "tool_calls"."due_at" ASC LIMIT"#),
    // The resumer: delegated calls whose child needs an action, and runs to resume.
    (
        Purpose::Look,
        TextMatch::Begins,
        r#"SELECT "tool_calls"."tool_call_id", "tool_calls"."child_run_id" FROM"#,
    ),
    (
        Purpose::Look,
        TextMatch::Begins,
        r#"SELECT "runs"."run_id" FROM "holdpoint"."runs" WHERE (server_resumes"#,
    ),
];

/// How a text shows its purpose.
#[derive(Debug, Clone, Copy)]
enum TextMatch {
    Begins,
    Contains,
}

impl Purpose {
    pub(super) fn of(text: &str) -> Self {
        let known = KNOWN.iter().find(|(_, how, words)| match how {
            TextMatch::Begins => text.starts_with(words),
            TextMatch::Contains => text.contains(words),
        });
        known.map_or(Self::Work, |(purpose, ..)| *purpose)
    }
}

/// Statements with their numbers of executions.
#[derive(Debug, Clone, Default)]
pub struct Statements(BTreeMap<i64, CountedStatement>);

/// A statement, as Postgres distinguishes statements: the values of its literals do not matter.
#[derive(Debug, Clone)]
struct CountedStatement {
    text: String,
    calls: i64,
    /// The pages that the executions read, in memory or not.
    pages: i64,
}

impl Statements {
    /// Restarts the server with the module that counts statements.
    pub async fn count_on(cluster: &Cluster) {
        let rows = Rows::open(&cluster.url("postgres")).await;
        rows.change("ALTER SYSTEM SET shared_preload_libraries = 'pg_stat_statements'").await.unwrap();
        // The statistics are those that a test makes. Autovacuum would take some while a test writes its rows.
        rows.change("ALTER SYSTEM SET autovacuum = off").await.unwrap();
        rows.close().await;
        cluster.stop_now();
        cluster.start_again();
    }

    /// Makes the counts of this database readable.
    pub async fn begin(rows: &Rows) {
        rows.change("CREATE EXTENSION pg_stat_statements").await.unwrap();
    }

    /// Forgets all counts.
    pub async fn reset(rows: &Rows) {
        rows.change("SELECT pg_stat_statements_reset()").await.unwrap();
    }

    /// The statements in this database since the reset, without the counting itself.
    pub async fn counted(rows: &Rows) -> Self {
        let sql = "SELECT queryid, query, calls, shared_blks_hit + shared_blks_read AS pages FROM pg_stat_statements
            WHERE dbid = (SELECT oid FROM pg_database WHERE datname = current_database())";
        let mut found = BTreeMap::new();
        for row in rows.all(sql).await {
            let text = plain(row.text("query"));
            if Purpose::of(&text) != Purpose::Count {
                let none = CountedStatement { text, calls: 0, pages: 0 };
                let counted = found.entry(row["queryid"].as_i64().unwrap()).or_insert(none);
                counted.calls += row["calls"].as_i64().unwrap();
                counted.pages += row["pages"].as_i64().unwrap();
            }
        }
        Self(found)
    }

    pub fn with(mut self, purpose: Purpose) -> Self {
        self.0.retain(|_, counted| Purpose::of(&counted.text) == purpose);
        self
    }

    /// The least number of executions of each statement in these tries. A statement that another task
    /// executed meanwhile is not in all of them.
    pub fn least(tries: Vec<Self>) -> Self {
        let least = tries.into_iter().reduce(|mut least, other| {
            least.0.retain(|id, _| other.0.contains_key(id));
            for (id, counted) in &mut least.0 {
                counted.calls = counted.calls.min(other.0[id].calls);
            }
            least
        });
        least.unwrap_or_default()
    }

    /// The number of executions.
    pub fn total(&self) -> i64 {
        self.0.values().map(|counted| counted.calls).sum()
    }

    /// The number of executions of the statements that contain these words.
    pub fn of(&self, words: &str) -> i64 {
        self.0.values().filter(|counted| counted.text.contains(words)).map(|counted| counted.calls).sum()
    }

    /// The pages that each statement read in an execution, the most first, with the text.
    pub fn pages(&self) -> Vec<(i64, &str)> {
        let of_one = |counted: &CountedStatement| counted.pages / counted.calls.max(1);
        let mut pages: Vec<_> =
            self.0.values().map(|counted| (of_one(counted), counted.text.as_str())).collect();
        pages.sort_by_key(|(pages, _)| -pages);
        pages
    }

    /// The numbers of executions by texts. A text covers any number of parameters.
    fn by_text(&self) -> BTreeMap<&str, i64> {
        let mut calls = BTreeMap::new();
        for counted in self.0.values() {
            *calls.entry(counted.text.as_str()).or_default() += counted.calls;
        }
        calls
    }

    /// The statements that these and the others have in different numbers, one line each.
    pub fn differences(&self, others: &Self) -> String {
        let (these, others) = (self.by_text(), others.by_text());
        let texts: BTreeSet<_> = these.keys().chain(others.keys()).collect();
        let calls = |of: &BTreeMap<&str, i64>, text| of.get(text).copied().unwrap_or_default();
        let numbers = texts.into_iter().map(|text| (calls(&these, text), calls(&others, text), text));
        let differ = numbers.filter(|(here, there, _)| here != there);
        differ.map(|(here, there, text)| format!("\n{here} and {there} times: {text}")).collect()
    }
}

/// One line for each statement, the most frequent first.
impl fmt::Display for Statements {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut lines: Vec<_> = self.by_text().into_iter().collect();
        lines.sort_by_key(|(_, calls)| -calls);
        lines.into_iter().try_for_each(|(text, calls)| write!(f, "\n{calls:>5} {text}"))
    }
}

/// The text on one line, with `$` for each list of values. Postgres keeps the text of a statement with its
/// literals or without, whichever it saw first.
pub(super) fn plain(text: &str) -> String {
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut plain = String::new();
    let mut rest = words.chars().peekable();
    while let Some(next) = rest.next() {
        let within_name = plain.ends_with(|last: char| last.is_alphanumeric() || last == '_');
        match next {
            '?' => {}
            '$' => while rest.next_if(char::is_ascii_digit).is_some() {},
            '\'' => drop(rest.by_ref().find(|ended| *ended == '\'')),
            '0'..='9' if !within_name => while rest.next_if(char::is_ascii_digit).is_some() {},
            other => {
                plain.push(other);
                continue;
            }
        }
        if !plain.ends_with("$, ") {
            plain.push('$');
        } else {
            plain.truncate(plain.len() - 2);
        }
    }
    plain
}
