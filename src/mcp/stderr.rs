//! What a child process writes to its standard error: log lines, of which there are few and short ones.

use super::redaction::Redaction;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::time::Instant;

/// Maximum number of lines in each [`PERIOD`].
const LINES_MAX: u32 = 60;
const PERIOD: Duration = Duration::from_secs(60);
/// The part of a line that is kept.
const LINE_BYTES_MAX: usize = 1024;

/// Logs the lines to the end of the stream. The stream is always read, because a full pipe would stop the process.
pub(super) async fn log(server: &str, mut stderr: impl AsyncRead + Unpin, redaction: &Redaction) {
    let (mut chunk, mut line) = (vec![0; 8 * 1024], Vec::new());
    let (mut period, mut lines) = (Instant::now(), 0_u32);
    let mut say = |line: &[u8]| {
        if period.elapsed() >= PERIOD {
            (period, lines) = (Instant::now(), 0);
        }
        lines = lines.saturating_add(1);
        let line = String::from_utf8_lossy(line);
        match lines {
            ..=LINES_MAX => tracing::info!(server, line = redaction.text(line), "an MCP server wrote"),
            _ if lines == LINES_MAX + 1 => {
                tracing::warn!(server, "an MCP server writes too much; the log leaves lines out");
            }
            _ => {}
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
    }
    if !line.is_empty() {
        say(&line);
    }
}
