//! A server without channels (feature `notify`): it has no endpoint. It has the interface of `delivery`.

#[path = "hook.rs"]
mod hook;
#[path = "parts.rs"]
mod parts;

use crate::approvals::{Denied, Right};
use crate::config::{AuthMode, Config, ConfigError};
use holdpoint_core::Principal;
use holdpoint_egress::Reach;
use holdpoint_metrics::EndpointValues;
use holdpoint_store::{Read, StoreError};
pub(crate) use hook::{HookAnswer, HookRefusal, InboundHook, UnreadableReport};
pub(crate) use parts::{DeliveryParts, EndpointStatus};
use std::sync::Arc;

pub(crate) const HOOK_PATHS: [&str; 0] = [];

#[derive(Debug)]
pub(crate) struct Deliveries {
    /// The roles of operators; `None` if the one user of the server operates it.
    operators: Option<Vec<String>>,
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
