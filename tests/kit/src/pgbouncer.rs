//! A pgbouncer in transaction mode in front of the tests' Postgres.

use super::eventually;
use super::ports::free_port;
use super::postgres::as_postgres;
use std::process::{Child, Command, Stdio};
use tokio::net::TcpStream;

/// A pooler that runs each transaction on any session of a small pool. It ends when this value is dropped, or
/// with the process.
#[derive(Debug)]
pub struct Pgbouncer {
    port: u16,
    shell: Child,
}

impl Pgbouncer {
    /// Starts a pooler in front of the server of this URL, with this number of sessions.
    pub async fn before(url: &str, sessions: usize) -> Self {
        let port = free_port();
        let mut shell = Command::new("sh");
        shell
            .args(["-c", include_str!("pgbouncer.sh"), "pgbouncer"])
            .args([port.to_string(), server_port(url).to_owned(), sessions.to_string()])
            .stdin(Stdio::piped())
            .current_dir("/");
        let pooler = Self { port, shell: as_postgres(&mut shell).spawn().unwrap() };
        let there = async || TcpStream::connect(("127.0.0.1", port)).await.ok();
        eventually("pgbouncer takes connections (Debian: apt install pgbouncer)", there).await;
        pooler
    }

    /// The URL of the same database through the pooler.
    pub fn url(&self, url: &str) -> String {
        url.replace(&format!(":{}/", server_port(url)), &format!(":{}/", self.port))
    }
}

impl Drop for Pgbouncer {
    fn drop(&mut self) {
        // `wait` closes its stdin first.
        let _ended = self.shell.wait();
    }
}

fn server_port(url: &str) -> &str {
    url.rsplit_once('/').unwrap().0.rsplit_once(':').unwrap().1
}
