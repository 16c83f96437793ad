//! `approvals watch`: holds and decisions as they happen, and the decision of one at a time.

use super::ask::{Keyboard, Line, has_person, typed};
use super::call::{Call, Card, Event, full_id};
use super::client::{Client, parsed};
use super::decide::{Choice, Question, report, show};
use super::failure::Failure;
use super::json_text;
use super::list::{Filters, input_line};
use super::screen::{Screen, ScreenForm, ScreenOptions};
use crate::config;
use clap::Args;
use holdpoint_core::text::visible::visible;
use holdpoint_egress::{BrokenStream, Frame, Frames};
use serde_json::json;
use serde_json::value::RawValue;
use std::collections::VecDeque;
use std::io::{Write, stdout};
use std::ops::ControlFlow;
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// A server sends comments into a silent stream. A stream without any is dead.
const SILENCE: Duration = Duration::from_secs(90);
const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// The most holds that can be opened by their number. Older ones can be opened by their id.
const NUMBERED_MAX: usize = 1000;

const HELP: &str = "Type the number or the id of a call and Enter to open it, q to end.";
const QUESTION: &str = "[a]pprove, and later calls with [e]qual or [s] any inputs, [r]eject [why], [l]ater? ";
/// The question about a call whose approval is not offered.
const REJECT_ONLY: &str = "[r]eject [why], [l]ater? ";

/// The arguments of `approvals watch`.
#[derive(Debug, Args)]
pub struct Watch {
    #[command(flatten)]
    filters: Filters,
    /// Cut nothing of a call that is opened
    #[arg(long)]
    full: bool,
    /// Print the JSON of the server, one object a line: the calls that wait, then events
    #[arg(long)]
    json: bool,
}

/// A watch in progress.
struct Watching<'a> {
    watch: &'a Watch,
    client: Client,
    colours: bool,
    /// The `seq` of the last event.
    last: Option<i64>,
    /// The ids of the newest holds. The number of a hold is its place among all of them.
    holds: VecDeque<String>,
    /// The number of holds that left the list.
    forgotten: usize,
    keyboard: Option<(Keyboard, Line)>,
}

/// The answer to the question about one call.
#[derive(Debug, PartialEq, Eq)]
enum Answer {
    Approve,
    /// Approve, and let later calls with these inputs run: `equal` or `any`.
    ApproveAlso(&'static str),
    Reject(Option<String>),
    Later,
}

impl Watch {
    pub(crate) async fn run(&self, config: config::Client) -> Result<(), Failure> {
        let colours = config.colours();
        let client = Client::new(config)?;
        let is_interactive = has_person() && !self.json;
        let (last, holds, forgotten) = (None, VecDeque::new(), 0);
        let mut watching = Watching { watch: self, client, colours, last, holds, forgotten, keyboard: None };
        // The first connection has to succeed: the address may be wrong.
        let mut frames = watching.open().await?;
        if is_interactive {
            eprintln!("{HELP}");
            let keyboard = Keyboard::new();
            let line = keyboard.line()?;
            watching.keyboard = Some((keyboard, line));
        }
        watching.announce().await?;
        loop {
            let ControlFlow::Continue(why) = watching.read(frames).await? else { return Ok(()) };
            frames = watching.reopen(why).await?;
            if watching.last.is_none() {
                // No event shows where the stream ended, so a hold may have been missed.
                watching.announce().await?;
            }
        }
    }
}

impl Watching<'_> {
    fn options(&self) -> ScreenOptions {
        ScreenOptions { colours: self.colours, full: self.watch.full }
    }

    async fn open(&self) -> Result<Frames, Failure> {
        let Filters { session, thread, .. } = &self.watch.filters;
        let filters = [("session_id", session), ("thread_id", thread)];
        let query: Vec<_> =
            filters.into_iter().filter_map(|(name, value)| Some((name, value.as_deref()?))).collect();
        self.client.events(&query, self.last).await
    }

    /// Connects again, with growing pauses, and prints a line about it.
    async fn reopen(&self, why: String) -> Result<Frames, Failure> {
        let (mut why, mut pause) = (why, PAUSE_MIN);
        loop {
            let seconds = pause.as_secs();
            eprintln!("The connection is lost ({why}). Connecting again in {seconds} s.");
            sleep(pause).await;
            let error = match self.open().await {
                Ok(frames) => {
                    eprintln!("Connected again.");
                    return Ok(frames);
                }
                Err(error) => error,
            };
            pause = pause.saturating_mul(2).min(PAUSE_MAX);
            match &error {
                Failure::Unreachable { .. } => {}
                Failure::Refused(refusal) if refusal.is_transient() => {
                    let at_least = refusal.retry_after.map(Duration::from_secs).unwrap_or_default();
                    pause = pause.max(at_least.min(PAUSE_MAX));
                }
                _ => return Err(error),
            }
            why = error.to_string();
        }
    }

    /// Shows the calls that wait and were not shown yet, the oldest first.
    async fn announce(&mut self) -> Result<(), Failure> {
        let mut found: Vec<(Call, String)> = Vec::new();
        let listed = self.watch.filters.each(&self.client, "pending", |call, json| {
            found.push((call, json));
            Ok(ControlFlow::Continue(()))
        });
        listed.await?;
        for (call, json) in found.into_iter().rev() {
            if self.holds.contains(&call.tool_call_id) {
                continue;
            }
            if self.watch.json {
                self.number(&call.tool_call_id);
                writeln!(stdout(), "{json}")?;
                continue;
            }
            let risk = call.risk_level.as_deref();
            let at = call.created_at.as_deref();
            self.held(at, &call.tool_call_id, &call.tool_name, risk, call.input.as_deref())?;
        }
        Ok(())
    }

    /// Shows events until the stream ends, and returns the reason. Breaks if the person ends the command.
    async fn read(&mut self, mut frames: Frames) -> Result<ControlFlow<(), String>, Failure> {
        loop {
            let line = async {
                match &mut self.keyboard {
                    Some((_, line)) => line.await,
                    None => std::future::pending().await,
                }
            };
            let frame = tokio::select! {
                frame = timeout(SILENCE, frames.next()) => frame,
                line = line => {
                    let Some(line) = typed(line)? else { return Ok(ControlFlow::Break(())) };
                    // Events wait at the server while a call is open.
                    if self.command(line.trim()).await?.is_break() {
                        return Ok(ControlFlow::Break(()));
                    }
                    continue;
                }
            };
            let data = match frame {
                Ok(Some(Ok(Frame::Event { data, .. } | Frame::Document(data)))) => data,
                Ok(Some(Ok(Frame::Comment))) => continue,
                Ok(Some(Err(BrokenStream::Stream(why)))) => return Ok(ControlFlow::Continue(visible(&why))),
                Ok(Some(Err(BrokenStream::Event(why)))) => return Ok(ControlFlow::Continue(why.to_owned())),
                Ok(None) => return Ok(ControlFlow::Continue("the server ended the stream".to_owned())),
                Err(_) => return Ok(ControlFlow::Continue("the server is silent".to_owned())),
            };
            let Ok(raw) = parsed::<Box<RawValue>>(data.as_bytes()) else {
                return Ok(ControlFlow::Continue("an event cannot be read".to_owned()));
            };
            self.event(&raw)?;
        }
    }

    /// Shows an event, if it is a hold or a decision.
    fn event(&mut self, raw: &RawValue) -> Result<(), Failure> {
        let event: Event = parsed(raw.get().as_bytes())?;
        self.last = Some(event.seq);
        let word = match event.event_type.as_str() {
            "tool.requires_approval" => "held",
            "tool.voted" => "voted",
            "tool.approved" => "approved",
            "tool.rejected" => "rejected",
            "tool.expired" => "expired",
            "tool.cancelled" => "cancelled",
            _ => return Ok(()),
        };
        let (Some(id), tool) = (&event.tool_call_id, event.data.tool_name.as_deref().unwrap_or_default())
        else {
            return Ok(());
        };
        if self.watch.filters.tool.as_deref().is_some_and(|only| only != tool) {
            return Ok(());
        }
        if word == "held" && self.holds.contains(id) {
            return Ok(());
        }
        if self.watch.json {
            if word == "held" {
                self.number(id);
            }
            return Ok(writeln!(stdout(), "{}", json_text::line(raw))?);
        }
        let at = event.at.as_deref();
        if word == "held" {
            return self.held(at, id, tool, event.data.risk_level.as_deref(), event.data.args.as_deref());
        }
        let decision = event.data.decision.as_ref();
        let by = decision.map(|decision| decision.by.as_str()).or(event.actor.as_deref());
        let mut more = format!("by {}", visible(by.unwrap_or("the server")));
        if let Some(missing) = event.data.missing {
            more += &format!(", and {missing} more approvals are missing");
        }
        if decision.is_some_and(|decision| decision.edited == Some(true)) {
            more += ", with other inputs";
        }
        if let Some(reason) = decision.and_then(|decision| decision.reason.as_deref()) {
            let said = if word == "approved" { "note" } else { "reason" };
            more += &format!(", {said}: {}", visible(reason));
        }
        let [at, id, tool] = [at.unwrap_or_default(), id.as_str(), tool].map(visible);
        self.print(&format!("{at}  {word}  {id}  {tool}  {more}"), word)
    }

    fn held(
        &mut self,
        at: Option<&str>,
        id: &str,
        tool: &str,
        risk: Option<&str>,
        input: Option<&RawValue>,
    ) -> Result<(), Failure> {
        let number = self.number(id);
        let number = if self.keyboard.is_some() { format!("  #{number}") } else { String::new() };
        let [at, id, tool] = [at.unwrap_or_default(), id, tool].map(visible);
        let risk = risk.map(|risk| format!("{} risk  ", visible(risk))).unwrap_or_default();
        let input = input_line(input);
        self.print(&format!("{at}  pending{number}  {id}  {tool}  {risk}{input}"), "pending")
    }

    /// Prints a line that is visible.
    fn print(&self, line: &str, state: &str) -> Result<(), Failure> {
        let mut screen = Screen::new(ScreenForm::of(&stdout(), self.options()));
        screen.line(line, state);
        Ok(stdout().write_all(screen.finish().0.as_bytes())?)
    }

    /// Numbers a hold, from 1.
    fn number(&mut self, id: &str) -> usize {
        self.holds.push_back(id.to_owned());
        if self.holds.len() > NUMBERED_MAX {
            self.holds.pop_front();
            self.forgotten += 1;
        }
        self.forgotten + self.holds.len()
    }

    /// Does what a line asks for. Breaks if it ends the command.
    async fn command(&mut self, line: &str) -> Result<ControlFlow<()>, Failure> {
        if line == "q" {
            return Ok(ControlFlow::Break(()));
        }
        match self.id(line).await {
            Ok(id) => match self.open_call(&id).await {
                Err(error @ Failure::Terminal(_)) => return Err(error),
                Err(error) => eprintln!("{error}"),
                Ok(()) => {}
            },
            Err(error) => eprintln!("{error}. {HELP}"),
        }
        if let Some((keyboard, line)) = &mut self.keyboard {
            *line = keyboard.line()?;
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Returns the id of the call that a line names.
    async fn id(&self, line: &str) -> Result<String, Failure> {
        let number = line.strip_prefix('#').unwrap_or(line);
        // A number may also be a part of an id. The call is shown before the question, so either is safe.
        let index = number.parse::<usize>().ok().and_then(|number| number.checked_sub(self.forgotten + 1));
        match index.and_then(|index| self.holds.get(index)) {
            Some(id) => Ok(id.clone()),
            None => full_id(&self.client, line).await,
        }
    }

    /// Shows a call and asks for the decision.
    async fn open_call(&self, id: &str) -> Result<(), Failure> {
        let Some((keyboard, _)) = &self.keyboard else { return Ok(()) };
        let mut card = Card::find(&self.client, id).await?;
        let options = self.options();
        let Question { hash, lacks } = show(&self.client, &mut card, None, options, keyboard).await?;
        if !card.call.is_pending() {
            return Ok(());
        }
        if let Some(why) = &lacks {
            eprintln!("The approval is not offered: {why}.");
        }
        let question = if lacks.is_some() { REJECT_ONLY } else { QUESTION };
        let answer = loop {
            match keyboard.ask(question).await? {
                None => break Answer::Later,
                Some(line) => {
                    let answer = Answer::of(&line).filter(|answer| lacks.is_none() || !answer.approves());
                    if let Some(answer) = answer {
                        break answer;
                    }
                }
            }
        };
        let (approves, reason) = match &answer {
            Answer::Approve | Answer::ApproveAlso(_) => (true, None),
            Answer::Reject(reason) => (false, reason.as_deref()),
            Answer::Later => {
                eprintln!("{}", Failure::Undecided);
                return Ok(());
            }
        };
        let remember = match answer {
            Answer::ApproveAlso(inputs) => Some(json!({ "inputs": inputs })),
            _ => None,
        };
        let remember = remember.as_ref();
        let choice = Choice { reason, remember, ..Choice::new(&card.call.tool_call_id, approves, &hash) };
        let decided = self.client.decide(&choice).await?;
        let form = ScreenForm::of(&stdout(), self.options());
        Ok(stdout().write_all(report(&decided, approves, form)?.as_bytes())?)
    }
}

impl Answer {
    fn approves(&self) -> bool {
        matches!(self, Self::Approve | Self::ApproveAlso(_))
    }

    /// Parses an answer. Only a line that begins with a word of the question is one.
    fn of(line: &str) -> Option<Self> {
        let line = line.trim();
        let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let why = Some(rest.trim()).filter(|why| !why.is_empty()).map(str::to_owned);
        match (word.to_lowercase().as_str(), why) {
            ("a" | "approve", None) => Some(Self::Approve),
            ("e" | "equal", None) => Some(Self::ApproveAlso("equal")),
            ("s" | "session", None) => Some(Self::ApproveAlso("any")),
            ("r" | "reject", why) => Some(Self::Reject(why)),
            ("l" | "later", None) => Some(Self::Later),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Answer;

    #[test]
    fn only_a_line_that_begins_with_a_word_of_the_question_is_an_answer() {
        for (line, expected) in [
            ("a\n", Some(Answer::Approve)),
            (" Approve \r\n", Some(Answer::Approve)),
            ("s", Some(Answer::ApproveAlso("any"))),
            ("e", Some(Answer::ApproveAlso("equal"))),
            ("equal inputs", None),
            ("r", Some(Answer::Reject(None))),
            ("reject  too much ", Some(Answer::Reject(Some("too much".to_owned())))),
            ("later", Some(Answer::Later)),
            ("", None),
            ("y", None),
            ("approved", None),
            ("a but smaller", None),
            ("session of mine", None),
        ] {
            assert_eq!(Answer::of(line), expected, "{line:?}");
        }
    }
}
