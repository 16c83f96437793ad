//! A held call with all that a decider may know about it.

use crate::approvals::{ApprovalDetail, Approvals};
use crate::http::Api;
use crate::http::access::{
    Access,
    CallerKind::{Approver, Delegate, Operator, Owner},
};
use crate::http::approvals::decision_view::DecisionView;
use crate::http::approvals::delegation::DelegationView;
use crate::http::approvals::inbox::ApprovalView;
use crate::http::auth::Caller;
use crate::http::body::formats::{Hash, Id, Time};
use crate::http::body::payload::{Json, Tag};
use crate::http::failure::error::ApiError;
use crate::http::routes::call::CallState;
use crate::http::routes::sessions::GrantView;
use crate::tools::gate::Gate;
use holdpoint_core::Principal;
use holdpoint_core::call::ToolCall;
use holdpoint_core::quorum::ApprovalVote;
use holdpoint_store::{CallContext, Excerpt};
use poem_openapi::param::Path;
use poem_openapi::{Object, OpenApi};

/// A call that is or was held for an approval, with what surrounds it.
#[derive(Debug, Object)]
#[oai(rename = "ApprovalDetail", skip_serializing_if_is_none)]
struct DetailView {
    #[oai(flatten)]
    approval: ApprovalView,
    policy: HoldPolicy,
    /// The last decisions of people about other calls of the same tool for the same user, the latest first: at most
    /// ten, of the calls that the caller may see.
    history: Vec<EarlierDecision>,
    others: OtherDeciders,
    /// The latest time until which the caller may let the call wait, with `POST /tool_calls/{tool_call_id}/extend`. Absent
    /// if the call waits as long already, or does not wait, or the caller may not approve it.
    extendable_until: Option<Time>,
    /// Whether the caller may let another person decide in the caller's place, with `POST
    /// /approvals/{tool_call_id}/delegate`.
    can_delegate: bool,
    /// Whether the outcome of the call is unknown and the caller may record it, with `POST
    /// /tool_calls/{tool_call_id}/resolve`.
    can_resolve: bool,
    context: Option<ContextView>,
    grant: Option<GrantView>,
}

/// Why the call is held.
#[derive(Debug, Object)]
#[oai(skip_serializing_if_is_none)]
struct HoldPolicy {
    /// The part of the policy that holds the call: `rule:` and the name of a rule, `session`, or `tool`.
    source: Option<String>,
    /// The reason that the rule or the tool gives.
    reason: Option<String>,
}

/// A decision about another call.
#[derive(Debug, Object)]
#[oai(skip_serializing_if_is_none)]
struct EarlierDecision {
    /// The other call, for `GET /approvals/{tool_call_id}`.
    tool_call_id: Id,
    /// The question of the tool about that call, with its proposed inputs.
    headline: Option<String>,
    state: CallState,
    decision: DecisionView,
}

/// The people that may decide the call, and the approvals so far.
#[derive(Debug, Object)]
struct OtherDeciders {
    /// The roles that may decide the calls of the tool for other users: `tools.<name>.approve_roles`.
    approve_roles: Vec<String>,
    /// Whether the user of the thread may only reject: `tools.<name>.other_person`.
    other_person: bool,
    /// The approvals so far, the oldest first, those of other inputs included.
    votes: Vec<VoteView>,
    /// The delegations of the call, the oldest first, those included that are over. One that its approver replaced by
    /// another is not.
    delegations: Vec<DelegationView>,
}

/// One approval of the call.
#[derive(Debug, Object)]
#[oai(rename = "ApprovalVote", skip_serializing_if_is_none)]
struct VoteView {
    /// The actor of the approval.
    by: String,
    /// The approver in whose place the actor approved, as an actor.
    on_behalf_of: Option<String>,
    /// The note of the actor.
    note: Option<String>,
    /// When the approval was committed.
    at: Time,
    /// Whether the approved inputs differ from the proposed ones.
    edited: bool,
    /// The hash of the approved inputs. Only approvals with the same hash count together.
    input_hash: Hash,
}

/// The words before the call. Absent unless the caller is the user of the thread, or `approval.share_context` is
/// `approvers` and the caller may decide the call.
#[derive(Debug, Object)]
#[oai(rename = "HoldContext", skip_serializing_if_is_none)]
struct ContextView {
    user: Option<ExcerptView>,
    model: Option<ExcerptView>,
}

/// A text of the conversation, or a part of it: of `user` the beginning of the message that the run answers (in the
/// thread of a sub-agent, of its task), of `model` the end of the text before the call in the same step. Plain text.
#[derive(Debug, Object)]
#[oai(rename = "Excerpt")]
struct ExcerptView {
    /// The text, at most 2000 characters.
    text: String,
    /// Whether the message or the text is longer.
    is_cut: bool,
}

impl DetailView {
    fn of(detail: ApprovalDetail, principal: &Principal, approvals: &Approvals, gate: &Gate) -> Self {
        let ApprovalDetail { seen, blocked, source, history, approve_roles, other_person, .. } = detail;
        let status = approvals.decision_status(gate, principal, &seen, &blocked);
        let ApprovalDetail { extendable_until, can_delegate, can_resolve, words, grant, .. } = detail;
        let votes = seen.votes.iter().map(VoteView::of).collect();
        let delegations = seen.delegations.iter().map(DelegationView::of).collect();
        Self {
            approval: ApprovalView::of(&seen, status, gate),
            policy: HoldPolicy { source, reason: seen.call.reason },
            history: history.iter().filter_map(|call| EarlierDecision::of(call, gate)).collect(),
            others: OtherDeciders { approve_roles, other_person, votes, delegations },
            extendable_until: extendable_until.map(Time::from),
            can_delegate,
            can_resolve,
            context: words.map(ContextView::of),
            grant: grant.as_ref().map(GrantView::of),
        }
    }
}

impl EarlierDecision {
    fn of(call: &ToolCall, gate: &Gate) -> Option<Self> {
        let decision = DecisionView::of(call.decision.as_ref()?);
        let tool = gate.registry().get(&call.name).filter(|_| !call.unreadable);
        let headline =
            tool.and_then(|tool| tool.headline(&call.shown_proposal())).map(|headline| headline.to_string());
        Some(Self { tool_call_id: Id::of(call.id), headline, state: (&call.state).into(), decision })
    }
}

impl VoteView {
    fn of(vote: &ApprovalVote) -> Self {
        let ApprovalVote { by, on_behalf_of, input_hash, note, edited, at } = vote.clone();
        Self { note, by, on_behalf_of, at: at.into(), edited, input_hash: input_hash.into() }
    }
}

impl ContextView {
    fn of(words: CallContext) -> Self {
        Self { user: words.user.map(ExcerptView::of), model: words.model.map(ExcerptView::of) }
    }
}

impl ExcerptView {
    fn of(Excerpt { text, is_cut }: Excerpt) -> Self {
        Self { text, is_cut }
    }
}

/// Who may call the operations of this file.
pub(in crate::http) const ACCESS: Access = &[("getApproval", &[Owner, Approver, Delegate, Operator])];

pub(in crate::http) struct Details(pub(in crate::http) Api);

#[OpenApi(tag = "Tag::Approvals")]
impl Details {
    /// Get a held call with what surrounds it
    ///
    /// Returns the item of the lists, and besides it the part of the policy that asks, earlier decisions about the same
    /// tool and user, the people that may decide, and the words before the call if the caller may read them. Allowed
    /// for the thread's user, for callers with a role that approves the tool's calls, for the delegate of an approver until
    /// the end of the delegation, and for operators. A call that was never held is not found.
    #[oai(path = "/approvals/:tool_call_id", method = "get", operation_id = "getApproval")]
    async fn get(
        &self,
        caller: Caller,
        /// The held call, as a list or an event names it.
        tool_call_id: Path<Id>,
    ) -> Result<Json<DetailView>, ApiError> {
        let id = tool_call_id.0.parse().map_err(|_| ApiError::not_found())?;
        let approvals = &self.0.approvals;
        let gate = approvals.gate();
        let detail = approvals.detail(&gate, &caller.0, id).await?.ok_or_else(ApiError::not_found)?;
        Ok(Json(DetailView::of(detail, &caller.0, approvals, &gate)))
    }
}
