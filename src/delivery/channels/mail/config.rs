//! `[mail]`: the mail server by which the server sends messages.

use crate::config::{ConfigError, shown, wrong};
use lettre::message::Mailbox;
use secrecy::SecretString;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;
use url::{Host, Url};

/// The longest time of an attempt.
const TIMEOUT_MAX: Duration = Duration::from_secs(60);

/// How the connection to the mail server is encrypted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum MailTls {
    /// By STARTTLS (RFC 3207), which is required. The usual port is 587.
    #[default]
    Starttls,
    /// From the first byte (RFC 8314). The usual port is 465.
    Implicit,
    /// Not at all, for a mail server on this machine. The usual port is 25.
    None,
}

/// `[mail]`
#[derive(Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Mail {
    /// `server`: the host of the mail server, with a port if it is not the usual one.
    pub server: String,
    /// `tls`: how the connection is encrypted.
    #[serde(default, deserialize_with = "crate::config::sources::word")]
    pub tls: MailTls,
    /// `ca_file`: a file with certificates (PEM) that are trusted besides those of the system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_file: Option<PathBuf>,
    /// `from`: the address of the sender.
    pub from: String,
    /// `user`: the name of the server at the mail server. Needs `password`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// `password`: the password of `user`.
    #[serde(default, serialize_with = "shown::secret")]
    pub password: Option<SecretString>,
    /// `timeout`: the longest time of an attempt to send a message.
    #[serde(default = "timeout", with = "crate::config::sources::duration")]
    pub timeout: Duration,
}

impl fmt::Debug for Mail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        shown::debug(self, f)
    }
}

const fn timeout() -> Duration {
    Duration::from_secs(30)
}

impl Mail {
    /// Returns the host and the port of the mail server.
    pub(crate) fn address(&self) -> Result<(String, u16), ConfigError> {
        let url = Url::parse(&format!("smtp://{}", self.server)).ok();
        let plain = |url: &Url| {
            url.username().is_empty()
                && url.password().is_none()
                && url.path().is_empty()
                && url.query().is_none()
                && url.fragment().is_none()
        };
        let host = match url.as_ref().filter(|url| plain(url)).and_then(Url::host) {
            Some(Host::Domain(name)) if !name.is_empty() => name.to_owned(),
            Some(Host::Ipv4(address)) => address.to_string(),
            Some(Host::Ipv6(address)) => address.to_string(),
            Some(Host::Domain(_)) | None => {
                let why = "expected a host name or an address, with a port if needed, as smtp.example:587";
                return Err(ConfigError::Value { key: "mail.server".to_owned(), why: why.to_owned() });
            }
        };
        let usual = match self.tls {
            MailTls::Starttls => 587,
            MailTls::Implicit => 465,
            MailTls::None => 25,
        };
        Ok((host, url.and_then(|url| url.port()).unwrap_or(usual)))
    }

    pub(crate) fn sender(&self) -> Result<Mailbox, ConfigError> {
        mailbox("mail.from", &self.from)
    }

    pub(super) fn check(&self) -> Result<(), ConfigError> {
        let (host, _) = self.address()?;
        let is_here =
            host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
        if self.tls == MailTls::None && !is_here {
            let why = "expected \"starttls\" or \"implicit\": only a mail server on this machine may be \
                       reached without encryption";
            return wrong("mail.tls", why);
        }
        self.sender()?;
        match (&self.user, &self.password) {
            (Some(user), _) if user.is_empty() => wrong("mail.user", "expected a name")?,
            (Some(_), None) => {
                wrong("mail.password", "expected this or mail.password_file beside mail.user")?
            }
            (None, Some(_)) => wrong("mail.user", "expected this beside mail.password")?,
            (Some(_), Some(_)) | (None, None) => {}
        }
        if self.timeout.is_zero() || self.timeout > TIMEOUT_MAX {
            return wrong("mail.timeout", "expected more than 0s, and at most 60s");
        }
        Ok(())
    }
}

/// Checks the key `mail` of an entry of `[[notify]]`.
pub(super) fn check_recipient(key: &str, to: &str, server: Option<&Mail>) -> Result<(), ConfigError> {
    let key = format!("{key}.mail");
    mailbox(&key, to)?;
    if server.is_none() {
        return wrong(key, "expected a section [mail], with the mail server");
    }
    Ok(())
}

/// Reads a mail address, with or without a name.
pub(crate) fn mailbox(key: &str, text: &str) -> Result<Mailbox, ConfigError> {
    // Not every mail server takes addresses beyond ASCII (RFC 6531).
    let is_ascii = |mailbox: &Mailbox| AsRef::<str>::as_ref(&mailbox.email).is_ascii();
    text.parse().ok().filter(is_ascii).ok_or_else(|| ConfigError::Value {
        key: key.to_owned(),
        why: "expected a mail address in ASCII, as dana@example.com or Dana <dana@example.com>".to_owned(),
    })
}
