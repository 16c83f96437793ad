//! How long clients may take.

use std::time::Duration;

/// How long a client may take for what it does. The defaults suit clients on bad lines; an attack is over sooner.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Deadlines {
    /// From the first moment of a connection to the end of its first request's head; and with HTTP/1.1, from each
    /// answer to the end of the next head.
    pub head: Duration,
    /// Between two pieces of a body.
    pub body_piece: Duration,
    /// For a whole body.
    pub body: Duration,
    /// For taking more of what there is for it. Where there is nothing, it may wait as long as it likes.
    pub taking: Duration,
    /// With HTTP/2: between two looks whether the other side is still there, and for saying that it is.
    pub ping: Duration,
}

impl Default for Deadlines {
    fn default() -> Self {
        Self {
            head: Duration::from_secs(10),
            body_piece: Duration::from_secs(30),
            body: Duration::from_secs(120),
            taking: Duration::from_secs(30),
            ping: Duration::from_secs(20),
        }
    }
}
