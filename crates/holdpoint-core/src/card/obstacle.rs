//! Obstacles of an approval: cards, lists, messages and the terminal name the obstacle in place of a button.

use crate::vocabulary;

vocabulary! {
    /// The kind of a reason.
    pub enum ObstacleKind as "CannotApproveCode" {
        /// Other people approve the call.
        Forbidden = "forbidden",
        /// The policy forbids the call.
        Blocked = "blocked",
        /// The stored inputs cannot be read.
        Unreadable = "unreadable",
        /// The tool is not available now.
        ToolUnavailable = "tool_unavailable",
        /// The proposed inputs do not fit the tool now.
        InvalidInputs = "invalid_inputs",
        /// This person has approved the call already.
        AlreadyApproved = "already_approved",
    }
}

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
    /// Returns the kind of the obstacle.
    pub const fn kind(&self) -> ObstacleKind {
        match self {
            Self::Forbidden => ObstacleKind::Forbidden,
            Self::Blocked(_) => ObstacleKind::Blocked,
            Self::Unreadable => ObstacleKind::Unreadable,
            Self::ToolUnavailable => ObstacleKind::ToolUnavailable,
            Self::InvalidInputs(_) => ObstacleKind::InvalidInputs,
            Self::AlreadyApproved { .. } => ObstacleKind::AlreadyApproved,
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
