//! Quorums: how many approvals a call needs, and which approvals count.

use super::clock::Timestamp;

/// A vote: one person's approval, which may be one of several that a call needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApprovalVote {
    /// The voter.
    pub by: String,
    /// The approver as whose delegate the voter votes.
    pub on_behalf_of: Option<String>,
    /// The hash of the approved inputs.
    pub input_hash: String,
    /// The note of the voter.
    pub note: Option<String>,
    /// Whether the approved inputs are not the proposed ones.
    pub edited: bool,
    /// The time of the vote.
    pub at: Timestamp,
}

impl ApprovalVote {
    /// Whether this actor voted, in person or by a delegate.
    pub fn is_of(&self, actor: &str) -> bool {
        self.by == actor || self.on_behalf_of.as_deref() == Some(actor)
    }

    /// Whether the vote is that of this actor, or of the approver as whose delegate the actor votes.
    pub fn shares_a_person(&self, actor: &str, on_behalf_of: Option<&str>) -> bool {
        self.is_of(actor) || on_behalf_of.is_some_and(|delegator| self.is_of(delegator))
    }
}

/// The approvals that a tool requires for each call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quorum {
    /// The number of people.
    pub people: usize,
    /// Whether the requester's own vote does not count.
    pub other_person: bool,
}

impl Quorum {
    /// Returns the votes that count for the inputs with this hash, in order. Votes for other inputs, such as edited
    /// ones, do not count. Each person counts once: a voter has one vote, in person or for an
    /// approver, and an approver has one vote, in person or by a delegate.
    pub fn agreed<'a>(
        self,
        votes: &'a [ApprovalVote],
        requester: &str,
        input_hash: &str,
    ) -> Vec<&'a ApprovalVote> {
        let mut agreed: Vec<&ApprovalVote> = Vec::new();
        for vote in votes.iter().filter(|vote| vote.input_hash == input_hash) {
            let counts = self.counts(&vote.by, requester)
                && vote.on_behalf_of.as_ref().is_none_or(|delegator| self.counts(delegator, requester));
            if counts
                && !agreed.iter().any(|other| other.shares_a_person(&vote.by, vote.on_behalf_of.as_deref()))
            {
                agreed.push(vote);
            }
        }
        agreed
    }

    /// Whether the vote of this actor counts.
    pub fn counts(self, actor: &str, requester: &str) -> bool {
        !(self.other_person && actor == requester)
    }

    /// Returns how many votes are missing after `agreed` votes.
    pub fn missing(self, agreed: usize) -> usize {
        self.people.saturating_sub(agreed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_person_counts_once_and_only_for_the_inputs_they_agreed_on() {
        let at = Timestamp::from_micros(0);
        let yes = |by: &str, hash: &str| ApprovalVote {
            by: by.to_owned(),
            on_behalf_of: None,
            input_hash: hash.to_owned(),
            note: None,
            edited: false,
            at,
        };
        let votes = [yes("b", "x"), yes("a", "x"), yes("b", "x"), yes("b", "y"), yes("c", "y")];
        for (other_person, hash, expected) in [
            (false, "x", &["b", "a"][..]),
            (true, "x", &["b"]),
            (false, "y", &["b", "c"]),
            (true, "y", &["b", "c"]),
            (false, "z", &[]),
        ] {
            let agreed = Quorum { people: 3, other_person }.agreed(&votes, "a", hash);
            let agreed: Vec<&str> = agreed.iter().map(|vote| vote.by.as_str()).collect();
            assert_eq!(agreed, expected, "{other_person} {hash}");
        }
    }

    #[test]
    fn a_delegate_and_the_approver_count_together_once() {
        let at = Timestamp::from_micros(0);
        let vote = |by: &str, on_behalf_of: Option<&str>| ApprovalVote {
            by: by.to_owned(),
            on_behalf_of: on_behalf_of.map(str::to_owned),
            input_hash: "x".to_owned(),
            note: None,
            edited: false,
            at,
        };
        for (votes, expected) in [
            // The delegate votes, then the approver.
            (vec![vote("b", Some("a")), vote("a", None)], &["b"][..]),
            // The other way around.
            (vec![vote("a", None), vote("b", Some("a"))], &["a"]),
            // The delegate has a vote of their own.
            (vec![vote("b", None), vote("b", Some("a"))], &["b"]),
            // One delegate of two approvers, and two delegates of one approver.
            (vec![vote("b", Some("a")), vote("b", Some("c"))], &["b"]),
            (vec![vote("b", Some("a")), vote("c", Some("a")), vote("c", None)], &["b", "c"]),
            // The requester votes neither in person nor by a delegate nor as one.
            (vec![vote("r", None), vote("b", Some("r")), vote("r", Some("a"))], &[]),
        ] {
            let agreed = Quorum { people: 3, other_person: true }.agreed(&votes, "r", "x");
            let agreed: Vec<&str> = agreed.iter().map(|vote| vote.by.as_str()).collect();
            assert_eq!(agreed, expected, "{votes:?}");
        }
    }

    #[test]
    fn no_vote_is_missing_once_the_quorum_is_complete() {
        let quorum = Quorum { people: 2, other_person: false };
        assert_eq!([0, 1, 2, 3].map(|agreed| quorum.missing(agreed)), [2, 1, 0, 0]);
    }
}
