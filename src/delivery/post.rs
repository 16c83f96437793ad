//! Messages to a recipient as POST requests of a filled template.

use super::failed::Failed;
use super::letter::Letter;
use super::response::outcome;
use super::template::{Given, Template};
use crate::config::{ConfigError, NotifyPost};
use holdpoint_core::endpoint::{Failure, FailureAction};
use holdpoint_egress::standard_webhooks::ID;
use holdpoint_egress::{Post, Reach};
use jiff::tz::TimeZone;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use tokio::time::Instant;

/// An address that gets a request for each message.
pub(super) struct TemplatePost {
    post: Post,
    headers: HeaderMap,
    template: Template,
}

impl TemplatePost {
    /// Prepares the requests of the entry with this key, and sends nothing.
    pub(super) fn new(
        key: &str,
        notify: NotifyPost,
        reach: &Reach,
        given: Given,
    ) -> Result<Self, ConfigError> {
        let NotifyPost { url, headers, format, template, template_key, timeout: _ } = notify;
        let post =
            Post::new(&url, reach).map_err(|why| ConfigError::Value { key: format!("{key}.url"), why })?;
        let template = Template::parse(&template, format, given)
            .map_err(|why| ConfigError::Value { key: template_key, why })?;
        Ok(Self { post, headers, template })
    }

    /// Returns the address without its path, which may contain a secret.
    pub(super) fn origin(&self) -> String {
        self.post.origin()
    }

    /// Sends one request. A repeated message has the id of its event again.
    pub(super) async fn attempt(
        &self,
        letter: &Letter,
        zone: &TimeZone,
        until: Instant,
    ) -> Result<(), Failed> {
        let mut headers = self.headers.clone();
        let Ok(id) = HeaderValue::from_str(&letter.event_id) else {
            let why = "the id of the event does not fit into a header".to_owned();
            return Err(Failed { failure: Failure::NotSent, action: FailureAction::Retry(None), why });
        };
        headers.insert(HeaderName::from_static(ID), id);
        let body = self.template.filled(letter, zone).into_bytes();
        outcome(self.post.send(headers, body, until).await)
    }
}
