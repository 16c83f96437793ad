//! `[slack]`: the Slack application by which the server sends messages, and whose buttons decide.

use crate::config::channels::notify_key;
use crate::config::{ConfigError, Notify, is_safe, shown, wrong};
use reqwest::Url;
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fmt;

/// `[slack]`
#[derive(Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Slack {
    /// `token`: the bot token of the application, as `xoxb-…`.
    #[serde(serialize_with = "shown::needed_secret")]
    pub token: SecretString,
    /// `signing_secret`: the secret with which Slack signs its requests.
    #[serde(serialize_with = "shown::needed_secret")]
    pub signing_secret: SecretString,
    /// `api_url`: the address of Slack's Web API.
    #[serde(default = "api_url", serialize_with = "shown::plain_url")]
    pub api_url: String,
}

impl fmt::Debug for Slack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        shown::debug(self, f)
    }
}

fn api_url() -> String {
    "https://slack.com/api".to_owned()
}

impl Slack {
    /// Returns the address of the Web API.
    pub(crate) fn api(&self) -> Result<Url, ConfigError> {
        let plain = |url: &Url| {
            url.has_host()
                && url.username().is_empty()
                && url.password().is_none()
                && url.query().is_none()
                && url.fragment().is_none()
        };
        let url = Url::parse(&self.api_url).ok().filter(|url| plain(url) && is_safe(&self.api_url));
        url.ok_or_else(|| ConfigError::Value {
            key: "slack.api_url".to_owned(),
            why: "expected an https:// URL, or http:// on this machine, without a user name, a query and a fragment"
                .to_owned(),
        })
    }

    pub(super) fn check(&self) -> Result<(), ConfigError> {
        let usable = |secret: &SecretString| {
            let secret = secret.expose_secret();
            !secret.is_empty() && secret.bytes().all(|byte| byte.is_ascii_graphic())
        };
        for (field, secret) in [("token", &self.token), ("signing_secret", &self.signing_secret)] {
            if !usable(secret) {
                return wrong(format!("slack.{field}"), "expected characters of ASCII without spaces");
            }
        }
        self.api().map(drop)
    }
}

impl Notify {
    /// Returns the user of the entry whose Slack account gets the messages. `None` for messages in a channel.
    pub(crate) fn slack_account(&self) -> Option<&str> {
        self.slack.as_ref().filter(|id| is_account(id)).and(self.user.as_deref())
    }

    /// Checks the key `slack` of an entry.
    pub(super) fn check_slack(
        &self,
        key: &str,
        id: &str,
        application: Option<&Slack>,
    ) -> Result<(), ConfigError> {
        let is_channel = id.starts_with(['C', 'G']);
        let is_id =
            id.len() >= 2 && id.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit());
        if !is_id || !(is_account(id) || is_channel) {
            let why = "expected the id of a Slack user or channel, as U0123456789 or C0123456789";
            return wrong(format!("{key}.slack"), why);
        }
        if is_account(id) && self.user.is_none() {
            let why = "expected the user of the Slack account beside notify.slack, because that user decides";
            return wrong(format!("{key}.user"), why);
        }
        if application.is_none() {
            return wrong(format!("{key}.slack"), "expected a section [slack], with the Slack application");
        }
        Ok(())
    }
}

fn is_account(id: &str) -> bool {
    id.starts_with(['U', 'W'])
}

/// Refuses a Slack account of two users of one tenant: a press of a button would be of either.
pub(super) fn check_accounts(all: &[Notify]) -> Result<(), ConfigError> {
    let mut seen: HashMap<(&str, &str), &str> = HashMap::new();
    for (place, entry) in all.iter().enumerate() {
        let Some((account, user)) = entry.slack.as_deref().zip(entry.slack_account()) else { continue };
        if *seen.entry((&entry.tenant, account)).or_insert(user) != user {
            let why =
                "expected one user for this Slack account: another entry of the tenant has another user";
            return wrong(format!("{}.slack", notify_key(place)), why);
        }
    }
    Ok(())
}
