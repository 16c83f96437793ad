//! Who has to be asked before a tool runs.

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_that_asks_is_never_cleared() {
        assert!(matches!(evaluate("delete_file", true), Requirement::NeedsApproval { .. }));
        assert!(matches!(evaluate("list_files", false), Requirement::Skip(_)));
    }
}
