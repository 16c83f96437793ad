//! Runs: from a user message to the final answer, pauses included.

use super::clock::Timestamp;
use super::id::{MessageId, RunId, ThreadId};

/// A run as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Run {
    /// Its id.
    pub(crate) id: RunId,
    /// Its thread.
    pub(crate) thread_id: ThreadId,
    /// The answer, made with the run and kept through pauses and retries.
    pub(crate) assistant_message_id: MessageId,
    /// Where it stands.
    pub(crate) status: RunStatus,
    /// Why it failed, if it did.
    pub(crate) error: Option<TurnError>,
    /// What it asks the model with.
    pub(crate) options: RunOptions,
    /// When it began.
    pub(crate) created_at: Timestamp,
    /// When it ended, if it has.
    pub(crate) finished_at: Option<Timestamp>,
}

/// What the caller chose for a run; a continuation keeps it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct RunOptions {
    /// The model, or the default one.
    pub(crate) model: Option<String>,
    /// The tools the model may see, or all.
    pub(crate) tools: Option<Vec<String>>,
    /// What the model is told of itself, where that is not the server's own.
    pub(crate) instructions: Option<String>,
    /// The roles of the user for whom it runs, as they were when it last began or went on: the policy judges its calls
    /// by them.
    pub(crate) roles: Vec<String>,
}

/// Where a run stands, and who moves it on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RunStatus {
    /// A turn holds its lease and moves it.
    Running,
    /// It has held calls, or calls that children do, or is a child that is to begin; a continuation moves it, or its last
    /// decision if the user wrote on.
    Waiting,
    /// The model gave its final answer, or the user went on without it.
    Completed,
    /// A turn broke; continuing tries again, unless somebody stops it.
    Failed,
    /// Somebody stopped it.
    Cancelled,
}

impl RunStatus {
    /// All of them.
    pub(crate) const ALL: [Self; 5] =
        [Self::Running, Self::Waiting, Self::Completed, Self::Failed, Self::Cancelled];

    /// The status's word on the wire and in the table.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Waiting => "waiting",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }
}

/// Why a turn ended before its time: the code clients see, and a sentence for them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TurnError {
    /// What kind of failure.
    pub(crate) code: TurnErrorCode,
    /// One sentence, safe to show: nothing internal, nothing a provider said.
    pub(crate) message: String,
}

impl TurnError {
    /// A fault of this server.
    pub(crate) fn internal() -> Self {
        Self { code: TurnErrorCode::Internal, message: "The server failed.".to_owned() }
    }

    /// The process that ran the turn went away.
    pub(crate) fn interrupted() -> Self {
        let message = "The server stopped before the answer was complete.".to_owned();
        Self { code: TurnErrorCode::Interrupted, message }
    }

    /// An approved call has not ended in all the time that a page waits.
    pub(crate) fn outcome_not_known_yet() -> Self {
        let message =
            "An approved call is still under way. Its outcome will stand in the messages.".to_owned();
        Self { code: TurnErrorCode::Interrupted, message }
    }

    /// As many turns as there may be are under way, or began lately.
    pub(crate) fn no_room() -> Self {
        let message = "There are too many turns at once, or in this minute. Go on later.".to_owned();
        Self { code: TurnErrorCode::Interrupted, message }
    }

    /// The thread holds as much as it may.
    pub(crate) fn thread_full() -> Self {
        let message = "The conversation is full. Begin a new one.".to_owned();
        Self { code: TurnErrorCode::ThreadFull, message }
    }

    /// The turn was taken for dead, or its thread deleted.
    pub(crate) fn taken_over() -> Self {
        let message = "The answer was ended by somebody else.".to_owned();
        Self { code: TurnErrorCode::Interrupted, message }
    }
}

impl RunOptions {
    /// Whether the model may see this tool.
    pub(crate) fn offers(&self, tool: &str) -> bool {
        self.tools.as_ref().is_none_or(|tools| tools.iter().any(|name| name == tool))
    }

    /// The same on behalf of somebody with these roles, for whom only these tools run; `None` is all of them. Never more
    /// than before: what the caller left out, or could not have, stays out.
    pub(crate) fn on_behalf_of(self, roles: Vec<String>, to: Option<Vec<String>>) -> Self {
        let tools = match (self.tools, to) {
            (Some(tools), Some(to)) => Some(tools.into_iter().filter(|name| to.contains(name)).collect()),
            (tools, to) => tools.or(to),
        };
        Self { tools, roles, ..self }
    }
}

/// The kinds of failure a stream can end with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TurnErrorCode {
    /// The model was silent for too long.
    UpstreamTimeout,
    /// The model's server refused or broke off.
    UpstreamError,
    /// The model's server sent what cannot be read.
    UpstreamMalformed,
    /// The process that ran the turn went away.
    Interrupted,
    /// The model wanted more steps than are allowed.
    StepLimit,
    /// The thread holds as much as it may.
    ThreadFull,
    /// A fault of this server.
    Internal,
}

impl TurnErrorCode {
    /// All of them.
    pub(crate) const ALL: [Self; 7] = [
        Self::UpstreamTimeout,
        Self::UpstreamError,
        Self::UpstreamMalformed,
        Self::Interrupted,
        Self::StepLimit,
        Self::ThreadFull,
        Self::Internal,
    ];

    /// The code's word on the wire and in the table.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::UpstreamTimeout => "upstream_timeout",
            Self::UpstreamError => "upstream_error",
            Self::UpstreamMalformed => "upstream_malformed",
            Self::Interrupted => "interrupted",
            Self::StepLimit => "step_limit",
            Self::ThreadFull => "thread_full",
            Self::Internal => "internal",
        }
    }
}
