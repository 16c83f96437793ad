//! Occasions: why a message is sent, and its words.

use holdpoint_core::event::EventType;

/// Why a message is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Occasion {
    /// The call is held.
    Held,
    /// The deadline of the call is near.
    Reminded,
    /// The recipient may decide the call from now on, because no other approver did.
    Escalated,
    /// An approver let the recipient decide the call.
    Delegated,
    /// A person approved the call, and more people have to.
    Voted,
    /// The call waits no longer.
    Ended(EndReason),
    /// The approved call has run.
    Ran(RunOutcome),
}

/// Why a call waits no longer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EndReason {
    Approved,
    Rejected,
    Expired,
    Cancelled,
}

/// What an approved call came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RunOutcome {
    Succeeded,
    Failed,
    /// The outcome is unknown.
    Interrupted,
}

impl Occasion {
    /// The types of events that messages are sent about.
    const TYPES: [(EventType, Self); 12] = [
        (EventType::ToolRequiresApproval, Self::Held),
        (EventType::ToolReminded, Self::Reminded),
        (EventType::ToolEscalated, Self::Escalated),
        (EventType::ToolDelegated, Self::Delegated),
        (EventType::ToolVoted, Self::Voted),
        (EventType::ToolApproved, Self::Ended(EndReason::Approved)),
        (EventType::ToolRejected, Self::Ended(EndReason::Rejected)),
        (EventType::ToolExpired, Self::Ended(EndReason::Expired)),
        (EventType::ToolCancelled, Self::Ended(EndReason::Cancelled)),
        (EventType::ToolSucceeded, Self::Ran(RunOutcome::Succeeded)),
        (EventType::ToolFailed, Self::Ran(RunOutcome::Failed)),
        (EventType::ToolInterrupted, Self::Ran(RunOutcome::Interrupted)),
    ];

    /// Returns the types of events that messages are sent about.
    pub(super) fn types() -> Vec<EventType> {
        Self::TYPES.into_iter().map(|(event_type, _)| event_type).collect()
    }

    pub(super) fn of(event_type: EventType) -> Option<Self> {
        Self::TYPES.into_iter().find(|(of, _)| *of == event_type).map(|(_, occasion)| occasion)
    }

    /// Whether a message that a recipient has is changed, and no new one is sent.
    pub(super) const fn only_changes(self) -> bool {
        matches!(self, Self::Voted | Self::Ran(RunOutcome::Succeeded))
    }

    /// Whether an earlier message to the same recipient is about the call.
    const fn is_later(self) -> bool {
        matches!(self, Self::Reminded | Self::Voted | Self::Ended(_) | Self::Ran(_))
    }

    /// Whether the call waits for a decision.
    pub(super) const fn waits(self) -> bool {
        !matches!(self, Self::Ended(_) | Self::Ran(_))
    }

    /// Returns the state of the call when the message is about to be sent.
    pub(super) const fn state(self) -> &'static str {
        match self {
            Self::Held | Self::Reminded | Self::Escalated | Self::Delegated | Self::Voted => "pending",
            Self::Ended(EndReason::Approved) => "approved",
            Self::Ended(EndReason::Rejected) => "rejected",
            Self::Ended(EndReason::Expired) => "expired",
            Self::Ended(EndReason::Cancelled) => "cancelled",
            Self::Ran(RunOutcome::Succeeded) => "succeeded",
            Self::Ran(RunOutcome::Failed) => "failed",
            Self::Ran(RunOutcome::Interrupted) => "interrupted",
        }
    }

    /// Returns the words before the title of the tool.
    pub(super) const fn title(self) -> &'static str {
        match self {
            Self::Held | Self::Reminded | Self::Escalated | Self::Delegated | Self::Voted => {
                "Approval needed"
            }
            Self::Ended(EndReason::Approved) => "Approved",
            Self::Ended(EndReason::Rejected) => "Rejected",
            Self::Ended(EndReason::Expired) => "Expired",
            Self::Ended(EndReason::Cancelled) => "Cancelled",
            Self::Ran(RunOutcome::Succeeded) => "Succeeded",
            Self::Ran(RunOutcome::Failed) => "Failed",
            Self::Ran(RunOutcome::Interrupted) => "Outcome unknown",
        }
    }

    /// Returns the words before the title of the tool in a subject. The messages about one call have one subject, so that
    /// readers of mail see them together. A message that may be the first one, and asks a person to look, has its own.
    pub(super) fn subject(self) -> String {
        match self {
            Self::Ran(RunOutcome::Interrupted) => self.title().to_owned(),
            _ if self.is_later() => format!("Re: {}", Self::Held.title()),
            _ => Self::Held.title().to_owned(),
        }
    }

    /// Returns what happened. `actor` is who decided, or did what the message is about.
    pub(super) fn sentence(self, actor: &str, edited: bool) -> String {
        let edit = if edited { " with other inputs" } else { "" };
        match self {
            Self::Held => "A call waits for a decision.".to_owned(),
            Self::Reminded => "A call still waits for a decision, and its deadline is near.".to_owned(),
            Self::Escalated => "A call waits for a decision, and was escalated to your role.".to_owned(),
            Self::Delegated => format!("{actor} lets you decide a call."),
            Self::Voted => format!("{actor} has approved the call{edit}. More people have to."),
            Self::Ended(EndReason::Approved) => format!("The call is approved{edit}, by {actor}."),
            Self::Ended(EndReason::Rejected) => format!("The call is rejected, by {actor}."),
            Self::Ended(EndReason::Expired) => "The call is expired: no decision arrived in time.".to_owned(),
            Self::Ended(EndReason::Cancelled) => {
                format!("The call is cancelled, by {actor}. It did not run.")
            }
            Self::Ran(RunOutcome::Succeeded) => {
                format!("The call is approved{edit}, by {actor}, and has succeeded.")
            }
            Self::Ran(RunOutcome::Failed) => {
                format!("The call is approved{edit}, by {actor}, and has failed.")
            }
            Self::Ran(RunOutcome::Interrupted) => format!(
                "The outcome of the call is unknown: do not repeat it before somebody has looked. \
                 The call was approved{edit}, by {actor}."
            ),
        }
    }
}
