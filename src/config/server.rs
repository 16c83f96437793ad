//! `[server]`: how the server faces the world.

use super::{ConfigError, duration};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::time::Duration;

/// `[server]`
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Server {
    /// `bind`: the address to listen on; port 0 takes any, which is printed.
    #[serde(deserialize_with = "super::sources::address")]
    pub bind: SocketAddr,
    /// `cors_origins`: pages of other origins that may call, each as browsers write it: `https://app.example`.
    #[serde(deserialize_with = "super::sources::list")]
    pub cors_origins: Vec<String>,
    /// `docs`: whether `/docs` is served; if absent, only on loopback.
    pub docs: Option<bool>,
    /// `metrics_bind`: an address of its own for `/metrics`; if absent, it is served beside the routes, on loopback
    /// only.
    #[serde(deserialize_with = "super::sources::some_address")]
    pub metrics_bind: Option<SocketAddr>,
    /// `grace`: how long a stopping server lets what is under way finish; then it is given up.
    #[serde(with = "super::sources::duration")]
    pub grace: Duration,
}

impl Default for Server {
    fn default() -> Self {
        Self {
            bind: SocketAddr::from(([127, 0, 0, 1], 8080)),
            cors_origins: Vec::new(),
            docs: None,
            metrics_bind: None,
            // Who ends processes from outside gives most of them 30 s; what is given up has to be written before.
            grace: Duration::from_secs(20),
        }
    }
}

impl Server {
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        duration("server.grace", self.grace)
    }
}
