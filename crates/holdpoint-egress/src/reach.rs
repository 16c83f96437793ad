//! The reach of requests to addresses that are not the operator's own, such as those of tools.
//!
//! Such a request reaches public addresses, and others only if the operator names them. The check is made where
//! the connection is opened, on the very addresses that the connection is opened to, so a name that resolves to
//! another address later gains nothing.

use super::addresses::{is_in, is_public, reached};
use super::{builder, chain};
use ipnet::IpNet;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use url::{Host, Url};

/// The addresses that requests may reach.
#[derive(Debug, Clone, Default)]
pub struct Reach(Arc<AllowedAddresses>);

/// What is allowed besides public addresses.
#[derive(Debug, Default)]
struct AllowedAddresses {
    networks: Vec<IpNet>,
    /// Names whose addresses are not checked.
    hosts: Vec<String>,
}

/// The error of an address that a request may not reach.
#[derive(Debug)]
struct RefusedAddress(IpAddr);

impl fmt::Display for RefusedAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is not a public address, and egress.allow does not name it", self.0)
    }
}

impl std::error::Error for RefusedAddress {}

impl Reach {
    /// Creates a reach that includes these networks, and all addresses of these hosts.
    pub fn new(networks: Vec<IpNet>, hosts: Vec<String>) -> Self {
        Self(Arc::new(AllowedAddresses { networks, hosts }))
    }

    /// Returns a client for requests to this URL, or the reason why the URL may not be reached.
    ///
    /// The client opens a connection for each request, to an address that was checked. It follows no
    /// redirects and repeats no request. It uses no proxy: a proxy resolves names itself, and the address
    /// could not be checked.
    pub fn client(&self, url: &Url) -> Result<reqwest::Client, String> {
        // The resolver does not see literal addresses.
        match url.host() {
            Some(Host::Ipv4(address)) => self.check(address.into()),
            Some(Host::Ipv6(address)) => self.check(address.into()),
            Some(Host::Domain(_)) | None => Ok(()),
        }
        .map_err(|refused| refused.to_string())?;
        builder()
            .no_proxy()
            .dns_resolver(self.clone())
            .http1_only()
            .pool_max_idle_per_host(0)
            .retry(reqwest::retry::never())
            .build()
            .map_err(chain)
    }

    fn check(&self, address: IpAddr) -> Result<(), RefusedAddress> {
        let reached = reached(address);
        let allowed = is_public(reached) || is_in(&self.0.networks, reached);
        allowed.then_some(()).ok_or(RefusedAddress(address))
    }

    /// Resolves a name. One address that may not be reached refuses the name: which of its addresses a
    /// connection uses depends on chance.
    async fn addresses_of(
        &self,
        name: &str,
    ) -> Result<Vec<SocketAddr>, Box<dyn std::error::Error + Send + Sync>> {
        let found: Vec<SocketAddr> = tokio::net::lookup_host((name, 0)).await?.collect();
        if !self.0.hosts.iter().any(|host| host == name) {
            for address in &found {
                self.check(address.ip())?;
            }
        }
        Ok(found)
    }
}

impl Resolve for Reach {
    fn resolve(&self, name: Name) -> Resolving {
        let reach = self.clone();
        Box::pin(async move {
            let found: Addrs = Box::new(reach.addresses_of(name.as_str()).await?.into_iter());
            Ok(found)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reach(networks: &[&str], hosts: &[&str]) -> Reach {
        let networks = networks.iter().map(|net| net.parse().unwrap()).collect();
        Reach::new(networks, hosts.iter().map(|host| (*host).to_owned()).collect())
    }

    #[test]
    fn a_literal_address_in_any_notation_has_to_be_public_or_allowed() {
        for url in [
            "http://127.0.0.1/",
            "http://2130706433/",
            "http://0x7f.1/",
            "http://0177.0.0.1/",
            "http://127.0.0.1:8080/",
            "http://[::1]/",
            "http://[::ffff:127.0.0.1]/",
            "http://[::ffff:7f00:1]/",
        ] {
            let url = Url::parse(url).unwrap();
            let refused = reach(&[], &["127.0.0.1"]).client(&url).unwrap_err();
            assert!(refused.contains("egress.allow"), "{refused}");
            assert!(reach(&["127.0.0.0/8", "::1/128"], &[]).client(&url).is_ok(), "{url}");
        }
        assert!(reach(&[], &[]).client(&Url::parse("https://1.1.1.1/").unwrap()).is_ok());
    }

    #[tokio::test]
    async fn a_name_is_refused_if_one_of_its_addresses_is() {
        let found = reach(&["127.0.0.0/8", "::1/128"], &[]).addresses_of("localhost").await.unwrap();
        assert!(found.iter().all(|address| address.ip().is_loopback()), "{found:?}");
        assert!(reach(&[], &[]).addresses_of("localhost").await.is_err());
        assert!(reach(&[], &["local"]).addresses_of("localhost").await.is_err());
        assert_eq!(reach(&[], &["localhost"]).addresses_of("localhost").await.unwrap(), found);
    }
}
