//! How long clients may take.

use std::time::Duration;

/// Longer is for ever, and later than that no clock can tell.
const FOR_EVER: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// How long a client may take for what it does. The defaults suit clients on bad lines; an attack is over sooner.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Deadlines {
    /// From the first moment of a connection to the end of its first request's head; with HTTP/1.1 also from the first
    /// byte of each later head to its end.
    pub head: Duration,
    /// For a connection without a request. Proxies keep theirs for a minute, and one that finds its connection closed
    /// fails its client.
    pub idle: Duration,
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
            idle: Duration::from_secs(75),
            body_piece: Duration::from_secs(30),
            body: Duration::from_secs(300),
            taking: Duration::from_secs(30),
            ping: Duration::from_secs(20),
        }
    }
}

impl Deadlines {
    /// The same, each one that a clock can tell.
    pub(crate) fn tellable(self) -> Self {
        let Self { head, idle, body_piece, body, taking, ping } = self;
        let [head, idle, body_piece, body, taking, ping] =
            [head, idle, body_piece, body, taking, ping].map(|deadline| deadline.min(FOR_EVER));
        Self { head, idle, body_piece, body, taking, ping }
    }
}
