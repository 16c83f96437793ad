//! The server's binary as an operator runs it at a terminal.

use std::path::Path;
use std::process::{Command, Output, Stdio};

/// How a command ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) ok: bool,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// `holdpoint` with these arguments, in this folder and on this database.
pub(crate) fn holdpoint(folder: &Path, database: &str, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_holdpoint"));
    command.args(args).env_clear().env("HOLDPOINT_DATABASE__URL", database).current_dir(folder);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

impl Ended {
    pub(crate) fn of(output: Output) -> Self {
        let [stdout, stderr] = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
        Self { ok: output.status.success(), stdout, stderr }
    }

    /// What it printed, where it went well.
    #[track_caller]
    pub(crate) fn said(self) -> String {
        assert!(self.ok, "{self:?}");
        self.stdout
    }

    /// It did not go well, and these words say why.
    #[track_caller]
    pub(crate) fn refused_for(&self, why: &str) {
        assert!(!self.ok && self.stderr.contains(why), "{why}: {self:?}");
        assert_eq!(self.stdout, "");
    }
}
