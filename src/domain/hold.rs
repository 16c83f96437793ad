//! What a page shows about a held call besides its status.

use super::call::{RiskLevel, ToolCall};
use super::card::CardPart;
use super::clock::Timestamp;
use super::decision::Decision;
use super::definition::Unaccepted;
use super::headline::FilledHeadline;
use super::input::Input;
use super::obstacle::Obstacle;
use super::preview::Preview;
use super::remote::Remote;
use super::secrets::{SecretPaths, ShownInput};

/// The stored facts of a hold. They never change.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Hold {
    /// The name of the tool.
    pub(crate) tool_name: String,
    /// The inputs that the model proposed.
    pub(crate) input: Input,
    /// The places of the secrets in the inputs.
    pub(crate) secrets: SecretPaths,
    /// The hash of the tool's schema when the model made the call.
    pub(crate) schema_hash: String,
    /// The risk level.
    pub(crate) risk: RiskLevel,
    /// The reason for the hold.
    pub(crate) reason: Option<String>,
    /// The deadline for a decision.
    pub(crate) expires_at: Option<Timestamp>,
    /// The preview of the proposed inputs, if the tool had previews then.
    pub(crate) preview: Option<Preview>,
    /// Whether the stored inputs cannot be read.
    pub(crate) unreadable: bool,
}

/// The decision in force about a held call.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct DecisionInForce {
    /// The decision.
    pub(crate) decision: Decision,
    /// The inputs of the approver in place of the model's, if the approver edited them.
    pub(crate) inputs: Option<ShownInput>,
}

/// What a process knows about a held call besides the rows, for one reader.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Card {
    /// The name of the tool, for people.
    pub(crate) title: String,
    /// The description of the tool. `None` if the process lacks the tool.
    pub(crate) description: Option<String>,
    /// The question to the approver, with the proposed inputs in it.
    pub(crate) headline: Option<FilledHeadline>,
    /// The parts of a complete card.
    pub(crate) parts: Vec<CardPart>,
    /// The place of the tool, if an MCP server has it.
    pub(crate) mcp: Option<Remote>,
    /// The inputs that the operator sets, if there are any.
    pub(crate) constants: Option<Input>,
    /// The hash that a decider echoes.
    pub(crate) input_hash: String,
    /// The user on whose behalf the tool would run, as an actor.
    pub(crate) requested_by: String,
    /// Why an approval of the reader would be refused now.
    pub(crate) obstacle: Option<Obstacle>,
    /// Whether the reader may approve the call with other inputs.
    pub(crate) can_edit: bool,
    /// Whether an approval of the reader may leave a grant.
    pub(crate) can_remember: bool,
    /// The number of people that have to approve.
    pub(crate) approvals_needed: usize,
    /// The definition of the tool, if it is not accepted.
    pub(crate) unaccepted: Option<Unaccepted>,
}

impl Hold {
    /// Returns the facts of this held call.
    pub(crate) fn of(call: &ToolCall) -> Self {
        Self {
            tool_name: call.name.clone(),
            input: call.input.clone(),
            secrets: call.secrets.clone(),
            schema_hash: call.schema_hash.clone(),
            risk: call.risk,
            reason: call.reason.clone(),
            expires_at: call.expires_at,
            preview: call.preview.clone(),
            unreadable: call.unreadable,
        }
    }
}

impl DecisionInForce {
    /// Returns the decision in force about this call, if there is one.
    pub(crate) fn of(call: &ToolCall) -> Option<Self> {
        let decision = call.decision.clone()?;
        Some(Self { decision, inputs: call.shown_edit() })
    }
}
