//! `[[webhooks]]`: addresses that get the events of a tenant.

use crate::config::sources::text_of_file;
use crate::config::{AuthMode, ConfigError, Egress, shown, wrong};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// The longest time that an endpoint may have to answer. The specification advises 15 to 30 s.
const TIMEOUT_MAX: Duration = Duration::from_secs(60);

/// The one tenant of a server without authentication.
const ONLY_TENANT: &str = "default";

/// What a request says about an event.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum WebhookBody {
    /// Ids, tool, risk, input hash, and the address of the call in the console.
    #[default]
    Thin,
    /// Also the event as readers of events get it, with the inputs of its call.
    Full,
}

/// `[[webhooks]]`
#[derive(Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Webhook {
    /// `name`: the name by which the server knows how far the delivery went.
    pub name: String,
    /// `tenant`: the tenant whose events the endpoint gets.
    pub tenant: String,
    /// `url`: the address that gets a POST for each event.
    #[serde(serialize_with = "shown::plain_url")]
    pub url: String,
    /// `secret_file`: the file with the secrets that sign the requests, one per line.
    pub secret_file: PathBuf,
    /// `events`: the types of events that the endpoint gets. All types, if absent.
    #[serde(
        default,
        deserialize_with = "crate::config::sources::some_list",
        skip_serializing_if = "Option::is_none"
    )]
    pub events: Option<Vec<String>>,
    /// `body`: what a request says about an event.
    #[serde(default, deserialize_with = "crate::config::sources::word")]
    pub body: WebhookBody,
    /// `timeout`: how long the endpoint has to answer.
    #[serde(default = "timeout", with = "crate::config::sources::duration")]
    pub timeout: Duration,
}

impl fmt::Debug for Webhook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        shown::debug(self, f)
    }
}

impl Webhook {
    /// Returns the text of the file with the secrets. `key` is the key of the entry.
    pub(crate) fn read_secrets(&self, key: &str) -> Result<String, ConfigError> {
        text_of_file(&format!("{key}.secret_file"), &self.secret_file)
    }

    fn check(&self, key: &str, egress: &Egress, mode: AuthMode) -> Result<(), ConfigError> {
        check_name(key, &self.name)?;
        check_tenant(key, &self.tenant, mode)?;
        let key = |field: &str| format!("{key}.{field}");
        egress.check_url(&key("url"), &self.url)?;
        if self.events.as_ref().is_some_and(Vec::is_empty) {
            return wrong(key("events"), "expected types of events, or no such key for all types");
        }
        if self.timeout.is_zero() || self.timeout > TIMEOUT_MAX {
            return wrong(key("timeout"), "expected more than 0s, and at most 60s");
        }
        Ok(())
    }
}

/// Checks the name of an endpoint.
pub(in crate::config) fn check_name(key: &str, name: &str) -> Result<(), ConfigError> {
    let usable = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if !(1..=64).contains(&name.len()) || !name.chars().all(usable) {
        return wrong(format!("{key}.name"), "expected 1 to 64 of a-z, A-Z, 0-9, _ and -");
    }
    Ok(())
}

/// Checks the tenant of an endpoint.
pub(in crate::config) fn check_tenant(key: &str, tenant: &str, mode: AuthMode) -> Result<(), ConfigError> {
    let key = format!("{key}.tenant");
    if tenant.is_empty() {
        return wrong(key, "expected the tenant whose events the endpoint gets");
    }
    if mode == AuthMode::None && tenant != ONLY_TENANT {
        let why = "expected \"default\", or auth.mode = \"jwt\": without authentication there is one tenant";
        return wrong(key, why);
    }
    Ok(())
}

const fn timeout() -> Duration {
    Duration::from_secs(15)
}

/// Returns the key of an entry, for errors.
pub(crate) fn key(index: usize) -> String {
    format!("webhooks[{index}]")
}

pub(super) fn check(all: &[Webhook], egress: &Egress, mode: AuthMode) -> Result<(), ConfigError> {
    all.iter().enumerate().try_for_each(|(index, webhook)| webhook.check(&key(index), egress, mode))
}
