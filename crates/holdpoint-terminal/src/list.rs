//! `approvals list`: the calls of the inbox.

use super::call::Call;
use super::client::{Client, Parameter};
use super::failure::Failure;
use super::json_text;
use super::screen::{Screen, ScreenForm, ScreenOptions, shortened, table};
use crate::config;
use clap::Args;
use clap::builder::PossibleValuesParser;
use holdpoint_core::call::{CALL_STATES, WAITING_STATES};
use holdpoint_core::text::visible::visible;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::Write;
use std::ops::ControlFlow;
use std::time::Duration;

/// The time after which the command shows its progress.
const SHOW_AFTER: Duration = Duration::from_secs(2);
/// The most characters of the inputs in a line.
const INPUT_CHARS_MAX: usize = 60;

/// The arguments of `approvals list`.
#[derive(Debug, Args)]
pub struct List {
    /// Only calls in these states [default: pending, interrupted]
    #[arg(long, value_name = "STATE", value_delimiter = ',', value_parser = PossibleValuesParser::new(CALL_STATES))]
    pub state: Vec<String>,
    /// Maximum number of calls [default: 50 from the database, all from a server]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    pub limit: Option<u32>,
    #[command(flatten)]
    filters: Filters,
    /// Print the JSON of the server, one call a line. Needs a server
    #[arg(long)]
    json: bool,
}

/// The calls that a command is about.
#[derive(Debug, Args)]
pub(crate) struct Filters {
    /// Only calls of this tool. Needs a server
    #[arg(long, value_name = "NAME")]
    pub(crate) tool: Option<String>,
    /// Only calls of this session. Needs a server
    #[arg(long, value_name = "ID", conflicts_with = "thread")]
    pub(crate) session: Option<String>,
    /// Only calls of this thread. Needs a server
    #[arg(long, value_name = "ID")]
    pub(crate) thread: Option<String>,
}

impl List {
    /// Refuses the arguments that only a server understands.
    ///
    /// # Errors
    /// The first such argument.
    pub fn check_without_server(&self) -> Result<(), Failure> {
        let Filters { tool, session, thread } = &self.filters;
        let given = [
            ("--tool", tool.is_some()),
            ("--session", session.is_some()),
            ("--thread", thread.is_some()),
            ("--json", self.json),
        ];
        match given.into_iter().find(|(_, is_given)| *is_given) {
            None => Ok(()),
            Some((flag, _)) => {
                Err(Failure::Usage(format!("{flag}: expected --url or HOLDPOINT_URL with it")))
            }
        }
    }

    pub(crate) async fn run(&self, config: config::Client) -> Result<(), Failure> {
        let colours = config.colours();
        let client = Client::new(config)?;
        let named: Vec<&str> = self.state.iter().map(String::as_str).collect();
        let states = if named.is_empty() { &WAITING_STATES[..] } else { &named };
        let limit = self.limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
        let (mut out, mut progress) = (std::io::stdout(), Progress::new()?);
        let head = ["TOOL CALL", "TOOL", "RISK", "STATE", "REQUESTED BY", "CREATED", "INPUT"];
        let mut lines = vec![head.map(str::to_owned).to_vec()];
        let (mut count, mut has_more) = (0, false);
        for state in states {
            self.filters
                .each(&client, state, |call, json| {
                    if count == limit {
                        has_more = true;
                        return Ok(ControlFlow::Break(()));
                    }
                    count += 1;
                    if self.json {
                        writeln!(out, "{json}")?;
                    } else {
                        lines.push(cells(&call));
                    }
                    progress.advance();
                    Ok(ControlFlow::Continue(()))
                })
                .await?;
        }
        progress.end();
        if !self.json {
            let mut screen = Screen::new(ScreenForm::of(&out, ScreenOptions { colours, full: true }));
            table(&lines).lines().for_each(|line| screen.line(line, ""));
            out.write_all(screen.finish().0.as_bytes())?;
        }
        if has_more {
            eprintln!("there are more than {limit} calls; use a larger --limit to see them");
        }
        Ok(())
    }
}

impl Filters {
    /// Passes each call in this state to `take`, newest first, with its JSON in one line.
    pub(crate) async fn each(
        &self,
        client: &Client,
        state: &str,
        mut take: impl FnMut(Call, String) -> Result<ControlFlow<()>, Failure>,
    ) -> Result<(), Failure> {
        let path = match &self.thread {
            Some(thread) => vec!["threads", thread, "approvals"],
            None => vec!["approvals"],
        };
        let mut query: Vec<Parameter<'_>> = vec![("state", state)];
        query.extend(self.tool.as_deref().map(|tool| ("tool_name", tool)));
        query.extend(self.session.as_deref().map(|session| ("session_id", session)));
        client.each(&path, &query, |item| take(Call::of(&item)?, json_text::line(&item))).await
    }
}

fn cells(call: &Call) -> Vec<String> {
    let text = |value: Option<&String>| value.map(|value| visible(value)).unwrap_or_default();
    vec![
        visible(&call.tool_call_id),
        visible(&call.tool_name),
        text(call.risk_level.as_ref()),
        visible(&call.state),
        text(call.requested_by.as_ref()),
        text(call.created_at.as_ref()),
        input_line(call.input.as_deref()),
    ]
}

/// Returns the beginning of the inputs, for a line. It is visible.
pub(crate) fn input_line(input: Option<&serde_json::value::RawValue>) -> String {
    input.map(|input| shortened(&json_text::compact(input), INPUT_CHARS_MAX)).unwrap_or_default()
}

/// The progress, which a terminal shows after [`SHOW_AFTER`].
struct Progress(ProgressBar);

impl Progress {
    fn new() -> Result<Self, Failure> {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
        let style = ProgressStyle::with_template("{spinner} {pos} calls").map_err(std::io::Error::other)?;
        bar.set_style(style);
        Ok(Self(bar))
    }

    fn advance(&mut self) {
        if self.0.is_hidden() && self.0.elapsed() > SHOW_AFTER {
            self.0.set_draw_target(ProgressDrawTarget::stderr());
        }
        self.0.inc(1);
    }

    fn end(&self) {
        self.0.finish_and_clear();
    }
}
