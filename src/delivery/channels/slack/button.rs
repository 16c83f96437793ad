//! The buttons that decide a call.

use holdpoint_core::id::ToolCallId;
use serde::{Deserialize, Serialize};

const APPROVE: &str = "holdpoint_approve";
const REJECT: &str = "holdpoint_reject";

/// What a button decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ButtonDecision {
    /// The call may run.
    Approve,
    /// The call must not run.
    Reject,
}

impl ButtonDecision {
    pub(super) const fn action_id(self) -> &'static str {
        match self {
            Self::Approve => APPROVE,
            Self::Reject => REJECT,
        }
    }

    /// Returns the decision of a button. `None` for every other button.
    pub(super) fn of_action_id(action_id: &str) -> Option<Self> {
        [Self::Approve, Self::Reject].into_iter().find(|it| it.action_id() == action_id)
    }
}

/// The value of a button: what the message is about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Button {
    pub(super) endpoint: String,
    call: String,
    /// The hash of the inputs of the call at the time of the message.
    pub(super) input_hash: String,
}

impl Button {
    pub(super) fn new(endpoint: &str, call: &str, input_hash: &str) -> Self {
        Self { endpoint: endpoint.to_owned(), call: call.to_owned(), input_hash: input_hash.to_owned() }
    }

    pub(super) fn text(&self) -> String {
        serde_json::json!(self).to_string()
    }

    /// Reads the text of a value.
    pub(super) fn parse(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    /// Returns the call. `None` if the id names none.
    pub(super) fn call(&self) -> Option<ToolCallId> {
        self.call.parse().ok()
    }
}
