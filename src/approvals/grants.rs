//! Grants: an approval that is remembered, and the pending calls that it covers.
//!
//! A grant lets later calls run without a hold. The policy decides that ([`Gate`]).
//! For calls that are already pending, the author of the grant decides: each call separately, as the current
//! policy judges it.

use super::{Approvals, DecideError, Decided, Decider, DecisionRequest, Denied};
use crate::tools::gate::{Gate, PolicyContext};
use holdpoint_core::Principal;
use holdpoint_core::call::{State, ToolCall, input_hash};
use holdpoint_core::decision::Choice;
use holdpoint_core::grant::{CoveredInputs, Grant, GrantRequest, RequestedInputs};
use holdpoint_core::id::{GrantId, ThreadId, ToolCallId};
use holdpoint_core::policy::{MayDecide, Source};
use holdpoint_core::tool::input::Input;
use holdpoint_core::tool::input_bounds::WrongBounds;
use holdpoint_store::{
    GRANTS_MAX, GrantFacts, GrantsOwner, LockedCall, LockedThread, NewGrant, NoGrant, Page, StoreError,
    Thread, Vote, Write,
};

/// Checks that only an approval is remembered.
pub(super) fn may_be_remembered(request: &DecisionRequest) -> Result<(), DecideError> {
    match (&request.remember, &request.choice) {
        (Some(_), Choice::Reject { .. }) => Err(DecideError::not_remembered("it with an approval")),
        _ => Ok(()),
    }
}

/// Whether this principal approves the calls of the tool in their own right.
fn approves_all(gate: &Gate, principal: &Principal, thread: &Thread, call: &ToolCall) -> bool {
    let own = gate.registry().may_decide(principal, thread.is_of(principal), &call.name, &[]);
    own == MayDecide::ApproveOrReject
}

/// Whether an approval of this principal in their own right may be remembered.
pub(super) fn may_remember(gate: &Gate, principal: &Principal, thread: &Thread, call: &ToolCall) -> bool {
    let takes_grants = gate.registry().quorum(&call.name).people == 1 && gate.unaccepted(call).is_none();
    takes_grants && approves_all(gate, principal, thread, call)
}

/// Returns the inputs that the grant of an approval covers: never more than the setting of the server allows, and the
/// inputs of the approval among them.
fn covered_inputs(
    gate: &Gate,
    covers: &GrantRequest,
    call: &ToolCall,
    runs: &Input,
) -> Result<CoveredInputs, DecideError> {
    let remembering = gate.remembering();
    // The hash of the schema that was shown. If the tool has changed since, the decider approved this one call only.
    let equal = || CoveredInputs::Equal(input_hash(&call.name, runs, &call.schema_hash, None));
    let inputs = match covers {
        GrantRequest::Session if remembering.equal_inputs => equal(),
        GrantRequest::Session => CoveredInputs::Any,
        GrantRequest::Shown(shown) => match &shown.inputs {
            RequestedInputs::Any => CoveredInputs::Any,
            RequestedInputs::Equal => equal(),
            RequestedInputs::Within(bounds) => {
                let refused =
                    |WrongBounds { place, expected }| DecideError::NotRemembered { place, expected };
                let shown = call.secrets.shown(runs);
                bounds.check_shown(runs, shown.as_input()).map_err(refused)?;
                CoveredInputs::Within(bounds.clone())
            }
        },
    };
    if remembering.allows(&inputs) {
        return Ok(inputs);
    }
    let place = if matches!(inputs, CoveredInputs::Any) { ".inputs" } else { ".when" };
    let expected = "equal inputs, as approval.remember_inputs of this server says".to_owned();
    Err(DecideError::NotRemembered { place: place.to_owned(), expected })
}

/// A call whose approval is to be remembered.
#[derive(Clone, Copy)]
pub(super) struct ApprovedCall<'a> {
    pub(super) thread: &'a Thread,
    /// The root thread of the session.
    pub(super) root: &'a LockedThread,
    pub(super) call: &'a ToolCall,
    /// The inputs that the approval runs.
    pub(super) runs: &'a Input,
}

/// A waiting call that may be approved with a remembered approval.
struct CoveredCall {
    id: ToolCallId,
    /// The hash of what the decider was shown, if the decider was shown the call.
    shown: Option<String>,
    session: ThreadId,
    /// The grant of the approval. `None` if the approval is repeated: any grant of the decider.
    grant: Option<GrantId>,
}

impl Approvals {
    /// Whether an approval of this decider may cover later calls: neither a delegate nor a role to which one call was
    /// escalated decides about them.
    pub(super) fn may_leave_grant(gate: &Gate, by: Decider<'_>, locked: &LockedCall) -> bool {
        let Decider::Person(principal) = by else { return true };
        let LockedCall { call, thread, on_behalf_of, .. } = locked;
        on_behalf_of.is_none() && approves_all(gate, principal, thread, call)
    }

    /// Returns the grant of an approval that runs these inputs.
    pub(super) async fn to_grant(
        &self,
        gate: &Gate,
        write: &Write,
        by: Decider<'_>,
        ApprovedCall { thread, root, call, runs }: ApprovedCall<'_>,
        covers: &GrantRequest,
    ) -> Result<NewGrant, DecideError> {
        if gate.registry().quorum(&call.name).people > 1 {
            return Err(DecideError::not_remembered("a tool whose calls one person approves"));
        }
        if gate.unaccepted(call).is_some() {
            return Err(DecideError::not_remembered("a tool whose definition is accepted"));
        }
        let (until, uses) = match covers {
            GrantRequest::Session => (None, None),
            GrantRequest::Shown(shown) => (shown.until, shown.uses),
        };
        if until.is_some_and(|until| until <= write.now()) {
            return Err(DecideError::NotRemembered {
                place: ".until".to_owned(),
                expected: "a time that is not over".to_owned(),
            });
        }
        let inputs = covered_inputs(gate, covers, call, runs)?;
        let process = gate.remembering().process.as_deref();
        let facts = GrantFacts { call, by: &by.actor(), roles: by.roles(), inputs, until, uses };
        write.to_grant(thread, root, facts, process).await?.map_err(|no_grant| {
            DecideError::not_remembered(match no_grant {
                NoGrant::SessionDeleted => "a session whose root thread is not deleted".to_owned(),
                NoGrant::TooMany => format!("fewer than {GRANTS_MAX} grants of the tool in the session"),
            })
        })
    }

    /// Inserts the grant after its decision.
    pub(super) async fn grant(
        &self,
        gate: &Gate,
        write: &Write,
        thread: &Thread,
        new: Option<NewGrant>,
    ) -> Result<(), StoreError> {
        match new {
            Some(new) => write.grant(thread, &new, gate.remembering().process.as_deref()).await,
            None => Ok(()),
        }
    }

    /// Approves the other pending calls of a session with the decider's remembered approval: those that the decider was
    /// shown, or all that it covers. A call that fails here stays pending.
    pub(super) async fn decide_covered(
        &self,
        by: Decider<'_>,
        thread: &Thread,
        decided: &mut Decided,
        request: &DecisionRequest,
        covers: &GrantRequest,
    ) {
        let like = &decided.call;
        let waiting = match covers {
            GrantRequest::Shown(shown) => {
                Ok(shown.waiting.iter().map(|(id, hash)| (*id, Some(hash.clone()))).collect())
            }
            GrantRequest::Session => self.pending_like(thread, like).await,
        };
        let of_now = decided.remembered.as_ref().map(|remembered| remembered.grant);
        let (mut approved, mut left) = (Vec::new(), Vec::new());
        match waiting {
            Ok(waiting) => {
                let mut is_available = true;
                for (id, shown) in waiting {
                    let covered = CoveredCall { id, shown, session: thread.session_id, grant: of_now };
                    // After a failure of the database the next call would fail as well, after another wait.
                    // Each call that the request names is a decision of its own, as in a request with several.
                    is_available = is_available && (covered.shown.is_none() || self.counts(by));
                    let is_approved = is_available
                        && Box::pin(self.decide_covered_call(by, covered, request)).await.unwrap_or_else(|error| {
                            tracing::warn!(tool_call_id = %id, %error, "could not approve all calls of a grant");
                            is_available = false;
                            false
                        });
                    if is_approved { &mut approved } else { &mut left }.push(id);
                }
            }
            Err(error) => {
                tracing::warn!(tool_call_id = %like.id, %error, "could not read the calls of a grant");
            }
        }
        if let Some(remembered) = &mut decided.remembered {
            (remembered.approved, remembered.left) = (approved, left);
        }
    }

    /// Counts one more decision of a person. Returns false if there were too many.
    fn counts(&self, by: Decider<'_>) -> bool {
        match by {
            Decider::Person(principal) => self.count(principal).is_ok(),
            Decider::Handler { .. } => true,
        }
    }

    /// Returns the pending calls of the same tool in the session.
    async fn pending_like(
        &self,
        thread: &Thread,
        like: &ToolCall,
    ) -> Result<Vec<(ToolCallId, Option<String>)>, StoreError> {
        let read = self.store.urgent_read().await?;
        let waiting = read.pending_in_session(thread, &like.name, &like.schema_hash).await?;
        Ok(waiting.into_iter().map(|id| (id, None)).collect())
    }

    /// Approves one covered call under its grant, on the surface of the original decision. Returns false if the call is
    /// not covered, has changed since it was shown, or does not wait.
    async fn decide_covered_call(
        &self,
        by: Decider<'_>,
        covered: CoveredCall,
        granting: &DecisionRequest,
    ) -> Result<bool, StoreError> {
        let write = self.store.urgent_write().await?;
        let (principal, visibility) = (by.visible_as(), self.visibility(by.visible_as()));
        let gate = self.gate();
        let Some(mut locked) = write.lock_visible_call(principal, &visibility, covered.id).await? else {
            return Ok(false);
        };
        let LockedCall { call, thread, .. } = &locked;
        let yes = Choice::AS_PROPOSED;
        let waits = call.held && !call.unreadable && matches!(call.state, State::Pending);
        let is_as_shown = covered.shown.as_ref().is_none_or(|hash| *hash == gate.shown_hash(call));
        if !waits
            || !is_as_shown
            || thread.session_id != covered.session
            || call.expires_at.is_some_and(|at| at <= write.now())
            || Self::check_decider(&gate, by, thread, call, &yes).is_err()
        {
            return Ok(false);
        }
        let Some(grant) = self.is_covered(&gate, &write, by, &locked, &covered).await? else {
            return Ok(false);
        };
        let vote = Vote {
            actor: by.actor(),
            on_behalf_of: None,
            surface: granting.surface,
            input_hash: call.proposed_hash(&call.schema_hash),
            edited_preview: None,
            source: Some(Source::Remembered(grant)),
            grant: None,
            voted_before: Vec::new(),
        };
        let claims = |call: &ToolCall| self.claims(&gate, call);
        let Some(write) = write.decide(&mut locked, &yes, &vote, &self.times, claims).await? else {
            return Ok(false);
        };
        write.allow_resume(&locked, granting.server_resumes).await?;
        let permit = self.commit_decided(write, &mut locked).await?;
        let request = DecisionRequest {
            tool_call_id: covered.id,
            choice: yes,
            input_hash: None,
            preview_hash: None,
            link: None,
            remember: None,
            ..granting.clone()
        };
        let decided = Decided::now(locked.call);
        self.measure(&request, Ok(&decided));
        self.start(&decided.call, permit, request.surface);
        Ok(true)
    }

    /// Returns the decider's grant that covers a call, if the tool is the one that was shown. The policy and
    /// the grants of the session stay as they are until the transaction ends.
    async fn is_covered(
        &self,
        gate: &Gate,
        write: &Write,
        by: Decider<'_>,
        locked: &LockedCall,
        covered: &CoveredCall,
    ) -> Result<Option<GrantId>, StoreError> {
        let LockedCall { call, thread, roles, .. } = locked;
        let tool = gate.registry().get(&call.name);
        let Some(tool) = tool.filter(|tool| tool.schema_hash == call.schema_hash) else { return Ok(None) };
        let session = write.hold_session(&locked.thread).await?;
        let as_of = gate.remembering().as_of(write.now());
        let mut grants = write.grants_about(thread, [call.name.as_str()], as_of).await?;
        let actor = by.actor();
        grants.retain(|grant| grant.by == actor && covered.grant.is_none_or(|of_now| grant.id == of_now));
        if covered.shown.is_some() {
            // The uses are those of later calls, and this one was shown.
            grants.iter_mut().for_each(|grant| grant.uses = None);
        }
        let context = PolicyContext { roles, session: &session, requester: &thread.actor(), grants: &grants };
        Ok(gate.covering_grant(tool, &call.input, context))
    }

    /// Returns the grants of a session, newest first, from before a given grant. Its user and operators get
    /// all grants. Any other principal gets only their own.
    pub(crate) async fn grants(
        &self,
        principal: &Principal,
        session: ThreadId,
        before: Option<GrantId>,
        size: u64,
    ) -> Result<Page<Grant>, Denied> {
        let (read, gate) = (self.store.read().await?, self.gate());
        let root = read.any_session(principal, session).await?.ok_or(Denied::NotFound)?;
        let (actor, as_of) = (principal.actor(), gate.remembering().as_of(self.store.process_time()));
        let whose = self.whose(principal, &root, &actor);
        let page = read.grants(&root, whose, as_of, before, size).await?;
        match whose {
            // For a principal without grants the session does not exist.
            GrantsOwner::By(_) if page.items.is_empty() => Err(Denied::NotFound),
            _ => Ok(page),
        }
    }

    /// Revokes a grant: no further call begins under it. Started calls continue, and approved calls stay
    /// approved.
    pub(crate) async fn revoke(
        &self,
        principal: &Principal,
        session: ThreadId,
        grant: GrantId,
    ) -> Result<(), Denied> {
        let (write, gate) = (self.store.urgent_write().await?, self.gate());
        let root = write.any_session(principal, session).await?.ok_or(Denied::NotFound)?;
        let root = write.lock_thread(root.id).await?;
        let (actor, process) = (principal.actor(), gate.remembering().process.as_deref());
        let whose = self.whose(principal, &root, &actor);
        if !write.revoke_grant(&root, whose, process, grant, &actor).await? {
            return Err(Denied::NotFound);
        }
        Ok(write.commit().await?)
    }

    /// Whether this principal may revoke a grant in the session of a thread.
    pub(super) fn may_revoke(&self, principal: &Principal, thread: &Thread, grant: &Grant) -> bool {
        match self.whose(principal, thread, &principal.actor()) {
            GrantsOwner::ByAnybody => true,
            GrantsOwner::By(actor) => grant.by == actor,
        }
    }

    fn whose<'a>(&self, principal: &Principal, root: &Thread, actor: &'a str) -> GrantsOwner<'a> {
        let all = root.is_of(principal) || principal.has_one_of(&self.operators);
        if all { GrantsOwner::ByAnybody } else { GrantsOwner::By(actor) }
    }
}
