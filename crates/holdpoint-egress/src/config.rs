//! `[egress]`: the addresses that the server may send requests to.

use crate::Reach;
use holdpoint_settings::{ConfigError, wrong};
use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;
use url::{Host, Url};

/// `[egress]`
#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Egress {
    /// What tools may be at besides public addresses with `https`: `127.0.0.1`, `10.0.0.0/8`, `::1`,
    /// `tools.internal`.
    ///
    /// Value: list of addresses, networks and host names. Default: none.
    #[serde(deserialize_with = "holdpoint_settings::forms::list")]
    pub allow: Vec<String>,
}

/// An entry of `allow`.
enum AllowedTarget {
    Network(IpNet),
    Host(String),
}

impl AllowedTarget {
    fn of(text: &str) -> Option<Self> {
        if let Ok(address) = text.parse::<IpAddr>() {
            return Some(Self::Network(address.to_canonical().into()));
        }
        if let Ok(network) = text.parse::<IpNet>() {
            return Some(Self::Network(network));
        }
        match Host::parse(text) {
            Ok(Host::Domain(name)) if !name.contains('*') => Some(Self::Host(name)),
            _ => None,
        }
    }
}

impl Egress {
    /// Returns the addresses that requests to services may reach.
    pub fn reach(&self) -> Reach {
        Reach::new(self.networks(), self.hosts())
    }

    /// Checks the values.
    ///
    /// # Errors
    /// The first value that is not allowed.
    pub fn check(&self) -> Result<(), ConfigError> {
        match self.allow.iter().find(|text| AllowedTarget::of(text).is_none()) {
            Some(text) => {
                let expected =
                    "expected addresses, networks or host names, as 127.0.0.1, 10.0.0.0/8 or tools.internal";
                wrong("egress.allow", format!("{expected}, not {text:?}"))
            }
            None => Ok(()),
        }
    }

    fn entries(&self) -> impl Iterator<Item = AllowedTarget> {
        self.allow.iter().filter_map(|text| AllowedTarget::of(text))
    }

    /// Returns the allowed addresses and networks.
    fn networks(&self) -> Vec<IpNet> {
        let networks = self.entries().filter_map(|entry| match entry {
            AllowedTarget::Network(network) => Some(network),
            AllowedTarget::Host(_) => None,
        });
        networks.collect()
    }

    /// Returns the allowed host names.
    fn hosts(&self) -> Vec<String> {
        let hosts = self.entries().filter_map(|entry| match entry {
            AllowedTarget::Host(name) => Some(name),
            AllowedTarget::Network(_) => None,
        });
        hosts.collect()
    }

    /// Checks the URL of a tool. Requests to public addresses need TLS.
    ///
    /// # Errors
    /// A URL that requests may not be sent to.
    pub fn check_url(&self, key: &str, text: &str) -> Result<(), ConfigError> {
        let url = Url::parse(text).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
        let Some(url) = url.filter(Url::has_host) else { return wrong(key, "expected an https:// URL") };
        if !url.username().is_empty() || url.password().is_some() || url.fragment().is_some() {
            return wrong(key, "expected a URL without a user name, a password and a fragment");
        }
        if url.scheme() == "http" && !self.names(&url) {
            let why = "expected an https:// URL, or http:// to a host that egress.allow names";
            return wrong(key, why);
        }
        Ok(())
    }

    fn names(&self, url: &Url) -> bool {
        let is_in = |address: IpAddr| self.networks().iter().any(|net| net.contains(&address.to_canonical()));
        match url.host() {
            Some(Host::Ipv4(address)) => is_in(address.into()),
            Some(Host::Ipv6(address)) => is_in(address.into()),
            Some(Host::Domain(name)) => self.hosts().iter().any(|host| host == name),
            None => false,
        }
    }
}
