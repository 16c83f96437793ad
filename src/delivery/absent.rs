//! A server without channels (feature `notify`): it has no endpoint. It has the interface of `delivery`.

#[path = "hook.rs"]
mod hook;

use crate::agent::Tasks;
use crate::approvals::{Approvals, Denied, Right};
use crate::config::{AuthMode, Config, ConfigError};
use crate::feed::Feed;
use holdpoint_core::Principal;
use holdpoint_core::clock::{Clock, Timestamp};
use holdpoint_core::endpoint::Endpoint;
use holdpoint_core::event::{Event, EventType};
use holdpoint_egress::Reach;
use holdpoint_metrics::{EndpointValues, Metrics};
use holdpoint_store::{Read, Store, StoreError};
pub(crate) use hook::{HookAnswer, HookRefusal, InboundHook, UnreadableReport};
use serde_json::{Map, Value};
use std::sync::Arc;

pub(crate) const HOOK_PATHS: [&str; 0] = [];

pub(crate) type PublicForm = fn(&Event) -> Map<String, Value>;

#[derive(Debug)]
pub(crate) struct Deliveries {
    /// The roles of operators; `None` if the one user of the server operates it.
    operators: Option<Vec<String>>,
}

pub(crate) struct DeliveryParts {
    pub(crate) approvals: Approvals,
    pub(crate) store: Store,
    pub(crate) feed: Feed,
    pub(crate) tasks: Tasks,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) metrics: Metrics,
    pub(crate) form: PublicForm,
}

#[derive(Debug)]
pub(crate) struct EndpointStatus {
    pub(crate) endpoint: Endpoint,
    pub(crate) address: String,
    pub(crate) types: Vec<EventType>,
    pub(crate) waiting_since: Option<Timestamp>,
    pub(crate) has_gap: bool,
}

impl Deliveries {
    pub(crate) fn new(config: &Config, _reach: &Reach, _parts: DeliveryParts) -> Result<Self, ConfigError> {
        let has_roles = config.auth.mode != AuthMode::None;
        Ok(Self { operators: has_roles.then(|| config.auth.operator_roles.clone()) })
    }

    pub(crate) fn hooks(&self) -> &[Arc<dyn InboundHook>] {
        &[]
    }

    pub(crate) async fn start(self: &Arc<Self>) -> Result<(), StoreError> {
        Ok(())
    }

    pub(crate) async fn list(&self, principal: &Principal) -> Result<Vec<EndpointStatus>, Denied> {
        self.check(principal)?;
        Ok(Vec::new())
    }

    pub(crate) async fn enable(&self, principal: &Principal, _name: &str) -> Result<EndpointStatus, Denied> {
        self.check(principal)?;
        Err(Denied::NotFound)
    }

    fn check(&self, principal: &Principal) -> Result<(), Denied> {
        let operates = self.operators.as_ref().is_none_or(|roles| principal.has_one_of(roles));
        if operates { Ok(()) } else { Err(Denied::Forbidden(Right::ManageEndpoints)) }
    }

    pub(crate) async fn measured(&self, _read: &Read) -> Result<Vec<EndpointValues>, StoreError> {
        Ok(Vec::new())
    }
}
