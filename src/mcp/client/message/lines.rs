//! The standard output of a child process, line by line.

use crate::agent::Tasks;
use crate::mcp::client::log::log_rate::LogRate;
use crate::mcp::client::message::raw::{MESSAGE_BYTES_MAX, admitted};
use std::sync::Arc;
use tokio::io::{
    AsyncBufRead, AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader,
    DuplexStream, duplex,
};

/// How much of the output is read before the connection reads it.
const AHEAD: usize = 64 * 1024;

/// Returns the messages of a child process, without those that are not read. Nothing is read ahead of the reader but a
/// message.
pub(in crate::mcp) fn messages(
    stdout: impl AsyncRead + Send + Unpin + 'static,
    tasks: &Tasks,
    log: Arc<LogRate>,
) -> DuplexStream {
    let (near, far) = duplex(AHEAD);
    tasks.spawn_background(async move {
        // The end of either side ends the other.
        let _over = pass(BufReader::new(stdout), far, &log).await;
    });
    near
}

async fn pass(
    mut from: impl AsyncBufRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    log: &LogRate,
) -> std::io::Result<()> {
    let limit = u64::try_from(MESSAGE_BYTES_MAX).unwrap_or(u64::MAX);
    loop {
        let mut line = Vec::new();
        (&mut from).take(limit).read_until(b'\n', &mut line).await?;
        if line.is_empty() {
            return Ok(());
        }
        if line.last() != Some(&b'\n') {
            drop(line);
            if !end_line(&mut from).await? {
                return Ok(());
            }
            log.left_out();
            continue;
        }
        let Ok(text) = std::str::from_utf8(&line) else {
            log.left_out();
            continue;
        };
        if let Some(message) = admitted(text.trim_end(), log) {
            to.write_all(message.as_bytes()).await?;
            to.write_all(b"\n").await?;
        }
    }
}

/// Reads to the end of a line. Returns false at the end of the input.
async fn end_line(from: &mut (impl AsyncBufRead + Unpin)) -> std::io::Result<bool> {
    loop {
        let read = from.fill_buf().await?;
        let (length, end) = (read.len(), read.iter().position(|byte| *byte == b'\n'));
        if length == 0 {
            return Ok(false);
        }
        from.consume(end.map_or(length, |end| end + 1));
        if end.is_some() {
            return Ok(true);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn passed(input: &[u8]) -> String {
        let mut output = Vec::new();
        pass(input, &mut output, &LogRate::new("s", "its messages")).await.unwrap();
        String::from_utf8(output).unwrap()
    }

    #[tokio::test]
    async fn a_message_that_is_too_long_is_left_out_and_the_next_one_is_read() {
        let long = "x".repeat(MESSAGE_BYTES_MAX);
        let answer = |text: &str| format!(r#"{{"id":1,"result":"{text}"}}"#);
        let fits = answer(&"x".repeat(MESSAGE_BYTES_MAX / 2));
        let input = format!("{}\n{{}}\r\n{fits}\n{}\n[]\n{}", answer(&long), answer(&long), answer(&long));
        assert!(passed(input.as_bytes()).await == format!("{{}}\n{fits}\n[]\n"));
        assert_eq!(passed(b"{}\n[]").await, "{}\n", "a line without an end is no message");
        assert_eq!(passed(b"[\"\xff\"]\n{}\n").await, "{}\n");
        assert_eq!(passed(b"").await, "");
    }
}
