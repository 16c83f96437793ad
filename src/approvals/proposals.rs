//! Answers that need several people: the first proposes a content, and the others confirm it.
//!
//! A vote counts for its content only. A person has one vote, and a later one replaces it. To decline or to cancel, one
//! person is enough.

use super::{AnswerError, Approvals};
use crate::tools::InputError;
use holdpoint_core::quorum::Quorum;
use holdpoint_core::tool::tool_request::{
    Answer, Content, ContentVote, Proposal, Reply, ToolRequest, content_hash,
};
use holdpoint_store::{LockedCall, Write};
use serde_json::Value;

/// Maximum length of a proposed content as JSON, in bytes. Every list of requests has the proposals.
const PROPOSAL_BYTES_MAX: usize = 64 * 1024;

/// A vote for the content of an answer, after which more people have to confirm it.
#[derive(Debug)]
pub(crate) struct Proposed {
    /// The hash of the content, by which others confirm it.
    pub(crate) content_hash: String,
    /// The actors that propose this content.
    pub(crate) confirmed_by: Vec<String>,
    /// The number of people that have to propose it.
    pub(crate) required: usize,
}

/// The result of an answer that may need several people.
pub(super) enum Agreement {
    /// This answer counts now, with the votes of these other actors.
    On(Answer, Vec<String>),
    /// More people have to confirm it. A new vote is stored, and not committed; the same vote as before changes nothing.
    NotYet {
        /// The vote.
        proposed: Proposed,
        /// Whether the actor had the same vote before.
        is_repeated: bool,
    },
}

impl Approvals {
    /// Counts a reply to an open request of a locked call. Until the transaction ends, no other one counts, answers or
    /// ends the request.
    pub(super) async fn count_reply(
        write: &Write,
        locked: &LockedCall,
        request: &ToolRequest,
        votes: &[ContentVote],
        quorum: Quorum,
        reply: &Reply,
        by: &str,
    ) -> Result<Agreement, AnswerError> {
        let (given, content_hash) = match reply {
            Reply::Give(answer @ (Answer::Decline | Answer::Cancel)) => {
                return Ok(Agreement::On(answer.clone(), Vec::new()));
            }
            Reply::Give(Answer::Accept(content)) => (Some(content), content_hash(request.id, content)),
            Reply::Confirm(content_hash) => (None, content_hash.clone()),
        };
        let proposals = Proposal::of(votes, quorum, &locked.thread.actor());
        let same = proposals.into_iter().find(|proposal| proposal.content_hash == content_hash);
        let (proposed, mut others) = match same {
            Some(Proposal { content, by, .. }) => (Some(content), by),
            None => (None, Vec::new()),
        };
        let content = given.cloned().map(Content).or(proposed).ok_or(AnswerError::NotProposed)?;
        if quorum.people <= 1 {
            return Ok(Agreement::On(Answer::Accept(content.0), Vec::new()));
        }
        let is_repeated = others.iter().any(|actor| actor == by);
        others.retain(|actor| actor != by);
        if !is_repeated {
            fits_in_a_list(&content)?;
            write.vote_for_content(request, &content_hash, &content, by).await?;
        }
        let missing = quorum.missing(others.len().saturating_add(1));
        if missing == 0 {
            return Ok(Agreement::On(Answer::Accept(content.0), others));
        }
        let confirmed_by: Vec<String> = others.into_iter().chain([by.to_owned()]).collect();
        if !is_repeated {
            write.content_proposed(locked, request, by, &confirmed_by, missing);
        }
        let proposed = Proposed { content_hash, confirmed_by, required: quorum.people };
        Ok(Agreement::NotYet { proposed, is_repeated })
    }
}

/// Refuses a content that is too long to be shown to those that have to confirm it.
fn fits_in_a_list(Content(content): &Content) -> Result<(), AnswerError> {
    if Value::Object(content.clone()).to_string().len() <= PROPOSAL_BYTES_MAX {
        return Ok(());
    }
    let message = format!("expected at most {PROPOSAL_BYTES_MAX} bytes: more people have to confirm it");
    Err(AnswerError::InvalidContent(vec![InputError { pointer: String::new(), message }]))
}
