//! A primary and its synchronous standby behind one address, and a manager that promotes the standby.

use super::Rows;
use super::ports::free_port;
use super::postgres::Keeper;

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
        let ports: [u16; 4] = std::array::from_fn(|_| free_port());
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
