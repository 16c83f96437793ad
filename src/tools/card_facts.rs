//! What determines the parts of a complete card.

use super::{Input, RiskLevel};
use holdpoint_core::call::ToolCall;
use holdpoint_core::card::hold::Hold;
use holdpoint_core::tool::secrets::SecretPaths;

/// The facts of a held call on which the parts of its card depend.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CardFacts<'a> {
    pub(super) tool_name: &'a str,
    pub(super) has_preview: bool,
    pub(super) risk: RiskLevel,
    pub(super) secrets: &'a SecretPaths,
    pub(super) input: &'a Input,
}

impl<'a> From<&'a ToolCall> for CardFacts<'a> {
    fn from(call: &'a ToolCall) -> Self {
        let ToolCall { name: tool_name, preview, risk, secrets, input, .. } = call;
        Self { tool_name, has_preview: preview.is_some(), risk: *risk, secrets, input }
    }
}

impl<'a> From<&'a Hold> for CardFacts<'a> {
    fn from(hold: &'a Hold) -> Self {
        let Hold { tool_name, preview, risk, secrets, input, .. } = hold;
        Self { tool_name, has_preview: preview.is_some(), risk: *risk, secrets, input }
    }
}
