//! The activity of one connection, and its deadlines.

use crate::deadlines::Deadlines;
use parking_lot::Mutex;
use poem::http::Version;
use std::sync::Arc;
use tokio::sync::Notify;
use tokio::time::Instant;

#[derive(Debug)]
pub(crate) struct Activity {
    now: Mutex<ActivityState>,
    changed: Notify,
}

#[derive(Debug)]
struct ActivityState {
    /// Number of open requests.
    open: usize,
    /// Since when no request is open.
    idle_since: Instant,
    /// The HTTP version of the last request; `None` before the first.
    version: Option<Version>,
    /// When the first byte of the next request arrived, with HTTP/1.
    head_since: Option<Instant>,
    /// Whether the client failed to read a response.
    unread: bool,
    /// The number of requests so far.
    requests: u64,
    /// Whether the endpoint has taken the whole of the last request in.
    is_received: bool,
    /// Whether the last request ends when its client closes its side.
    lives_with_client: bool,
}

/// What the server does with a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConnectionEnd {
    /// The server shuts the connection down gracefully: it accepts no further requests, and open requests
    /// finish.
    Leave,
    /// The server closes the connection.
    Close,
}

impl Activity {
    pub(crate) fn new() -> Arc<Self> {
        let now = ActivityState {
            open: 0,
            idle_since: Instant::now(),
            version: None,
            head_since: None,
            unread: false,
            requests: 0,
            is_received: false,
            lives_with_client: false,
        };
        Arc::new(Self { now: Mutex::new(now), changed: Notify::new() })
    }

    /// Records a request. The request is open until the last clone of the result is dropped.
    pub(crate) fn request_began(self: &Arc<Self>, version: Version) -> Open {
        let mut now = self.now.lock();
        now.open += 1;
        now.version = Some(version);
        now.head_since = None;
        now.requests = now.requests.wrapping_add(1);
        (now.is_received, now.lives_with_client) = (false, false);
        drop(now);
        self.changed.notify_one();
        Open(Arc::new(Request(self.clone())))
    }

    /// Records received bytes.
    pub(crate) fn received(&self, bytes: &[u8]) {
        let mut now = self.now.lock();
        // With HTTP/2, received bytes need not belong to a request.
        let is_http1 = now.version.is_some_and(|version| version < Version::HTTP_2);
        if !bytes.is_empty() && now.open == 0 && is_http1 && now.head_since.is_none() {
            now.head_since = Some(Instant::now());
            self.changed.notify_one();
        }
    }

    /// Returns the open request of HTTP/1, if there is one. HTTP/2 closes requests by frames of its own.
    pub(crate) fn open_request(&self) -> Option<OpenRequest> {
        let now = self.now.lock();
        let is_http1 = now.version.is_some_and(|version| version < Version::HTTP_2);
        (now.open > 0 && is_http1).then_some(OpenRequest {
            number: now.requests,
            is_received: now.is_received,
            lives_with_client: now.lives_with_client,
        })
    }

    /// Completes after the next change.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Returns the next fate of the connection and its time, if nothing changes before; `None` while a
    /// request is open. The second argument is the time at which the graceful shutdown began, if it did.
    pub(crate) fn fate(
        &self,
        deadlines: &Deadlines,
        closing_since: Option<Instant>,
    ) -> Option<(Instant, ConnectionEnd)> {
        let now = self.now.lock();
        if now.unread && closing_since.is_none() {
            return Some((Instant::now(), ConnectionEnd::Leave));
        }
        if now.open > 0 {
            return None;
        }
        Some(match (closing_since, now.version, now.head_since) {
            (Some(closing_since), ..) => {
                (closing_since.max(now.idle_since) + deadlines.taking, ConnectionEnd::Close)
            }
            (None, None, _) => (now.idle_since + deadlines.head, ConnectionEnd::Close),
            (None, Some(_), Some(head)) => (head + deadlines.head, ConnectionEnd::Close),
            (None, Some(_), None) => (now.idle_since + deadlines.idle, ConnectionEnd::Leave),
        })
    }
}

/// An open request of HTTP/1, as the endpoint has described it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OpenRequest {
    pub(crate) number: u64,
    /// Whether the endpoint has taken the whole request in.
    pub(crate) is_received: bool,
    /// Whether the request ends when the client closes its side, whenever that is.
    pub(crate) lives_with_client: bool,
}

/// An open request: the client has not received the whole response.
#[derive(Debug, Clone)]
pub(crate) struct Open(Arc<Request>);

#[derive(Debug)]
struct Request(Arc<Activity>);

impl Open {
    /// Records that the whole request has arrived.
    pub(crate) fn mark_received(&self) {
        let activity = &self.0.0;
        activity.now.lock().is_received = true;
        activity.changed.notify_one();
    }

    /// Records that the request ends when its client closes its side.
    pub(crate) fn mark_living_with_client(&self) {
        let activity = &self.0.0;
        activity.now.lock().lives_with_client = true;
        activity.changed.notify_one();
    }

    /// Records that the client did not read a response. The buffers of that response are released only with
    /// the connection, so the connection takes no more requests.
    pub(crate) fn mark_unread(&self) {
        let activity = &self.0.0;
        activity.now.lock().unread = true;
        activity.changed.notify_one();
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        let mut now = self.0.now.lock();
        now.open = now.open.saturating_sub(1);
        now.idle_since = Instant::now();
        drop(now);
        self.0.changed.notify_one();
    }
}
