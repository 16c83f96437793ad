//! The judgement of the calls of a step, in the transaction that stores them.

use super::previews::Previews;
use super::step::ProposedCall;
use crate::config;
use crate::tools::gate::{Gate, PolicyContext};
use holdpoint_core::call::ToolCall;
use holdpoint_core::clock::Timestamp;
use holdpoint_core::grant::Grant;
use holdpoint_core::id::GrantId;
use holdpoint_core::json::canonical::same_object;
use holdpoint_core::policy::{Judgement, SessionPolicy, Source};
use holdpoint_core::tool::input::Input;
use holdpoint_store::{EarlierCalls, HeldTurn, Lease, NewCall, StoreError, Write};
use serde_json::Value;
use std::collections::{BTreeMap, HashSet};

/// The pending calls of a thread while the gate judges a step.
pub(super) struct PendingCalls {
    /// The number of pending calls, including the calls of this step that are judged so far.
    count: u64,
    earlier: EarlierCalls,
    /// The expired calls of the run, if no person has acted since the last expiry.
    expired: Vec<ToolCall>,
    /// The time of the transaction. A call whose deadline is reached is no duplicate.
    now: Timestamp,
    session: SessionPolicy,
    /// The grants of the session for the tools of the step.
    grants: Vec<Grant>,
    /// How many calls of the step run under each grant with a number of uses.
    used: BTreeMap<GrantId, u32>,
}

impl PendingCalls {
    pub(super) fn none_at(now: Timestamp) -> Self {
        let (earlier, session, grants) = <(EarlierCalls, SessionPolicy, Vec<Grant>)>::default();
        Self { count: 0, earlier, expired: Vec::new(), now, session, grants, used: BTreeMap::new() }
    }

    fn same_as(&self, tool_name: &str, input: &Input) -> Option<&ToolCall> {
        let is_open = |call: &&ToolCall| call.expires_at.is_none_or(|at| at > self.now);
        self.earlier.pending.iter().filter(is_open).find(|call| is_same(call, tool_name, input))
    }

    /// Returns the equal call of the run that a person rejected. With another definition of the tool it is another call.
    fn rejected_before(&self, tool_name: &str, schema_hash: &str, input: &Input) -> Option<&ToolCall> {
        let has_schema = |call: &&ToolCall| call.schema_hash == schema_hash;
        self.earlier.rejected.iter().filter(has_schema).rfind(|call| is_same(call, tool_name, input))
    }

    fn expired_before(&self, tool_name: &str, input: &Input) -> Option<&ToolCall> {
        self.expired.iter().find(|call| is_same(call, tool_name, input))
    }

    /// Reads what decides about new calls besides the gate.
    pub(super) async fn find(
        &mut self,
        gate: &Gate,
        write: &Write,
        held: &HeldTurn<'_>,
        calls: &[ProposedCall],
        has_calls: bool,
    ) -> Result<(), StoreError> {
        let thread = &held.thread;
        if has_calls {
            let new: Vec<_> = calls.iter().map(|call| (call.id, call.provider_call_id.as_str())).collect();
            self.earlier = write.earlier_calls(held, &new).await?;
            self.count = u64::try_from(self.earlier.pending.len()).unwrap_or(u64::MAX);
        }
        if held.lease().run.resumed_alone {
            self.expired = write.expired_calls(held.lease().run.id).await?;
        }
        self.session = write.hold_session(thread).await?;
        // An unknown tool has no grants, and the database may refuse its name.
        let known = |name: &&str| gate.registry().get(name).is_some();
        let tools: HashSet<&str> = calls.iter().map(|call| call.name.as_str()).filter(known).collect();
        let as_of = gate.remembering().as_of(write.now());
        self.grants = write.grants_about(thread, tools, as_of).await?;
        write.lock_counted(&mut self.grants).await?;
        Ok(())
    }

    /// Takes one use of a grant that covers a call of the step.
    fn use_grant(&mut self, id: GrantId) {
        let used = self.grants.iter_mut().find(|grant| grant.id == id);
        if let Some(uses) = used.and_then(|grant| grant.uses.as_mut()) {
            uses.left = uses.left.saturating_sub(1);
            *self.used.entry(id).or_default() += 1;
        }
    }

    /// Stores the uses of grants that the calls of the step take.
    pub(super) async fn count_uses(&self, write: &Write) -> Result<(), StoreError> {
        for (grant, uses) in &self.used {
            write.count_uses(*grant, *uses).await?;
        }
        Ok(())
    }

    pub(super) fn into_earlier(self) -> EarlierCalls {
        self.earlier
    }
}

/// Whether this is a call of the tool with equal inputs.
fn is_same(call: &ToolCall, tool_name: &str, input: &Input) -> bool {
    call.name == tool_name && !call.unreadable && same_object(&call.input, input)
}

/// What judges the calls of a step.
pub(super) struct Judge<'a> {
    pub(super) gate: &'a Gate,
    pub(super) limits: &'a config::Limits,
    pub(super) lease: &'a Lease,
    /// Whether the step comes after the last step that may call tools.
    pub(super) last: bool,
    /// The previews made so far.
    pub(super) previews: &'a Previews,
}

impl Judge<'_> {
    /// Judges a call of a step.
    pub(super) fn judge(&self, ordinal: usize, call: ProposedCall, waiting: &mut PendingCalls) -> NewCall {
        let offered = |name: &str| !self.last && self.lease.run.options.offers(name);
        let context = PolicyContext {
            roles: &self.lease.run.options.roles,
            session: &waiting.session,
            requester: &self.lease.thread.actor(),
            grants: &waiting.grants,
        };
        let judged = self.gate.judge(&call.name, &call.arguments, context, offered);
        let limit = |why: String| Judgement::Invalid(format!("{why} The tool did not run."));
        let judgement = if ordinal >= self.limits.calls_per_step {
            limit(format!("More than {} calls in one step.", self.limits.calls_per_step))
        } else if !call.complete {
            limit("The call broke off before its arguments were complete.".to_owned())
        } else {
            match judged.judgement {
                Judgement::Held { reason, source } => {
                    if let Some(same) = waiting.same_as(&call.name, &judged.input) {
                        Judgement::Duplicate(same.id)
                    } else if let Some(rejected) =
                        waiting.rejected_before(&call.name, &judged.schema_hash, &judged.input)
                    {
                        let reason = rejected.decision.as_ref().and_then(|decision| decision.reason.clone());
                        Judgement::RejectedBefore { call: rejected.id, reason }
                    } else if let Some(expired) = waiting.expired_before(&call.name, &judged.input) {
                        Judgement::ExpiredBefore(expired.id)
                    } else if waiting.count >= self.limits.pending_per_thread {
                        let count = waiting.count;
                        limit(format!("{count} calls of this conversation wait for approval already."))
                    } else {
                        waiting.count += 1;
                        Judgement::Held { reason, source }
                    }
                }
                other => other,
            }
        };
        if let Judgement::Cleared(_, Source::Remembered(grant)) = &judgement {
            waiting.use_grant(*grant);
        }
        let arguments = match &judgement {
            Judgement::Invalid(_) if !call.arguments.trim().is_empty() => call.arguments,
            // The arguments as shown and run, not as the model wrote them.
            _ => Value::Object(judged.input.clone()).to_string(),
        };
        let preview = self.previews.get(&call.id).filter(|_| matches!(judgement, Judgement::Held { .. }));
        NewCall {
            id: call.id,
            provider_call_id: call.provider_call_id,
            name: call.name,
            arguments,
            input: judged.input,
            model_input: judged.model_input,
            secrets: judged.secrets,
            schema_hash: judged.schema_hash,
            idempotent: judged.idempotent,
            by_worker: judged.by_worker,
            risk: judged.risk,
            preview: preview.cloned(),
            judgement,
        }
    }
}
