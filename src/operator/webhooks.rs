//! The operator's commands about webhooks and recipients of messages.

use super::{Operator, OperatorError};
use holdpoint_core::endpoint::{DisabledReason, EndpointState, Failure};
use holdpoint_core::text::visible::visible;
use holdpoint_store::LeasedEndpoint;

/// A webhook or a recipient of messages in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebhookLine {
    /// The name in the configuration.
    pub name: String,
    /// The name of its channel, such as `webhook` or `mail`.
    pub channel: &'static str,
    /// The tenant whose events the webhook gets.
    pub tenant_id: String,
    /// How the delivery goes: `delivering`, `failing`, or `disabled` with the reason. `not configured` if the
    /// configuration has no such webhook any more.
    pub state: String,
    /// The number up to which events are delivered.
    pub cursor: i64,
    /// The number of failed attempts since the last success.
    pub failures: u32,
    /// What came of the last failed attempt, or nothing.
    pub last_failure: String,
    /// When the attempts began to fail, RFC 3339, or nothing.
    pub since: String,
    /// The number of messages that the service of the channel refused for good.
    pub refused: u32,
}

impl Operator {
    /// Returns the webhooks and recipients of all tenants, in the order of their names.
    ///
    /// # Errors
    /// Returns an error if the database fails.
    pub async fn webhooks(&self) -> Result<Vec<WebhookLine>, OperatorError> {
        let standings = self.store.read().await?.endpoints().await?;
        let configured = self.config.endpoints();
        let is_configured = |name: &str, channel| configured.contains(&(channel, name));
        let line =
            |it: LeasedEndpoint| WebhookLine::of(&it, is_configured(&it.endpoint.name, it.endpoint.channel));
        Ok(standings.into_iter().map(line).collect())
    }

    /// Forgets the failed attempts of a webhook, so that its delivery continues. Servers notice within 5 s.
    ///
    /// # Errors
    /// Returns an error if there is no such webhook, or if the database fails.
    pub async fn enable_webhook(&self, name: &str) -> Result<(), OperatorError> {
        let write = self.store.write().await?;
        if !write.enable_endpoint(name).await? {
            return Err(OperatorError::NoWebhook(name.to_owned()));
        }
        Ok(write.commit().await?)
    }
}

impl WebhookLine {
    fn of(leased: &LeasedEndpoint, is_configured: bool) -> Self {
        let endpoint = &leased.endpoint;
        let state = match &endpoint.state {
            _ if !is_configured => "not configured",
            EndpointState::Delivering => "delivering",
            EndpointState::Failing { .. } => "failing",
            EndpointState::Disabled { reason: DisabledReason::Gone, .. } => "disabled: answered 410",
            EndpointState::Disabled { reason: DisabledReason::FailedTooLong, .. } => {
                "disabled: failed for three days"
            }
        };
        let failures = endpoint.state.failures();
        let last_failure = failures.map(|it| match it.last {
            Failure::Status(status) => format!("status {status}"),
            Failure::NoAnswer => "no answer".to_owned(),
            Failure::NotSent => "not sent".to_owned(),
        });
        Self {
            name: endpoint.name.clone(),
            channel: endpoint.channel.word(),
            tenant_id: endpoint.tenant_id.clone(),
            state: state.to_owned(),
            cursor: endpoint.cursor,
            failures: failures.map_or(0, |it| it.count),
            last_failure: last_failure.unwrap_or_default(),
            since: failures.map(|it| it.since.to_rfc3339()).unwrap_or_default(),
            refused: endpoint.refusals.map_or(0, |it| it.count),
        }
    }

    /// Returns the fields, in order, in a form that is safe for a terminal.
    pub fn cells(&self) -> [String; 9] {
        let Self { name, channel, tenant_id, state, cursor, failures, last_failure, since, refused } = self;
        let (cursor, failures, refused) = (cursor.to_string(), failures.to_string(), refused.to_string());
        let cells: [&str; 9] =
            [name, channel, state, tenant_id, &cursor, &refused, &failures, last_failure, since];
        cells.map(visible)
    }
}
