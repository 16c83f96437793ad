//! `holdpoint approvals` against a server: the binary as an approver runs it, over the public interface.

mod access;
mod attacks;
mod complete;
mod decide;
mod list;
mod pages;
mod resolve;
mod secrets;
mod show;
mod watch;

use holdpoint_testkit::{Embedded, JsonFields, Pty, eventually, token};
use serde_json::Value;
use std::process::Stdio;
use tokio::process::{Child, Command};

/// The binary of a person, with the address of one server.
#[derive(Debug, Clone)]
pub(crate) struct Approver {
    url: String,
    token: Option<String>,
}

/// The result of a command.
#[derive(Debug)]
pub(crate) struct CommandResult {
    code: i32,
    stdout: String,
    stderr: String,
}

/// The binary with these arguments and no variables.
fn holdpoint(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_holdpoint"));
    command.args(args).env_clear().stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.current_dir(env!("CARGO_TARGET_TMPDIR")).kill_on_drop(true);
    command
}

async fn run(command: &mut Command) -> CommandResult {
    let output = command.output().await.unwrap();
    let [stdout, stderr] = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
    CommandResult { code: output.status.code().unwrap(), stdout, stderr }
}

impl Approver {
    /// The one user of a server without authentication.
    fn of(app: &Embedded) -> Self {
        Self::at(&app.client.base)
    }

    fn at(url: &str) -> Self {
        Self { url: url.to_owned(), token: None }
    }

    /// A user of `acme` at a server with tokens.
    fn named(app: &Embedded, user: &str, roles: &[&str]) -> Self {
        Self { token: Some(token::token("acme", user, roles)), ..Self::of(app) }
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = holdpoint(&[&["approvals"], args].concat());
        command
            .env("HOLDPOINT_URL", &self.url)
            .envs(self.token.iter().map(|token| ("HOLDPOINT_TOKEN", token)));
        command
    }

    /// Runs `holdpoint approvals` with these arguments and without a terminal.
    async fn run(&self, args: &[&str]) -> CommandResult {
        run(&mut self.command(args)).await
    }

    /// Starts the command at a terminal.
    fn start(&self, args: &[&str]) -> TerminalCommand {
        TerminalCommand::start(&mut self.command(args))
    }
}

impl CommandResult {
    /// The stdout of a command that did what it was asked to do.
    #[track_caller]
    fn stdout_of_success(self) -> String {
        assert_eq!(self.code, 0, "{self:?}");
        self.stdout
    }

    /// Asserts that the command failed with this code and these words.
    #[track_caller]
    fn fails(&self, code: i32, words: &str) {
        assert_eq!(self.code, code, "{self:?}");
        assert!(self.stderr.contains(words), "{words}: {self:?}");
        assert_eq!(self.stdout, "");
    }
}

/// A command at a terminal of its own.
struct TerminalCommand {
    pty: Pty,
    child: Child,
}

impl TerminalCommand {
    fn start(command: &mut Command) -> Self {
        Self::start_at(Pty::new(), command)
    }

    fn start_at(pty: Pty, command: &mut Command) -> Self {
        let child = command.stdin(pty.end()).stdout(pty.end()).stderr(pty.end()).spawn().unwrap();
        // The command holds ends of the terminal, which its child has inherited.
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Self { pty, child }
    }

    async fn shows(&self, text: &str) {
        self.pty.shows(text, 1).await;
    }

    /// The exit code, and everything that was shown.
    async fn ends(mut self) -> (i32, String) {
        let code = eventually("the command ends", async || self.child.try_wait().unwrap()).await;
        (code.code().unwrap(), self.pty.shown_to_the_end().await)
    }
}

/// The input hash of a call, as the server has it.
async fn hash(app: &Embedded, id: &str) -> String {
    app.client.call(id).await.text("input_hash").to_owned()
}

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// An address that a server can have again after a restart.
fn free_address() -> std::net::SocketAddr {
    ([127, 0, 0, 1], holdpoint_testkit::free_port()).into()
}
