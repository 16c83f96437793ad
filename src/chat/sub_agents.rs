//! Calls that child runs execute. The resumer begins and resumes each child, stops a child whose call has to
//! stop, and settles the call with the end of its child. Each action is a transaction of its own. A second
//! process finds the action done.
//!
//! # One sub-agent
//!
//! 1. The call is judged, held, decided and claimed like every call. `Gate::assignment` makes the task of the child
//!    from the inputs, and `Executor::delegate` calls `Write::delegate` of the store.
//! 2. `Write::delegate` is one transaction: child thread, user message, `waiting` run, `child_run_id` in the call,
//!    lease removed. It counts the depth, and with the session's root locked also the sub-agents below the root run.
//! 3. `Chat::run_resumer` calls `Chat::drive_children` in every process. One query finds the children to start, resume,
//!    stop or settle. The compare-and-set of every run also starts a child.
//! 4. `Write::settle_child` ends the call with the end of the child: `completed` is `succeeded` with the text of the
//!    last step, `failed` is `failed`, and a cancelled or interrupted run is `interrupted`. The run of the call is
//!    marked `server_resumes`.
//! 5. `Write::stop_child` cancels the child's run if the call, its run or its session is cancelled, its message is
//!    superseded, or a thread of the two is deleted. The next pass stops the child's own children. While a call waits,
//!    the child's thread takes no message of the user (`Read::is_delegated_to`).

use super::Chat;
use crate::agent::Work;
use crate::tools::gate::Gate;
use holdpoint_core::call::Outcome;
use holdpoint_core::run::{RunStatus, TurnErrorCode};
use holdpoint_core::text::model_texts;
use holdpoint_store::{DelegatedCall, EndedChild, StoreError};
use serde_json::Value;

impl Chat {
    /// Visits every delegated call whose child needs an action.
    pub(super) async fn drive_children(&self) -> Result<(), StoreError> {
        let mut after = None;
        let mut moved = false;
        loop {
            let found = self.store.read_once().await?.delegated_calls(after).await?;
            let Some(last) = found.last() else { break };
            after = Some(last.id);
            for delegated in found {
                if self.tasks.is_stopping() {
                    return Ok(());
                }
                match self.drive(delegated).await {
                    Ok(did) => moved |= did,
                    Err(error) => {
                        tracing::warn!(tool_call_id = %delegated.id, %error, "could not drive a child run");
                    }
                }
            }
        }
        if moved {
            // A stopped child may have children of its own, and a settled call may let another child end.
            self.wake.send();
        }
        Ok(())
    }

    /// Returns whether the call or its child changed in a way that others may wait for.
    async fn drive(&self, delegated: DelegatedCall) -> Result<bool, StoreError> {
        let stopped = self.stop_child(delegated).await?;
        if self.settle_child(delegated).await? {
            return Ok(true);
        }
        if !stopped {
            self.try_resume(delegated.child).await;
        }
        Ok(stopped)
    }

    async fn stop_child(&self, delegated: DelegatedCall) -> Result<bool, StoreError> {
        let write = self.store.urgent_write().await?;
        let Some(calls) = write.stop_child(delegated).await? else { return Ok(false) };
        write.commit().await?;
        tracing::info!(tool_call_id = %delegated.id, run_id = %delegated.child, "asked a child run to stop");
        let heartbeats = &self.agent.executor.heartbeats;
        heartbeats.renew_now(Work::Turn(delegated.child));
        calls.into_iter().for_each(|call| heartbeats.renew_now(Work::Call(call)));
        Ok(true)
    }

    async fn settle_child(&self, delegated: DelegatedCall) -> Result<bool, StoreError> {
        let write = self.store.urgent_write().await?;
        let Some(ended) = write.ended_child(delegated).await? else { return Ok(false) };
        let gate = self.agent.executor.gate();
        let outcome = outcome(&ended, &gate);
        let result = gate.result_text(&outcome, ended.call.edit().as_ref());
        let settled = write.settle_child(&ended, &outcome, result).await?;
        write.commit().await?;
        if settled {
            self.wake.send();
        }
        Ok(settled)
    }
}

/// Converts the end of a child to the outcome of its call.
fn outcome(ended: &EndedChild, gate: &Gate) -> Outcome {
    match (ended.run.status, &ended.run.error) {
        (RunStatus::Completed, _) => gate.succeeded(Value::String(ended.words.clone())),
        (RunStatus::Failed, Some(error)) if error.code != TurnErrorCode::Interrupted => {
            Outcome::Failed(format!("{} {}", model_texts::CHILD_FAILED, error.message))
        }
        // Effects that the child began may have happened.
        _ => Outcome::Interrupted,
    }
}
