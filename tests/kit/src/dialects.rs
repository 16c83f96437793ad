//! The dialects as their clients see them, and the versions of the AI SDK that read them: `tests/wire/dialects.json`.

use crate::in_repository;
use serde::Deserialize;
use std::sync::LazyLock;

/// One dialect.
#[derive(Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TestedDialect {
    /// The name in requests for streams.
    pub name: String,
    /// The name in requests for messages.
    pub format: String,
    /// The content type of a stream.
    pub content_type: String,
    /// The name of the header that announces the protocol.
    pub protocol_header: String,
    /// The status of a response to a client that attaches while no turn is running.
    pub nothing_to_read: u16,
    /// Whether it is a version of the UI message stream.
    pub is_ui: bool,
    /// What its pages know of approvals.
    pub approvals: PageApprovals,
    /// The versions of the AI SDK that read it. A version that names no dialect reads the first one that lists it.
    pub sdks: Vec<String>,
    /// The packages of `tests/wire` whose code reads its streams in the tests of bytes.
    pub readers: Vec<String>,
}

/// What the pages of a dialect know of approvals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub enum PageApprovals {
    /// Nothing. A page posts its decisions beside its messages.
    #[serde(rename = "none")]
    Unknown,
    /// The page asks its user, and shows the answer of this user alone.
    #[serde(rename = "requests")]
    Requests,
    /// The page also shows the decision in force.
    #[serde(rename = "requests and decisions")]
    RequestsAndDecisions,
}

static LISTED: LazyLock<Vec<TestedDialect>> = LazyLock::new(|| {
    let listed = std::fs::read(in_repository("tests/wire/dialects.json")).unwrap();
    serde_json::from_slice(&listed).unwrap()
});

/// All dialects.
pub fn dialects() -> &'static [TestedDialect] {
    &LISTED
}

/// The versions of the UI message stream.
pub fn ui_dialects() -> impl Iterator<Item = &'static TestedDialect> {
    dialects().iter().filter(|dialect| dialect.is_ui)
}

/// The headers that announce the protocols, each one once.
pub fn protocol_headers() -> Vec<&'static str> {
    let mut headers: Vec<_> = dialects().iter().map(|dialect| dialect.protocol_header.as_str()).collect();
    headers.dedup();
    headers
}

/// The dialect of this name.
pub fn dialect(name: &str) -> &'static TestedDialect {
    let named = dialects().iter().find(|dialect| dialect.name == name);
    named.unwrap_or_else(|| panic!("tests/wire/dialects.json has no {name}"))
}

/// All versions of the AI SDK, the oldest one first.
pub fn sdks() -> Vec<&'static str> {
    let mut sdks: Vec<_> = dialects().iter().flat_map(|dialect| &dialect.sdks).map(String::as_str).collect();
    sdks.sort_by_key(|sdk| sdk.parse::<u32>().unwrap());
    sdks.dedup();
    sdks
}

/// The dialects that this version of the AI SDK reads.
pub fn dialects_of(sdk: &str) -> impl Iterator<Item = &'static TestedDialect> {
    dialects().iter().filter(move |dialect| dialect.sdks.iter().any(|listed| listed == sdk))
}
