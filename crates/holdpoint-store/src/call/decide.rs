//! Decisions of people and handlers about pending calls, each approval with the claim of the process that decides, if it
//! runs the call.
//!
//! On Postgres one statement moves the call from `pending` to `executing`, and inserts the decision and both events. The
//! guard of the database looks for the decision after that statement. On SQLite, whose statements change one table each,
//! the call is approved, the decision inserted, and the call claimed.

use crate::call::calls::{decided_by, decided_data, of_call};
use crate::call::executions::{Claim, Claimant, Repeatability, with_claim};
use crate::call::transitions::{Approved, Becomes, CallState, Executing, Move, Pending, Rejected};
use crate::entity::{decision, tool_call};
use crate::event::new_event::{NewEvent, Subject};
use crate::sql::batch::Guarded;
use crate::{LockedCall, NewDecision, StoreError, Vote, Write, sql::rows};
use holdpoint_core::call::{Execution, State, ToolCall, rejection};
use holdpoint_core::call_times::CallTimes;
use holdpoint_core::card::preview::Preview;
use holdpoint_core::clock::Timestamp;
use holdpoint_core::decision::Choice;
use holdpoint_core::event::EventType;
use sea_orm::sea_query::Expr;
use sea_orm::{ColumnTrait, ConnectionTrait, DbBackend, IntoActiveModel};
use serde_json::json;
use std::time::Duration;

/// The approval of a pending call.
struct NewApproval<'a> {
    /// The inputs that run, if they are not the model's (JSON), and their preview.
    inputs: Option<String>,
    preview: Option<&'a Preview>,
    decision: &'a NewDecision,
    /// The row of the decision.
    row: decision::Model,
    /// The start deadline.
    until: Timestamp,
}

impl NewApproval<'_> {
    /// Builds the transition of the approved call.
    fn moved<To: CallState>(&self) -> Move
    where
        Pending: Becomes<To>,
    {
        let (preview, preview_failed) = rows::preview_columns(self.preview);
        Move::of::<Pending, To>()
            .set(tool_call::Column::Validated, Expr::value(true))
            .set(tool_call::Column::ValidatedInputs, Expr::value(self.inputs.clone()))
            .set(tool_call::Column::ValidatedPreview, Expr::value(preview))
            .set(tool_call::Column::ValidatedPreviewFailed, Expr::value(preview_failed))
            .set(tool_call::Column::StartDeadline, Expr::value(self.until.as_micros()))
    }
}

impl Write {
    /// Decides a pending call that has not expired. Returns `None` if the call is not pending. `claims` returns the
    /// process that claims the approved call in this transaction, if one does.
    pub async fn decide<'a>(
        self,
        locked: &mut LockedCall,
        answer: &Choice,
        by: &Vote,
        times: &CallTimes,
        claims: impl FnOnce(&ToolCall) -> Option<&'a str> + Send,
    ) -> Result<Option<Claim>, StoreError> {
        let pending = &locked.call;
        if !matches!(pending.state, State::Pending) || pending.expires_at.is_none_or(|at| at <= self.now) {
            return Ok(None);
        }
        let new = NewDecision::of(answer, by);
        let row = self.decision_row(pending.id, &new);
        let decision = rows::decision(row.clone())?;
        locked.call = rows::decided(pending.clone(), answer, by.edited_preview.clone(), decision);
        let inputs = match answer {
            Choice::Approve { inputs, .. } => inputs,
            Choice::Reject { reason } => {
                let rejected = self
                    .ended::<Pending, Rejected>(rejection(reason.as_deref()))
                    .set(tool_call::Column::Validated, Expr::value(false));
                self.write_decision(locked, rejected, &new, row, EventType::ToolRejected).await?;
                if locked.is_passed {
                    self.complete_if_passed(&locked.thread, locked.call.run_id).await?;
                }
                return Ok(Some(Claim::Unclaimed(Box::new(self))));
            }
        };
        locked.approved_by = by.voted_before.iter().chain([&by.actor]).cloned().collect();
        let approval = NewApproval {
            inputs: inputs.as_ref().map(|inputs| json!(inputs).to_string()),
            preview: by.edited_preview.as_ref(),
            decision: &new,
            row,
            until: self.now.plus(times.start_deadline),
        };
        let claimed_by = claims(&locked.call);
        Ok(Some(self.approve(locked, approval, claimed_by, times.lease).await?))
    }

    /// Decides a locked pending call, with its decision and its event.
    async fn write_decision(
        &self,
        locked: &LockedCall,
        moved: Move,
        new: &NewDecision,
        row: decision::Model,
        event: EventType,
    ) -> Result<(), StoreError> {
        let LockedCall { thread, call, .. } = locked;
        let moved = self.in_time(moved, new);
        self.add_bytes(thread.id, moved.added_bytes(None));
        // The call is locked, so it is still pending.
        self.update_later(of_call(moved, thread, call.id), "a call to decide is not pending").await?;
        self.insert_later([row.into_active_model()]).await?;
        self.event(event, &new.by, &Subject::call(thread, call), decided_data(call, new));
        Ok(())
    }

    /// Adds the author and the time of a decision to its transition, which the deadline of the call limits.
    fn in_time(&self, moved: Move, new: &NewDecision) -> Move {
        let now = self.now;
        decided_by(moved.only(tool_call::Column::ExpiresAt.gt(now.as_micros())), new, now)
    }

    /// Approves a locked pending call, and claims it for this process, if one is named.
    async fn approve(
        self,
        locked: &LockedCall,
        approval: NewApproval<'_>,
        claimed_by: Option<&str>,
        lease: Duration,
    ) -> Result<Claim, StoreError> {
        // A call with unreadable inputs has no permit.
        let claimed_by = claimed_by.filter(|_| !locked.call.unreadable && approval.until > self.now);
        let is_one_statement = self.tx.get_database_backend() == DbBackend::Postgres;
        if let (Some(process), true) = (claimed_by, is_one_statement) {
            let execution = self.next_execution(0);
            if self.approve_and_claim(locked, &approval, Claimant::Process(process), execution, lease).await?
            {
                return Ok(self.claim_made(locked, execution));
            }
        }
        let approved = approval.moved::<Approved>();
        let NewApproval { decision, row, .. } = approval;
        self.write_decision(locked, approved, decision, row, EventType::ToolApproved).await?;
        match claimed_by {
            Some(process) if !is_one_statement => {
                self.claim(locked, Claimant::Process(process), lease, Repeatability::Never).await
            }
            _ => Ok(Claim::Unclaimed(Box::new(self))),
        }
    }

    /// Moves a pending call to executing, with its decision and both events. Returns false if the call cannot be claimed.
    async fn approve_and_claim(
        &self,
        locked: &LockedCall,
        approval: &NewApproval<'_>,
        claimant: Claimant<'_>,
        execution: Execution,
        lease: Duration,
    ) -> Result<bool, StoreError> {
        let (LockedCall { thread, call, .. }, NewApproval { decision, row, .. }) = (locked, approval);
        let approved = self.in_time(approval.moved::<Executing>(), decision);
        let (moved, data) = with_claim(approved, call, execution, claimant, self.now.plus(lease));
        let (actor, subject) = (decision.by.as_str(), &Subject::call(thread, call));
        let decided = decided_data(call, decision);
        let events = [
            NewEvent { event_type: EventType::ToolApproved, actor, subject, data: decided },
            NewEvent { event_type: EventType::ToolStarted, actor, subject, data },
        ];
        let added = moved.added_bytes(None);
        let change = Guarded::new(of_call(moved, thread, call.id));
        let is_moved = self.update_with(change.with(&[row.clone().into_active_model()]), &events).await?;
        if is_moved {
            self.add_bytes(thread.id, added);
        }
        Ok(is_moved)
    }
}
