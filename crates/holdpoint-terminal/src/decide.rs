//! `approvals approve` and `approvals reject`: one decision, with the hash of what was shown.

use super::ask::{Keyboard, has_person};
use super::call::{Card, Outcome, full_id};
use super::client::{Client, Decided, parsed};
use super::edit::{self, Edit};
use super::failure::Failure;
use super::json_text;
use super::screen::{Screen, ScreenForm, ScreenOptions};
use super::show::sheet;
use crate::config;
use clap::Args;
use holdpoint_core::text::visible::visible;
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::io::{Write, stderr, stdout};
use std::path::PathBuf;

/// The arguments of `approvals approve`.
#[derive(Debug, Args)]
pub struct Approve {
    #[command(flatten)]
    of: Of,
    /// Approve with the inputs in this file, a JSON object; - reads standard input
    #[arg(long, value_name = "FILE")]
    edit: Option<PathBuf>,
    /// The preview hash that `show --edit` printed, if the tool has previews. Needs --hash
    #[arg(long, value_name = "HASH", value_parser = hash, requires_all = ["edit", "hash"])]
    preview_hash: Option<String>,
    /// Also approve later calls of the tool in the session: those with `equal` inputs, with `any`, those of a JSON object
    /// (see docs/approvers.md), or with `session` all of them and the pending ones
    #[arg(long, value_name = "WHAT", value_parser = remember)]
    remember: Option<Value>,
    /// A note, which is kept with the decision: at most 2,000 characters
    #[arg(long, value_name = "TEXT")]
    note: Option<String>,
}

/// The arguments of `approvals reject`.
#[derive(Debug, Args)]
pub struct Reject {
    #[command(flatten)]
    of: Of,
    /// The reason, which the model reads: at most 2,000 characters
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

/// The arguments of both.
#[derive(Debug, Args)]
struct Of {
    /// Id of the call. While the call is pending, 4 characters of the beginning or the end are enough
    tool_call_id: String,
    /// The input hash that was shown: decide without a question. Required without a terminal
    #[arg(long, value_name = "HASH", value_parser = hash)]
    hash: Option<String>,
    /// Cut nothing of what is shown before the question
    #[arg(long)]
    full: bool,
    /// Print the response of the server as JSON, in one line
    #[arg(long)]
    json: bool,
}

/// A SHA-256 hash in hexadecimal digits.
fn hash(text: &str) -> Result<String, String> {
    let is_hash = text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    if is_hash { Ok(text.to_ascii_lowercase()) } else { Err("expected 64 hexadecimal digits".to_owned()) }
}

/// What the approval covers beyond the call, as the server takes it.
fn remember(text: &str) -> Result<Value, String> {
    match text {
        "session" => Ok(json!("session")),
        "equal" | "any" => Ok(json!({ "inputs": text })),
        _ => {
            let object = serde_json::from_str::<Value>(text).ok().filter(Value::is_object);
            object.ok_or_else(|| "expected session, equal, any or a JSON object".to_owned())
        }
    }
}

/// A decision as the server takes it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Choice<'a> {
    pub(crate) tool_call_id: &'a str,
    pub(crate) is_validated: bool,
    pub(crate) input_hash: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) validated_inputs: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) preview_hash: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) remember: Option<&'a Value>,
    /// The server continues the run, because no page posts again after this decision.
    pub(crate) resume: bool,
}

impl<'a> Choice<'a> {
    /// A decision about a call that was shown with this hash.
    pub(crate) fn new(tool_call_id: &'a str, is_validated: bool, input_hash: &'a str) -> Self {
        Self {
            tool_call_id,
            is_validated,
            input_hash,
            validated_inputs: None,
            preview_hash: None,
            reason: None,
            remember: None,
            resume: true,
        }
    }
}

/// What was shown, or what the caller of the command says was shown.
struct Shown {
    id: String,
    hash: String,
    edit: Option<Box<RawValue>>,
    preview_hash: Option<String>,
}

impl Approve {
    pub(crate) async fn run(&self, config: config::Client) -> Result<(), Failure> {
        let shown = self.of.shown(&config, self.edit.as_deref(), self.preview_hash.as_ref(), true);
        let (client, shown) = shown.await?;
        let choice = Choice {
            validated_inputs: shown.edit.as_deref(),
            preview_hash: shown.preview_hash.as_deref(),
            remember: self.remember.as_ref(),
            reason: self.note.as_deref(),
            ..Choice::new(&shown.id, true, &shown.hash)
        };
        self.of.decide(&client, &config, &choice).await
    }
}

impl Reject {
    pub(crate) async fn run(&self, config: config::Client) -> Result<(), Failure> {
        let (client, shown) = self.of.shown(&config, None, None, false).await?;
        let reason = self.reason.as_deref();
        let choice = Choice { reason, ..Choice::new(&shown.id, false, &shown.hash) };
        self.of.decide(&client, &config, &choice).await
    }
}

impl Of {
    /// Establishes what the decision is about: shows the call and asks, unless the hash was given.
    async fn shown(
        &self,
        config: &config::Client,
        file: Option<&std::path::Path>,
        preview_hash: Option<&String>,
        approves: bool,
    ) -> Result<(Client, Shown), Failure> {
        let is_interactive = has_person() && !file.is_some_and(edit::is_stdin);
        if self.hash.is_none() && !is_interactive {
            let expected = "--hash: expected the input hash that was shown, because no terminal can be asked; \
                            `approvals show` prints it";
            return Err(Failure::Usage(expected.to_owned()));
        }
        let client = Client::new(config.clone())?;
        let inputs = file.map(edit::read).transpose()?;
        if let Some(hash) = &self.hash {
            let (id, preview_hash) = (full_id(&client, &self.tool_call_id).await?, preview_hash.cloned());
            return Ok((client, Shown { id, hash: hash.clone(), edit: inputs, preview_hash }));
        }
        let mut card = Card::find(&client, &self.tool_call_id).await?;
        let edit = match inputs {
            Some(inputs) => Some(edit::preview(&client, &card.call.tool_call_id, inputs).await?),
            None => None,
        };
        let keyboard = Keyboard::new();
        let options = ScreenOptions { colours: config.colours(), full: self.full };
        let Question { hash, lacks } = show(&client, &mut card, edit.as_ref(), options, &keyboard).await?;
        if let Some(why) = lacks.filter(|_| approves) {
            return Err(Failure::NotOffered(why));
        }
        let verb = if approves { "Approve" } else { "Reject" };
        let answer = keyboard.ask(&format!("{verb} this call? [y/N] ")).await?.unwrap_or_default();
        if !matches!(answer.trim().to_lowercase().as_str(), "y" | "yes") {
            return Err(Failure::Undecided);
        }
        let preview_hash = edit.as_ref().map(|edit| edit.preview.preview_hash.clone());
        let id = card.call.tool_call_id;
        Ok((client, Shown { id, hash, edit: edit.map(|edit| edit.inputs), preview_hash }))
    }

    async fn decide(
        &self,
        client: &Client,
        config: &config::Client,
        choice: &Choice<'_>,
    ) -> Result<(), Failure> {
        let decided = client.decide(choice).await?;
        let mut out = stdout();
        let text = if self.json {
            format!("{}\n", json_text::line(&decided.body))
        } else {
            report(
                &decided,
                choice.is_validated,
                ScreenForm::of(&out, ScreenOptions { colours: config.colours(), full: self.full }),
            )?
        };
        Ok(out.write_all(text.as_bytes())?)
    }
}

/// What a person is asked about.
pub(crate) struct Question {
    /// The hash of what was shown.
    pub(crate) hash: String,
    /// Why the approval is not offered, if it is not.
    pub(crate) lacks: Option<String>,
}

/// Shows a call on standard error. If it waits and has secret inputs, asks whether to show them too.
pub(crate) async fn show(
    client: &Client,
    card: &mut Card,
    edit: Option<&Edit>,
    options: ScreenOptions,
    keyboard: &Keyboard,
) -> Result<Question, Failure> {
    let mut err = stderr();
    let form = || ScreenForm::of(&stderr(), options);
    let mut sheet = sheet(client, card, edit, form(), options.full).await?;
    writeln!(err, "{}", sheet.text)?;
    if card.call.is_pending() && card.call.secret_inputs.is_some() {
        let asked = "Show the secret inputs? The server records it. [y/N] ";
        let answer = keyboard.ask(asked).await?.unwrap_or_default();
        if matches!(answer.trim().to_lowercase().as_str(), "y" | "yes") {
            card.reveal(client).await?;
            sheet = self::sheet(client, card, edit, form(), options.full).await?;
            writeln!(err, "{}", sheet.text)?;
        }
    }
    if sheet.is_cut {
        writeln!(err, "Not everything is shown. --full shows the rest.")?;
    }
    let no_hash = || Failure::Unreadable("the call has no input_hash".to_owned());
    let hash = card.call.input_hash.clone().ok_or_else(no_hash)?;
    Ok(Question { hash, lacks: sheet.lacks(&card.call) })
}

pub(crate) fn report(decided: &Decided, approves: bool, form: ScreenForm) -> Result<String, Failure> {
    let outcome: Outcome = parsed(decided.body.get().as_bytes())?;
    let mut screen = Screen::new(form);
    let verdict = if approves { "approved" } else { "rejected" };
    let again = if decided.replayed { " (the same decision was in force already)" } else { "" };
    let state = match outcome.state.as_str() {
        "rejected" => "it does not run".to_owned(),
        "pending" => "it waits for the approvals of more people".to_owned(),
        "executing" => "it is running".to_owned(),
        state => format!("it is {}", visible(state)),
    };
    let id = visible(&outcome.tool_call_id);
    screen.line(&format!("{id} {verdict}{again}: {state}"), &visible(&outcome.state));
    if let Some(result) = &outcome.result {
        screen.text(result);
    }
    Ok(screen.finish().0)
}
