//! The reasons why a command of an approver fails, and its exit codes.

use holdpoint_core::text::visible::visible;
use holdpoint_settings::ConfigError;
use serde::Deserialize;
use serde_json::Value;
use std::fmt::{self, Display, Formatter};
use std::io;

/// The reason why a command failed. The texts are for the person at the terminal, and contain no character
/// that controls it.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// A flag or a variable cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The arguments do not fit together, or do not fit the place of the command.
    #[error("{0}")]
    Usage(String),
    /// No response, or half of one.
    #[error("{key}: the server at {url} cannot be reached: {why}{}", unknown(*decides))]
    Unreachable {
        /// The address of the server.
        url: String,
        /// The flag or the variable with the address.
        key: &'static str,
        /// The cause.
        why: String,
        /// Whether the request was a decision.
        decides: bool,
    },
    /// The server answered with an error.
    #[error("{0}")]
    Refused(Box<Refusal>),
    /// The server answered with something else than expected.
    #[error("the response of the server cannot be read: {0}")]
    Unreadable(String),
    /// No call has this id.
    #[error("{0}")]
    NoCall(String),
    /// The person left the call undecided.
    #[error("nothing is decided")]
    Undecided,
    /// The approval is not offered, for this reason.
    #[error("nothing is decided: {0}")]
    NotOffered(String),
    /// The output cannot be written, or the keyboard cannot be read.
    #[error("the terminal: {0}")]
    Terminal(#[from] io::Error),
}

/// The exit code of a command that did what it was asked to do.
const DONE: u8 = 0;
const FAILED: u8 = 1;
const USAGE: u8 = 2;
const ALREADY_DECIDED: u8 = 3;
const STALE: u8 = 4;
const UNDECIDED: u8 = 5;

impl Failure {
    /// Returns the exit code of the command.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Config(_) | Self::Usage(_) => USAGE,
            Self::Undecided | Self::NotOffered(_) => UNDECIDED,
            Self::Refused(refusal) => refusal.exit_code(),
            // The reader of the output has what it wanted, as in `list | head -1`.
            Self::Terminal(error) if error.kind() == io::ErrorKind::BrokenPipe => DONE,
            Self::Unreachable { .. } | Self::Unreadable(_) | Self::NoCall(_) | Self::Terminal(_) => FAILED,
        }
    }
}

fn unknown(decides: bool) -> &'static str {
    if decides { ". Whether the call is decided is not known; the same command again is safe" } else { "" }
}

/// An error of the server.
#[derive(Debug)]
pub struct Refusal {
    pub(crate) status: u16,
    pub(crate) error: ErrorDetail,
    /// The cause in `www-authenticate`.
    pub(crate) challenge: Option<String>,
    /// Seconds until a retry may succeed.
    pub(crate) retry_after: Option<u64>,
    /// Whether the request was a decision.
    pub(crate) decides: bool,
}

#[derive(Debug, Default, Deserialize)]
pub(crate) struct ErrorDetail {
    #[serde(default)]
    pub(crate) code: String,
    #[serde(default)]
    pub(crate) message: String,
    #[serde(default)]
    pub(crate) details: Value,
}

impl Refusal {
    fn exit_code(&self) -> u8 {
        match (self.status, self.error.code.as_str()) {
            (409, "already_decided" | "already_settled" | "expired" | "cancelled" | "not_interrupted") => {
                ALREADY_DECIDED
            }
            (409, "stale") => STALE,
            _ => FAILED,
        }
    }

    /// Whether there is no such resource for the caller, or no such route at this server.
    pub(crate) fn is_not_found(&self) -> bool {
        self.status == 404
    }

    /// Whether a repeated request may succeed.
    pub(crate) fn is_transient(&self) -> bool {
        matches!(self.status, 429 | 500..)
    }
}

impl Display for Refusal {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let ErrorDetail { code, message, details } = &self.error;
        write!(f, "{}", visible(message))?;
        match code.as_str() {
            "" => write!(f, " (status {})", self.status)?,
            code => write!(f, " ({}, status {})", visible(code), self.status)?,
        }
        let text = |value: &Value| value.as_str().map(visible);
        if let Some(challenge) = &self.challenge {
            write!(f, "; {}", visible(challenge))?;
        }
        let decision = &details["decision"];
        if let (Some(verdict), Some(by)) = (text(&decision["decision"]), text(&decision["by"])) {
            write!(f, "; the decision in force: {verdict} by {by}")?;
            text(&decision["at"]).map_or(Ok(()), |at| write!(f, " at {at}"))?;
        }
        if let Some(hash) = text(&details["input_hash"]) {
            write!(f, "; the input hash now: {hash}")?;
        }
        for error in details["errors"].as_array().into_iter().flatten() {
            let (pointer, why) = (text(&error["pointer"]), text(&error["message"]));
            write!(f, "; {:?}: {}", pointer.unwrap_or_default(), why.unwrap_or_default())?;
        }
        if let Some(seconds) = self.retry_after.filter(|_| self.status == 429) {
            write!(f, "; a retry may succeed after {seconds} s")?;
        }
        let is_unknown = self.decides && self.status >= 500;
        f.write_str(unknown(is_unknown))
    }
}
