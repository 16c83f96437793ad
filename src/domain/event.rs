//! Events: what happened, in the past tense, written with the change itself and never altered.

/// The kinds of event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EventType {
    /// The model asked for a call.
    ToolCalled,
    /// A person is asked.
    ToolRequiresApproval,
    /// A person said yes.
    ToolApproved,
    /// A person said no.
    ToolRejected,
    /// Nobody answered in time.
    ToolExpired,
    /// It was withdrawn and did not run.
    ToolCancelled,
    /// An execution was claimed.
    ToolStarted,
    /// It ran and gave a result.
    ToolSucceeded,
    /// It ran and failed, or could not be run.
    ToolFailed,
    /// Its outcome is unknown.
    ToolInterrupted,
    /// A user message began a run.
    RunStarted,
    /// The run waits for a person.
    RunWaiting,
    /// The run goes on.
    RunResumed,
    /// The run gave its final answer, or was left behind.
    RunCompleted,
    /// The run broke.
    RunFailed,
    /// The run was cut off.
    RunCancelled,
}

impl EventType {
    /// The type's name on the wire and in the table.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::ToolCalled => "tool.called",
            Self::ToolRequiresApproval => "tool.requires_approval",
            Self::ToolApproved => "tool.approved",
            Self::ToolRejected => "tool.rejected",
            Self::ToolExpired => "tool.expired",
            Self::ToolCancelled => "tool.cancelled",
            Self::ToolStarted => "tool.started",
            Self::ToolSucceeded => "tool.succeeded",
            Self::ToolFailed => "tool.failed",
            Self::ToolInterrupted => "tool.interrupted",
            Self::RunStarted => "run.started",
            Self::RunWaiting => "run.waiting",
            Self::RunResumed => "run.resumed",
            Self::RunCompleted => "run.completed",
            Self::RunFailed => "run.failed",
            Self::RunCancelled => "run.cancelled",
        }
    }
}

/// The server acting by itself, in events and decisions.
pub(crate) mod system {
    /// The policy let a call run.
    pub(crate) const POLICY: &str = "system:policy";
    /// Time ran out.
    pub(crate) const EXPIRY: &str = "system:expiry";
    /// What a crash left behind was put in order.
    pub(crate) const SWEEPER: &str = "system:sweeper";
    /// The model asked for what cannot be run.
    pub(crate) const INVALID: &str = "system:invalid";
    /// The model asked for what a person is being asked about already.
    pub(crate) const DUPLICATE: &str = "system:duplicate";
}
