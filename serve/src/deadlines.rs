//! Deadlines for clients.

use std::time::Duration;

/// Upper bound of a deadline. Adding a longer duration to an `Instant` can overflow.
const NEVER: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// The deadlines of a client. The defaults suit clients on slow lines and still end an attack. A deadline of
/// more than a year counts as a year.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Deadlines {
    /// From the start of a connection to the end of its first request head; default 10 s. With HTTP/1.1 also from the first
    /// byte of each later head to its end.
    pub head: Duration,
    /// For a connection without an open request; default 75 s. Reverse proxies keep idle connections for about a minute,
    /// and a proxy that reuses a closed connection fails the request of its client.
    pub idle: Duration,
    /// Between two chunks of a request body; default 30 s.
    pub body_piece: Duration,
    /// For a whole request body; default 300 s.
    pub body: Duration,
    /// The least speed of a request body, in bytes per second, from its first byte on; default 4 KiB/s. With a
    /// slower one, few bytes would keep a connection and their memory for the whole deadline.
    pub body_bytes_per_second: u32,
    /// How long a body may be slower than that; default 10 s.
    pub body_slow_start: Duration,
    /// The write deadline: for reading the next piece of a response; default 30 s. A response without pending output has no
    /// deadline.
    pub taking: Duration,
    /// With HTTP/2: the interval between two pings, and the time for the acknowledgement of a ping;
    /// default 20 s.
    pub ping: Duration,
}

impl Default for Deadlines {
    fn default() -> Self {
        Self {
            head: Duration::from_secs(10),
            idle: Duration::from_secs(75),
            body_piece: Duration::from_secs(30),
            body: Duration::from_secs(300),
            body_bytes_per_second: 4 << 10,
            body_slow_start: Duration::from_secs(10),
            taking: Duration::from_secs(30),
            ping: Duration::from_secs(20),
        }
    }
}

impl Deadlines {
    /// Returns the deadlines, each limited to a duration that an `Instant` can represent.
    pub(crate) fn clamped(self) -> Self {
        let Self { head, idle, body_piece, body, body_bytes_per_second, body_slow_start, taking, ping } =
            self;
        let [head, idle, body_piece, body, body_slow_start, taking, ping] =
            [head, idle, body_piece, body, body_slow_start, taking, ping].map(|deadline| deadline.min(NEVER));
        Self { head, idle, body_piece, body, body_bytes_per_second, body_slow_start, taking, ping }
    }
}
