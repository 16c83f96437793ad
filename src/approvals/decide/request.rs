//! A request to decide a call: who decides, what, and in which scope.

use holdpoint_core::Principal;
use holdpoint_core::call::ToolCall;
use holdpoint_core::decision::{Choice, Surface};
use holdpoint_core::grant::GrantRequest;
use holdpoint_core::id::{RunId, ThreadId, ToolCallId};
use holdpoint_core::link::LinkToken;
use holdpoint_core::tool::input::Input;
use holdpoint_store::Thread;

/// A request to decide a call.
#[derive(Debug, Clone)]
pub(crate) struct DecisionRequest {
    pub(crate) tool_call_id: ToolCallId,
    /// Approve or reject.
    pub(crate) choice: Choice,
    /// The hash of what the decider was shown, if the request has one.
    pub(crate) input_hash: Option<String>,
    /// The hash of the edited inputs and the preview that the decider was shown, if the request has one.
    pub(crate) preview_hash: Option<String>,
    /// The link by which the decider came to the call, if the request names one. The decision uses it up.
    pub(crate) link: Option<LinkToken>,
    pub(crate) surface: Surface,
    /// What the approval covers beyond the call, if it is remembered.
    pub(crate) remember: Option<GrantRequest>,
    /// The scope that has to contain the call.
    pub(crate) scope: Scope,
    /// Whether the server resumes the run if this is the last decision about its holds. Otherwise a client
    /// resumes the run.
    pub(crate) server_resumes: bool,
}

impl DecisionRequest {
    /// An approval that names no hash, of a caller that decides nothing yet and needs the rights of an approver.
    pub(in crate::approvals) fn undecided(tool_call_id: ToolCallId, inputs: Option<Input>) -> Self {
        Self {
            tool_call_id,
            choice: Choice::Approve { inputs, note: None },
            input_hash: None,
            preview_hash: None,
            link: None,
            surface: Surface::Rest,
            remember: None,
            scope: Scope::Anything,
            server_resumes: false,
        }
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Decider<'a> {
    Person(&'a Principal),
    /// The approval handler of this process. It is part of the program, and no role restricts it.
    Handler {
        /// The actor for decisions and events.
        actor: &'a str,
        /// The principal on whose behalf the call would run. The handler sees the calls that this principal
        /// sees.
        requester: &'a Principal,
    },
}

impl<'a> Decider<'a> {
    /// Returns the actor for decisions and events.
    pub(in crate::approvals) fn actor(self) -> String {
        match self {
            Self::Person(principal) => principal.actor(),
            Self::Handler { actor, .. } => actor.to_owned(),
        }
    }

    /// Returns the principal whose calls the decider sees.
    pub(in crate::approvals) const fn visible_as(self) -> &'a Principal {
        match self {
            Self::Person(principal) => principal,
            Self::Handler { requester, .. } => requester,
        }
    }

    /// Returns the roles that the decider's grants depend on.
    pub(in crate::approvals) fn roles(self) -> &'a [String] {
        match self {
            Self::Person(principal) => &principal.roles,
            Self::Handler { .. } => &[],
        }
    }
}

/// The scope in which a request names a call. A call outside of the scope is not found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    /// No scope: the id is enough.
    Anything,
    /// The call belongs to this run.
    Run(RunId),
    /// The call belongs to the session with this root thread.
    Session(ThreadId),
}

impl Scope {
    pub(in crate::approvals) fn contains(self, call: &ToolCall, thread: &Thread) -> bool {
        match self {
            Self::Anything => true,
            Self::Run(run) => call.run_id == run,
            Self::Session(session) => thread.session_id == session,
        }
    }
}
