//! The bytes of bodies and of answers in the memory of this process.
//!
//! Both directions have a budget, and one user has at most a quarter of it. Decisions and the reports of workers
//! and services have a budget of their own, so that they pass while the others are used up. So have requests
//! that prove who sent them only with their body.

use crate::config::Limits;
use crate::http::auth::{Network, network_of};
use crate::http::body::templates::without_api;
use crate::http::failure::error::ApiError;
use crate::rate_limit::User;
use bytes::Bytes;
use holdpoint_core::Principal;
use holdpoint_serve::{Budget, Exhausted, Reserved, take_whole};
use poem::{Body, IntoResponse, Request, Response};
use std::time::Duration;

/// The part of a budget that one user may hold.
const PART: usize = 4;
/// How long a list waits for the bytes of its page.
const PAGE_WAIT: Duration = Duration::from_secs(5);
/// A chunk of a stream up to this length, in bytes, is not counted: the number of streams bounds them.
const SMALL_CHUNK: usize = 64 << 10;

/// The requests that decide about calls, keep them alive, or report their outcomes. A call depends on them.
const URGENT: [&str; 6] =
    ["/qa/validate_tool", "/runs/", "/approvals/", "/tool_calls/", "/tool_requests/", "/links/"];

/// Which budget counts a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lane {
    /// Decisions, renewals, settlements and reports.
    Urgent,
    Other,
    /// The sender is known only after the body is read.
    Unsigned,
}

/// Who holds bytes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Holder {
    User(User),
    /// The service of the tool with this name.
    Service(String),
    /// The network of a sender who is not known.
    Network(Network),
}

/// Who sent a request, and the budget that counts it.
#[derive(Debug, Clone)]
pub(in crate::http) struct Sender {
    lane: Lane,
    holder: Holder,
}

/// The budgets of one direction.
#[derive(Debug)]
struct Direction {
    urgent: Budget<Holder>,
    other: Budget<Holder>,
    unsigned: Budget<Holder>,
}

/// The budgets of both directions.
#[derive(Debug)]
pub(crate) struct InFlight {
    bodies: Direction,
    answers: Direction,
    page_bytes: usize,
}

/// The bytes of one page of a list, taken before the page is read.
#[derive(Debug)]
pub(in crate::http) struct PageBytes {
    pub(in crate::http) reserved: Reserved,
    /// Maximum length of the page.
    pub(in crate::http) bytes_max: usize,
}

impl Sender {
    pub(in crate::http) fn user(request: &Request, principal: &Principal) -> Self {
        let path = without_api(request.uri().path());
        let urgent = URGENT.iter().any(|prefix| path.starts_with(prefix));
        let lane = if urgent { Lane::Urgent } else { Lane::Other };
        Self { lane, holder: Holder::User(User::of(principal)) }
    }

    /// The service of a tool, which reports an outcome.
    pub(in crate::http) fn service(tool: &str) -> Self {
        Self { lane: Lane::Urgent, holder: Holder::Service(tool.to_owned()) }
    }

    /// A sender whose signature is over the body.
    pub(in crate::http) fn unsigned(request: &Request) -> Self {
        Self { lane: Lane::Unsigned, holder: Holder::Network(network_of(request)) }
    }
}

impl Direction {
    /// The budgets of a direction with `bytes` for requests in general, and whose longest urgent body or answer
    /// has `urgent_max` bytes.
    fn new(bytes: usize, urgent_max: usize) -> Self {
        let budget = |bytes: usize| Budget::new(bytes, bytes / PART);
        Self {
            urgent: budget((bytes / PART).max(urgent_max.saturating_mul(PART))),
            other: budget(bytes),
            unsigned: budget(urgent_max.saturating_mul(8 * PART)),
        }
    }

    fn of(&self, sender: &Sender) -> Reserved {
        let budget = match sender.lane {
            Lane::Urgent => &self.urgent,
            Lane::Other => &self.other,
            Lane::Unsigned => &self.unsigned,
        };
        budget.of(sender.holder.clone())
    }
}

impl InFlight {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self {
            bodies: Direction::new(limits.bodies_in_flight_bytes, limits.body_bytes),
            answers: Direction::new(limits.answers_in_flight_bytes, limits.page_bytes),
            page_bytes: limits.page_bytes,
        }
    }

    /// Returns an empty reservation for the body of a request.
    pub(in crate::http) fn body(&self, sender: &Sender) -> Reserved {
        self.bodies.of(sender)
    }

    /// Takes the bytes of a page of a list, before it is read from the database.
    pub(in crate::http) async fn page(&self, principal: &Principal) -> Result<PageBytes, ApiError> {
        let mut reserved = self.answers.other.of(Holder::User(User::of(principal)));
        reserved.grow_within(self.page_bytes, PAGE_WAIT).await.map_err(ApiError::too_many_answers)?;
        Ok(PageBytes { reserved, bytes_max: self.page_bytes })
    }

    /// Counts the body of this response until the client has taken it. A list has counted its page, and a stream
    /// counts its chunks.
    pub(in crate::http) async fn hold(&self, sender: &Sender, response: Response) -> Response {
        let (mut response, whole) = take_whole(response).await;
        let Some(whole) = whole else { return response };
        let mut reserved = self.answers.of(sender);
        match reserved.grow(whole.len()) {
            Ok(()) => {
                response.set_body(Body::from_bytes(reserved.hold(whole)));
                response
            }
            Err(exhausted) => ApiError::too_many_answers(exhausted).into_response(),
        }
    }

    /// Returns the counter of the streams of a user.
    pub(in crate::http) fn stream(&self, principal: &Principal) -> StreamBytes {
        StreamBytes(self.answers.other.of(Holder::User(User::of(principal))))
    }
}

/// Counts the chunks of streams that their client has not taken.
#[derive(Debug)]
pub(in crate::http) struct StreamBytes(Reserved);

impl StreamBytes {
    /// Counts a chunk.
    pub(in crate::http) fn hold(&self, chunk: Bytes) -> Result<Bytes, Exhausted> {
        if chunk.len() <= SMALL_CHUNK {
            return Ok(chunk);
        }
        let mut reserved = self.0.another();
        reserved.grow(chunk.len())?;
        Ok(reserved.hold(chunk))
    }

    /// Counts the chunks that are in memory before the stream begins.
    pub(in crate::http) fn hold_all(&self, chunks: Vec<Bytes>) -> Result<Vec<Bytes>, Exhausted> {
        let mut reserved = self.0.another();
        reserved.grow(chunks.iter().map(Bytes::len).sum())?;
        Ok(chunks.into_iter().map(|chunk| reserved.split(chunk.len()).hold(chunk)).collect())
    }
}
