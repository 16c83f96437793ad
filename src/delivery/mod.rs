//! The delivery of events to endpoints outside: at least once, and to each endpoint in the order of the events.
//!
//! The numbered events are the queue. The row of an endpoint has a cursor, and one process at a time holds the row
//! while it delivers. A delivery that succeeds moves the cursor, by compare-and-set.
//!
//! # One delivery
//!
//! 1. [`Deliveries::start`] gives each endpoint of the configuration (`receiver`) its row, at the end of the events if
//!    it is new or has another tenant or channel, and starts a task for each. Without endpoints nothing is read.
//! 2. The task (`rounds`) waits for new events of the tenant, for the time of the next attempt, or for an operator. A
//!    round reads the row and the next wanted event after the cursor with one view.
//! 3. If an attempt is due and no other process holds the row, `Write::claim_endpoint` takes it for `timeout` and 5 s.
//!    A webhook gets the public form of the event (`http::public_form`, which `app` hands over), sent within the reach.
//!    For a person, `Approvals::decision_status` decides whether the event concerns the `recipient`, and `letter` has
//!    the words of the message. Before each attempt `Outgoing::make_link` stores a link for a message to one person,
//!    and a decision that names the link uses it up in its transaction. The `channel` of the endpoint sends the message,
//!    or changes the one about the same call that the store keeps (`SentMessage`). In the quiet hours of a recipient a
//!    round sends nothing before an urgent event is among those that wait.
//! 4. A success moves the cursor, and renews or releases the row in the same statement (`Write::delivered`). Its
//!    transaction records a message that later ones change. The events follow each other until none is left. A failure
//!    stores the state that `holdpoint_core::endpoint` computes, and releases the row.
//!
//! Nothing here decides what an event looks like to its readers: that is the event of `http`.

mod channel;
mod channels;
mod hook;
mod letter;
mod occasion;
mod parts;
mod quiet;
mod receiver;
mod recipient;
mod response;
mod rounds;
mod shared;

use crate::agent::Tasks;
use crate::approvals::{Approvals, Denied, Right};
use crate::config::{AuthMode, Config, ConfigError};
use crate::feed::Feed;
pub(crate) use channels::HOOK_PATHS;
use channels::Services;
use holdpoint_core::Principal;
use holdpoint_core::clock::{Clock, Timestamp};
use holdpoint_core::endpoint::Endpoint;
use holdpoint_egress::Reach;
use holdpoint_metrics::{EndpointValues, Metrics};
use holdpoint_store::{EndpointEvents, Read, Store, StoreError};
pub(crate) use hook::{HookAnswer, HookRefusal, InboundHook, UnreadableReport};
pub(crate) use parts::{DeliveryParts, EndpointStatus, PublicForm};
use receiver::Receiver;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

/// The endpoints of one server.
pub(crate) struct Deliveries {
    receivers: Vec<Receiver>,
    hooks: Vec<Arc<dyn InboundHook>>,
    /// The roles of operators; `None` if the one user of the server operates it.
    operators: Option<Vec<String>>,
    approvals: Approvals,
    store: Store,
    feed: Feed,
    tasks: Tasks,
    clock: Arc<dyn Clock>,
    metrics: Metrics,
    /// This process, as the holder of an endpoint.
    holder: String,
}

impl fmt::Debug for Deliveries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.receivers.iter().map(|receiver| &receiver.name).collect();
        f.debug_struct("Deliveries").field("receivers", &names).finish_non_exhaustive()
    }
}

impl Deliveries {
    /// Prepares the endpoints of the configuration, and sends nothing.
    pub(crate) fn new(config: &Config, reach: &Reach, parts: DeliveryParts) -> Result<Self, ConfigError> {
        let services = Services::new(config)?;
        let receivers = services.receivers(config, reach, parts.form)?;
        let hooks = services.hooks(&parts);
        let has_roles = config.auth.mode != AuthMode::None;
        let operators = has_roles.then(|| config.auth.operator_roles.clone());
        let DeliveryParts { approvals, store, feed, tasks, clock, metrics, form: _ } = parts;
        let holder = clock.uuid().to_string();
        Ok(Self { receivers, hooks, operators, approvals, store, feed, tasks, clock, metrics, holder })
    }

    /// Returns the routes of the channels that the configuration has.
    pub(crate) fn hooks(&self) -> &[Arc<dyn InboundHook>] {
        &self.hooks
    }

    /// Gives each endpoint its row, and starts the tasks that deliver, one for each endpoint. A new endpoint gets the
    /// events from now on.
    pub(crate) async fn start(self: &Arc<Self>) -> Result<(), StoreError> {
        for (place, receiver) in self.receivers.iter().enumerate() {
            let Receiver { name, wanted, .. } = receiver;
            self.store.place_endpoint(name, &wanted.tenant_id, receiver.kind()).await?;
            let deliveries = self.clone();
            self.tasks.spawn(async move { deliveries.run_endpoint(place).await });
        }
        Ok(())
    }

    /// Returns the endpoints of the operator's tenant.
    pub(crate) async fn list(&self, principal: &Principal) -> Result<Vec<EndpointStatus>, Denied> {
        let own: Vec<&Receiver> = self.operated_by(principal)?.collect();
        if own.is_empty() {
            return Ok(Vec::new());
        }
        let read = self.store.read().await?;
        let oldest = read.oldest_event().await?;
        let found = StoredReceiver::of(&read, own).await?;
        Ok(found.into_iter().map(|stored| stored.status(oldest)).collect())
    }

    /// Lets an endpoint of the operator's tenant be tried again now.
    pub(crate) async fn enable(&self, principal: &Principal, name: &str) -> Result<EndpointStatus, Denied> {
        let receiver = self.operated_by(principal)?.find(|receiver| receiver.name == name);
        let receiver = receiver.ok_or(Denied::NotFound)?;
        let write = self.store.write().await?;
        write.enable_endpoint(name).await?;
        write.commit().await?;
        receiver.enabled.notify_one();
        tracing::info!(endpoint = name, by = principal.actor(), "an operator enabled an endpoint");
        let read = self.store.read().await?;
        let oldest = read.oldest_event().await?;
        let found = StoredReceiver::of(&read, [receiver]).await?.pop().ok_or(Denied::NotFound)?;
        Ok(found.status(oldest))
    }

    fn operated_by<'a>(
        &'a self,
        principal: &'a Principal,
    ) -> Result<impl Iterator<Item = &'a Receiver>, Denied> {
        let operates = self.operators.as_ref().is_none_or(|roles| principal.has_one_of(roles));
        if !operates {
            return Err(Denied::Forbidden(Right::ManageEndpoints));
        }
        Ok(self.receivers.iter().filter(|receiver| receiver.wanted.tenant_id == principal.tenant_id))
    }

    /// Returns the values of the endpoints that only the database has. Reads nothing if there are no endpoints.
    pub(crate) async fn measured(&self, read: &Read) -> Result<Vec<EndpointValues>, StoreError> {
        if self.receivers.is_empty() {
            return Ok(Vec::new());
        }
        let found = StoredReceiver::of(read, &self.receivers).await?;
        let measured =
            found.into_iter().map(|StoredReceiver { receiver, endpoint, waiting_since }| EndpointValues {
                channel: receiver.kind(),
                name: receiver.name.clone(),
                disabled: endpoint.state.is_disabled(),
                lag: waiting_since.map(|since| self.clock.now().since(since)).unwrap_or_default(),
            });
        Ok(measured.collect())
    }
}

/// What the database has of a receiver.
struct StoredReceiver<'a> {
    receiver: &'a Receiver,
    endpoint: Endpoint,
    waiting_since: Option<Timestamp>,
}

impl<'a> StoredReceiver<'a> {
    /// Reads the endpoints of these receivers, with two statements.
    async fn of(
        read: &Read,
        receivers: impl IntoIterator<Item = &'a Receiver>,
    ) -> Result<Vec<Self>, StoreError> {
        let rows = read.endpoints().await?.into_iter();
        let mut rows: HashMap<String, Endpoint> =
            rows.map(|row| (row.endpoint.name.clone(), row.endpoint)).collect();
        let found: Vec<(&Receiver, Endpoint)> = receivers
            .into_iter()
            .filter_map(|receiver| Some((receiver, rows.remove(&receiver.name)?)))
            .collect();
        let cursors: Vec<(&EndpointEvents, i64)> =
            found.iter().map(|(receiver, endpoint)| (&receiver.wanted, endpoint.cursor)).collect();
        let since = read.waiting_since(&cursors).await?;
        let stored = found.into_iter().zip(since);
        Ok(stored
            .map(|((receiver, endpoint), waiting_since)| Self { receiver, endpoint, waiting_since })
            .collect())
    }

    /// Returns the status of the endpoint, of which this event is the oldest that is not deleted.
    fn status(self, oldest: i64) -> EndpointStatus {
        EndpointStatus {
            address: self.receiver.address(),
            types: self.receiver.wanted.types.clone(),
            waiting_since: self.waiting_since,
            has_gap: self.endpoint.has_gap(oldest),
            endpoint: self.endpoint,
        }
    }
}
