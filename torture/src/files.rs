//! What the servers and their tools wrote down, and what is kept of a run.

use crate::checks::Records;
use anyhow::{Context, Result};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::fs;
use std::io::Write;
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

/// Keeps what a run wrote down beside what its servers did.
pub(crate) fn keep(folder: &Path, records: &Records) -> Result<()> {
    let write = |name: &str, lines: Vec<String>| -> Result<()> {
        let mut file = fs::File::create(folder.join(name))?;
        for line in lines {
            writeln!(file, "{line}")?;
        }
        Ok(())
    };
    let rows = &records.rows;
    write("calls.txt", rows.calls.iter().map(|it| format!("{it:?}")).collect())?;
    write("events.txt", rows.events.iter().map(|it| format!("{it:?}")).collect())?;
    write("decisions.txt", records.decidings.iter().map(|it| format!("{it:?}")).collect())?;
    write("sights.txt", records.sights.iter().map(|it| format!("{it:?}")).collect())?;
    write("turns.txt", records.turns.iter().map(|it| format!("{it:?}")).collect())?;
    write("model.txt", records.asked.iter().map(|it| format!("{it:?}")).collect())?;
    write("nemesis.txt", records.deeds.iter().map(|it| format!("{it:?}")).collect())?;
    write(
        "servers.txt",
        records.logs.iter().map(|it| format!("{} {} {}", it.at, it.replica, it.text)).collect(),
    )
}
