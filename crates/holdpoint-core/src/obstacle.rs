//! Obstacles of an approval: cards, lists, messages and the terminal name the obstacle in place of a button.

/// Why an approval of a pending call would be refused now, or would not count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Obstacle {
    /// The approval is not this person's to give.
    Forbidden,
    /// The policy forbids the call, for this reason.
    Blocked(String),
    /// The stored inputs cannot be read.
    Unreadable,
    /// The tool is not available now.
    ToolUnavailable,
    /// The proposed inputs do not fit the tool, for these reasons.
    InvalidInputs(String),
    /// This person has approved the call already, in person or by a delegate.
    AlreadyApproved {
        /// The number of approvals that are missing.
        missing: usize,
    },
}

impl Obstacle {
    /// Returns the word for the obstacle in lists and streams.
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Forbidden => "forbidden",
            Self::Blocked(_) => "blocked",
            Self::Unreadable => "unreadable",
            Self::ToolUnavailable => "tool_unavailable",
            Self::InvalidInputs(_) => "invalid_inputs",
            Self::AlreadyApproved { .. } => "already_approved",
        }
    }

    /// Returns the obstacle in a sentence, for people.
    pub fn sentence(&self) -> String {
        match self {
            Self::Forbidden => "Other people approve this call.".to_owned(),
            Self::Blocked(why) => format!("The policy forbids the call: {why}."),
            Self::Unreadable => "The stored inputs of the call cannot be read.".to_owned(),
            Self::ToolUnavailable => "The tool is not available now.".to_owned(),
            Self::InvalidInputs(why) => format!("The proposed inputs do not fit the tool now: {why}."),
            Self::AlreadyApproved { missing: 1 } => "You have approved. One more person has to.".to_owned(),
            Self::AlreadyApproved { missing } => format!("You have approved. {missing} more people have to."),
        }
    }
}
