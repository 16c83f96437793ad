//! The server's binary as an operator runs it at a terminal, and a terminal.

use super::eventually;
use crate::built;
use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

/// The result of a command.
#[derive(Debug)]
pub struct EndedCommand {
    pub ok: bool,
    pub stdout: String,
    pub stderr: String,
}

/// `holdpoint` with these arguments, in this folder and on this database.
pub fn holdpoint(folder: &Path, database: &str, args: &[&str]) -> Command {
    let mut command = Command::new(built("holdpoint"));
    command.args(args).env_clear().env("HOLDPOINT_DATABASE__URL", database).current_dir(folder);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

impl EndedCommand {
    pub fn of(output: Output) -> Self {
        let [stdout, stderr] = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
        Self { ok: output.status.success(), stdout, stderr }
    }

    /// The stdout of a command that succeeded.
    #[track_caller]
    pub fn stdout_of_success(self) -> String {
        assert!(self.ok, "{self:?}");
        self.stdout
    }

    /// Asserts that the command failed with these words on stderr.
    #[track_caller]
    pub fn refused_for(&self, why: &str) {
        assert!(!self.ok && self.stderr.contains(why), "{why}: {self:?}");
        assert_eq!(self.stdout, "");
    }
}

/// A terminal for a test, with input and screen. The screen echoes the input.
pub struct Pty {
    keyboard: File,
    shown: Arc<Mutex<Vec<u8>>>,
    reader: JoinHandle<()>,
}

impl Default for Pty {
    fn default() -> Self {
        Self::new()
    }
}

impl Pty {
    pub fn new() -> Self {
        let keyboard = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&keyboard).unwrap();
        unlockpt(&keyboard).unwrap();
        let keyboard = File::from(keyboard);
        let (mut screen, shown) = (keyboard.try_clone().unwrap(), Arc::<Mutex<Vec<u8>>>::default());
        let seen = shown.clone();
        let reader = std::thread::spawn(move || {
            let mut piece = [0; 1024];
            // The read fails once no process has the other end.
            while let Ok(length @ 1..) = screen.read(&mut piece) {
                seen.lock().unwrap().extend_from_slice(&piece[..length]);
            }
        });
        Self { keyboard, shown, reader }
    }

    /// The other end, for a process.
    pub fn end(&self) -> OwnedFd {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        ioctl_tiocgptpeer(&self.keyboard, flags).unwrap()
    }

    pub fn types(&self, keys: &str) {
        (&self.keyboard).write_all(keys.as_bytes()).unwrap();
    }

    /// What is shown so far. A character of several bytes may have come in part.
    pub fn shown(&self) -> String {
        String::from_utf8_lossy(&self.shown.lock().unwrap()).into_owned()
    }

    /// All that was shown, after the last process has left the terminal. The end of a process is no end of its
    /// output: the reader may have a part of it before it.
    pub async fn shown_to_the_end(&self) -> String {
        eventually("all output is read", async || self.reader.is_finished().then_some(())).await;
        self.shown()
    }

    /// Waits until this text is shown this many times.
    pub async fn shows(&self, text: &str, times: usize) {
        eventually(text, async || (self.shown().matches(text).count() >= times).then_some(())).await;
    }
}
