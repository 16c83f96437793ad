//! The sweeper: moves calls and turns after a deadline, a crash or the stop of a process. Every process has a
//! sweeper. If several of them find a call or a turn, one moves it.
//!
//! # Crashes and recovery
//!
//! A turn and an execution each hold a lease under a name of its own, and renew it three times per `approval.lease`
//! (`Heartbeat`). The sweeper and the resumer of every process look every `approval.sweep`, each with one statement
//! that asks whether there is work (`Store::sweep_work`, `Read::resumer_work`). Each move is a transaction of its own
//! that checks the row again. The page of the operations describes the same for operators.
//!
//! | Found | Function | Result |
//! |---|---|---|
//! | `pending`, `expires_at` reached | `Write::expire` | `expired` |
//! | `executing`, lease ended | `Write::reap` | `approved` again if idempotent, started fewer than three times, and call, run, message and thread are still current; else `interrupted` |
//! | `executing`, `result_deadline` reached | `Write::end_unreported` | `interrupted` |
//! | `executing`, a task or a round, `polled_until` reached, server connected here | `Write::take_polls` | polled by this process |
//! | `executing`, sent again, `polled_until` reached | `Write::take_polls` | `interrupted` |
//! | `interrupted` for less than `approval.start_deadline`, tool here | `Approvals::verify_doubtful` | the outcome that the tool's `verify` reports, if any |
//! | `approved`, start deadline reached | `Write::not_started` | `failed`, or `interrupted` after an earlier claim |
//! | `approved` for longer than a lease, not for a worker | `Approvals::take` | claimed and run, by a process that has the tool as decided |
//! | a turn, lease ended | `Write::close_dead_turn` | `completed` if the answer was whole, `cancelled` if a cancel was requested, else `failed` with `interrupted` |
//! | a link of a message, `expires_at` reached | `Write::delete_links` | deleted |
//! | a sign-in, `ends_at` reached | `Write::delete_sign_ins` | deleted |
//! | a run with `server_resumes` and no open call | `Chat::resume_all` | resumed, once. An expiry sets the mark once, until a person acts (`runs.resumed_alone`) |
//! | a delegated call whose child is ready, ended or unwanted | `Chat::drive_children` | child resumed, call settled, or child cancelled |
//!
//! | Case | Behaviour |
//! |---|---|
//! | Late outcome | A tool runs in a task of its own. A cancel, `tools.timeout`, a lost lease and a stop of the process trigger the permit's token. After a cancel or `tools.timeout` the output within `tools.cancel_grace` is the outcome; then the call is `interrupted`. A later output of the same execution still settles the call, unless a verification, an operator or another attempt was faster. |
//! | Write after an effect | `agent::retry` retries an outcome and the end of a turn for the time of a lease, and at least once. So does the executor with an outcome that a request was offered and did not commit. |
//! | Start on SQLite | One process serves, so a start waits for no lease: `Write::recover` reaps every executing call without a child, a worker or an owner, and closes every running turn. |
//! | Postgres away or slow | Writing transactions wait for the disk (`BEGIN_WRITE`). Decisions, outcomes and renewals use reserved connections (`Store::urgent_write`). The session of the store (`Tx`) gives a silent connection up. |
//! | Transaction left open on a connection | `Tx` rolls a transaction back that was dropped, before the pool gets its connection. It closes a connection that does not answer, and one whose server became a standby or ends its sessions. |
//! | SQLite without disk space | SQLite ends a transaction whose COMMIT fails. `Tx` then finds nothing to roll back, and keeps the connection. |
//! | Pooler that shares sessions | No statement stays prepared, and each transaction begins with `DEALLOCATE ALL`. |
//! | Stop of the process | `Tasks::finish` starts nothing new, waits `server.grace`, then aborts: tools get one second, turns keep their text. An approval that arrives meanwhile is stored, and another process runs the call. |
//! | Restore of the database | `holdpoint fence` closes all open work, one transaction per thread, revokes all grants, and ends all sign-ins. A child whose call was fenced does not continue. |

use super::Approvals;
use futures::FutureExt;
use futures::future::join_all;
use holdpoint_core::call::ToolCall;
use holdpoint_core::id::{RunId, ToolCallId};
use holdpoint_store::{ClaimOutcome, DueCall, MoveReason, StoreError, Swept};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

impl Approvals {
    /// Sweeps again and again until the process stops.
    pub(crate) async fn run_sweeper(&self, every: Duration) {
        loop {
            tokio::select! {
                () = tokio::time::sleep(every) => {}
                () = self.tasks().stopping() => return,
            }
            // A panic must not end the sweeper unnoticed.
            if AssertUnwindSafe(self.sweep()).catch_unwind().await.is_err() {
                tracing::error!("a sweep panicked");
            }
        }
    }

    async fn sweep(&self) {
        if let Err(error) = self.sweep_found().await {
            tracing::warn!(%error, "a sweep failed");
        }
    }

    /// Sweeps each kind separately, so that a backlog of one kind delays no other. Most sweeps find nothing.
    async fn sweep_found(&self) -> Result<(), StoreError> {
        let servers: Vec<String> =
            self.gate().registry().connected().into_iter().map(str::to_owned).collect();
        let work = self.store.sweep_work(&self.times, &self.verified_tools(), &servers).await?;
        if work.is_empty() {
            return Ok(());
        }
        let calls = join_all(work.calls.into_iter().map(|due| self.sweep_calls(due)));
        let turns = async { if work.turns { self.sweep_turns().await } else { Ok(()) } };
        let polls = async { if work.unpolled { self.take_unpolled(&servers).await } else { Ok(()) } };
        let polls = Box::pin(polls);
        let links = async { if work.links { self.delete_links().await } else { Ok(()) } };
        let sign_ins = async { if work.sign_ins { self.delete_sign_ins().await } else { Ok(()) } };
        let (links, sign_ins) = (Box::pin(links), Box::pin(sign_ins));
        let (calls, turns, polls, links, sign_ins) = tokio::join!(calls, turns, polls, links, sign_ins);
        // Also if no call was in doubt: the sweep may have interrupted some.
        let verified = self.verify_doubtful().await;
        for swept in calls.into_iter().chain([turns, polls, links, sign_ins, verified]) {
            if let Err(error) = swept {
                tracing::warn!(%error, "a sweep failed");
            }
        }
        Ok(())
    }

    async fn sweep_calls(&self, due: MoveReason) -> Result<(), StoreError> {
        let mut after: Option<DueCall> = None;
        loop {
            // With the clock that set the deadlines.
            let read = self.store.timed_read().await?;
            let found = read.due_calls(due, self.times.lease, after.as_ref()).await?;
            drop(read);
            let Some(last) = found.last().copied() else { return Ok(()) };
            after = Some(last);
            for DueCall { id, .. } in found {
                if self.tasks().is_stopping() {
                    return Ok(());
                }
                if let Err(error) = self.sweep_call(id).await {
                    tracing::warn!(tool_call_id = %id, %error, "could not sweep a call");
                }
            }
        }
    }

    async fn sweep_call(&self, id: ToolCallId) -> Result<(), StoreError> {
        let write = self.store.write().await?;
        let swept = write.sweep_call(id, &self.times).await?;
        write.commit().await?;
        let metrics = &self.executor.metrics;
        match swept {
            Swept::Nothing => return Ok(()),
            Swept::Expired => {
                metrics.swept("expired");
                tracing::info!(tool_call_id = %id, "a call expired without a decision");
            }
            Swept::Noticed { escalated, reminded } => {
                for (done, what) in [(escalated, "escalated"), (reminded, "reminded")] {
                    if done {
                        metrics.swept(what);
                        tracing::info!(tool_call_id = %id, what, "a call still waits for a decision");
                    }
                }
                // The call has not moved.
                return Ok(());
            }
            Swept::NotStarted => {
                metrics.swept("not_started");
                tracing::warn!(tool_call_id = %id, "a call missed its start deadline and will not run");
            }
            Swept::Interrupted => {
                metrics.swept("interrupted");
                tracing::warn!(tool_call_id = %id, "the lease of a call is over; the outcome is unknown");
            }
            Swept::Unreported => {
                metrics.swept("unreported");
                tracing::warn!(tool_call_id = %id, "the result deadline of a call is over; the outcome is unknown");
            }
            Swept::Repeatable => {
                metrics.swept("repeatable");
                tracing::warn!(tool_call_id = %id, "the lease of a call is over; the call may begin again");
            }
            Swept::Ready(call) => {
                if let Some(claimed) = self.take(&call).await? {
                    let approvals = self.clone();
                    self.tasks().spawn(async move { Box::pin(approvals.run_swept(&call, claimed)).await });
                }
                return Ok(());
            }
        }
        self.wake_waiters();
        Ok(())
    }

    /// Runs a claimed call. The lookup of an unknown claim takes time, and a sweep must not wait for it.
    async fn run_swept(&self, call: &ToolCall, claimed: ClaimOutcome) {
        match self.permit(call.id, claimed).await {
            Ok(Some(permit)) => {
                self.executor.metrics.swept("claimed");
                self.run(call.thread_id, permit, None).await;
            }
            Ok(None) => {}
            Err(error) => tracing::warn!(tool_call_id = %call.id, %error, "could not claim a call"),
        }
    }

    /// Polls the work at these servers that no process polls, and ends the calls that a dead process sent again.
    async fn take_unpolled(&self, servers: &[String]) -> Result<(), StoreError> {
        let read = self.store.timed_read().await?;
        let found = read.unpolled_calls(servers).await?;
        drop(read);
        for id in found {
            if self.tasks().is_stopping() {
                return Ok(());
            }
            if let Err(error) = self.take_polls(id).await {
                tracing::warn!(tool_call_id = %id, %error, "could not poll the work of a call");
            }
        }
        Ok(())
    }

    async fn take_polls(&self, id: ToolCallId) -> Result<(), StoreError> {
        let write = self.store.write().await?;
        let taken = write.take_polls(id, self.times.lease).await?;
        write.commit().await?;
        if let Some(polled) = taken {
            self.executor.metrics.swept("polled");
            self.executor.start_polls(polled, Arc::new(self.clone()));
        }
        Ok(())
    }

    async fn delete_links(&self) -> Result<(), StoreError> {
        let write = self.store.write().await?;
        write.delete_links().await?;
        write.commit().await
    }

    async fn delete_sign_ins(&self) -> Result<(), StoreError> {
        let write = self.store.write().await?;
        write.delete_sign_ins().await?;
        write.commit().await
    }

    async fn sweep_turns(&self) -> Result<(), StoreError> {
        let mut after = None;
        loop {
            let read = self.store.timed_read().await?;
            let found = read.turns_to_sweep(after).await?;
            drop(read);
            let Some(last) = found.last().copied() else { return Ok(()) };
            after = Some(last);
            for id in found {
                if let Err(error) = self.sweep_turn(id).await {
                    tracing::warn!(run_id = %id, %error, "could not close a turn");
                }
            }
        }
    }

    async fn sweep_turn(&self, id: RunId) -> Result<(), StoreError> {
        let write = self.store.write().await?;
        let closed = write.sweep_turn(id).await?;
        write.commit().await?;
        if closed {
            self.executor.metrics.swept("turn_closed");
            tracing::warn!(run_id = %id, "the lease of a turn is over; the turn is closed as interrupted");
        }
        Ok(())
    }
}
