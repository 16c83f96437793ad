//! `approvals show`: everything that the server has about a call, for a person to decide on.

use super::call::{
    Call, Card, Decision, DefinitionChange, Escalation, Event, EventData, Preview, Progress, Unaccepted,
};
use super::client::{Client, parsed};
use super::edit::Edit;
use super::failure::Failure;
use super::offer::Sheet;
use super::screen::{Screen, ScreenForm, ScreenOptions};
use super::{edit, json_text};
use crate::config;
use clap::Args;
use holdpoint_core::card::CardPart;
use std::io::Write;
use std::ops::ControlFlow;
use std::path::PathBuf;

/// The arguments of `approvals show`.
#[derive(Debug, Args)]
pub struct Show {
    /// Id of the call. While the call is pending, 4 characters of the beginning or the end are enough
    tool_call_id: String,
    /// Also ask the tool what the call would do with the inputs in this file; - reads standard input
    #[arg(long, value_name = "FILE", conflicts_with = "json")]
    edit: Option<PathBuf>,
    /// Show the secret inputs too. The server records it
    #[arg(long, conflicts_with = "json")]
    reveal: bool,
    /// Cut nothing, and show the schema of the inputs
    #[arg(long)]
    full: bool,
    /// Print the JSON of the server, in one line
    #[arg(long)]
    json: bool,
}

impl Show {
    pub(crate) async fn run(&self, config: config::Client) -> Result<(), Failure> {
        let colours = config.colours();
        let client = Client::new(config)?;
        let mut card = Card::find(&client, &self.tool_call_id).await?;
        if self.reveal {
            card.reveal(&client).await?;
        }
        let mut out = std::io::stdout();
        if self.json {
            return Ok(writeln!(out, "{}", json_text::line(&card.json))?);
        }
        let edit = match &self.edit {
            Some(file) => Some(edit::preview(&client, &card.call.tool_call_id, edit::read(file)?).await?),
            None => None,
        };
        let form = ScreenForm::of(&out, ScreenOptions { colours, full: self.full });
        let sheet = sheet(&client, &card, edit.as_ref(), form, self.full).await?;
        Ok(out.write_all(sheet.text.as_bytes())?)
    }
}

/// Returns everything about a call as text.
pub(crate) async fn sheet(
    client: &Client,
    card: &Card,
    edit: Option<&Edit>,
    form: ScreenForm,
    full: bool,
) -> Result<Sheet, Failure> {
    let mut screen = Screen::new(form);
    let call = &card.call;
    head(&mut screen, call);
    let drawn = card_parts(&mut screen, call);
    replaced(&mut screen, call);
    let mut draws_edit = None;
    if let Some(Edit { inputs, preview }) = edit {
        screen.heading("Inputs that you set");
        let draws_inputs = screen.json(inputs);
        let title = "Preview with the inputs that you set";
        draws_edit = Some(preview_of(&mut screen, title, preview.preview.as_ref()) && draws_inputs);
        screen.fact("preview hash", Some(&preview.preview_hash));
    }
    ended(&mut screen, call);
    if !card.others.is_empty() {
        screen.heading("Further facts of the server");
    }
    for (name, value) in &card.others {
        screen.fact("field", Some(name));
        screen.json(value);
    }
    if let Some(schema) = call.input_schema.as_deref().filter(|_| full) {
        screen.heading("Schema of the inputs");
        screen.json(schema);
    }
    screen.heading("Ids and hashes");
    for (name, value) in [
        ("call", Some(&call.tool_call_id)),
        ("run", call.run_id.as_ref()),
        ("child run", call.child_run_id.as_ref()),
        ("message", call.message_id.as_ref()),
        ("thread", call.thread_id.as_ref()),
        ("session", call.session_id.as_ref()),
        ("schema hash", call.schema_hash.as_ref()),
        ("input hash", call.input_hash.as_ref()),
    ] {
        screen.fact(name, value.map(String::as_str));
    }
    trail(&mut screen, client, &call.tool_call_id).await;
    let (text, is_cut) = screen.finish();
    Ok(Sheet { text, is_cut, drawn, draws_edit })
}

fn head(screen: &mut Screen, call: &Call) {
    screen.title(&call.tool_name, call.risk_level.as_deref(), &call.state);
    call.question().iter().for_each(|question| screen.visible_fact("question", question));
    screen.fact("requested by", call.requested_by.as_deref());
    screen.fact("in the thread", call.thread_title.as_deref());
    screen.fact("held because", call.reason.as_deref());
    screen.fact("tool", call.tool_description.as_deref());
    if let Some(mcp) = &call.mcp {
        screen.fact("MCP server", Some(&mcp.server));
        screen.fact("its tool", Some(&mcp.tool));
    }
    screen.fact("created", call.created_at.as_deref());
    if call.is_pending() {
        screen.fact("expires", call.expires_at.as_deref());
        screen.fact("reminder", call.remind_at.as_deref());
        if let Some(Escalation { roles, due_at, escalated_at }) = &call.escalation {
            let roles = roles.join(", ");
            let word = if escalated_at.is_some() { "since" } else { "from" };
            let escalation = format!("{roles}, {word} {}", escalated_at.as_ref().unwrap_or(due_at));
            screen.fact("escalation", Some(&escalation));
        }
        let refused = call.cannot_approve.as_ref().map(|refused| refused.message.as_str());
        let may = match (refused, call.can_decide, call.can_reject) {
            (Some(why), _, Some(true)) => format!("reject it; an approval would be refused: {why}"),
            (Some(why), ..) => format!("see it; an approval would be refused: {why}"),
            (None, Some(true), _) => "approve it or reject it".to_owned(),
            (None, Some(false), Some(true)) => "reject it; your approval would not count".to_owned(),
            (None, Some(false), Some(false)) => "see it; others decide".to_owned(),
            _ => "ask the server: it checks each decision".to_owned(),
        };
        screen.fact("you may", Some(&may));
        screen.fact("in place of", call.on_behalf_of.as_deref());
    }
    if let Some(required) = call.required.filter(|required| *required > 1) {
        let approved = call.approved_by.len();
        let by = if approved == 0 { String::new() } else { format!(": {}", call.approved_by.join(", ")) };
        let votes = format!("{approved} of {required} people approved these inputs{by}");
        screen.fact("approvals", Some(&votes));
    }
}

/// Draws the card, and returns the parts that are whole.
pub(crate) fn card_parts(screen: &mut Screen, call: &Call) -> Vec<CardPart> {
    let mut drawn = Vec::new();
    let mut draws = |part: CardPart, is_whole: bool| drawn.extend(is_whole.then_some(part));
    if call.unreadable == Some(true) {
        screen.heading("Inputs");
        screen.sentence("  The stored inputs cannot be read. The call can only be rejected or cancelled.");
    } else {
        screen.heading("Inputs as the model proposed them");
        let draws_inputs = call.input.as_deref().is_some_and(|input| screen.json(input));
        draws(CardPart::Inputs, draws_inputs);
        draws(CardPart::Secrets, draws_inputs && call.is_revealed);
        let secrets = call.secret_inputs.as_ref().filter(|_| !call.is_revealed);
        screen.fact("secret inputs", secrets.map(|secrets| secrets.join(", ")).as_deref());
    }
    if let Some(constants) = &call.constants {
        screen.heading("Inputs that the operator sets");
        draws(CardPart::Constants, screen.json(constants));
    }
    let draws_preview = preview_of(screen, "Preview", call.preview.as_ref());
    draws(CardPart::Preview, call.preview.is_some() && draws_preview);
    if let Some(unaccepted) = &call.unaccepted_definition {
        draws(CardPart::Definition, definition(screen, unaccepted));
    }
    drawn
}

/// Draws what the approver put in place of the proposed inputs.
fn replaced(screen: &mut Screen, call: &Call) {
    if let Some(inputs) = call.validated_inputs.as_deref().filter(|_| call.unreadable != Some(true)) {
        screen.heading("Inputs that replaced them");
        screen.json(inputs);
        preview_of(screen, "Preview of these inputs", call.validated_preview.as_ref());
    }
}

/// Draws a preview, if there is one. Returns whether it is whole.
fn preview_of(screen: &mut Screen, title: &str, preview: Option<&Preview>) -> bool {
    let Some(preview) = preview else { return true };
    screen.heading(title);
    match (&preview.text, &preview.failed) {
        (Some(text), _) => screen.text(text),
        (None, Some(why)) => {
            screen.sentence("  The tool made no preview:");
            screen.text(why)
        }
        (None, None) => {
            screen.sentence("  The tool made no preview.");
            true
        }
    }
}

/// Draws the fields of a definition that differ from the accepted one. Returns whether they are whole.
fn definition(screen: &mut Screen, Unaccepted { cause, hash, changes }: &Unaccepted) -> bool {
    screen.heading("Definition of the tool, which no operator has accepted");
    screen.fact("cause", Some(cause));
    screen.fact("hash", Some(hash));
    let mut is_whole = true;
    for DefinitionChange { field, accepted, current } in changes {
        for (when, value) in [("accepted", accepted), ("now", current)] {
            let name = format!("{field}, {when}");
            screen.fact("field", Some(&name));
            match value {
                Some(value) => is_whole &= screen.text(value),
                None => screen.sentence("  There is none."),
            }
        }
    }
    is_whole
}

fn ended(screen: &mut Screen, call: &Call) {
    if let Some(decision) = &call.decision {
        screen.heading("Decision");
        decided(screen, decision);
    }
    screen.fact("started", call.started_at.as_deref());
    screen.fact("finished", call.finished_at.as_deref());
    screen.fact("result due", call.result_deadline.as_deref());
    if let Some(Progress { message, done, total, at }) = &call.progress {
        screen.fact("progress", message.as_deref());
        screen.fact("done", done.map(|done| done.to_string()).as_deref());
        screen.fact("to do", total.map(|total| total.to_string()).as_deref());
        screen.fact("reported", at.as_deref());
    }
    if let Some(output) = &call.output {
        screen.heading("Output");
        screen.json(output);
    }
    if let Some(result) = &call.result {
        screen.heading("What the model reads");
        screen.text(result);
    }
}

fn decided(screen: &mut Screen, decision: &Decision) {
    screen.fact("verdict", Some(&decision.decision));
    screen.fact("by", Some(&decision.by));
    screen.fact("in place of", decision.on_behalf_of.as_deref());
    screen.fact("at", decision.at.as_deref());
    screen.fact("over", decision.surface.as_deref());
    screen.fact("policy", decision.source.as_deref());
    screen.fact("remembered", decision.remember.as_deref());
    if decision.edited == Some(true) {
        screen.fact("inputs", Some("changed by the decision"));
    }
    let said = if decision.decision == "approve" { "note" } else { "reason" };
    screen.fact(said, decision.reason.as_deref());
    screen.fact("input hash", decision.input_hash.as_deref());
}

/// The events of the call. The call can be decided without them.
async fn trail(screen: &mut Screen, client: &Client, id: &str) {
    screen.heading("Events");
    let mut events: Vec<Event> = Vec::new();
    let path = ["tool_calls", id, "events"];
    let read = client.each(&path, &[], |event| {
        events.push(parsed(event.get().as_bytes())?);
        Ok(ControlFlow::Continue(()))
    });
    if let Err(error) = read.await {
        screen.fact("not readable", Some(&error.to_string()));
    }
    for Event { event_type, at, actor, data, .. } in events {
        let EventData { to, until, reason, roles, .. } = data;
        let roles = (!roles.is_empty()).then(|| roles.join(", "));
        // The reason of another event is that of the hold.
        let reason = reason.filter(|_| to.is_some());
        let words: Vec<String> =
            [at, Some(event_type), actor, roles, to, until, reason].into_iter().flatten().collect();
        screen.fact("", Some(&words.join("  ")));
    }
}
