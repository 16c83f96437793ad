//! The buttons that decide a call.

use holdpoint_core::id::ToolCallId;
use serde::{Deserialize, Serialize};

const APPROVE: &str = "holdpoint_approve";
const REJECT: &str = "holdpoint_reject";

/// What a button decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Decision {
    /// The call may run.
    Approve,
    /// The call must not run.
    Reject,
}

impl Decision {
    pub(crate) const fn action_id(self) -> &'static str {
        match self {
            Self::Approve => APPROVE,
            Self::Reject => REJECT,
        }
    }

    /// Returns the decision of a button. `None` for every other button.
    pub(crate) fn of_action_id(action_id: &str) -> Option<Self> {
        [Self::Approve, Self::Reject].into_iter().find(|it| it.action_id() == action_id)
    }
}

/// The value of a button: what the message is about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Button {
    pub(crate) endpoint: String,
    call: String,
    /// The hash of the inputs of the call at the time of the message.
    pub(crate) input_hash: String,
}

impl Button {
    pub(crate) fn new(endpoint: &str, call: &str, input_hash: &str) -> Self {
        Self { endpoint: endpoint.to_owned(), call: call.to_owned(), input_hash: input_hash.to_owned() }
    }

    pub(crate) fn text(&self) -> String {
        serde_json::json!(self).to_string()
    }

    /// Reads the text of a value.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    /// Returns the call. `None` if the id names none.
    pub(crate) fn call(&self) -> Option<ToolCallId> {
        self.call.parse().ok()
    }
}
