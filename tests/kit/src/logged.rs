//! The transactions of a server on SQLite, from the log of its statements.

use super::recording::{Transaction, Transactions};
use super::statements::plain;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;

/// The target under which sqlx logs each executed statement.
const TARGET: &str = "sqlx::query";

/// Has this process write its statements to this file: one line each, after the name of the thread, which is that
/// of the connection.
pub(super) fn log_statements(to: &Path) {
    let file = File::options().create(true).append(true).open(to).unwrap();
    tracing_subscriber::registry().with(Log(Mutex::new(file))).init();
}

struct Log(Mutex<File>);

impl<S: Subscriber> Layer<S> for Log {
    fn on_event(&self, event: &Event<'_>, _context: Context<'_, S>) {
        if event.metadata().target() == TARGET {
            let mut text = Text::default();
            event.record(&mut text);
            let text = if text.whole.is_empty() { text.summary } else { text.whole };
            let connection = std::thread::current().name().unwrap_or_default().to_owned();
            let line = format!("{connection}\t{}\n", plain(&text));
            self.0.lock().unwrap().write_all(line.as_bytes()).unwrap();
        }
    }
}

/// The text of a statement. A short one is its own summary.
#[derive(Default)]
struct Text {
    summary: String,
    whole: String,
}

impl Visit for Text {
    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "summary" => value.clone_into(&mut self.summary),
            "db.statement" => value.trim().clone_into(&mut self.whole),
            _ => {}
        }
    }

    fn record_debug(&mut self, _field: &Field, _value: &dyn Debug) {}
}

/// Reads the log of a server's statements.
pub struct StatementLog {
    file: PathBuf,
    /// The number of lines that were taken.
    taken: usize,
}

impl StatementLog {
    pub fn from(file: PathBuf) -> Self {
        Self { file, taken: 0 }
    }

    /// The transactions since the last call that took some, and the number of their lines, or `None` if a
    /// transaction is open.
    fn read(&self) -> Option<(Transactions, usize)> {
        let text = std::fs::read_to_string(&self.file).unwrap_or_default();
        let (mut ended, mut open) = (Vec::new(), BTreeMap::<&str, Vec<String>>::new());
        let mut lines = 0;
        for line in text.lines().skip(self.taken) {
            lines += 1;
            let (connection, statement) = line.split_once('\t').unwrap();
            if statement.starts_with("BEGIN") {
                open.insert(connection, vec![statement.to_owned()]);
            } else if let Some(statements) = open.get_mut(connection) {
                statements.push(statement.to_owned());
                if statement.starts_with("COMMIT") || statement.starts_with("ROLLBACK") {
                    ended.extend(open.remove(connection).map(Transaction::of));
                }
            } else {
                ended.push(Transaction::of(vec![statement.to_owned()]));
            }
        }
        (open.is_empty() && (text.is_empty() || text.ends_with('\n'))).then_some((Transactions(ended), lines))
    }

    /// The transactions so far, or `None` if one is open.
    pub fn so_far(&self) -> Option<Transactions> {
        self.read().map(|(transactions, _)| transactions)
    }

    /// Removes and returns the transactions so far, or `None` if one is open.
    pub fn take(&mut self) -> Option<Transactions> {
        let (transactions, lines) = self.read()?;
        self.taken += lines;
        Some(transactions)
    }
}
