//! Messages to a recipient as POST requests of a filled template.

mod body;

use super::NotifyEntry;
use crate::config::channels::template::NotifyPost;
use crate::config::{Config, ConfigError};
use crate::delivery::channel::{Attempt, Channel, FailedAttempt};
use crate::delivery::letter::Letter;
use crate::delivery::response::outcome;
use async_trait::async_trait;
use body::{Template, TemplateAccess};
use holdpoint_core::endpoint::{ChannelKind, Failure};
use holdpoint_egress::standard_webhooks::ID;
use holdpoint_egress::{Post, Reach};
use holdpoint_store::Attempted;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use std::time::Duration;

/// An address that gets a request for each message.
pub(super) struct TemplateChannel {
    post: Post,
    headers: HeaderMap,
    template: Template,
    timeout: Duration,
}

impl TemplateChannel {
    /// Prepares the requests of the entry, and sends nothing.
    pub(super) fn new(
        config: &Config,
        reach: &Reach,
        entry: &NotifyEntry<'_>,
        url: &str,
    ) -> Result<Self, ConfigError> {
        let access =
            TemplateAccess { link: config.console_url().is_some(), arguments: entry.entry.share_arguments };
        let NotifyPost { url, headers, format, template, template_key, timeout } =
            entry.entry.post(&entry.key, url)?;
        let post = Post::new(&url, reach).map_err(|why| entry.wrong("url", why))?;
        let template = Template::parse(&template, format, access)
            .map_err(|why| ConfigError::Value { key: template_key, why })?;
        Ok(Self { post, headers, template, timeout })
    }
}

#[async_trait]
impl Channel<Letter> for TemplateChannel {
    fn kind(&self) -> ChannelKind {
        ChannelKind::Template
    }

    /// The address without its path, which may contain a secret.
    fn address(&self) -> String {
        self.post.origin()
    }

    fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Sends one request. A repeated message has the id of its event again.
    async fn send(&self, attempt: Attempt<'_, Letter>) -> Result<Attempted, FailedAttempt> {
        let Attempt { message: letter, until, .. } = attempt;
        let mut headers = self.headers.clone();
        let Ok(id) = HeaderValue::from_str(&letter.event_id) else {
            let why = "the id of the event does not fit into a header";
            return Err(FailedAttempt::again(Failure::NotSent, why));
        };
        headers.insert(HeaderName::from_static(ID), id);
        let body = self.template.filled(letter).into_bytes();
        outcome(self.post.send(headers, body, until).await).map(|()| Attempted::Accepted)
    }
}
