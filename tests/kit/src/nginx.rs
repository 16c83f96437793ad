//! An nginx that compresses, in front of a server.

use super::eventually;
use super::ports::free_port;
use super::postgres::as_postgres;
use std::process::{Child, Command, Stdio};
use tokio::net::TcpStream;

/// An nginx with its default buffering. It ends when this value is dropped, or with the process.
#[derive(Debug)]
pub struct Nginx {
    port: u16,
    shell: Child,
}

impl Nginx {
    /// Starts an nginx in front of the server of this URL.
    pub async fn before(url: &str) -> Self {
        let (port, server) = (free_port(), url.rsplit_once(':').unwrap().1);
        let mut shell = Command::new("sh");
        shell
            .args(["-c", include_str!("nginx.sh"), "nginx", &port.to_string(), server])
            .stdin(Stdio::piped())
            .current_dir("/");
        let nginx = Self { port, shell: as_postgres(&mut shell).spawn().unwrap() };
        let there = async || TcpStream::connect(("127.0.0.1", port)).await.ok();
        eventually("nginx takes connections (Debian: apt install nginx-light)", there).await;
        nginx
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        // `wait` closes its stdin first.
        let _ended = self.shell.wait();
    }
}
