//! A handler that asks the user of a terminal.

use super::reply::{self, QUESTION, REVEAL};
use super::{
    ApprovalHandler, ApprovalRequest, BoxFuture, HandlerAnswer, HandlerError, Input, Preview, RiskLevel,
};
use futures::FutureExt;
use holdpoint_core::text::visible::{visible, visible_json, visible_lines};
use holdpoint_terminal::keyboard::discard_typed;
use parking_lot::Mutex;
use serde_json::Value;
use std::fmt;
use std::io::{self, BufRead, BufReader, Stderr, Stdin, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::sync::{Mutex as Turn, OwnedMutexGuard};

/// Asks the user of a terminal, one question at a time. Input that is typed before a question appears, or for
/// a question that is over, decides nothing. At the end of the input, calls are left to the routes.
pub struct Terminal<R = BufReader<Stdin>, W = Stderr> {
    /// The holder of this lock asks, until it has read a line.
    lines: Arc<Turn<R>>,
    shown: Arc<Mutex<W>>,
    /// Discards input that was typed and not read yet.
    discard: fn(&mut R) -> io::Result<()>,
}

impl Terminal {
    /// Returns a handler for the terminal of this process: it asks on standard error and reads standard
    /// input.
    pub fn new() -> Self {
        Self { discard: discard_typed, ..Self::between(BufReader::new(io::stdin()), io::stderr()) }
    }
}

impl Default for Terminal {
    fn default() -> Self {
        Self::new()
    }
}

impl<R, W> Terminal<R, W> {
    /// Returns a handler that reads lines from `lines` and writes questions to `shown`. A line that arrives
    /// before a question answers it.
    pub fn between(lines: R, shown: W) -> Self {
        Self { lines: Arc::new(Turn::new(lines)), shown: Arc::new(Mutex::new(shown)), discard: |_| Ok(()) }
    }
}

impl<R, W> fmt::Debug for Terminal<R, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Terminal").finish_non_exhaustive()
    }
}

impl<R: BufRead + Send + 'static, W: Write + Send + 'static> ApprovalHandler for Terminal<R, W> {
    fn name(&self) -> &str {
        "terminal"
    }

    fn ask(&self, request: ApprovalRequest) -> BoxFuture<'_, Result<HandlerAnswer, HandlerError>> {
        async move {
            let lines = self.lines.clone().lock_owned().await;
            let question = Question { shown: self.shown.clone(), over: Arc::new(AtomicBool::new(false)) };
            let (sender, mut said) = unbounded_channel();
            let (shown, over, discard) = (question.shown.clone(), question.over.clone(), self.discard);
            let prompt = Prompt { lines, shown, over, discard, said: sender };
            let asked = request.clone();
            // A thread of its own: a thread of the runtime would keep the process from exiting until a line
            // is typed.
            std::thread::Builder::new().name("terminal".to_owned()).spawn(move || {
                let said = prompt.said.clone();
                // The caller may have dropped the receiver.
                let _gone = said.send(PromptReply::Answer(prompt.read_answer(&asked)));
            })?;
            loop {
                match said.recv().await.ok_or("the terminal gave no answer")? {
                    PromptReply::Answer(answer) => {
                        question.over.store(true, Ordering::Release);
                        return Ok(answer?);
                    }
                    PromptReply::Reveal(reply) => {
                        // The thread may be gone.
                        let _gone = reply.send(request.reveal().await.map_err(|error| error.to_string()));
                    }
                }
            }
        }
        .boxed()
    }
}

/// What the thread at the terminal says.
enum PromptReply {
    /// The answer to the question.
    Answer(io::Result<HandlerAnswer>),
    /// The user wants to see the secret inputs.
    Reveal(mpsc::Sender<Result<Input, String>>),
}

/// A question whose caller waits for an answer.
struct Question<W: Write> {
    shown: Arc<Mutex<W>>,
    over: Arc<AtomicBool>,
}

impl<W: Write> Drop for Question<W> {
    fn drop(&mut self) {
        if !self.over.swap(true, Ordering::AcqRel) {
            let mut shown = self.shown.lock();
            // A closed terminal shows nothing.
            let _gone = writeln!(shown, "\nThis question is over. Press Enter.").and_then(|()| shown.flush());
        }
    }
}

/// A question in the thread that waits for a line.
struct Prompt<R, W> {
    lines: OwnedMutexGuard<R>,
    shown: Arc<Mutex<W>>,
    over: Arc<AtomicBool>,
    discard: fn(&mut R) -> io::Result<()>,
    said: UnboundedSender<PromptReply>,
}

impl<R: BufRead, W: Write> Prompt<R, W> {
    fn read_answer(mut self, request: &ApprovalRequest) -> io::Result<HandlerAnswer> {
        let input = Value::Object(request.input.clone()).to_string();
        let mut hides = !request.secret_inputs.is_empty();
        let (tool, risk) = (visible(&request.tool_name), request.risk);
        let why = request.reason.as_deref().map(visible).unwrap_or_default();
        self.show(&format!(
            "\n{tool} ({risk:?} risk) wants to run with\n  {}\n",
            visible_json(&input, false)
        ))?;
        if !request.constants.is_empty() {
            let constants = Value::Object(request.constants.clone()).to_string();
            self.show(&format!("and with the constants\n  {}\n", visible_json(&constants, false)))?;
        }
        if let Some(preview) = &request.preview {
            self.show(&shown_preview(preview))?;
        }
        self.show(&format!("{why}\n"))?;
        loop {
            // After the inputs are shown, and before the prompt: earlier input answers nothing.
            (self.discard)(&mut self.lines)?;
            self.show(if hides { REVEAL } else { "" })?;
            self.show(QUESTION)?;
            let mut line = String::new();
            if self.lines.read_line(&mut line)? == 0 || self.over.load(Ordering::Acquire) {
                return Ok(HandlerAnswer::Deferred);
            }
            if hides && reply::reveals(&line) {
                hides = !self.reveal()?;
                continue;
            }
            match reply::answer(&line) {
                // A masked value counts as unseen.
                Some(HandlerAnswer::Approved { .. }) if hides && request.risk != RiskLevel::Low => {
                    self.show("Reveal the secret inputs before an approval.\n")?;
                }
                Some(answer) => return Ok(answer),
                None => {}
            }
        }
    }

    /// Shows the inputs as they are, and returns whether it could.
    fn reveal(&self) -> io::Result<bool> {
        let (reply, revealed) = mpsc::channel();
        // The caller may have dropped the receiver; then no reply comes.
        let _gone = self.said.send(PromptReply::Reveal(reply));
        match revealed.recv() {
            Ok(Ok(input)) => {
                let input = Value::Object(input).to_string();
                self.show(&format!("  {}\n", visible_json(&input, false)))?;
                Ok(true)
            }
            Ok(Err(why)) => {
                self.show(&format!("The secret inputs cannot be read: {}\n", visible(&why)))?;
                Ok(false)
            }
            Err(_gone) => Ok(false),
        }
    }

    fn show(&self, text: &str) -> io::Result<()> {
        let mut shown = self.shown.lock();
        shown.write_all(text.as_bytes())?;
        shown.flush()
    }
}

/// Returns the lines of a preview, each with a mark: no line of a tool looks like one of the question.
fn shown_preview(preview: &Preview) -> String {
    let (title, text) = match preview {
        Preview::Text(text) => ("preview", text),
        Preview::Failed(why) => ("there is no preview", why),
    };
    let shown = visible_lines(text).replace('\t', "\\t");
    let lines = shown.lines().map(|line| format!("  | {line}\n"));
    std::iter::once(format!("{title}\n")).chain(lines).collect()
}
