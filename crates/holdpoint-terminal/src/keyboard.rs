//! The keyboard of a terminal.

use rustix::termios::{QueueSelector, tcflush};
use std::io::{self, BufRead, BufReader, IsTerminal, Stdin};

/// Discards what was typed and not read yet, so that it does not answer a question that was not shown when it
/// was typed. Input over a pipe is kept: it is not an answer that was typed too early.
///
/// # Errors
/// The terminal does not answer.
pub fn discard_typed(lines: &mut BufReader<Stdin>) -> io::Result<()> {
    if lines.get_ref().is_terminal() {
        tcflush(lines.get_ref(), QueueSelector::IFlush)?;
        // `Stdin` has its own buffer, and fills it only for reads that are smaller than this buffer.
        let read_ahead = lines.buffer().len();
        lines.consume(read_ahead);
    }
    Ok(())
}
