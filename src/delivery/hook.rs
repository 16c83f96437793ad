//! Hooks: routes at which the service of a channel reports what people do with its messages.
//!
//! The service signs its requests and sends no token. `http` serves each hook as a POST at its path, hands over the head
//! before it reads the body, and maps what comes back to statuses. It knows no channel.

use async_trait::async_trait;
use holdpoint_core::clock::Timestamp;
use reqwest::header::HeaderMap;
use serde_json::Value;

/// A route of a channel.
#[async_trait]
pub(crate) trait InboundHook: Send + Sync {
    /// The path, without `/api`.
    fn path(&self) -> &'static str;

    /// Checks what the head alone can show, before the body is read.
    fn check_head(&self, headers: &HeaderMap, now: Timestamp) -> Result<(), HookRefusal>;

    /// Verifies that the service sent this body.
    fn verify(&self, headers: &HeaderMap, body: Vec<u8>, now: Timestamp)
    -> Result<VerifiedBody, HookRefusal>;

    /// Does what the service reports.
    async fn handle(&self, body: VerifiedBody) -> Result<HookAnswer, UnreadableReport>;
}

/// A body that the service of the hook has sent. Only a hook makes one.
pub(crate) struct VerifiedBody(Vec<u8>);

impl VerifiedBody {
    /// Marks a body whose signature was verified.
    pub(super) const fn new(body: Vec<u8>) -> Self {
        Self(body)
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Why a request is not from the service. The texts are fixed, for the log and for the sender.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HookRefusal {
    /// The scheme of the challenge.
    pub(crate) scheme: &'static str,
    /// The expected request, in a sentence.
    pub(crate) expected: &'static str,
    /// The cause, in a sentence.
    pub(crate) why: &'static str,
}

/// What the service gets as an answer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum HookAnswer {
    /// A success without a body.
    Done,
    /// A success with this body.
    Json(Value),
}

/// A verified body that cannot be read. The text names the field and what was expected.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct UnreadableReport(pub(crate) String);
