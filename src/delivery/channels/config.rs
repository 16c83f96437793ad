//! The keys of the channels: the list of their sections, and `[[notify]]`, the people that get messages about held calls
//! that they may decide.
//!
//! These files are modules of `config`, which is below the deliveries, and use nothing of theirs.

#[path = "mail/config.rs"]
pub(crate) mod mail;
#[path = "slack/config.rs"]
pub(crate) mod slack;
#[path = "template/config.rs"]
pub(crate) mod template;
#[path = "webhook/config.rs"]
pub(crate) mod webhook;

use crate::config::{AuthMode, Config, ConfigError, wrong};
use holdpoint_core::endpoint::ChannelKind;
use holdpoint_settings::shown;
use jiff::civil::Time;
use jiff::tz::TimeZone;
pub use mail::{Mail, MailTls};
use serde::{Deserialize, Serialize};
pub use slack::Slack;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
pub use webhook::{Webhook, WebhookBody};

/// The error of an entry with no way to its recipient, or with several.
const ONE_WAY: &str = "expected either this, slack, ntfy or url";
/// The one user of a server without authentication.
const ONLY_USER: &str = "local";

/// `[[notify]]`
#[derive(Clone, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Notify {
    /// Name by which the server knows how far the delivery went. With another name the recipient is a new one.
    ///
    /// Value: 1 to 64 of `a-z A-Z 0-9 _ -`, unique, also among `webhooks`. Default: required.
    pub name: String,
    /// Tenant of the calls: `default` in mode `none`.
    ///
    /// Value: text. Default: required.
    pub tenant: String,
    /// User that reads the messages: `local` in mode `none`.
    ///
    /// Value: text. Default: this or `role`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// With `user`: the role of that user, since roles are in tokens only. Without `user`: the role of all that read
    /// the messages, as a team's list.
    ///
    /// Value: text. Default: this or `user`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// Address. Needs the section [`mail`](#mail).
    ///
    /// Value: mail address. Default: this, `slack`, `ntfy` or `url`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mail: Option<String>,
    /// Receiver in Slack. Needs the section [`slack`](#slack). The Slack user is the `user` of the entry, with its
    /// `role`: its presses of buttons decide with those rights.
    ///
    /// Value: id of a Slack user (`U…`, `W…`) or channel (`C…`, `G…`). Default: this, `mail`, `ntfy` or `url`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slack: Option<String>,
    /// Address of a topic of [ntfy](operations.md#ntfy), as `https://ntfy.sh/acme-holds`, under the rules of `url`.
    /// `holdpoint config` shows its host only.
    ///
    /// Value: URL. Default: this, `mail`, `slack` or `url`.
    #[serde(default, serialize_with = "shown::secret_path", skip_serializing_if = "Option::is_none")]
    pub ntfy: Option<String>,
    /// Address that gets a POST for each message, as `http_tools.url`. `holdpoint config` shows its host only.
    ///
    /// Value: URL. Default: this, `mail`, `slack` or `ntfy`.
    #[serde(default, serialize_with = "shown::secret_path", skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Headers of each request to `ntfy` or `url`, as `authorization`.
    ///
    /// Value: table of texts. Default: none.
    #[serde(default, serialize_with = "shown::secrets", skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// Headers of each request to `ntfy` or `url`, each with the file that has the value.
    ///
    /// Value: table of paths. Default: none.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub header_files: BTreeMap<String, PathBuf>,
    /// Type of the body, which determines how the template is read.
    ///
    /// Value: `application/json`, a type `application/…+json`, `text/plain`. Default: `application/json`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
    /// Body of the requests, with [placeholders](operations.md#messages-to-other-services).
    ///
    /// Value: text. Default: this or `template_file`, with `url`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<String>,
    /// File with the template.
    ///
    /// Value: path. Default: this or `template`, with `url`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template_file: Option<PathBuf>,
    /// Whether the messages have what may contain arguments: the headline, the inputs, the constants, the preview,
    /// the reasons and the error of a call. Without it a message in Slack has no button that approves.
    ///
    /// Value: switch. Default: `false`.
    #[serde(default)]
    pub share_arguments: bool,
    /// Time zone of `quiet`, and of deadlines in the messages.
    ///
    /// Value: IANA name. Default: UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_zone: Option<String>,
    /// Daily time in which messages wait, unless a deadline is near.
    ///
    /// Value: two times of the day, as `22:00-07:00`. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quiet: Option<String>,
}

impl fmt::Debug for Notify {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        shown::debug(self, f)
    }
}

/// The channel of an entry, with the address of its recipient there.
#[derive(Debug, Clone, Copy)]
pub(crate) enum NotifyAddress<'a> {
    Mail(&'a str),
    Slack(&'a str),
    Ntfy(&'a str),
    Url(&'a str),
}

impl NotifyAddress<'_> {
    /// Whether messages are requests to an address of the entry, which may have headers.
    const fn has_requests(self) -> bool {
        matches!(self, Self::Ntfy(_) | Self::Url(_))
    }

    pub(crate) const fn channel(self) -> ChannelKind {
        match self {
            Self::Mail(_) => ChannelKind::Mail,
            Self::Slack(_) => ChannelKind::Slack,
            Self::Ntfy(_) => ChannelKind::Ntfy,
            Self::Url(_) => ChannelKind::Template,
        }
    }
}

/// A daily time, which may include midnight. The two ends differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct QuietHours {
    pub(crate) from: Time,
    /// The end, which is not a part of the time.
    pub(crate) to: Time,
}

/// A text that is no daily time.
#[derive(Debug)]
pub(crate) struct NoQuietHours;

impl FromStr for QuietHours {
    type Err = NoQuietHours;

    fn from_str(text: &str) -> Result<Self, NoQuietHours> {
        let (from, to) = text.split_once('-').ok_or(NoQuietHours)?;
        let (from, to) = (time(from).ok_or(NoQuietHours)?, time(to).ok_or(NoQuietHours)?);
        if from == to { Err(NoQuietHours) } else { Ok(Self { from, to }) }
    }
}

/// Parses `HH:MM`.
fn time(text: &str) -> Option<Time> {
    let two_digits = |text: &str| {
        let is_number = text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse().ok().filter(|_| is_number)
    };
    let (hour, minute) = text.split_once(':')?;
    Time::new(two_digits(hour)?, two_digits(minute)?, 0, 0).ok()
}

impl Notify {
    /// Returns the one address of the entry. `key` is the key of the entry.
    pub(crate) fn address(&self, key: &str) -> Result<NotifyAddress<'_>, ConfigError> {
        let all = [
            self.mail.as_deref().map(NotifyAddress::Mail),
            self.slack.as_deref().map(NotifyAddress::Slack),
            self.ntfy.as_deref().map(NotifyAddress::Ntfy),
            self.url.as_deref().map(NotifyAddress::Url),
        ];
        let mut set = all.into_iter().flatten();
        match (set.next(), set.next()) {
            (Some(address), None) => Ok(address),
            _ => Err(ConfigError::Value { key: format!("{key}.mail"), why: ONE_WAY.to_owned() }),
        }
    }

    /// Returns the channel of the entry, if it has one address.
    pub(crate) fn channel(&self) -> Option<ChannelKind> {
        self.address("").ok().map(NotifyAddress::channel)
    }

    /// Returns the time zone. `key` is the key of the entry.
    pub(crate) fn zone(&self, key: &str) -> Result<TimeZone, ConfigError> {
        let Some(name) = &self.time_zone else { return Ok(TimeZone::UTC) };
        TimeZone::get(name).map_err(|_| ConfigError::Value {
            key: format!("{key}.time_zone"),
            why: format!("expected the IANA name of a time zone, as Europe/Zurich, not {name:?}"),
        })
    }

    /// Returns the quiet hours. `key` is the key of the entry.
    pub(crate) fn quiet_hours(&self, key: &str) -> Result<Option<QuietHours>, ConfigError> {
        let hours = self.quiet.as_deref().map(str::parse).transpose();
        hours.map_err(|NoQuietHours| ConfigError::Value {
            key: format!("{key}.quiet"),
            why: "expected two different times of the day, as 22:00-07:00".to_owned(),
        })
    }

    fn check(&self, key: &str, config: &Config) -> Result<(), ConfigError> {
        let mode = config.auth.mode;
        webhook::check_name(key, &self.name)?;
        webhook::check_tenant(key, &self.tenant, mode)?;
        for (field, value) in [("user", &self.user), ("role", &self.role)] {
            if value.as_deref().is_some_and(|value| value.trim().is_empty()) {
                return wrong(format!("{key}.{field}"), "expected a name");
            }
        }
        match (&self.user, &self.role) {
            (None, None) => wrong(format!("{key}.user"), "expected this or role, or both")?,
            (user, role)
                if mode == AuthMode::None && (role.is_some() || user.as_deref() != Some(ONLY_USER)) =>
            {
                let why = "expected \"local\" and no role, or auth.mode = \"jwt\": without authentication there \
                           is one user";
                wrong(format!("{key}.user"), why)?;
            }
            _ => {}
        }
        let address = self.address(key)?;
        match address {
            NotifyAddress::Mail(to) => mail::check_recipient(key, to, config.mail.as_ref())?,
            NotifyAddress::Slack(id) => self.check_slack(key, id, config.slack.as_ref())?,
            NotifyAddress::Ntfy(url) => config.egress.check_url(&format!("{key}.ntfy"), url)?,
            NotifyAddress::Url(url) => self.check_post(key, url, &config.egress)?,
        }
        if address.has_requests() {
            self.check_headers(key)?;
        } else {
            self.check_no_headers(key)?;
        }
        if address.channel() != ChannelKind::Template {
            self.check_no_template(key)?;
        }
        self.quiet_hours(key)?;
        self.zone(key).map(drop)
    }
}

/// Returns the key of an entry of `[[notify]]`, for errors.
pub(crate) fn notify_key(place: usize) -> String {
    format!("notify[{place}]")
}

/// Checks the keys of all channels.
pub(super) fn check(config: &Config) -> Result<(), ConfigError> {
    webhook::check(&config.webhooks, &config.egress, config.auth.mode)?;
    config.mail.as_ref().map_or(Ok(()), Mail::check)?;
    config.slack.as_ref().map_or(Ok(()), Slack::check)?;
    let entries = config.notify.iter().enumerate();
    entries.clone().try_for_each(|(place, entry)| entry.check(&notify_key(place), config))?;
    slack::check_accounts(&config.notify)?;
    let webhooks = config.webhooks.iter().enumerate().map(|(place, it)| (webhook::key(place), &it.name));
    check_names(webhooks.chain(entries.map(|(place, it)| (notify_key(place), &it.name))))
}

/// Returns the channels and names of all endpoints.
pub(super) fn endpoints(config: &Config) -> Vec<(ChannelKind, &str)> {
    let webhooks = config.webhooks.iter().map(|it| (ChannelKind::Webhook, it.name.as_str()));
    let recipients = config.notify.iter().filter_map(|it| Some((it.channel()?, it.name.as_str())));
    webhooks.chain(recipients).collect()
}

/// Refuses two endpoints of one name, which would share their place in the events. `names` are the keys of the entries,
/// with their names.
fn check_names<'a>(names: impl Iterator<Item = (String, &'a String)>) -> Result<(), ConfigError> {
    let mut seen = BTreeSet::new();
    for (key, name) in names {
        if !seen.insert(name) {
            let why = format!("expected another name than {name:?}, which another endpoint has");
            return wrong(format!("{key}.name"), why);
        }
    }
    Ok(())
}
