//! Calls and events as the server describes them. Fields that this version does not know are kept, and a field
//! that another version does not send is absent.

use super::client::{Client, parsed};
use super::failure::Failure;
use holdpoint_core::card::CardPart;
use holdpoint_core::text::visible::{quoted, visible};
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
pub(crate) struct Card {
    pub(crate) json: Box<RawValue>,
    pub(crate) call: Call,
    /// The fields that [`Call`] does not have.
    pub(crate) others: Fields,
}

/// A call that is or was held.
#[derive(Debug, Deserialize)]
pub(crate) struct Call {
    pub(crate) tool_call_id: String,
    pub(crate) tool_name: String,
    pub(crate) state: String,
    pub(crate) held: Option<bool>,
    pub(crate) session_id: Option<String>,
    pub(crate) thread_id: Option<String>,
    pub(crate) message_id: Option<String>,
    pub(crate) run_id: Option<String>,
    pub(crate) child_run_id: Option<String>,
    pub(crate) headline: Option<String>,
    #[serde(default)]
    pub(crate) headline_parts: Vec<HeadlinePart>,
    pub(crate) card_parts: Option<Vec<String>>,
    pub(crate) tool_description: Option<String>,
    pub(crate) mcp: Option<McpTool>,
    pub(crate) risk_level: Option<String>,
    pub(crate) reason: Option<String>,
    pub(crate) requested_by: Option<String>,
    pub(crate) thread_title: Option<String>,
    pub(crate) input: Option<Box<RawValue>>,
    pub(crate) secret_inputs: Option<Vec<String>>,
    /// Whether the inputs are here without masks.
    #[serde(skip)]
    pub(crate) is_revealed: bool,
    pub(crate) unreadable: Option<bool>,
    pub(crate) constants: Option<Box<RawValue>>,
    pub(crate) preview: Option<Preview>,
    pub(crate) unaccepted_definition: Option<Unaccepted>,
    pub(crate) validated_inputs: Option<Box<RawValue>>,
    pub(crate) validated_preview: Option<Preview>,
    pub(crate) input_schema: Option<Box<RawValue>>,
    pub(crate) input_hash: Option<String>,
    pub(crate) schema_hash: Option<String>,
    pub(crate) decision: Option<Decision>,
    pub(crate) can_decide: Option<bool>,
    pub(crate) can_reject: Option<bool>,
    pub(crate) cannot_approve: Option<CannotApprove>,
    pub(crate) can_edit: Option<bool>,
    pub(crate) on_behalf_of: Option<String>,
    pub(crate) required: Option<u64>,
    #[serde(default)]
    pub(crate) approved_by: Vec<String>,
    pub(crate) result: Option<String>,
    pub(crate) output: Option<Box<RawValue>>,
    pub(crate) created_at: Option<String>,
    pub(crate) expires_at: Option<String>,
    pub(crate) remind_at: Option<String>,
    pub(crate) escalation: Option<Escalation>,
    pub(crate) started_at: Option<String>,
    pub(crate) finished_at: Option<String>,
    pub(crate) result_deadline: Option<String>,
    pub(crate) progress: Option<Progress>,
}

/// How far the tool says that a call has come.
#[derive(Debug, Deserialize)]
pub(crate) struct Progress {
    pub(crate) message: Option<String>,
    pub(crate) done: Option<f64>,
    pub(crate) total: Option<f64>,
    pub(crate) at: Option<String>,
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
pub(crate) struct Escalation {
    pub(crate) roles: Vec<String>,
    pub(crate) due_at: String,
    pub(crate) escalated_at: Option<String>,
}

/// The place of a tool that an MCP server has.
#[derive(Debug, Deserialize)]
pub(crate) struct McpTool {
    pub(crate) server: String,
    pub(crate) tool: String,
}

/// A piece of a headline: words of the operator, or a value of the model.
#[derive(Debug, Deserialize)]
pub(crate) struct HeadlinePart {
    text: Option<String>,
    value: Option<String>,
}

/// Why an approval by the caller would be refused.
#[derive(Debug, Deserialize)]
pub(crate) struct CannotApprove {
    pub(crate) message: String,
}

/// What an MCP server says about a tool, if no operator has accepted it.
#[derive(Debug, Deserialize)]
pub(crate) struct Unaccepted {
    pub(crate) cause: String,
    pub(crate) hash: String,
    pub(crate) changes: Vec<DefinitionChange>,
}

/// A field of a definition that differs from the accepted one.
#[derive(Debug, Deserialize)]
pub(crate) struct DefinitionChange {
    pub(crate) field: String,
    pub(crate) accepted: Option<String>,
    pub(crate) current: Option<String>,
}

/// What a tool says that a call would do.
#[derive(Debug, Deserialize)]
pub(crate) struct Preview {
    pub(crate) text: Option<String>,
    pub(crate) failed: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct EditPreview {
    pub(crate) preview: Option<Preview>,
    pub(crate) preview_hash: String,
}

/// A decision about a call.
#[derive(Debug, Deserialize)]
pub(crate) struct Decision {
    pub(crate) decision: String,
    pub(crate) by: String,
    pub(crate) on_behalf_of: Option<String>,
    pub(crate) at: Option<String>,
    pub(crate) edited: Option<bool>,
    pub(crate) reason: Option<String>,
    pub(crate) surface: Option<String>,
    pub(crate) source: Option<String>,
    pub(crate) remember: Option<String>,
    pub(crate) input_hash: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Outcome {
    pub(crate) tool_call_id: String,
    pub(crate) state: String,
    pub(crate) result: Option<String>,
}

/// A change of a call or a run.
#[derive(Debug, Deserialize)]
pub(crate) struct Event {
    pub(crate) seq: i64,
    #[serde(rename = "type")]
    pub(crate) event_type: String,
    pub(crate) at: Option<String>,
    pub(crate) actor: Option<String>,
    pub(crate) tool_call_id: Option<String>,
    #[serde(default)]
    pub(crate) data: EventData,
}

#[derive(Debug, Default, Deserialize)]
pub(crate) struct EventData {
    pub(crate) tool_name: Option<String>,
    pub(crate) risk_level: Option<String>,
    pub(crate) args: Option<Box<RawValue>>,
    pub(crate) decision: Option<Decision>,
    /// The number of approvals that the call still needs.
    pub(crate) missing: Option<u64>,
    /// The delegate.
    pub(crate) to: Option<String>,
    #[serde(default)]
    pub(crate) roles: Vec<String>,
    /// The end of the delegation.
    pub(crate) until: Option<String>,
    pub(crate) reason: Option<String>,
}

impl Call {
    pub(crate) fn of(item: &RawValue) -> Result<Self, Failure> {
        parsed(item.get().as_bytes())
    }

    pub(crate) fn is_pending(&self) -> bool {
        self.state == "pending"
    }

    /// Returns the question to the approver, visible: the values of the model are between quotation marks.
    pub(crate) fn question(&self) -> Option<String> {
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
    pub(crate) fn complete_card(&self) -> Vec<String> {
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
    pub(crate) async fn reveal(&mut self, client: &Client) -> Result<(), Failure> {
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
    pub(crate) async fn find(client: &Client, id: &str) -> Result<Self, Failure> {
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
pub(crate) async fn full_id(client: &Client, id: &str) -> Result<String, Failure> {
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
