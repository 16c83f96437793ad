//! What goes on on one connection, and for how long it may stay when nothing does.

use super::deadlines::Deadlines;
use parking_lot::Mutex;
use poem::http::Version;
use std::sync::Arc;
use tokio::sync::Notify;
use tokio::time::Instant;

/// One connection.
#[derive(Debug)]
pub(super) struct Activity {
    now: Mutex<Now>,
    changed: Notify,
}

#[derive(Debug)]
struct Now {
    /// Requests that are not at their end.
    open: usize,
    /// Since when there is none.
    rests_since: Instant,
    /// How it asks; `None` until it has.
    version: Option<Version>,
    /// When the first of the next request came, with HTTP/1.
    head_since: Option<Instant>,
    /// Whether it left an answer where it was.
    not_taken: bool,
}

/// What becomes of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// It is told to ask no more, and what is open goes on to its end.
    Leave,
    /// It ends.
    Close,
}

impl Activity {
    /// A new connection.
    pub(super) fn new() -> Arc<Self> {
        let now =
            Now { open: 0, rests_since: Instant::now(), version: None, head_since: None, not_taken: false };
        Arc::new(Self { now: Mutex::new(now), changed: Notify::new() })
    }

    /// A request is there. It is open until the last of this is dropped.
    pub(super) fn asks(self: &Arc<Self>, version: Version) -> Open {
        let mut now = self.now.lock();
        now.open += 1;
        now.version = Some(version);
        now.head_since = None;
        drop(now);
        self.changed.notify_one();
        Open(Arc::new(Request(self.clone())))
    }

    /// Bytes came.
    pub(super) fn received(&self, bytes: &[u8]) {
        let mut now = self.now.lock();
        // With HTTP/2 they need not belong to a request.
        let asks_one_by_one = now.version.is_some_and(|version| version < Version::HTTP_2);
        if !bytes.is_empty() && now.open == 0 && asks_one_by_one && now.head_since.is_none() {
            now.head_since = Some(Instant::now());
            self.changed.notify_one();
        }
    }

    /// Comes back after the next change.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// What becomes of it, and when, if nothing changes; it has been told to leave then, if it has been.
    pub(super) fn fate(&self, deadlines: &Deadlines, told: Option<Instant>) -> Option<(Instant, Fate)> {
        let now = self.now.lock();
        if now.not_taken && told.is_none() {
            return Some((Instant::now(), Fate::Leave));
        }
        if now.open > 0 {
            return None;
        }
        Some(match (told, now.version, now.head_since) {
            (Some(told), ..) => (told.max(now.rests_since) + deadlines.taking, Fate::Close),
            (None, None, _) => (now.rests_since + deadlines.head, Fate::Close),
            (None, Some(_), Some(head)) => (head + deadlines.head, Fate::Close),
            (None, Some(_), None) => (now.rests_since + deadlines.idle, Fate::Leave),
        })
    }
}

/// A request that is not at its end: nobody has all of its answer yet.
#[derive(Debug, Clone)]
pub(super) struct Open(Arc<Request>);

#[derive(Debug)]
struct Request(Arc<Activity>);

impl Open {
    /// The client left the answer where it was. What the connection keeps of it is freed with the connection only, so
    /// it takes no more requests.
    pub(super) fn is_not_taken(&self) {
        let activity = &self.0.0;
        activity.now.lock().not_taken = true;
        activity.changed.notify_one();
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        let mut now = self.0.now.lock();
        now.open = now.open.saturating_sub(1);
        now.rests_since = Instant::now();
        drop(now);
        self.0.changed.notify_one();
    }
}
