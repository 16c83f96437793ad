//! The routes of endpoints, which are webhooks and recipients of messages, for operators.

use crate::delivery::EndpointStatus;
use crate::http::Api;
use crate::http::auth::Caller;
use crate::http::body::formats::Time;
use crate::http::body::payload::{Json, Tag};
use crate::http::events::event::EventType;
use crate::http::failure::error::ApiError;
use holdpoint_core::endpoint::{self, EndpointState, Failure};
use poem_openapi::param::Path;
use poem_openapi::{Enum, Object, OpenApi};

/// The way in which an endpoint gets events: a signed request for each, or a message for those that concern the recipient.
#[derive(Debug, Clone, Copy, Enum)]
#[oai(rename = "WebhookChannel", rename_all = "snake_case", remote = "endpoint::ChannelKind")]
enum Channel {
    /// One signed request for each event (`[[webhooks]]`).
    Webhook,
    /// One mail for each event that concerns the recipient (`[[notify]]`).
    Mail,
    /// One request of a filled template for each event that concerns the recipient (`[[notify]]` with `url`).
    Template,
    /// One message in Slack for each call that concerns the recipient (`[[notify]]` with `slack`).
    Slack,
    /// One message to a topic of ntfy for each event that concerns the recipient (`[[notify]]` with `ntfy`).
    Ntfy,
}

/// How the delivery to a webhook goes.
#[derive(Debug, Clone, Copy, Enum)]
#[oai(rename_all = "snake_case")]
enum WebhookState {
    /// The last attempt succeeded, or there was none.
    Delivering,
    /// The last attempt failed, and another follows.
    Failing,
    /// Nothing is delivered until an operator enables the webhook.
    Disabled,
}

/// Why a webhook is disabled: it answered 410, or the attempts failed for three days. A recipient by mail or in Slack is
/// disabled for the second reason only.
#[derive(Debug, Clone, Copy, Enum)]
#[oai(rename_all = "snake_case", remote = "endpoint::DisabledReason")]
enum DisabledReason {
    /// The webhook answered 410.
    Gone,
    /// The attempts failed for three days.
    FailedTooLong,
}

/// What came of a failed attempt: a status that is no success, no answer in time, or no connection.
#[derive(Debug, Clone, Copy, Enum)]
#[oai(rename_all = "snake_case")]
enum WebhookFailure {
    /// The webhook answered with another status than 2xx, or the mail server with 4xx or 5xx, or Slack with an error.
    Status,
    /// The request or the message was sent, and no answer came in time.
    NoAnswer,
    /// The request or the message was not sent.
    NotSent,
}

/// The failed attempts of a webhook since the last success.
#[derive(Debug, Object)]
#[oai(rename = "WebhookFailures", skip_serializing_if_is_none)]
struct FailuresView {
    /// The number of attempts.
    count: u32,
    /// When the first of them failed.
    since: Time,
    last: WebhookFailure,
    /// The status of the last answer, if there was one.
    last_status: Option<u16>,
}

/// The messages to a recipient that the mail server or Slack refused for good. They are not sent again.
#[derive(Debug, Object)]
#[oai(rename = "MailRefusals")]
struct RefusalsView {
    /// The number of messages.
    count: u32,
    /// When the last of them was refused.
    last_at: Time,
    /// The status with which the last of them was refused. An error of Slack, which has no status, is 400.
    last_status: u16,
}

/// An address that gets the events of the tenant.
#[derive(Debug, Object)]
#[oai(rename = "Webhook", skip_serializing_if_is_none)]
struct WebhookView {
    /// The name in the configuration.
    name: String,
    channel: Channel,
    /// The scheme, host and port of the address. Of a recipient by mail `mailto:` and the address, in Slack `slack:` and the id of the user
    /// or channel.
    origin: String,
    /// The types of events that it gets.
    events: Vec<EventType>,
    state: WebhookState,
    /// The `seq` up to which all events are delivered, or are of no type that the webhook gets.
    cursor: i64,
    /// The time of the oldest event that is not delivered. Absent if there is none.
    waiting_since: Option<Time>,
    failures: Option<FailuresView>,
    /// When the next attempt begins, if the last one failed.
    next_attempt_at: Option<Time>,
    /// When the webhook was disabled, if it is.
    disabled_at: Option<Time>,
    disabled_reason: Option<DisabledReason>,
    refused: Option<RefusalsView>,
    /// Whether events after `cursor` are gone, and cannot be delivered.
    has_gap: bool,
}

/// The webhooks of the tenant.
#[derive(Debug, Object)]
#[oai(rename = "Webhooks")]
struct WebhookList {
    /// In the order of the configuration.
    results: Vec<WebhookView>,
}

impl WebhookView {
    fn of(status: EndpointStatus) -> Self {
        let EndpointStatus { endpoint, address: origin, types, waiting_since, has_gap } = status;
        let failures = endpoint.state.failures().map(FailuresView::of);
        let (state, next_attempt_at, disabled) = match endpoint.state {
            EndpointState::Delivering => (WebhookState::Delivering, None, None),
            EndpointState::Failing { next_attempt_at, .. } => {
                (WebhookState::Failing, Some(next_attempt_at.into()), None)
            }
            EndpointState::Disabled { at, reason, .. } => {
                (WebhookState::Disabled, None, Some((at.into(), reason.into())))
            }
        };
        let (disabled_at, disabled_reason) = disabled.unzip();
        Self {
            name: endpoint.name,
            channel: endpoint.channel.into(),
            origin,
            events: types.into_iter().map(EventType::from).collect(),
            state,
            cursor: endpoint.cursor,
            waiting_since: waiting_since.map(Time::from),
            failures,
            next_attempt_at,
            disabled_at,
            disabled_reason,
            refused: endpoint.refusals.map(RefusalsView::of),
            has_gap,
        }
    }
}

impl RefusalsView {
    fn of(refusals: endpoint::Refusals) -> Self {
        let endpoint::Refusals { count, at, status } = refusals;
        Self { count, last_at: at.into(), last_status: status }
    }
}

impl FailuresView {
    fn of(failures: &endpoint::Failures) -> Self {
        let (last, last_status) = match failures.last {
            Failure::Status(status) => (WebhookFailure::Status, Some(status)),
            Failure::NoAnswer => (WebhookFailure::NoAnswer, None),
            Failure::NotSent => (WebhookFailure::NotSent, None),
        };
        Self { count: failures.count, since: failures.since.into(), last, last_status }
    }
}

pub(in crate::http) struct Webhooks(pub(in crate::http) Api);

#[OpenApi(tag = "Tag::Webhooks")]
impl Webhooks {
    /// List the webhooks
    ///
    /// Returns the webhooks of the caller's tenant, then its recipients of messages, and how the delivery of events to each goes.
    /// Allowed for operators.
    #[oai(path = "/webhooks", method = "get", operation_id = "listWebhooks")]
    async fn list(&self, caller: Caller) -> Result<Json<WebhookList>, ApiError> {
        let list = self.0.deliveries.list(&caller.0).await?;
        Ok(Json(WebhookList { results: list.into_iter().map(WebhookView::of).collect() }))
    }

    /// Enable a webhook
    ///
    /// Enables a webhook or a recipient of messages. Forgets the failed attempts. The delivery continues at once with the first event that was not delivered, also if
    /// the webhook was not disabled. Allowed for operators.
    #[oai(path = "/webhooks/:name/enable", method = "post", operation_id = "enableWebhook")]
    async fn enable(
        &self,
        caller: Caller,
        /// The `name` of the webhook.
        name: Path<String>,
    ) -> Result<Json<WebhookView>, ApiError> {
        let status = self.0.deliveries.enable(&caller.0, &name.0).await?;
        Ok(Json(WebhookView::of(status)))
    }
}
