//! Whether an approval would be accepted now: one list of checks, for decisions and for everything that offers one.
//!
//! A decision makes these checks under the lock of its call. Lists, cards, messages and the console make them without
//! a lock: what they say is true at that moment, and the decision has the last word.

use super::{Approvals, DecideError};
use crate::tools::Registered;
use crate::tools::gate::{Gate, PolicyContext, Recheck};
use holdpoint_core::call::{State, ToolCall};
use holdpoint_core::card::hold::Hold;
use holdpoint_core::card::obstacle::Obstacle;
use holdpoint_core::grant::Grant;
use holdpoint_core::id::ToolCallId;
use holdpoint_core::policy::{MayDecide, SessionPolicy, Source};
use holdpoint_core::tool::input::Input;
use holdpoint_core::tool::secrets::SecretPaths;
use holdpoint_store::{CallPolicy, Read, StoreError, VisibleCall};
use std::collections::HashMap;

/// Why the policy now forbids a call, despite any approval.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Block {
    pub(crate) why: String,
    /// Whether the policy might let the call run with other inputs.
    pub(crate) by_inputs: bool,
}

/// The pending calls that the policy now forbids.
#[derive(Debug, Default)]
pub(crate) struct Blocked(HashMap<ToolCallId, Block>);

impl Blocked {
    /// Returns why the policy forbids this call, if it does.
    pub(crate) fn of(&self, call: ToolCallId) -> Option<&Block> {
        self.0.get(&call)
    }
}

/// The facts of a call that decide whether it can be approved as it was proposed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Proposal<'a> {
    pub(super) tool_name: &'a str,
    pub(super) input: &'a Input,
    pub(super) secrets: &'a SecretPaths,
    pub(super) unreadable: bool,
}

impl<'a> Proposal<'a> {
    pub(super) fn of(call: &'a ToolCall) -> Self {
        Self {
            tool_name: &call.name,
            input: &call.input,
            secrets: &call.secrets,
            unreadable: call.unreadable,
        }
    }

    pub(super) fn of_hold(hold: &'a Hold) -> Self {
        Self {
            tool_name: &hold.tool_name,
            input: &hold.input,
            secrets: &hold.secrets,
            unreadable: hold.unreadable,
        }
    }

    /// Returns the tool that would run, if the inputs can be shown and the tool is there.
    pub(super) fn tool<'g>(&self, gate: &'g Gate) -> Result<&'g Registered, DecideError> {
        if self.unreadable {
            return Err(DecideError::Unreadable);
        }
        let tool = gate.registry().get(self.tool_name);
        tool.map(|tool| &**tool).ok_or_else(|| DecideError::ToolUnavailable(self.tool_name.to_owned()))
    }

    /// Returns the obstacle of an approval of the proposed inputs by a principal with this right, in the
    /// order in which a decision checks it.
    pub(super) fn obstacle(&self, gate: &Gate, may: MayDecide, block: Option<&Block>) -> Option<Obstacle> {
        if may != MayDecide::ApproveOrReject {
            return Some(Obstacle::Forbidden);
        }
        let tool = match self.tool(gate) {
            Ok(tool) => tool,
            Err(DecideError::Unreadable) => return Some(Obstacle::Unreadable),
            Err(_) => return Some(Obstacle::ToolUnavailable),
        };
        let errors = gate.errors(tool, self.input, self.secrets, None);
        if !errors.is_empty() {
            let why = errors.iter().map(|error| format!("{}: {}", error.pointer, error.message));
            return Some(Obstacle::InvalidInputs(why.collect::<Vec<_>>().join("; ")));
        }
        block.map(|block| Obstacle::Blocked(block.why.clone()))
    }

    /// Whether an approval with other inputs may be accepted.
    pub(super) fn can_edit(&self, gate: &Gate, may: MayDecide, block: Option<&Block>) -> bool {
        may == MayDecide::ApproveOrReject && self.tool(gate).is_ok() && block.is_none_or(|it| it.by_inputs)
    }
}

/// Checks that the tool takes these inputs of a call with these secrets. `edited` are the proposed inputs, if a decider has replaced them.
pub(super) fn fits(
    gate: &Gate,
    tool: &Registered,
    inputs: &Input,
    secrets: &SecretPaths,
    edited: Option<&Input>,
) -> Result<(), DecideError> {
    let errors = gate.errors(tool, inputs, secrets, edited);
    if errors.is_empty() { Ok(()) } else { Err(DecideError::InvalidInputs(errors)) }
}

impl Block {
    /// Returns why the policy forbids a call that it judged again, if it does.
    pub(super) fn of(rechecked: Recheck) -> Option<Self> {
        match rechecked {
            Recheck::Never { why, source } => {
                Some(Self { why, by_inputs: matches!(source, Source::Rule(_)) })
            }
            Recheck::Yes | Recheck::NotUnasked => None,
        }
    }
}

/// Returns why the operator forbids a held call for a user with these roles, in every session. The mode is left out: a
/// session may have a mode of its own.
pub(super) fn block_of_operator(gate: &Gate, hold: &Hold, roles: &[String]) -> Option<Block> {
    let tool = gate.registry().get(&hold.tool_name)?;
    let context = PolicyContext { roles, session: &SessionPolicy::default(), requester: "", grants: &[] };
    match gate.recheck(tool, &hold.input, true, context) {
        Recheck::Never { source: Source::Mode, .. } => None,
        rechecked => Block::of(rechecked),
    }
}

impl Approvals {
    /// Returns the pending calls among these that the policy now forbids. The number of statements does not depend on
    /// the number of calls.
    pub(crate) async fn blocked(
        &self,
        read: &Read,
        gate: &Gate,
        seen: &[VisibleCall],
    ) -> Result<Blocked, StoreError> {
        let pending: Vec<&VisibleCall> =
            seen.iter().filter(|seen| seen.call.state == State::Pending).collect();
        if pending.is_empty() {
            return Ok(Blocked::default());
        }
        let policies = read.call_policies(pending.iter().map(|seen| seen.call.run_id)).await?;
        let judge = |seen: &VisibleCall, grants: &[Grant]| {
            let VisibleCall { call, thread, .. } = seen;
            let (tool, policy) = (gate.registry().get(&call.name)?, policies.get(&call.run_id)?);
            let CallPolicy { roles, session } = policy;
            let context = PolicyContext { roles, session, requester: &thread.actor(), grants };
            Block::of(gate.recheck(tool, &call.input, true, context))
        };
        let mut blocked = Blocked::default();
        let forbidden: Vec<&VisibleCall> =
            pending.into_iter().filter(|seen| judge(seen, &[]).is_some()).collect();
        if forbidden.is_empty() {
            return Ok(blocked);
        }
        // A grant only lets more calls run.
        let as_of = gate.remembering().as_of(self.store.process_time());
        let grants = read.grants_in(forbidden.iter().map(|seen| seen.thread.session_id), as_of).await?;
        for seen in forbidden {
            let of_session = |grant: &&Grant| grant.session_id == seen.thread.session_id;
            let grants: Vec<Grant> = grants.iter().filter(of_session).cloned().collect();
            if let Some(block) = judge(seen, &grants) {
                blocked.0.insert(seen.call.id, block);
            }
        }
        Ok(blocked)
    }
}
