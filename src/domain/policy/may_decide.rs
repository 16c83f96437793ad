//! Who may have a tool run, and who may answer for a call.

/// Whether a tool runs on behalf of somebody with these roles: for who has one of its own, or for everybody where it has
/// none. For others it does not exist.
pub(crate) fn may_run(roles: &[String], run_roles: &[String]) -> bool {
    run_roles.is_empty() || roles.iter().any(|role| run_roles.contains(role))
}

/// How somebody stands to a held call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Relation {
    /// Whether it is of a thread of theirs: the same tenant and user, with whatever token they come.
    pub(crate) requester: bool,
    /// Whether its tool runs on their behalf.
    pub(crate) may_run: bool,
    /// Whether they have a role that approves its tool's calls.
    pub(crate) approver: bool,
    /// Whether its tool wants another person than the requester.
    pub(crate) other_person: bool,
}

/// What somebody may say about a held call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MayDecide {
    /// Yes or no.
    ApproveOrReject,
    /// No, and not yes. A rejection runs nothing and hurts nobody, so the requester may always take back what was
    /// asked in their name.
    OnlyReject,
    /// Nothing: they see it at most.
    Nothing,
}

/// What who stands so may say. The tool runs on the requester's behalf, so nothing but their being allowed to run it
/// makes up for their own yes; a role that approves is for the calls of others.
pub(crate) fn may_decide(standing: Relation) -> MayDecide {
    match standing {
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
    fn a_tool_runs_for_who_has_one_of_its_roles_as_it_is_written_and_without_roles_for_everybody() {
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
    fn who_asked_says_yes_only_where_they_may_run_it_and_nobody_else_is_wanted() {
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
