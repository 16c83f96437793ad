//! Questions to the person at the terminal.

use super::failure::Failure;
use super::keyboard::discard_typed;
use parking_lot::Mutex;
use std::io::{self, BufRead, BufReader, IsTerminal, Stdin, Write};
use std::sync::Arc;
use tokio::sync::oneshot;

/// Returns whether a person can read a question and answer it.
pub(crate) fn has_person() -> bool {
    io::stdin().is_terminal() && io::stderr().is_terminal()
}

#[derive(Debug)]
pub(crate) struct Keyboard(Arc<Mutex<BufReader<Stdin>>>);

/// A line that is not typed yet. It is `None` at the end of the input.
pub(crate) type Line = oneshot::Receiver<io::Result<Option<String>>>;

impl Keyboard {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Mutex::new(BufReader::new(io::stdin()))))
    }

    /// Reads a line.
    pub(crate) fn line(&self) -> Result<Line, Failure> {
        self.read(|_| Ok(()))
    }

    /// Asks a question, after everything was shown that it is about. Input that was typed before answers
    /// nothing.
    pub(crate) async fn ask(&self, question: &str) -> Result<Option<String>, Failure> {
        let question = question.to_owned();
        let line = self.read(move |lines| {
            discard_typed(lines)?;
            let mut screen = io::stderr();
            write!(screen, "{question}")?;
            screen.flush()
        })?;
        typed(line.await)
    }

    /// A thread of its own reads: a thread of the runtime would keep the process from exiting until a line is
    /// typed.
    fn read(
        &self,
        before: impl FnOnce(&mut BufReader<Stdin>) -> io::Result<()> + Send + 'static,
    ) -> Result<Line, Failure> {
        let (send, line) = oneshot::channel();
        let lines = self.0.clone();
        std::thread::Builder::new().name("keyboard".to_owned()).spawn(move || {
            let mut lines = lines.lock();
            let mut line = String::new();
            let read = before(&mut lines).and_then(|()| lines.read_line(&mut line));
            // The receiver may be gone.
            let _gone = send.send(read.map(|bytes| (bytes > 0).then_some(line)));
        })?;
        Ok(line)
    }
}

pub(crate) fn typed(
    line: Result<io::Result<Option<String>>, oneshot::error::RecvError>,
) -> Result<Option<String>, Failure> {
    line.map_err(io::Error::other)?.map_err(Failure::Terminal)
}
