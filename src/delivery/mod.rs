//! The delivery of events to endpoints outside: at least once, and to each endpoint in the order of the events.
//!
//! The numbered events are the queue. The row of an endpoint has a cursor, and one process at a time holds the row
//! while it delivers. A delivery that succeeds moves the cursor, by compare-and-set.

mod failed;
mod letter;
mod mail;
mod quiet;
mod receiver;
mod rounds;
mod smtp;
mod webhook;

use crate::agent::Tasks;
use crate::approvals::Approvals;
use crate::config::{AuthMode, Config, ConfigError};
use crate::domain::Principal;
use crate::domain::clock::{Clock, Timestamp};
use crate::domain::endpoint::Endpoint;
use crate::domain::event::{Event, EventType};
use crate::egress::Reach;
use crate::feed::Feed;
use crate::metrics::{EndpointFound, Metrics};
use crate::store::{LeasedEndpoint, Read, Store, StoreError};
use receiver::Receiver;
use serde_json::{Map, Value};
use std::fmt;
use std::sync::Arc;

/// Writes an event as its readers get it.
pub(crate) type PublicForm = fn(&Event) -> Map<String, Value>;

/// The endpoints of one server.
pub(crate) struct Deliveries {
    receivers: Vec<Receiver>,
    /// The roles of operators; `None` if the one user of the server operates it.
    operators: Option<Vec<String>>,
    approvals: Approvals,
    store: Store,
    feed: Feed,
    tasks: Tasks,
    clock: Arc<dyn Clock>,
    metrics: Metrics,
    form: PublicForm,
    /// This process, as the holder of an endpoint.
    holder: String,
}

/// What the deliveries need of a server.
pub(crate) struct Needs {
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

/// Why a request about endpoints fails.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EndpointError {
    /// The caller is no operator.
    #[error("not an operator")]
    NoOperator,
    /// The tenant has no such endpoint.
    #[error("no such endpoint")]
    NotFound,
    /// The database failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl fmt::Debug for Deliveries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.receivers.iter().map(|receiver| &receiver.name).collect();
        f.debug_struct("Deliveries").field("receivers", &names).finish_non_exhaustive()
    }
}

impl Deliveries {
    /// Prepares the endpoints of the configuration, and sends nothing.
    pub(crate) fn new(config: &Config, reach: &Reach, needs: Needs) -> Result<Self, ConfigError> {
        let receivers = Receiver::all(config, reach)?;
        let has_roles = config.auth.mode != AuthMode::None;
        let operators = has_roles.then(|| config.auth.operator_roles.clone());
        let Needs { approvals, store, feed, tasks, clock, metrics, form } = needs;
        let holder = clock.uuid().to_string();
        Ok(Self { receivers, operators, approvals, store, feed, tasks, clock, metrics, form, holder })
    }

    /// Gives each endpoint its row, and starts the tasks that deliver, one for each endpoint. A new endpoint gets the
    /// events from now on.
    pub(crate) async fn start(self: &Arc<Self>) -> Result<(), StoreError> {
        for (place, receiver) in self.receivers.iter().enumerate() {
            let Receiver { name, wanted, channel, .. } = receiver;
            self.store.place_endpoint(name, &wanted.tenant_id, channel.kind()).await?;
            let deliveries = self.clone();
            self.tasks.spawn(async move { deliveries.run_endpoint(place).await });
        }
        Ok(())
    }

    /// Returns the endpoints of the operator's tenant.
    pub(crate) async fn list(&self, principal: &Principal) -> Result<Vec<EndpointStatus>, EndpointError> {
        let own: Vec<&Receiver> = self.operated_by(principal)?.collect();
        let mut list = Vec::new();
        if own.is_empty() {
            return Ok(list);
        }
        let read = self.store.read().await?;
        for receiver in own {
            if let Some(LeasedEndpoint { endpoint, .. }) = read.endpoint(&receiver.name).await? {
                list.push(receiver.status(&read, endpoint).await?);
            }
        }
        Ok(list)
    }

    /// Lets an endpoint of the operator's tenant be tried again now.
    pub(crate) async fn enable(
        &self,
        principal: &Principal,
        name: &str,
    ) -> Result<EndpointStatus, EndpointError> {
        let receiver = self.operated_by(principal)?.find(|receiver| receiver.name == name);
        let receiver = receiver.ok_or(EndpointError::NotFound)?;
        let write = self.store.write().await?;
        write.enable_endpoint(name).await?;
        write.commit().await?;
        receiver.enabled.notify_one();
        tracing::info!(endpoint = name, by = principal.actor(), "an operator enabled an endpoint");
        let read = self.store.read().await?;
        let found = read.endpoint(name).await?.ok_or(EndpointError::NotFound)?;
        Ok(receiver.status(&read, found.endpoint).await?)
    }

    fn operated_by<'a>(
        &'a self,
        principal: &'a Principal,
    ) -> Result<impl Iterator<Item = &'a Receiver>, EndpointError> {
        let operates = self.operators.as_ref().is_none_or(|roles| principal.has_one_of(roles));
        if !operates {
            return Err(EndpointError::NoOperator);
        }
        Ok(self.receivers.iter().filter(|receiver| receiver.wanted.tenant_id == principal.tenant_id))
    }

    /// Returns the values of the endpoints that only the database has. Reads nothing if there are no endpoints.
    pub(crate) async fn measured(&self, read: &Read) -> Result<Vec<EndpointFound>, StoreError> {
        let mut found = Vec::new();
        for receiver in &self.receivers {
            let Some(LeasedEndpoint { endpoint, .. }) = read.endpoint(&receiver.name).await? else {
                continue;
            };
            let waiting = read.waiting_since(&receiver.wanted, endpoint.cursor).await?;
            found.push(EndpointFound {
                channel: receiver.channel.kind().into(),
                name: receiver.name.clone(),
                disabled: endpoint.state.is_disabled(),
                lag: waiting.map(|since| self.clock.now().since(since)).unwrap_or_default(),
            });
        }
        Ok(found)
    }
}

impl Receiver {
    async fn status(&self, read: &Read, endpoint: Endpoint) -> Result<EndpointStatus, StoreError> {
        Ok(EndpointStatus {
            address: self.channel.address(),
            types: self.wanted.types.clone(),
            waiting_since: read.waiting_since(&self.wanted, endpoint.cursor).await?,
            has_gap: read.has_gap_after(endpoint.cursor).await?,
            endpoint,
        })
    }
}
