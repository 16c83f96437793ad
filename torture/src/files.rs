//! The files that the servers and their tools write, and the files that a run keeps.

use crate::record::Book;
use crate::rows::Rows;
use anyhow::{Context, Result};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::fmt::Debug;
use std::fs;
use std::io::{BufWriter, Read, Seek, SeekFrom, Write};
use std::path::Path;

/// A line of the ledger: an action of a tool.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct LedgerLine {
    /// `start`, `effect` or `end` of an execution, or `told`: a server acknowledged the reported outcome. `refused` is a
    /// promise that the call will have no effect.
    pub(crate) what: String,
    /// Empty in a line that belongs to no execution, or whose tool does not know the call.
    #[serde(default)]
    pub(crate) call: String,
    /// The number of the execution in its process, if its tool does not know the call.
    pub(crate) nth: Option<u64>,
    pub(crate) key: String,
    pub(crate) tool: String,
    #[serde(default)]
    pub(crate) args_sha256: String,
    /// The schema hash of the tool in the build that ran the call.
    #[serde(default)]
    pub(crate) schema_hash: String,
    /// `None` with `user` if the tool does not know the user.
    pub(crate) tenant: Option<String>,
    pub(crate) user: Option<String>,
    pub(crate) seen_state: Option<String>,
    pub(crate) seen_validated: Option<bool>,
    pub(crate) at: i64,
    pub(crate) pid: u32,
    pub(crate) outcome: Option<String>,
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct FailpointHit {
    pub(crate) at: i64,
    pub(crate) pid: u32,
    /// The failpoint with its side, such as `after:tool.started`.
    pub(crate) point: String,
    pub(crate) call: Option<String>,
    /// The fault, if there was one.
    pub(crate) action: Option<String>,
}

/// Reads the lines of a file. The last line may be incomplete, if its writer was killed; no line follows it.
pub(crate) fn lines<T: DeserializeOwned>(path: &Path) -> Result<Vec<T>> {
    let Ok(text) = fs::read_to_string(path) else { return Ok(Vec::new()) };
    let complete = text.rsplit_once('\n').map_or("", |(complete, _)| complete);
    let read = |line: &str| serde_json::from_str(line).with_context(|| format!("{}: {line}", path.display()));
    complete.lines().map(read).collect()
}

/// The number of bytes that [`last_lines`] reads.
const END_BYTES: u64 = 64 * 1024;

/// Reads the lines at the end of a file while other processes write to the file.
pub(crate) fn last_lines<T: DeserializeOwned>(path: &Path) -> Result<Vec<T>> {
    let mut file = fs::File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(END_BYTES)))?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    // The first line may be incomplete.
    let first_cut = usize::from(length > END_BYTES);
    Ok(text.lines().skip(first_cut).filter_map(|line| serde_json::from_str(line).ok()).collect())
}

/// Writes the records of a run next to the files of its servers, also for a failed run.
pub(crate) fn keep(folder: &Path, book: &Book, rows: Option<&Rows>) -> Result<()> {
    debug(folder, "decision_requests.txt", &book.decision_requests.lock())?;
    debug(folder, "observations.txt", &book.observations.lock())?;
    debug(folder, "turns.txt", &book.turns.lock())?;
    debug(folder, "model.txt", &book.model_requests.lock())?;
    debug(folder, "other_users.txt", &book.intrusions.lock())?;
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
