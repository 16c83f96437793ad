//! Grants: an approval that is remembered, and the pending calls that it covers.
//!
//! A grant lets later calls run without a hold. The policy decides that ([`Gate`]).
//! For calls that are already pending, the author of the grant decides: each call separately, as the current
//! policy judges it.

use super::{Approvals, DecideError, Decided, Decider, DecisionRequest};
use crate::domain::Principal;
use crate::domain::call::{State, ToolCall, input_hash};
use crate::domain::decision::Choice;
use crate::domain::grant::Grant;
use crate::domain::id::{GrantId, ThreadId, ToolCallId};
use crate::domain::input::Input;
use crate::domain::policy::{MayDecide, Source};
use crate::store::{Granted, LockedCall, LockedThread, NewGrant, Page, StoreError, Thread, Vote, Write};
use crate::tools::gate::{Gate, PolicyContext};

/// The reason why a grant is not found or not revoked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GrantError {
    /// No such session or grant, for this principal.
    #[error("there is no such session or grant")]
    NotFound,
    /// The database failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Checks that only an approval is remembered.
pub(super) fn may_be_remembered(request: &DecisionRequest) -> Result<(), DecideError> {
    match (request.remember, &request.choice) {
        (Some(_), Choice::Reject { .. }) => Err(DecideError::NotRemembered("expected it with an approval")),
        _ => Ok(()),
    }
}

/// Whether this principal approves the calls of the tool in their own right.
fn approves_all(gate: &Gate, principal: &Principal, thread: &Thread, call: &ToolCall) -> bool {
    let own = gate.registry().may_decide(principal, thread.is_of(principal), (&call.name, &[]));
    own == MayDecide::ApproveOrReject
}

/// Whether an approval of this principal in their own right may be remembered.
pub(super) fn may_remember(gate: &Gate, principal: &Principal, thread: &Thread, call: &ToolCall) -> bool {
    let takes_grants = gate.registry().quorum(&call.name).people == 1 && gate.unaccepted(call).is_none();
    takes_grants && approves_all(gate, principal, thread, call)
}

impl Approvals {
    /// Whether an approval of this decider may cover later calls: neither a delegate nor a role to which one call was
    /// escalated decides about them.
    pub(super) fn may_leave_grant(gate: &Gate, by: Decider<'_>, locked: &LockedCall) -> bool {
        let Decider::Person(principal) = by else { return true };
        let LockedCall { call, thread, on_behalf_of, .. } = locked;
        on_behalf_of.is_none() && approves_all(gate, principal, thread, call)
    }

    /// Returns the grant of an approval that runs these inputs, if the approval is to be remembered.
    pub(super) async fn to_grant(
        &self,
        (gate, write): (&Gate, &Write),
        by: Decider<'_>,
        (thread, root): (&Thread, Option<&LockedThread>),
        call: &ToolCall,
        runs: &Input,
    ) -> Result<Option<NewGrant>, DecideError> {
        let Some(root) = root else { return Ok(None) };
        if gate.registry().quorum(&call.name).people > 1 {
            return Err(DecideError::NotRemembered("expected a tool whose calls one person approves"));
        }
        if gate.unaccepted(call).is_some() {
            return Err(DecideError::NotRemembered("expected a tool whose definition is accepted"));
        }
        let remembering = gate.remembering();
        // The hash of the schema that was shown. If the tool has changed since, the decider approved this one
        // call only.
        let inputs = remembering.equal_inputs.then(|| input_hash(&call.name, runs, &call.schema_hash, None));
        let (actor, process) = (by.actor(), remembering.process.as_deref());
        let grant = write.to_grant((thread, root), (&actor, by.roles()), call, inputs, process).await?;
        let gone = DecideError::NotRemembered("expected a session whose root thread is not deleted");
        grant.map(Some).ok_or(gone)
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

    /// Approves the other pending calls of a session that the decider's remembered approval now covers. A
    /// call that fails here stays pending.
    pub(super) async fn decide_covered(
        &self,
        by: Decider<'_>,
        thread: &Thread,
        like: &ToolCall,
        request: &DecisionRequest,
    ) {
        let free = async {
            let read = self.store.urgent_read().await?;
            let waiting = read.pending_in_session(thread, &like.name, &like.schema_hash).await?;
            drop(read);
            for id in waiting {
                self.decide_covered_call(by, id, request).await?;
            }
            Ok::<_, StoreError>(())
        };
        if let Err(error) = free.await {
            tracing::warn!(tool_call_id = %like.id, %error, "could not approve all calls of a grant");
        }
    }

    /// Approves one covered call under its grant, on the surface of the original decision.
    async fn decide_covered_call(
        &self,
        by: Decider<'_>,
        id: ToolCallId,
        granting: &DecisionRequest,
    ) -> Result<(), StoreError> {
        let write = self.store.urgent_write().await?;
        let (principal, visibility) = (by.visible_as(), self.visibility(by.visible_as()));
        let gate = self.gate();
        let Some(mut locked) = write.lock_visible_call(principal, &visibility, id).await? else {
            return Ok(());
        };
        let LockedCall { call, thread, .. } = &locked;
        let yes = Choice::AS_PROPOSED;
        let waits = call.held && !call.unreadable && matches!(call.state, State::Pending);
        if !waits || Self::check_decider(&gate, by, thread, call, &yes).is_err() {
            return Ok(());
        }
        let Some(grant) = self.is_covered(&gate, &write, by, &locked).await? else { return Ok(()) };
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
        if !write.decide(&mut locked, &yes, &vote, self.approval.start_deadline).await? {
            return Ok(());
        }
        write.allow_resume(&locked, granting.server_resumes).await?;
        let permit = self.commit_decided(&gate, write, &mut locked).await?;
        let request = DecisionRequest {
            tool_call_id: id,
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
        Ok(())
    }

    /// Returns the decider's grant that covers a call, if the tool is the one that was shown. The policy and
    /// the grants of the session stay as they are until the transaction ends.
    async fn is_covered(
        &self,
        gate: &Gate,
        write: &Write,
        by: Decider<'_>,
        locked: &LockedCall,
    ) -> Result<Option<GrantId>, StoreError> {
        let LockedCall { call, thread, roles, .. } = locked;
        let tool = gate.registry().get(&call.name);
        let Some(tool) = tool.filter(|tool| tool.schema_hash == call.schema_hash) else { return Ok(None) };
        let session = write.hold_session(&locked.thread).await?;
        let process = gate.remembering().process.as_deref();
        let mut grants = write.grants_about(thread, [call.name.as_str()], process).await?;
        let actor = by.actor();
        grants.retain(|grant| grant.by == actor);
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
    ) -> Result<Page<Grant>, GrantError> {
        let (read, gate) = (self.store.read().await?, self.gate());
        let root = read.any_session(principal, session).await?.ok_or(GrantError::NotFound)?;
        let (actor, process) = (principal.actor(), gate.remembering().process.as_deref());
        let whose = self.whose(principal, &root, &actor);
        let page = read.grants(&root, whose, process, before, size).await?;
        match whose {
            // For a principal without grants the session does not exist.
            Granted::By(_) if page.items.is_empty() => Err(GrantError::NotFound),
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
    ) -> Result<(), GrantError> {
        let (write, gate) = (self.store.urgent_write().await?, self.gate());
        let root = write.any_session(principal, session).await?.ok_or(GrantError::NotFound)?;
        let root = write.lock_thread(root.id).await?;
        let (actor, process) = (principal.actor(), gate.remembering().process.as_deref());
        let whose = self.whose(principal, &root, &actor);
        if !write.revoke_grant(&root, whose, process, grant, &actor).await? {
            return Err(GrantError::NotFound);
        }
        Ok(write.commit().await?)
    }

    fn whose<'a>(&self, principal: &Principal, root: &Thread, actor: &'a str) -> Granted<'a> {
        let all = root.is_of(principal) || principal.has_one_of(&self.operators);
        if all { Granted::ByAnybody } else { Granted::By(actor) }
    }
}
