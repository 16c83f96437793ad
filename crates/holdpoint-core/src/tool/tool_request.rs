//! Requests of executing calls to people: a message, the schema of an answer, and at most one answer.

use crate::clock::Timestamp;
use crate::id::{RequestId, ToolCallId};
use crate::json::canonical::canonical_hash;
use crate::quorum::Quorum;
use crate::text::visible::{escaped_lines, show_texts};
use crate::tool::input::Input;
use crate::vocabulary;
use serde_json::json;

/// A request as stored.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolRequest {
    /// The id of the request.
    pub id: RequestId,
    /// The call that waits for the answer.
    pub tool_call_id: ToolCallId,
    /// What the tool asks for.
    pub question: Question,
    /// The state.
    pub state: RequestState,
    /// The time of the request.
    pub created_at: Timestamp,
    /// The time after which the tool does not wait any more.
    pub expires_at: Timestamp,
    /// The author and the time of the answer, if there is one.
    pub answered: Option<(String, Timestamp)>,
    /// The hash of the content, if the answer has one.
    pub content_hash: Option<String>,
}

/// What a tool asks.
#[derive(Debug, Clone, PartialEq)]
pub struct Question {
    /// The kind of the request.
    pub kind: RequestKind,
    /// The text for the person.
    pub message: String,
    /// The JSON Schema of the content of an answer.
    pub schema: Input,
}

impl Question {
    /// Returns the question, with the characters escaped that a reader cannot see.
    pub fn new(kind: RequestKind, message: &str, mut schema: Input) -> Self {
        show_texts(&mut schema);
        Self { kind, message: escaped_lines(message), schema }
    }
}

vocabulary! {
    /// What a tool asks for. `elicitation`: an MCP server asks for the fields of a form. `custom`: a tool of the application
    /// asks, with a schema of its own.
    pub enum RequestKind as "ToolRequestKind" {
        /// An MCP server asks for the fields of a form.
        Elicitation = "elicitation",
        /// A tool of the application asks, with a schema of its own.
        Custom = "custom",
    }

    /// The state of a request. `open` waits for an answer; the others are final. `withdrawn` ended with its call, or the tool
    /// waits no longer.
    pub enum RequestState as "ToolRequestState" {
        /// The tool waits for an answer.
        Open = "open",
        /// The tool got the content.
        Accepted = "accepted",
        /// The tool got no content, and may continue without it.
        Declined = "declined",
        /// The tool got no content, and is asked to end what it does.
        Cancelled = "cancelled",
        /// No answer arrived in time.
        Expired = "expired",
        /// The call ended, or the tool does not wait any more.
        Withdrawn = "withdrawn",
    }
}

/// An answer to a request.
#[derive(Clone, PartialEq)]
pub enum Answer {
    /// The content, which fits the schema of the request.
    Accept(Input),
    /// No content. The tool may continue without it.
    Decline,
    /// No content. The tool should end what it does.
    Cancel,
}

/// What a person or a handler says to a request.
#[derive(Debug, Clone, PartialEq)]
pub enum Reply {
    /// This answer.
    Give(Answer),
    /// The proposed content with this hash.
    Confirm(String),
}

/// The content of an answer. Its debug form has no field of it.
#[derive(Clone, PartialEq)]
pub struct Content(pub Input);

impl std::fmt::Debug for Content {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("content")
    }
}

/// What one person proposes as the content of an answer that needs several people.
#[derive(Debug, Clone)]
pub struct ContentVote {
    /// The person, or the handler.
    pub by: String,
    /// The content. `None` after the end of the request.
    pub content: Option<Content>,
    /// The hash of the content.
    pub content_hash: String,
    /// The time of the vote.
    pub at: Timestamp,
}

/// A proposed content, with all that propose it.
#[derive(Debug, Clone)]
pub struct Proposal {
    /// The hash of the content.
    pub content_hash: String,
    /// The content.
    pub content: Content,
    /// The people whose votes count, first vote first.
    pub by: Vec<String>,
    /// The time of the first vote.
    pub at: Timestamp,
}

impl Proposal {
    /// Returns the proposals of these votes, which are in order, first proposal first. Votes that do not count for this
    /// quorum are left out. Each person has one vote.
    pub fn of(votes: &[ContentVote], quorum: Quorum, requester: &str) -> Vec<Self> {
        let mut proposals: Vec<Self> = Vec::new();
        for vote in votes.iter().filter(|vote| quorum.counts(&vote.by, requester)) {
            if let Some(same) = proposals.iter_mut().find(|it| it.content_hash == vote.content_hash) {
                same.by.push(vote.by.clone());
            } else if let Some(content) = vote.content.clone() {
                let (content_hash, by) = (vote.content_hash.clone(), vec![vote.by.clone()]);
                proposals.push(Self { content_hash, content, by, at: vote.at });
            }
        }
        proposals
    }
}

impl std::fmt::Debug for Answer {
    /// Leaves out the content, which must not reach a log.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.state().word())
    }
}

impl Answer {
    /// Returns the state of a request with this answer.
    pub const fn state(&self) -> RequestState {
        match self {
            Self::Accept(_) => RequestState::Accepted,
            Self::Decline => RequestState::Declined,
            Self::Cancel => RequestState::Cancelled,
        }
    }

    /// Returns the hash of the content, if there is one.
    pub fn content_hash(&self, of: RequestId) -> Option<String> {
        match self {
            Self::Accept(content) => Some(content_hash(of, content)),
            Self::Decline | Self::Cancel => None,
        }
    }
}

/// Returns the hash of a content. Each request has hashes of its own.
pub fn content_hash(of: RequestId, content: &Input) -> String {
    canonical_hash(&json!([of.to_string(), content]))
}

impl Reply {
    /// Returns the state of a request that ends with this reply.
    pub const fn state(&self) -> RequestState {
        match self {
            Self::Give(answer) => answer.state(),
            Self::Confirm(_) => RequestState::Accepted,
        }
    }

    /// Returns the hash of the content, if there is one.
    pub fn content_hash(&self, of: RequestId) -> Option<String> {
        match self {
            Self::Give(answer) => answer.content_hash(of),
            Self::Confirm(hash) => Some(hash.clone()),
        }
    }
}

impl ToolRequest {
    /// Whether the request has this answer, and this actor gave it, alone or as one of these votes.
    pub fn has(&self, reply: &Reply, by: &str, votes: &[ContentVote]) -> bool {
        let content_hash = reply.content_hash(self.id);
        let answered = self.answered.as_ref().is_some_and(|(actor, _)| actor == by);
        let voted = |vote: &ContentVote| vote.by == by && content_hash.as_ref() == Some(&vote.content_hash);
        self.state == reply.state()
            && self.content_hash == content_hash
            && (answered || votes.iter().any(voted))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    #[test]
    fn the_debug_form_of_an_answer_has_no_content() {
        let content = json!({ "pin": "1234" }).as_object().unwrap().clone();
        let answer = Answer::Accept(content);
        assert_eq!(format!("{answer:?} {:?}", Reply::Give(answer.clone())), "accepted Give(accepted)");
        let Answer::Accept(content) = &answer else { panic!("it has a content") };
        assert_eq!(format!("{:?}", Content(content.clone())), "content");
        let hash = |n| answer.content_hash(RequestId::new(Uuid::from_u128(n))).unwrap();
        assert_ne!(hash(1), hash(2));
    }
}
