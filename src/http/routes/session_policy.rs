//! The policy of a session: as it is set, and in force together with the policy of the server.

use crate::approvals::{PolicyInForce, PolicySet, ToolInForce};
use crate::http::Api;
use crate::http::access::{
    Access,
    CallerKind::{Operator, Owner},
};
use crate::http::auth::Caller;
use crate::http::body::formats::Id;
use crate::http::body::nullable::WordOrNull;
use crate::http::body::payload::{Json, Tag};
use crate::http::body::strict::Strict;
use crate::http::body::thread_ref::ThreadRef;
use crate::http::body::word::Word;
use crate::http::failure::error::ApiError;
use crate::http::routes::sessions::GrantView;
use holdpoint_core::id::ToolCallId;
use holdpoint_core::policy::{ApprovalMode, Effect, Requirement, SessionPolicy, ToolPolicy};
use poem_openapi::param::Path;
use poem_openapi::types::Example;
use poem_openapi::{Enum, Object, OpenApi};
use serde::Deserialize;
use std::collections::BTreeMap;

/// The policy of a session, in addition to the server's policy.
#[derive(Debug, Object, Deserialize)]
#[oai(rename = "SessionPolicy", deny_unknown_fields, skip_serializing_if_is_none, example)]
#[serde(deny_unknown_fields)]
struct PolicyBody {
    /// The effect on calls of tools that require approval: `manual` holds them, `auto-approve` runs them,
    /// `auto-deny` refuses them. Absent or null: as the server's mode says.
    mode: Option<WordOrNull<Word<ApprovalMode>>>,
    /// The policy of single tools, by the name of the tool.
    #[serde(default)]
    tools: Option<BTreeMap<String, Word<ToolPolicy>>>,
}

/// The policy of a session as it is now, and what it means for the calls that wait.
#[derive(Debug, Object)]
#[oai(rename = "SessionPolicyResult", skip_serializing_if_is_none)]
struct PolicySetView {
    mode: Option<Word<ApprovalMode>>,
    /// The policy of single tools, by the name of the tool.
    tools: Option<BTreeMap<String, Word<ToolPolicy>>>,
    /// The waiting calls that the policy forbids. They are rejected now.
    rejected: Vec<Id>,
    /// The waiting calls that the policy would let run without an approval. They still wait for their deciders.
    allowed: Vec<Id>,
}

impl Example for PolicyBody {
    fn example() -> Self {
        Self { mode: Some(WordOrNull(ApprovalMode::AutoDeny.into())), tools: None }
    }
}

impl From<&SessionPolicy> for PolicyBody {
    fn from(policy: &SessionPolicy) -> Self {
        let tools = policy.tools.iter().map(|(name, tool_policy)| (name.clone(), (*tool_policy).into()));
        Self {
            mode: policy.mode.map(|mode| WordOrNull(mode.into())),
            tools: Some(tools.collect()).filter(|tools: &BTreeMap<_, _>| !tools.is_empty()),
        }
    }
}

impl From<&PolicyBody> for SessionPolicy {
    fn from(body: &PolicyBody) -> Self {
        let tools = body.tools.iter().flatten();
        Self {
            mode: body.mode.map(|mode| mode.0.0),
            tools: tools.map(|(name, Word(tool_policy))| (name.clone(), *tool_policy)).collect(),
        }
    }
}

/// What the policy does with a call that none of the `rules` covers: it runs at once, is held, or never runs.
#[derive(Debug, Clone, Copy, Enum)]
#[oai(rename_all = "snake_case")]
enum PolicyVerdict {
    /// The call runs at once.
    Run,
    /// The call is held for an approval.
    Ask,
    /// The call never runs.
    Forbid,
}

impl From<&Requirement> for PolicyVerdict {
    fn from(requirement: &Requirement) -> Self {
        match requirement {
            Requirement::Skip(_) => Self::Run,
            Requirement::NeedsApproval => Self::Ask,
            Requirement::Forbidden => Self::Forbid,
        }
    }
}

/// A rule of the server that covers some calls of a tool, by their inputs or by the roles of the user.
#[derive(Debug, Object)]
#[oai(rename = "PolicyRule")]
struct RuleView {
    /// The name of the rule in the configuration.
    name: String,
    effect: Word<Effect>,
    /// The reason that the approver and the model read.
    reason: String,
}

/// The policy in force for one tool.
#[derive(Debug, Object)]
#[oai(rename = "ToolPolicyInForce", skip_serializing_if_is_none)]
struct ToolInForceView {
    /// The tool whose calls are judged.
    tool_name: String,
    verdict: PolicyVerdict,
    /// The part of the policy that gives the verdict: always_allow, always_deny, role, session, tool, mode,
    /// definition, `rule:` and the name of a rule, or `remembered:` and the id of a grant.
    source: String,
    /// The reason for the verdict. Absent if the call runs.
    reason: Option<String>,
    /// The rules that cover some calls of the tool. The first one that covers a call counts, and a rule that
    /// denies counts before one that asks.
    rules: Vec<RuleView>,
    /// The remembered approvals that count for the tool. A grant with an `input_hash` approves only calls
    /// with these inputs.
    grants: Vec<GrantView>,
}

/// When remembered approvals end, unless they are revoked or the schema of their tool changes.
#[derive(Debug, Clone, Copy, Enum)]
#[oai(rename_all = "snake_case")]
enum GrantsEnd {
    /// They last until then.
    Never,
    /// At the end of the server's process.
    WithProcess,
}

/// The policy in force in a session. `mode` is that of the session, or else that of the server; `session` is the policy
/// of the session itself, as it was set.
#[derive(Debug, Object)]
#[oai(rename = "PolicyInForce")]
struct PolicyInForceView {
    /// The session in the path of the request, by its id.
    session_id: Id,
    mode: Word<ApprovalMode>,
    session: PolicyBody,
    grants_end: GrantsEnd,
    /// The tools that run for the caller; for an operator all tools.
    tools: Vec<ToolInForceView>,
}

impl PolicyInForceView {
    fn of(policy: PolicyInForce<'_>) -> Self {
        let PolicyInForce { session_id, session, mode, grants_last, tools } = policy;
        Self {
            session_id: Id::of(session_id),
            mode: mode.into(),
            session: (&session).into(),
            grants_end: if grants_last { GrantsEnd::Never } else { GrantsEnd::WithProcess },
            tools: tools.iter().map(ToolInForceView::of).collect(),
        }
    }
}

impl ToolInForceView {
    fn of(in_force: &ToolInForce<'_>) -> Self {
        let ToolInForce { tool, ruling, rules, grants } = in_force;
        let rules = rules.iter().map(|rule| RuleView {
            name: rule.name.clone(),
            effect: rule.effect.into(),
            reason: rule.reason.clone(),
        });
        Self {
            tool_name: tool.name.clone(),
            verdict: (&ruling.requirement).into(),
            source: ruling.source.text(),
            reason: Some(ruling.reason.clone()).filter(|reason| !reason.is_empty()),
            rules: rules.collect(),
            grants: grants.iter().map(GrantView::of).collect(),
        }
    }
}

/// Who may call the operations of this file.
pub(in crate::http) const ACCESS: Access =
    &[("setSessionPolicy", &[Owner, Operator]), ("getSessionPolicy", &[Owner, Operator])];

pub(in crate::http) struct Policies(pub(in crate::http) Api);

#[OpenApi]
impl Policies {
    /// Set the policy of a session
    ///
    /// The policy replaces the previous one. It takes precedence over the server's mode, but not over the
    /// tools that the server always denies or always allows, and not over the server's rules. The session's
    /// user may only tighten the policy; an operator may also loosen it. A waiting call that the policy forbids is
    /// rejected at once. A waiting call that it would let run still waits for its deciders.
    #[oai(
        path = "/sessions/:session_id/policy",
        method = "put",
        operation_id = "setSessionPolicy",
        tag = "Tag::Threads"
    )]
    async fn set_policy(
        &self,
        caller: Caller,
        /// The id of the session, or the caller's own name for its root thread.
        session_id: Path<ThreadRef>,
        body: Strict<PolicyBody>,
    ) -> Result<Json<PolicySetView>, ApiError> {
        let policy = &SessionPolicy::from(&body.0);
        let set = async |id| Ok(self.0.approvals.set_policy(&caller.0, id, policy).await?);
        let PolicySet { rejected, allowed } = self.0.with_thread(&caller, &session_id, set).await?;
        let ids = |calls: Vec<ToolCallId>| calls.into_iter().map(Id::of).collect();
        let PolicyBody { mode, tools } = body.0;
        let mode = mode.map(|mode| mode.0);
        Ok(Json(PolicySetView { mode, tools, rejected: ids(rejected), allowed: ids(allowed) }))
    }

    /// Get the policy in force in a session
    ///
    /// What happens to calls of each tool, and by which part of the policy: the server's configuration, the
    /// policy of the session, or a remembered approval. Allowed for the session's user and for operators. An
    /// operator that reads another user's session sees the rules about roles as rules that cover some calls.
    #[oai(
        path = "/sessions/:session_id/policy",
        method = "get",
        operation_id = "getSessionPolicy",
        tag = "Tag::Threads"
    )]
    async fn policy(
        &self,
        caller: Caller,
        /// The id of the session, or the caller's own name for its root thread.
        session_id: Path<ThreadRef>,
    ) -> Result<Json<PolicyInForceView>, ApiError> {
        let read = async |id| {
            let gate = self.0.approvals.gate();
            let in_force = self.0.approvals.policy_in_force(&gate, &caller.0, id).await?;
            Ok(Json(PolicyInForceView::of(in_force)))
        };
        self.0.with_thread(&caller, &session_id, read).await
    }
}
