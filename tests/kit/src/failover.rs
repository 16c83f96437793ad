//! A primary and its synchronous standby behind one address, and a manager that promotes the standby.

use super::Rows;
use super::postgres::Keeper;
use std::net::TcpListener;

/// Ports outside the range that the kernel takes for outgoing connections: the last one is needed only after
/// seconds.
const PORTS: std::ops::Range<u16> = 20_000..32_000;

/// Two Postgres servers under pg_auto_failover behind HAProxy. They end when this value is dropped, or with the
/// process.
#[derive(Debug)]
pub struct Failover {
    port: u16,
    keeper: Keeper,
}

impl Failover {
    /// Starts the servers, and waits until every commit waits for the standby.
    pub fn start() -> Self {
        let ports = free_ports();
        let mut keeper = Keeper::spawn(include_str!("failover.sh"), &ports.map(|port| port.to_string()));
        assert!(
            keeper.is_ok(),
            "these tests need HAProxy and pg_auto_failover (Debian: apt install haproxy pg-auto-failover-cli \
             postgresql-15-auto-failover); what went wrong stands above"
        );
        Self { port: ports[3], keeper }
    }

    /// Creates an empty database, and returns its URL through HAProxy.
    pub async fn database(&self) -> String {
        let url = |database: &str| format!("postgres://postgres@127.0.0.1:{}/{database}", self.port);
        let rows = Rows::open(&url("postgres")).await;
        rows.change("CREATE DATABASE test").await.unwrap();
        url("test")
    }

    /// Stops the replication: from now on commits wait.
    pub fn mute(&mut self) {
        assert!(self.keeper.execute("mute"));
    }

    /// Ends the primary for good. The manager finds out by itself.
    pub fn kill_primary(&mut self) {
        assert!(self.keeper.execute("kill"));
    }
}

fn free_ports() -> [u16; 4] {
    // Other processes that look for ports begin elsewhere.
    let first = PORTS.start + u16::try_from(std::process::id() % PORTS.len() as u32).unwrap();
    let is_free = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok();
    let mut free = (first..).filter(is_free);
    std::array::from_fn(|_| free.next().unwrap())
}
