//! What a page shows about a held call besides its status.

use crate::call::{RiskLevel, ToolCall};
use crate::card::CardPart;
use crate::card::obstacle::Obstacle;
use crate::card::preview::Preview;
use crate::clock::Timestamp;
use crate::decision::Decision;
use crate::tool::definition::Unaccepted;
use crate::tool::headline::FilledHeadline;
use crate::tool::input::Input;
use crate::tool::remote::Remote;
use crate::tool::secrets::{SecretPaths, ShownInput};

/// The stored facts of a hold. They never change.
#[derive(Debug, Clone, PartialEq)]
pub struct Hold {
    /// The name of the tool.
    pub tool_name: String,
    /// The inputs that the model proposed.
    pub input: Input,
    /// The places of the secrets in the inputs.
    pub secrets: SecretPaths,
    /// The hash of the tool's schema when the model made the call.
    pub schema_hash: String,
    /// The risk level.
    pub risk: RiskLevel,
    /// The reason for the hold.
    pub reason: Option<String>,
    /// The deadline for a decision.
    pub expires_at: Option<Timestamp>,
    /// The preview of the proposed inputs, if the tool had previews then.
    pub preview: Option<Preview>,
    /// Whether the stored inputs cannot be read.
    pub unreadable: bool,
}

/// The decision in force about a held call.
#[derive(Debug, Clone, PartialEq)]
pub struct DecisionInForce {
    /// The decision.
    pub decision: Decision,
    /// The inputs of the approver in place of the model's, if the approver edited them.
    pub inputs: Option<ShownInput>,
}

/// What a process knows about a held call besides the rows, for one reader.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Card {
    /// The name of the tool, for people.
    pub title: String,
    /// The description of the tool. `None` if the process lacks the tool.
    pub description: Option<String>,
    /// The question to the approver, with the proposed inputs in it.
    pub headline: Option<FilledHeadline>,
    /// The parts of a complete card.
    pub parts: Vec<CardPart>,
    /// The place of the tool, if an MCP server has it.
    pub mcp: Option<Remote>,
    /// The inputs that the operator sets, if there are any.
    pub constants: Option<Input>,
    /// The hash that a decider echoes.
    pub input_hash: String,
    /// The user on whose behalf the tool would run, as an actor.
    pub requested_by: String,
    /// Why an approval of the reader would be refused now.
    pub obstacle: Option<Obstacle>,
    /// Whether the reader may approve the call with other inputs.
    pub can_edit: bool,
    /// Whether an approval of the reader may leave a grant.
    pub can_remember: bool,
    /// The number of people that have to approve.
    pub approvals_needed: usize,
    /// The definition of the tool, if it is not accepted.
    pub unaccepted: Option<Unaccepted>,
}

impl Hold {
    /// Returns the facts of this held call.
    pub fn of(call: &ToolCall) -> Self {
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
    pub fn of(call: &ToolCall) -> Option<Self> {
        let decision = call.decision.clone()?;
        Some(Self { decision, inputs: call.shown_edit() })
    }
}
