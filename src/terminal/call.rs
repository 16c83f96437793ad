//! Calls and events as the server describes them. Fields that this version does not know are kept, and a field
//! that another version does not send is absent.

use super::client::{Client, parsed};
use super::failure::Failure;
use holdpoint_core::card::CardPart;
use holdpoint_core::visible::{quoted, visible};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use uuid::Uuid;

/// The fewest characters of a shortened id.
const SHORT_ID_MIN: usize = 4;
/// The number of attempts to find a call in the list of its state. The state may change between two requests.
const ATTEMPTS: usize = 3;

/// The fields of a call, as JSON.
type Fields = BTreeMap<String, Box<RawValue>>;

/// A call as its list and its own route describe it.
#[derive(Debug)]
pub(super) struct Card {
    pub(super) json: Box<RawValue>,
    pub(super) call: Call,
    /// The fields that [`Call`] does not have.
    pub(super) others: Fields,
}

/// A call that is or was held.
#[derive(Debug, Deserialize)]
pub(super) struct Call {
    pub(super) tool_call_id: String,
    pub(super) tool_name: String,
    pub(super) state: String,
    pub(super) held: Option<bool>,
    pub(super) session_id: Option<String>,
    pub(super) thread_id: Option<String>,
    pub(super) message_id: Option<String>,
    pub(super) run_id: Option<String>,
    pub(super) child_run_id: Option<String>,
    pub(super) headline: Option<String>,
    #[serde(default)]
    pub(super) headline_parts: Vec<HeadlinePart>,
    pub(super) card_parts: Option<Vec<String>>,
    pub(super) tool_description: Option<String>,
    pub(super) mcp: Option<McpTool>,
    pub(super) risk_level: Option<String>,
    pub(super) reason: Option<String>,
    pub(super) requested_by: Option<String>,
    pub(super) thread_title: Option<String>,
    pub(super) input: Option<Box<RawValue>>,
    pub(super) secret_inputs: Option<Vec<String>>,
    /// Whether the inputs are here without masks.
    #[serde(skip)]
    pub(super) is_revealed: bool,
    pub(super) unreadable: Option<bool>,
    pub(super) constants: Option<Box<RawValue>>,
    pub(super) preview: Option<Preview>,
    pub(super) unaccepted_definition: Option<Unaccepted>,
    pub(super) validated_inputs: Option<Box<RawValue>>,
    pub(super) validated_preview: Option<Preview>,
    pub(super) input_schema: Option<Box<RawValue>>,
    pub(super) input_hash: Option<String>,
    pub(super) schema_hash: Option<String>,
    pub(super) decision: Option<Decision>,
    pub(super) can_decide: Option<bool>,
    pub(super) can_reject: Option<bool>,
    pub(super) cannot_approve: Option<CannotApprove>,
    pub(super) can_edit: Option<bool>,
    pub(super) on_behalf_of: Option<String>,
    pub(super) required: Option<u64>,
    #[serde(default)]
    pub(super) approved_by: Vec<String>,
    pub(super) result: Option<String>,
    pub(super) output: Option<Box<RawValue>>,
    pub(super) created_at: Option<String>,
    pub(super) expires_at: Option<String>,
    pub(super) remind_at: Option<String>,
    pub(super) escalation: Option<Escalation>,
    pub(super) started_at: Option<String>,
    pub(super) finished_at: Option<String>,
    pub(super) result_deadline: Option<String>,
    pub(super) progress: Option<Progress>,
}

/// How far the tool says that a call has come.
#[derive(Debug, Deserialize)]
pub(super) struct Progress {
    pub(super) message: Option<String>,
    pub(super) done: Option<f64>,
    pub(super) total: Option<f64>,
    pub(super) at: Option<String>,
}

/// The names of the fields of [`Call`], and of those that say the same as another one.
const KNOWN: [&str; 48] = [
    "tool_call_id",
    "tool_name",
    "state",
    "session_id",
    "thread_id",
    "message_id",
    "run_id",
    "child_run_id",
    "headline",
    "headline_parts",
    "card_parts",
    "tool_description",
    "mcp",
    "risk_level",
    "reason",
    "requested_by",
    "thread_title",
    "input",
    "secret_inputs",
    "unreadable",
    "constants",
    "preview",
    "unaccepted_definition",
    "validated_inputs",
    "validated_preview",
    "input_schema",
    "input_hash",
    "schema_hash",
    "decision",
    "can_decide",
    "can_reject",
    "cannot_approve",
    "can_edit",
    "on_behalf_of",
    "required",
    "approved_by",
    "result",
    "output",
    "created_at",
    "expires_at",
    "remind_at",
    "escalation",
    "started_at",
    "finished_at",
    "result_deadline",
    "progress",
    "held",
    "validated",
];

/// The further roles that may decide a call that waits long.
#[derive(Debug, Deserialize)]
pub(super) struct Escalation {
    pub(super) roles: Vec<String>,
    pub(super) due_at: String,
    pub(super) escalated_at: Option<String>,
}

/// The place of a tool that an MCP server has.
#[derive(Debug, Deserialize)]
pub(super) struct McpTool {
    pub(super) server: String,
    pub(super) tool: String,
}

/// A piece of a headline: words of the operator, or a value of the model.
#[derive(Debug, Deserialize)]
pub(super) struct HeadlinePart {
    text: Option<String>,
    value: Option<String>,
}

/// Why an approval by the caller would be refused.
#[derive(Debug, Deserialize)]
pub(super) struct CannotApprove {
    pub(super) message: String,
}

/// What an MCP server says about a tool, if no operator has accepted it.
#[derive(Debug, Deserialize)]
pub(super) struct Unaccepted {
    pub(super) cause: String,
    pub(super) hash: String,
    pub(super) changes: Vec<DefinitionChange>,
}

/// A field of a definition that differs from the accepted one.
#[derive(Debug, Deserialize)]
pub(super) struct DefinitionChange {
    pub(super) field: String,
    pub(super) accepted: Option<String>,
    pub(super) current: Option<String>,
}

/// What a tool says that a call would do.
#[derive(Debug, Deserialize)]
pub(super) struct Preview {
    pub(super) text: Option<String>,
    pub(super) failed: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct EditPreview {
    pub(super) preview: Option<Preview>,
    pub(super) preview_hash: String,
}

/// A decision about a call.
#[derive(Debug, Deserialize)]
pub(super) struct Decision {
    pub(super) decision: String,
    pub(super) by: String,
    pub(super) on_behalf_of: Option<String>,
    pub(super) at: Option<String>,
    pub(super) edited: Option<bool>,
    pub(super) reason: Option<String>,
    pub(super) surface: Option<String>,
    pub(super) source: Option<String>,
    pub(super) remember: Option<String>,
    pub(super) input_hash: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Outcome {
    pub(super) tool_call_id: String,
    pub(super) state: String,
    pub(super) result: Option<String>,
}

/// A change of a call or a run.
#[derive(Debug, Deserialize)]
pub(super) struct Event {
    pub(super) seq: i64,
    #[serde(rename = "type")]
    pub(super) event_type: String,
    pub(super) at: Option<String>,
    pub(super) actor: Option<String>,
    pub(super) tool_call_id: Option<String>,
    #[serde(default)]
    pub(super) data: EventData,
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct EventData {
    pub(super) tool_name: Option<String>,
    pub(super) risk_level: Option<String>,
    pub(super) args: Option<Box<RawValue>>,
    pub(super) decision: Option<Decision>,
    /// The number of approvals that the call still needs.
    pub(super) missing: Option<u64>,
    /// The delegate.
    pub(super) to: Option<String>,
    #[serde(default)]
    pub(super) roles: Vec<String>,
    /// The end of the delegation.
    pub(super) until: Option<String>,
    pub(super) reason: Option<String>,
}

impl Call {
    pub(super) fn of(item: &RawValue) -> Result<Self, Failure> {
        parsed(item.get().as_bytes())
    }

    pub(super) fn is_pending(&self) -> bool {
        self.state == "pending"
    }

    /// Returns the question to the approver, visible: the values of the model are between quotation marks.
    pub(super) fn question(&self) -> Option<String> {
        if self.headline_parts.is_empty() {
            return self.headline.as_deref().map(visible);
        }
        let piece = |part: &HeadlinePart| {
            let text = part.text.as_deref().map(visible).unwrap_or_default();
            part.value.as_deref().map_or(text, |value| quoted(value, false))
        };
        Some(self.headline_parts.iter().map(piece).collect())
    }

    /// Returns the words for the parts of a complete card. A server of an earlier version does not list them.
    pub(super) fn complete_card(&self) -> Vec<String> {
        if let Some(parts) = &self.card_parts {
            return parts.clone();
        }
        let has = |part: &CardPart| match part {
            CardPart::Inputs => true,
            CardPart::Secrets => self.secret_inputs.is_some() && self.risk_level.as_deref() != Some("low"),
            CardPart::Constants => self.constants.is_some(),
            CardPart::Preview => self.preview.is_some(),
            CardPart::Definition => self.unaccepted_definition.is_some(),
        };
        CardPart::ALL.iter().filter(|part| has(part)).map(|part| part.word().to_owned()).collect()
    }
}

/// The inputs of a call without masks.
#[derive(Debug, Deserialize)]
struct Revealed {
    input: Box<RawValue>,
    validated_inputs: Option<Box<RawValue>>,
    input_hash: String,
}

impl Card {
    /// Takes the inputs without masks. The server records it.
    pub(super) async fn reveal(&mut self, client: &Client) -> Result<(), Failure> {
        let Revealed { input, validated_inputs, input_hash } = client.reveal(&self.call.tool_call_id).await?;
        let call = &mut self.call;
        (call.input, call.validated_inputs) = (Some(input), validated_inputs);
        (call.input_hash, call.is_revealed) = (Some(input_hash), true);
        Ok(())
    }

    fn of(fields: Fields) -> Result<Self, Failure> {
        let unreadable = |error: serde_json::Error| Failure::Unreadable(error.to_string());
        let json = serde_json::value::to_raw_value(&fields).map_err(unreadable)?;
        let call = Call::of(&json)?;
        let others = fields.into_iter().filter(|(name, _)| !KNOWN.contains(&name.as_str())).collect();
        Ok(Self { json, call, others })
    }

    /// Reads a call by its id, which is shortened or not.
    pub(super) async fn find(client: &Client, id: &str) -> Result<Self, Failure> {
        Self::read(client, &full_id(client, id).await?).await
    }

    /// Reads a call, with what a person decides on if it was held.
    async fn read(client: &Client, id: &str) -> Result<Self, Failure> {
        match client.get::<Fields>(&["approvals", id], &[]).await {
            Err(Failure::Refused(refusal)) if refusal.is_not_found() => Self::gathered(client, id).await,
            fields => Self::of(fields?),
        }
    }

    /// Reads a call that was never held, or a call of a server that has held calls in lists only.
    async fn gathered(client: &Client, id: &str) -> Result<Self, Failure> {
        let mut fields = Fields::new();
        for _ in 0..ATTEMPTS {
            fields = client.get(&["tool_calls", id], &[]).await?;
            let call = Self::of(fields.clone())?.call;
            // No list has a call that was never held.
            let (Some(session), None | Some(true)) = (&call.session_id, call.held) else { break };
            let query = [("session_id", &**session), ("state", &call.state), ("tool_name", &call.tool_name)];
            let mut found = None;
            let looked = client.each(&["approvals"], &query, |item| {
                let is_found = Call::of(&item)?.tool_call_id == id;
                found = is_found.then_some(item);
                Ok(if is_found { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
            });
            looked.await?;
            if let Some(item) = found {
                fields.extend(parsed::<Fields>(item.get().as_bytes())?);
                break;
            }
        }
        Self::of(fields)
    }
}

/// Returns the id of the one pending call that has this id, or an id that begins or ends with it.
pub(super) async fn full_id(client: &Client, id: &str) -> Result<String, Failure> {
    if let Ok(whole) = Uuid::try_parse(id) {
        return Ok(whole.to_string());
    }
    let part = id.to_ascii_lowercase();
    let is_part = part.chars().all(|c| c.is_ascii_hexdigit() || c == '-');
    if part.len() < SHORT_ID_MIN || !is_part {
        let expected = format!(
            "expected the id of a call, or at least {SHORT_ID_MIN} characters of its beginning or end"
        );
        return Err(Failure::Usage(expected));
    }
    let mut found = Vec::new();
    let looked = client.each(&["approvals"], &[("state", "pending")], |item| {
        let id = Call::of(&item)?.tool_call_id;
        if id.starts_with(&part) || id.ends_with(&part) {
            found.push(id);
        }
        Ok(ControlFlow::Continue(()))
    });
    looked.await?;
    match <[String; 1]>::try_from(found) {
        Ok([id]) => Ok(id),
        Err(found) if found.is_empty() => Err(Failure::NoCall(format!(
            "no pending call has an id that begins or ends with {part}; the whole id also finds other calls"
        ))),
        Err(found) => Err(Failure::NoCall(format!(
            "{} pending calls have an id that begins or ends with {part}: {}",
            found.len(),
            visible(&found.join(", "))
        ))),
    }
}
