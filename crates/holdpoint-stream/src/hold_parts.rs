//! The data parts of held calls, the same in all dialects: the card to decide on, and the decision in force.

use super::Cards;
use super::dialect::ui::parts::{Readable, ReadableInput};
use holdpoint_core::call::ToolCall;
use holdpoint_core::card::CardPart;
use holdpoint_core::card::hold::{Card, DecisionInForce, Hold};
use holdpoint_core::card::obstacle::Obstacle;
use holdpoint_core::card::preview::Preview;
use holdpoint_core::decision::Decision;
use holdpoint_core::id::ToolCallId;
use holdpoint_core::text::placeholders::Piece;
use holdpoint_core::tool::definition::{DefinitionChange, Unaccepted};
use holdpoint_core::tool::headline::FilledHeadline;
use holdpoint_core::tool::input::Input;
use holdpoint_core::tool::remote::Remote;
use holdpoint_core::turn::HeldCallStatus;
use serde::Serialize;
use serde_json::{Value, json};

const HOLD: &str = "data-tool-hold";
const DECISION: &str = "data-tool-decision";

/// A data part. A page replaces an earlier part of the same type and id.
#[derive(Debug, Serialize)]
pub(super) struct DataPart<T> {
    r#type: &'static str,
    id: ToolCallId,
    data: T,
}

/// The facts that a person decides on.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct HoldPart<'a> {
    tool_call_id: ToolCallId,
    tool_name: &'a str,
    title: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    headline: Option<String>,
    /// The pieces of `headline`: the words of the operator, and the values of the model.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    headline_parts: Vec<HeadlinePart>,
    /// The parts that a card has to show before it offers an approval.
    card_parts: Vec<&'static str>,
    /// As the model proposed them, with a mask in place of each secret.
    input: ReadableInput,
    /// The JSON pointers of the masks.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    secret_inputs: Vec<String>,
    /// The place of the tool, if an MCP server has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    mcp: Option<McpPart>,
    /// The inputs that the operator sets.
    #[serde(skip_serializing_if = "Option::is_none")]
    constants: Option<Input>,
    #[serde(skip_serializing_if = "Option::is_none")]
    preview: Option<PreviewPart<'a>>,
    risk: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at: Option<String>,
    input_hash: String,
    requested_by: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    cannot_approve: Option<ObstaclePart>,
    can_edit: bool,
    can_remember: bool,
    approvals_needed: usize,
    /// The definition of the tool, if it is not accepted.
    #[serde(skip_serializing_if = "Option::is_none")]
    unaccepted_definition: Option<DefinitionPart>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
enum HeadlinePart {
    Text(String),
    Value(String),
}

/// What the tool says that the call would do, or why it says nothing.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
enum PreviewPart<'a> {
    Text(&'a str),
    Failed(&'a str),
}

/// Why an approval of the reader would be refused.
#[derive(Debug, Serialize)]
struct ObstaclePart {
    code: &'static str,
    message: String,
}

/// A definition that is not accepted, and how it differs from the accepted one.
#[derive(Debug, Serialize)]
struct DefinitionPart {
    cause: &'static str,
    hash: String,
    changes: Vec<ChangePart>,
}

/// A field that differs.
#[derive(Debug, Serialize)]
struct ChangePart {
    field: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    accepted: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    current: Option<String>,
}

/// The place of a tool of an MCP server.
#[derive(Debug, Serialize)]
struct McpPart {
    server: String,
    tool: String,
}

/// The decision in force.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct DecisionPart<'a> {
    tool_call_id: ToolCallId,
    decision: &'static str,
    by: &'a str,
    at: String,
    edited: bool,
    /// The inputs of the approver, if the approver edited them.
    #[serde(skip_serializing_if = "Option::is_none")]
    input: Option<Readable<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
    /// Whether the answer of this page came after the decision.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    late: bool,
}

impl HeadlinePart {
    fn of(piece: &Piece<String>) -> Self {
        match piece {
            Piece::Text(text) => Self::Text(text.clone()),
            Piece::Value(value) => Self::Value(value.clone()),
        }
    }
}

impl ObstaclePart {
    fn of(obstacle: &Obstacle) -> Self {
        Self { code: obstacle.kind().word(), message: obstacle.sentence() }
    }
}

impl<'a> PreviewPart<'a> {
    fn of(preview: &'a Preview) -> Self {
        match preview {
            Preview::Text(text) => Self::Text(text),
            Preview::Failed(why) => Self::Failed(why),
        }
    }
}

impl DefinitionPart {
    fn of(unaccepted: Unaccepted) -> Self {
        let Unaccepted { cause, hash, changes } = unaccepted;
        let part = |DefinitionChange { field, accepted, current }| ChangePart { field, accepted, current };
        let cause = cause.word();
        Self { cause, hash, changes: changes.into_iter().map(part).collect() }
    }
}

pub(super) fn hold<'a>(id: ToolCallId, hold: &'a Hold, cards: &dyn Cards) -> DataPart<HoldPart<'a>> {
    let card = cards.card(hold);
    let Card { title, description, headline, parts, mcp, constants, input_hash, requested_by, .. } = card;
    let pieces = headline.as_ref().map_or(&[][..], FilledHeadline::pieces);
    let Card { obstacle, can_edit, can_remember, approvals_needed, unaccepted, .. } = card;
    let data = HoldPart {
        tool_call_id: id,
        tool_name: &hold.tool_name,
        title,
        description,
        headline_parts: pieces.iter().map(HeadlinePart::of).collect(),
        headline: headline.map(|headline| headline.to_string()),
        card_parts: parts.into_iter().map(CardPart::word).collect(),
        input: ReadableInput(hold.secrets.shown(&hold.input)),
        secret_inputs: hold.secrets.pointers(&hold.input),
        mcp: mcp.map(|Remote { server, tool }| McpPart { server, tool }),
        constants,
        preview: hold.preview.as_ref().map(PreviewPart::of),
        risk: hold.risk.word(),
        reason: hold.reason.as_deref(),
        expires_at: hold.expires_at.map(|at| at.to_rfc3339()),
        input_hash,
        requested_by,
        cannot_approve: obstacle.as_ref().map(ObstaclePart::of),
        can_edit,
        can_remember,
        approvals_needed,
        unaccepted_definition: unaccepted.map(DefinitionPart::of),
    };
    DataPart { r#type: HOLD, id, data }
}

pub(super) fn decision(id: ToolCallId, decided: &DecisionInForce, late: bool) -> DataPart<DecisionPart<'_>> {
    let DecisionInForce { decision, inputs } = decided;
    let Decision { verdict, by, at, edited, reason, .. } = decision;
    let data = DecisionPart {
        tool_call_id: id,
        decision: verdict.word(),
        by,
        at: at.to_rfc3339(),
        edited: *edited,
        input: inputs.as_ref().map(Readable::Input),
        reason: reason.as_deref(),
        late,
    };
    DataPart { r#type: DECISION, id, data }
}

/// Returns the decided calls, in the order of their decisions: a page that reads several streams gets them in
/// that order.
pub(super) fn in_order_of_decision(calls: &[HeldCallStatus]) -> impl Iterator<Item = &HeldCallStatus> {
    let mut decided: Vec<_> = calls.iter().filter(|call| call.decided.is_some()).collect();
    decided.sort_by_key(|call| call.decided.as_ref().map(|decided| decided.decision.at));
    decided.into_iter()
}

/// Returns the cards of the held calls of a step.
pub(super) fn stored_holds(calls: &[ToolCall], cards: &dyn Cards) -> impl Iterator<Item = Value> {
    calls.iter().filter(|call| call.held).map(move |call| json!(hold(call.id, &Hold::of(call), cards)))
}

/// Returns the decisions in force about the held calls of a step, in their order.
pub(super) fn stored_decisions(calls: &[ToolCall]) -> impl Iterator<Item = Value> {
    let held = calls.iter().filter(|call| call.held);
    let mut decided: Vec<_> = held.filter_map(|call| Some((call.id, DecisionInForce::of(call)?))).collect();
    decided.sort_by_key(|(_, decided)| decided.decision.at);
    decided.into_iter().map(|(id, decided)| json!(decision(id, &decided, false)))
}
