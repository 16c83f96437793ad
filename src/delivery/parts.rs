//! What the deliveries need, and what operators read of an endpoint, with the channels and without them.

use crate::agent::Tasks;
use crate::approvals::Approvals;
use crate::feed::Feed;
use holdpoint_core::clock::{Clock, Timestamp};
use holdpoint_core::endpoint::Endpoint;
use holdpoint_core::event::{Event, EventType};
use holdpoint_metrics::Metrics;
use holdpoint_store::Store;
use serde_json::{Map, Value};
use std::sync::Arc;

/// Writes an event as its readers get it.
pub(crate) type PublicForm = fn(&Event) -> Map<String, Value>;

/// What the deliveries need of a server.
pub(crate) struct DeliveryParts {
    pub(crate) approvals: Approvals,
    pub(crate) store: Store,
    pub(crate) feed: Feed,
    pub(crate) tasks: Tasks,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) metrics: Metrics,
    pub(crate) form: PublicForm,
}

/// An endpoint, for its operators.
#[derive(Debug)]
pub(crate) struct EndpointStatus {
    pub(crate) endpoint: Endpoint,
    /// The address without its secret parts.
    pub(crate) address: String,
    /// The types of events that it gets.
    pub(crate) types: Vec<EventType>,
    /// The time of the first event that it has not got.
    pub(crate) waiting_since: Option<Timestamp>,
    /// Whether events after its cursor are gone.
    pub(crate) has_gap: bool,
}
