//! Ports for programs that take their port as an argument.

use std::fs::{self, File};
use std::net::TcpListener;
use std::ops::Range;
use std::sync::{LazyLock, Mutex, PoisonError};

/// Below the range from which the system takes the ports of connections and of sockets without a chosen port: a port of
/// that range may be taken again before the program has it.
const PORTS: Range<u16> = 20_000..32_000;

/// The locked files of the ports that this process gave.
static GIVEN: LazyLock<Mutex<Vec<File>>> = LazyLock::new(Mutex::default);

/// Returns a port that no process uses, and that no other call of any test process gets while this process lives.
pub fn free_port() -> u16 {
    let locks = std::env::temp_dir().join("holdpoint-ports");
    fs::create_dir_all(&locks).unwrap();
    // Other processes that look for ports begin elsewhere.
    let first = PORTS.start + u16::try_from(std::process::id() % PORTS.len() as u32).unwrap();
    let mut given = GIVEN.lock().unwrap_or_else(PoisonError::into_inner);
    for port in (first..PORTS.end).chain(PORTS.start..first) {
        let lock = File::create(locks.join(port.to_string())).unwrap();
        if lock.try_lock().is_ok() && TcpListener::bind(("127.0.0.1", port)).is_ok() {
            given.push(lock);
            return port;
        }
    }
    panic!("all ports from {} to {} are taken", PORTS.start, PORTS.end);
}

#[cfg(test)]
mod tests {
    use super::free_port;
    use std::collections::BTreeSet;

    #[test]
    fn no_port_is_given_twice() {
        let ports: BTreeSet<u16> = (0..100).map(|_| free_port()).collect();
        assert_eq!(ports.len(), 100);
    }
}
