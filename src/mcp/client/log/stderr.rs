//! What a child process writes to its standard error: log lines, of which there are few and short ones.

use crate::mcp::client::log::log_rate::LogRate;
use crate::mcp::client::log::pace::Pace;
use crate::mcp::client::log::redaction::Redaction;
use tokio::io::{AsyncRead, AsyncReadExt};

/// The part of a line that is kept.
const LINE_BYTES_MAX: usize = 1024;
/// How much is read at once, and then each second, in bytes. A process that writes more waits.
const BYTES_AT_ONCE: u32 = 32 * 1024 * 1024;
const BYTES_PER_SECOND: u32 = 1024 * 1024;

/// Logs the lines to the end of the stream. The stream is always read, because a full pipe would stop the
/// process.
pub(in crate::mcp) async fn log(server: &str, mut stderr: impl AsyncRead + Unpin, redaction: &Redaction) {
    let (mut chunk, mut line) = (vec![0; 8 * 1024], Vec::new());
    let rate = LogRate::new(server, "its standard error");
    let bytes = Pace::new(BYTES_AT_ONCE, BYTES_PER_SECOND);
    let say = |line: &[u8]| {
        if rate.admits() {
            let line = redaction.text(String::from_utf8_lossy(line));
            tracing::info!(server, line, "an MCP server wrote");
        }
    };
    while let Ok(read @ 1..) = stderr.read(&mut chunk).await {
        for byte in chunk.iter().take(read) {
            match byte {
                b'\n' if line.is_empty() => {}
                b'\n' => {
                    say(&line);
                    line.clear();
                }
                _ if line.len() < LINE_BYTES_MAX => line.push(*byte),
                _ => {}
            }
        }
        bytes.many(read).await;
    }
    if !line.is_empty() {
        say(&line);
    }
}
