//! How many people have to say yes to a call, and whose yes counts.

/// A person's yes, which may be one of several that are wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ApprovalVote {
    /// Who says it.
    pub(crate) by: String,
    /// The hash of the inputs that it is for.
    pub(crate) input_hash: String,
}

/// What a tool wants before one of its calls runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Quorum {
    /// How many people.
    pub(crate) people: usize,
    /// Whether who asked for the call is none of them.
    pub(crate) other_person: bool,
}

impl Quorum {
    /// Who of these agreed on the inputs with this hash, each once, the first first. All who are counted said yes to the
    /// same: what was approved otherwise edited is another matter.
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

    /// How many more are wanted, when so many have agreed.
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
    fn nobody_is_missing_once_there_are_enough() {
        let quorum = Quorum { people: 2, other_person: false };
        assert_eq!([0, 1, 2, 3].map(|agreed| quorum.missing(agreed)), [2, 1, 0, 0]);
    }
}
