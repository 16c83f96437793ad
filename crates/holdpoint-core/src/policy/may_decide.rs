//! The rights of users: to have a tool run, and to decide a held call.

/// Whether a tool runs on behalf of a user with these roles. The user needs one of `run_roles`; a tool
/// without `run_roles` runs for every user. For all other users the tool does not exist.
pub fn may_run(roles: &[String], run_roles: &[String]) -> bool {
    run_roles.is_empty() || roles.iter().any(|role| run_roles.contains(role))
}

/// The relation of a user to a held call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Relation {
    /// Whether the call is in one of the user's threads: same tenant and same user, with any token.
    pub requester: bool,
    /// Whether the tool of the call runs on the user's behalf.
    pub may_run: bool,
    /// Whether the user has a role that approves calls of the tool.
    pub approver: bool,
    /// Whether the tool requires an approver other than the requester.
    pub other_person: bool,
}

/// The decisions that a user may make about a held call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MayDecide {
    /// Approve or reject.
    ApproveOrReject,
    /// Reject only. A rejection runs nothing and does no harm, so the requester may always withdraw a call.
    OnlyReject,
    /// Neither. The user can see the call at most.
    Nothing,
}

/// Returns the decisions that this relation permits. The tool runs on the requester's behalf, so a requester
/// may approve only with the right to run the tool. A role that approves applies only to calls of other
/// users.
pub fn may_decide(relation: Relation) -> MayDecide {
    match relation {
        Relation { requester: true, may_run: true, other_person: false, .. } => MayDecide::ApproveOrReject,
        Relation { requester: true, .. } => MayDecide::OnlyReject,
        Relation { requester: false, approver: true, .. } => MayDecide::ApproveOrReject,
        Relation { requester: false, approver: false, .. } => MayDecide::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_may_run_a_tool_with_one_of_its_exact_roles_or_a_tool_without_roles() {
        let roles = |roles: &[&str]| roles.iter().map(|role| (*role).to_owned()).collect::<Vec<_>>();
        for (run_roles, theirs, runs) in [
            (&[][..], &[][..], true),
            (&[], &["clerk"], true),
            (&["clerk"], &[], false),
            (&["clerk"], &["clerk"], true),
            (&["clerk", "chief"], &["guest", "chief"], true),
            (&["clerk", "clerk"], &["clerk", "clerk"], true),
            (&["clerk"], &["clerks"], false),
            (&["clerks"], &["clerk"], false),
            (&["clerk"], &["Clerk"], false),
            (&["clerk"], &[" clerk"], false),
            (&["clerk"], &["clerk chief"], false),
            (&["clerk"], &["*"], false),
            (&["clerk"], &[""], false),
        ] {
            assert_eq!(may_run(&roles(theirs), &roles(run_roles)), runs, "{theirs:?} for {run_roles:?}");
        }
    }

    #[test]
    fn a_requester_may_approve_only_a_tool_they_may_run_that_needs_no_other_person() {
        let all = [true, false];
        for (may_run, approver, other_person) in
            all.into_iter().flat_map(|a| all.into_iter().flat_map(move |b| all.map(|c| (a, b, c))))
        {
            let of = |requester| may_decide(Relation { requester, may_run, approver, other_person });
            let own =
                if may_run && !other_person { MayDecide::ApproveOrReject } else { MayDecide::OnlyReject };
            assert_eq!(of(true), own, "{may_run} {approver} {other_person}");
            let others = if approver { MayDecide::ApproveOrReject } else { MayDecide::Nothing };
            assert_eq!(of(false), others, "{may_run} {approver} {other_person}");
        }
    }
}
