//! The list of the channels, each in a folder of its own: its section and its keys (`config`), how it sends
//! ([`Channel`]), and its route, if it has one ([`InboundHook`]). `config.rs` beside this file is the list of their keys,
//! a part of `crate::config`. Nothing else of the program knows a channel by its name.

mod mail;
mod ntfy;
mod slack;
mod template;
mod webhook;

use super::channel::Channel;
use super::hook::InboundHook;
use super::letter::Letter;
use super::receiver::{Audience, Receiver};
use super::recipient::Recipient;
use super::{DeliveryParts, PublicForm};
use crate::config::channels::{NotifyAddress, notify_key};
use crate::config::{Config, ConfigError, Notify};
use holdpoint_egress::Reach;
use mail::MailServer;
use slack::{Slack, SlackHook};
use std::sync::Arc;

/// The paths of all hooks, whether the configuration has their channel or not.
pub(crate) const HOOK_PATHS: [&str; 1] = [slack::PATH];

/// The services that the sections of the configuration describe. Their recipients share them.
pub(super) struct Services {
    mail: Option<Arc<MailServer>>,
    slack: Option<Arc<Slack>>,
}

impl Services {
    /// Prepares the services, and sends nothing.
    pub(super) fn new(config: &Config) -> Result<Self, ConfigError> {
        let mail = config.mail.as_ref().map(MailServer::new).transpose()?.map(Arc::new);
        Ok(Self { mail, slack: Slack::new(config)?.map(Arc::new) })
    }

    /// Returns the receivers of the configuration: the webhooks, then the recipients.
    pub(super) fn receivers(
        &self,
        config: &Config,
        reach: &Reach,
        form: PublicForm,
    ) -> Result<Vec<Receiver>, ConfigError> {
        let mut all = Vec::new();
        for (index, entry) in config.webhooks.iter().enumerate() {
            let (channel, wanted) = webhook::Webhook::new(config, index, entry, reach, form)?;
            all.push(Receiver::new(&entry.name, wanted, Audience::Service(Box::new(channel))));
        }
        for (index, entry) in config.notify.iter().enumerate() {
            let key = notify_key(index);
            let (recipient, wanted) = Recipient::new(config, &key, entry)?;
            let channel = self.channel(config, reach, &NotifyEntry { key, entry })?;
            all.push(Receiver::new(&entry.name, wanted, Audience::Recipient(recipient, channel)));
        }
        Ok(all)
    }

    fn channel(
        &self,
        config: &Config,
        reach: &Reach,
        entry: &NotifyEntry<'_>,
    ) -> Result<Box<dyn Channel<Letter>>, ConfigError> {
        Ok(match entry.entry.address(&entry.key)? {
            NotifyAddress::Mail(to) => Box::new(mail::MailChannel::new(self.mail.clone(), entry, to)?),
            NotifyAddress::Slack(to) => Box::new(slack::SlackChannel::new(self.slack.clone(), entry, to)?),
            NotifyAddress::Ntfy(url) => Box::new(ntfy::NtfyChannel::new(reach, entry, url)?),
            NotifyAddress::Url(url) => Box::new(template::TemplateChannel::new(config, reach, entry, url)?),
        })
    }

    /// Returns the routes of the channels that the configuration has.
    pub(super) fn hooks(&self, parts: &DeliveryParts) -> Vec<Arc<dyn InboundHook>> {
        let slack = self.slack.clone().map(|slack| {
            let (approvals, tasks) = (parts.approvals.clone(), parts.tasks.clone());
            Arc::new(SlackHook { slack, approvals, tasks }) as Arc<dyn InboundHook>
        });
        slack.into_iter().collect()
    }
}

/// An entry of `[[notify]]`, with its key for errors.
struct NotifyEntry<'a> {
    key: String,
    entry: &'a Notify,
}

impl NotifyEntry<'_> {
    fn wrong(&self, field: &str, why: impl Into<String>) -> ConfigError {
        ConfigError::Value { key: format!("{}.{field}", self.key), why: why.into() }
    }
}
