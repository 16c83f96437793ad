//! What the servers and their tools wrote down, and what is kept of a run.

use crate::record::Book;
use crate::rows::Rows;
use anyhow::{Context, Result};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::fmt::Debug;
use std::fs;
use std::io::{BufWriter, Read, Seek, SeekFrom, Write};
use std::path::Path;

/// A line of the ledger: what a tool did.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct LedgerLine {
    /// `start`, `effect` or `end` of an execution; `refused`, where none is to come any more.
    pub(crate) what: String,
    /// Empty of what is no execution's.
    #[serde(default)]
    pub(crate) call: String,
    pub(crate) key: String,
    pub(crate) tool: String,
    #[serde(default)]
    pub(crate) args_sha256: String,
    /// Of the tool as the build has it that ran.
    #[serde(default)]
    pub(crate) schema_hash: String,
    pub(crate) tenant: String,
    pub(crate) user: String,
    pub(crate) seen_state: Option<String>,
    pub(crate) seen_validated: Option<bool>,
    pub(crate) at: i64,
    pub(crate) pid: u32,
    pub(crate) outcome: Option<String>,
}

/// A failpoint that was passed.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Hit {
    pub(crate) at: i64,
    pub(crate) pid: u32,
    /// With its side, as `after:tool.started`.
    pub(crate) point: String,
    pub(crate) call: Option<String>,
    /// What went wrong there, if anything did.
    pub(crate) action: Option<String>,
}

/// The lines of a file. The last may be half of one, where its writer was killed; nobody wrote another behind it.
pub(crate) fn lines<T: DeserializeOwned>(path: &Path) -> Result<Vec<T>> {
    let Ok(text) = fs::read_to_string(path) else { return Ok(Vec::new()) };
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    let read = |line: &str| serde_json::from_str(line).with_context(|| format!("{}: {line}", path.display()));
    whole.lines().map(read).collect()
}

/// How much of a file its end is.
const END_BYTES: u64 = 64 * 1024;

/// The lines at the end of a file that others write.
pub(crate) fn last_lines<T: DeserializeOwned>(path: &Path) -> Result<Vec<T>> {
    let mut file = fs::File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(END_BYTES)))?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    // The first is half of one.
    let first_cut = usize::from(length > END_BYTES);
    Ok(text.lines().skip(first_cut).filter_map(|line| serde_json::from_str(line).ok()).collect())
}

/// Keeps what a run wrote down beside what its servers did, whatever became of it.
pub(crate) fn keep(folder: &Path, book: &Book, rows: Option<&Rows>) -> Result<()> {
    debug(folder, "decidings.txt", &book.decidings.lock())?;
    debug(folder, "sights.txt", &book.sights.lock())?;
    debug(folder, "turns.txt", &book.turns.lock())?;
    debug(folder, "model.txt", &book.asked.lock())?;
    debug(folder, "strangers.txt", &book.intrusions.lock())?;
    debug(folder, "nemesis.txt", &book.deeds.lock())?;
    debug(folder, "servers.txt", &book.logs.lock())?;
    debug(folder, "broken.txt", &book.broken.lock())?;
    if let Some(rows) = rows {
        debug(folder, "rows-calls.txt", &rows.calls)?;
        debug(folder, "rows-decisions.txt", &rows.decisions)?;
        debug(folder, "rows-events.txt", &rows.events)?;
        debug(folder, "rows-sent.txt", &rows.sent)?;
        debug(folder, "rows-runs.txt", &rows.runs)?;
    }
    Ok(())
}

fn debug<T: Debug>(folder: &Path, name: &str, lines: &[T]) -> Result<()> {
    let mut file = BufWriter::new(fs::File::create(folder.join(name))?);
    for line in lines {
        writeln!(file, "{line:?}")?;
    }
    Ok(file.flush()?)
}
