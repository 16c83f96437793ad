//! The endpoints of a server, as the configuration describes them.

use super::tools::reach;
use crate::agent::Tasks;
use crate::approvals::Approvals;
use crate::config::{Config, ConfigError};
use crate::delivery::{Deliveries, DeliveryParts};
use crate::feed::Feed;
use crate::http;
use holdpoint_core::clock::Clock;
use holdpoint_metrics::Metrics;
use holdpoint_store::Store;
use std::sync::Arc;

/// Prepares the deliveries, which begin with their start.
pub(super) fn prepare(
    config: &Config,
    store: &Store,
    feed: &Feed,
    tasks: &Tasks,
    clock: &Arc<dyn Clock>,
    metrics: &Metrics,
    approvals: &Approvals,
) -> Result<Arc<Deliveries>, ConfigError> {
    let parts = DeliveryParts {
        approvals: approvals.clone(),
        store: store.clone(),
        feed: feed.clone(),
        tasks: tasks.clone(),
        clock: clock.clone(),
        metrics: metrics.clone(),
        form: http::public_form,
    };
    Deliveries::new(config, &reach(config), parts).map(Arc::new)
}
