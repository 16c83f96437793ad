//! Who has to be asked before a tool runs, and who may answer.

use super::Principal;
use super::id::ToolCallId;

/// What the policy requires of a call.
#[derive(Debug)]
pub(crate) enum Requirement {
    /// Nobody is asked.
    Skip(Cleared),
    /// A person is asked, for this reason.
    NeedsApproval {
        /// The reason, for the person.
        reason: String,
    },
}

/// What becomes of a call that a model asks for.
#[derive(Debug)]
pub(crate) enum Judgement {
    /// It runs now.
    Cleared(Cleared),
    /// The marker that stands where its execution would: it waits for a person, for this reason.
    Held(String),
    /// It repeats this call, about which a person is being asked: nobody is asked again.
    Duplicate(ToolCallId),
    /// It cannot be run; why, for the model.
    Invalid(String),
}

/// Evidence that the policy said a call may run without a person. Only [`evaluate`] makes one, and without
/// one no call is stored as executing when the model asks for it.
#[derive(Debug)]
pub(crate) struct Cleared(());

/// Decides by the tool's own word: `HIL` asks.
pub(crate) fn evaluate(tool_name: &str, hil: bool) -> Requirement {
    if hil {
        Requirement::NeedsApproval { reason: format!("{tool_name} runs only with a person's approval") }
    } else {
        Requirement::Skip(Cleared(()))
    }
}

/// Whether a tool runs on behalf of this principal: for who has one of its roles, or for everybody where it has none.
/// For others it does not exist.
pub(crate) fn may_run(principal: &Principal, run_roles: &[String]) -> bool {
    run_roles.is_empty() || principal.has_one_of(run_roles)
}

/// How somebody stands to a held call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Standing {
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
pub(crate) enum Say {
    /// Yes or no.
    YesOrNo,
    /// No, and not yes. A rejection runs nothing and hurts nobody, so the requester may always take back what was
    /// asked in their name.
    OnlyNo,
    /// Nothing: to them the call is not there.
    Nothing,
}

/// What who stands so may say. The tool runs on the requester's behalf, so nothing but their being allowed to run it
/// makes up for their own yes; a role that approves is for the calls of others.
pub(crate) fn say(standing: Standing) -> Say {
    match standing {
        Standing { requester: true, may_run: true, other_person: false, .. } => Say::YesOrNo,
        Standing { requester: true, .. } => Say::OnlyNo,
        Standing { requester: false, approver: true, .. } => Say::YesOrNo,
        Standing { requester: false, approver: false, .. } => Say::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_that_asks_is_never_cleared() {
        assert!(matches!(evaluate("delete_file", true), Requirement::NeedsApproval { .. }));
        assert!(matches!(evaluate("list_files", false), Requirement::Skip(_)));
    }

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
            let principal = Principal { roles: roles(theirs), ..Principal::local() };
            assert_eq!(may_run(&principal, &roles(run_roles)), runs, "{theirs:?} for {run_roles:?}");
        }
    }

    #[test]
    fn who_asked_says_yes_only_where_they_may_run_it_and_nobody_else_is_wanted() {
        let all = [true, false];
        for (may_run, approver, other_person) in
            all.into_iter().flat_map(|a| all.into_iter().flat_map(move |b| all.map(|c| (a, b, c))))
        {
            let of = |requester| say(Standing { requester, may_run, approver, other_person });
            let own = if may_run && !other_person { Say::YesOrNo } else { Say::OnlyNo };
            assert_eq!(of(true), own, "{may_run} {approver} {other_person}");
            let others = if approver { Say::YesOrNo } else { Say::Nothing };
            assert_eq!(of(false), others, "{may_run} {approver} {other_person}");
        }
    }
}
