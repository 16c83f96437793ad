//! Deciding a held call: once, for good, the same from every side.

use super::execute::is_under_way;
use super::grants::may_be_remembered;
#[cfg(feature = "torture")]
use super::planted;
use super::{Approvals, Scope};
use crate::domain::Principal;
use crate::domain::call::{State, ToolCall, input_hash};
use crate::domain::canonical::same_object;
use crate::domain::decision::{Choice, Remember, Surface, Verdict};
use crate::domain::id::ToolCallId;
use crate::domain::policy::MayDecide;
#[cfg(feature = "torture")]
use crate::faults::{self, Bug, Point};
use crate::rate_limit::RateLimited;
use crate::store::{Counted, Read, StoreError, Thread, Vote};
use crate::tools::InputError;
use crate::tools::gate::Recheck;
use tracing::Instrument;

/// What somebody says about a call.
#[derive(Debug, Clone)]
pub(crate) struct DecisionRequest {
    /// The call.
    pub(crate) tool_call_id: ToolCallId,
    /// Yes or no.
    pub(crate) choice: Choice,
    /// The hash of what they were shown, if they say.
    pub(crate) input_hash: Option<String>,
    /// Where they say it.
    pub(crate) surface: Surface,
    /// How far the yes reaches beyond the call, if it does.
    pub(crate) remember: Option<Remember>,
    /// What the call has to be a part of.
    pub(crate) scope: Scope,
    /// Whether the server goes on with the run, if this turns out to be what is said last about its holds, or a client
    /// does.
    pub(crate) server_resumes: bool,
}

/// Who says it.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Decider<'a> {
    /// A person.
    Person(&'a Principal),
    /// The approval handler of this process: a part of the program, which no role binds.
    Handler {
        /// As decisions and events name it.
        actor: &'a str,
        /// On whose behalf the call would run: what they see, it sees.
        requester: &'a Principal,
    },
}

impl<'a> Decider<'a> {
    /// As decisions and events name them.
    pub(super) fn actor(self) -> String {
        match self {
            Self::Person(principal) => principal.actor(),
            Self::Handler { actor, .. } => actor.to_owned(),
        }
    }

    /// Whose calls they see.
    pub(super) const fn visible_as(self) -> &'a Principal {
        match self {
            Self::Person(principal) => principal,
            Self::Handler { requester, .. } => requester,
        }
    }

    /// The roles that what they grant stands on.
    pub(super) fn roles(self) -> &'a [String] {
        match self {
            Self::Person(principal) => &principal.roles,
            Self::Handler { .. } => &[],
        }
    }
}

/// A decision in force.
#[derive(Debug)]
pub(crate) struct Decided {
    /// The call, as far as it came.
    pub(crate) call: ToolCall,
    /// Whether the same had been decided before.
    pub(crate) replayed: bool,
    /// How many more people have to say yes before it runs.
    pub(crate) missing: usize,
}

impl Decided {
    /// A call that stands so by a decision just taken.
    pub(super) fn now(call: ToolCall) -> Self {
        Self { call, replayed: false, missing: 0 }
    }
}

/// Why a decision is not taken.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DecideError {
    /// They decided too often lately.
    #[error(transparent)]
    TooOften(#[from] RateLimited),
    /// No such held call, for this principal.
    #[error("there is no such held tool call")]
    NotFound,
    /// It is there for this principal to see, and not to say this about.
    #[error("this principal may not say this about the call")]
    Forbidden,
    /// The policy forbids the call by now, whoever approves it; why. The call stays pending.
    #[error("the policy forbids the call: {0}")]
    Blocked(String),
    /// Something else was decided, or time or somebody else ended it; how, is in the call.
    #[error("the call is decided")]
    Closed(Box<ToolCall>),
    /// The stored inputs cannot be read, so they cannot be shown to an approver. The call stays pending.
    #[error("the stored inputs of the call cannot be read")]
    Unreadable,
    /// The tool is not there now. The call stays pending.
    #[error("the tool {0:?} is not available")]
    ToolUnavailable(String),
    /// What was shown is not what would run. The call stays pending.
    #[error("what was shown is out of date")]
    Stale {
        /// The hash of what would run.
        input_hash: String,
    },
    /// The inputs do not fit the tool. The call stays pending.
    #[error("the inputs do not fit the tool")]
    InvalidInputs(Vec<InputError>),
    /// It is not to be remembered; why not. The call stays pending.
    #[error("this is not to be remembered: {0}")]
    NotRemembered(&'static str),
    /// The database failed: whether it was decided is unknown, and asking again is safe.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl DecideError {
    /// Its word, for metrics: the code that clients see, where it is one of the decision's own.
    const fn outcome(&self) -> &'static str {
        match self {
            Self::TooOften(_) => "rate_limited",
            Self::NotFound => "not_found",
            Self::Forbidden => "forbidden",
            Self::Blocked(_) => "blocked",
            Self::Closed(call) => match call.state {
                State::Expired(_) => "expired",
                State::Cancelled(..) => "cancelled",
                _ => "already_decided",
            },
            Self::Unreadable => "unreadable",
            Self::ToolUnavailable(_) => "tool_unavailable",
            Self::Stale { .. } => "stale",
            Self::InvalidInputs(_) => "invalid_inputs",
            Self::NotRemembered(_) => "not_remembered",
            Self::Store(_) => "failed",
        }
    }
}

impl Approvals {
    /// Decides a call and, after a yes, begins to run it. Waits for nothing more.
    pub(crate) async fn decide(
        &self,
        by: Decider<'_>,
        request: DecisionRequest,
    ) -> Result<Decided, DecideError> {
        let span = tracing::error_span!("decision", tool_call_id = %request.tool_call_id);
        self.decide_and_begin(by, &request).instrument(span).await
    }

    /// What follows answers: the calls at their ends, or after `wait` as far as they came.
    pub(crate) async fn await_outcomes(
        &self,
        principal: &Principal,
        decided: &mut [&mut Decided],
    ) -> Result<(), DecideError> {
        let mut calls: Vec<&mut ToolCall> = decided.iter_mut().map(|decided| &mut decided.call).collect();
        self.await_ends(principal, &mut calls, is_under_way).await?;
        #[cfg(feature = "torture")]
        for call in calls {
            Point::of("decision.told", Some(&call.id)).before().await;
        }
        Ok(())
    }

    async fn decide_and_begin(
        &self,
        by: Decider<'_>,
        request: &DecisionRequest,
    ) -> Result<Decided, DecideError> {
        let committed = self.commit_decision(by, request).await;
        self.measure(request, &committed);
        let (thread, decided) = committed?;
        if matches!(decided.call.state, State::Approved(_)) {
            #[cfg(feature = "torture")]
            if faults::has(Bug::RequestOwnsWork) {
                Box::pin(self.claim_and_run(&thread, &decided.call)).await;
                return Ok(decided);
            }
            self.execute(&thread, &decided.call);
        } else if !decided.replayed {
            // It may have ended, and been the last.
            self.wake_waiters();
        }
        if request.remember.is_some() {
            self.decide_covered(by, &thread, &decided.call, request).await;
        }
        Ok(decided)
    }

    /// Counts a decision of this principal's, if they may make one more.
    pub(crate) fn count(&self, principal: &Principal) -> Result<(), DecideError> {
        Ok(self.rate_limit.count(principal)?)
    }

    pub(super) fn measure(
        &self,
        request: &DecisionRequest,
        committed: &Result<(Thread, Decided), DecideError>,
    ) {
        let verdict = match request.choice {
            Choice::Approve { .. } => Verdict::Approve.as_str(),
            Choice::Reject { .. } => Verdict::Reject.as_str(),
        };
        let outcome = match committed {
            Ok((_, Decided { replayed: true, .. })) => "replayed",
            Ok((_, Decided { missing: 1.., .. })) => "counted",
            Ok((_, Decided { call, .. })) => {
                if let Some(decision) = &call.decision {
                    self.executor.metrics.hold_ended(verdict, decision.at.since(call.created_at));
                }
                "decided"
            }
            Err(error) => error.outcome(),
        };
        self.executor.metrics.decided(verdict, request.surface.as_str(), outcome);
    }

    async fn commit_decision(
        &self,
        by: Decider<'_>,
        request: &DecisionRequest,
    ) -> Result<(Thread, Decided), DecideError> {
        if let Decider::Person(principal) = by {
            self.count(principal)?;
        }
        may_be_remembered(request)?;
        // A decision that loses its race finds the winner's on the next look.
        loop {
            let write = self.store.urgent_write().await?;
            let found = self.visible_call(&write, by.visible_as(), request.tool_call_id).await?;
            let (call, thread) = found
                .filter(|(call, thread)| call.held && request.scope.contains(call, thread))
                .ok_or(DecideError::NotFound)?;
            // Before all else: what follows tells how the call stands.
            self.check_decider(by, &thread, &call, &request.choice)?;
            let closed = !matches!(call.state, State::Pending);
            #[cfg(feature = "torture")]
            if closed && faults::has(Bug::LastWins) && !is_repeat(&call, &request.choice) {
                write.overrule(&call, &request.choice, &by.actor()).await?;
                write.commit().await?;
                return Ok((thread, Decided::now(call)));
            }
            #[cfg(feature = "torture")]
            let closed = closed && !planted::decides_anew(&call, write.now());
            if closed {
                return match is_repeat(&call, &request.choice) {
                    true => Ok((thread, Decided { replayed: true, ..Decided::now(call) })),
                    false => Err(DecideError::Closed(Box::new(call))),
                };
            }
            if call.expires_at.is_some_and(|at| at <= write.now()) {
                write.expire(&thread, &call).await?;
                write.commit().await?;
                continue;
            }
            let answer = self.check(&call, request)?;
            self.check_policy(&write, &thread, &call, &answer).await?;
            let runs = match &answer {
                Choice::Approve { inputs: Some(inputs) } => inputs,
                Choice::Approve { inputs: None } | Choice::Reject { .. } => &call.input,
            };
            let grant = self.to_grant(&write, by, &thread, &call, request, runs).await?;
            let mut vote = Vote {
                actor: by.actor(),
                surface: request.surface,
                input_hash: input_hash(&call.name, runs, self.current_schema(&call)),
                source: None,
                grant: grant.as_ref().map(|new| new.grant.id),
                voted_before: Vec::new(),
            };
            match self.count_vote(&write, &thread, &call, &answer, &vote).await? {
                Counted::Enough(with) => vote.voted_before = with,
                Counted::Short { missing, repeated } => {
                    write.commit().await?;
                    return Ok((thread, Decided { call, replayed: repeated, missing }));
                }
                Counted::Closed => continue,
            }
            if write.decide(&thread, &call, &answer, &vote, self.approval.start_deadline).await? {
                self.grant(&write, &thread, grant).await?;
                write.set_server_resumes(&thread, call.run_id, request.server_resumes).await?;
                let decided = self
                    .visible_call(&write, by.visible_as(), call.id)
                    .await?
                    .ok_or(DecideError::NotFound)?;
                write.commit().await?;
                return Ok((decided.1, Decided::now(decided.0)));
            }
        }
    }

    /// Whether they may say this about the call.
    pub(super) fn check_decider(
        &self,
        by: Decider<'_>,
        thread: &Thread,
        call: &ToolCall,
        answer: &Choice,
    ) -> Result<(), DecideError> {
        let Decider::Person(principal) = by else { return Ok(()) };
        match (self.gate().registry().may_decide(principal, thread.is_of(principal), &call.name), answer) {
            (MayDecide::ApproveOrReject, _) | (MayDecide::OnlyReject, Choice::Reject { .. }) => Ok(()),
            (MayDecide::OnlyReject, Choice::Approve { .. }) | (MayDecide::Nothing, _) => {
                Err(DecideError::Forbidden)
            }
        }
    }

    /// No yes is taken of what the policy forbids by now, with these inputs.
    async fn check_policy(
        &self,
        read: &Read,
        thread: &Thread,
        call: &ToolCall,
        answer: &Choice,
    ) -> Result<(), DecideError> {
        let Choice::Approve { inputs } = answer else { return Ok(()) };
        let Some(tool) = self.gate().registry().get(&call.name) else { return Ok(()) };
        let runs = inputs.as_ref().unwrap_or(&call.input);
        match self.recheck(read, thread, tool, call, runs).await? {
            Recheck::Never(message) if inputs.is_some() => {
                Err(DecideError::InvalidInputs(vec![InputError { pointer: String::new(), message }]))
            }
            Recheck::Never(why) => Err(DecideError::Blocked(why)),
            Recheck::Yes | Recheck::NotUnasked => Ok(()),
        }
    }

    /// The answer to a pending call as it may be taken: inputs that are the model's own are no edit.
    fn check(&self, call: &ToolCall, request: &DecisionRequest) -> Result<Choice, DecideError> {
        let tool = self.gate().registry().get(&call.name);
        let approves = matches!(request.choice, Choice::Approve { .. });
        if approves && call.unreadable {
            return Err(DecideError::Unreadable);
        }
        if approves && tool.is_none() {
            return Err(DecideError::ToolUnavailable(call.name.clone()));
        }
        let current = self.shown_hash(call);
        if request.input_hash.as_ref().is_some_and(|shown| *shown != current) {
            return Err(DecideError::Stale { input_hash: current });
        }
        match &request.choice {
            Choice::Approve { inputs } => {
                let inputs = inputs.clone().filter(|inputs| !same_object(inputs, &call.input));
                let runs = inputs.as_ref().unwrap_or(&call.input);
                let edited = inputs.as_ref().map(|_| &call.input);
                let errors = tool.map_or_else(Vec::new, |tool| self.gate().errors(tool, runs, edited));
                if errors.is_empty() {
                    Ok(Choice::Approve { inputs })
                } else {
                    Err(DecideError::InvalidInputs(errors))
                }
            }
            Choice::Reject { reason } => Ok(Choice::Reject { reason: reason.clone() }),
        }
    }
}

/// Whether the same was decided before: the same verdict and, for a yes, the same inputs.
fn is_repeat(call: &ToolCall, answer: &Choice) -> bool {
    match (&call.state, answer) {
        (
            State::Approved(_)
            | State::Executing(..)
            | State::Succeeded(..)
            | State::Failed(..)
            | State::Interrupted(..),
            Choice::Approve { inputs },
        ) => same_object(inputs.as_ref().unwrap_or(&call.input), call.effective_input()),
        (State::Rejected(_), Choice::Reject { .. }) => true,
        _ => false,
    }
}
