//! Quorums: how many approvals a call needs, and which approvals count.

/// A vote: one person's approval, which may be one of several that a call needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ApprovalVote {
    /// The voter.
    pub(crate) by: String,
    /// The hash of the approved inputs.
    pub(crate) input_hash: String,
}

/// The approvals that a tool requires for each call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Quorum {
    /// The number of people.
    pub(crate) people: usize,
    /// Whether the requester's own vote does not count.
    pub(crate) other_person: bool,
}

impl Quorum {
    /// Returns the voters for the inputs with this hash, each once, in order of their votes. Votes for other
    /// inputs, such as edited ones, do not count.
    pub(crate) fn agreed(self, votes: &[ApprovalVote], requester: &str, input_hash: &str) -> Vec<String> {
        let mut agreed: Vec<String> = Vec::new();
        for yes in votes.iter().filter(|yes| yes.input_hash == input_hash) {
            let counts = !(self.other_person && yes.by == requester);
            if counts && !agreed.contains(&yes.by) {
                agreed.push(yes.by.clone());
            }
        }
        agreed
    }

    /// Returns how many votes are missing after `agreed` votes.
    pub(crate) fn missing(self, agreed: usize) -> usize {
        self.people.saturating_sub(agreed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_person_counts_once_and_only_for_the_inputs_they_agreed_on() {
        let yes = |by: &str, hash: &str| ApprovalVote { by: by.to_owned(), input_hash: hash.to_owned() };
        let votes = [yes("b", "x"), yes("a", "x"), yes("b", "x"), yes("b", "y"), yes("c", "y")];
        for (other_person, hash, expected) in [
            (false, "x", &["b", "a"][..]),
            (true, "x", &["b"]),
            (false, "y", &["b", "c"]),
            (true, "y", &["b", "c"]),
            (false, "z", &[]),
        ] {
            let agreed = Quorum { people: 3, other_person }.agreed(&votes, "a", hash);
            assert_eq!(agreed, expected, "{other_person} {hash}");
        }
    }

    #[test]
    fn no_vote_is_missing_once_the_quorum_is_complete() {
        let quorum = Quorum { people: 2, other_person: false };
        assert_eq!([0, 1, 2, 3].map(|agreed| quorum.missing(agreed)), [2, 1, 0, 0]);
    }
}
