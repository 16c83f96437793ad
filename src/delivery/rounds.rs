//! The task of one endpoint: it delivers what is due, and waits for more.

use super::Deliveries;
use super::channel::FailedAttempt;
use super::receiver::{AttemptTime, Outgoing, PreparedEvent, Receiver};
use holdpoint_core::clock::Timestamp;
use holdpoint_core::endpoint::{Endpoint, EndpointState};
use holdpoint_store::{Attempted, Delivery, LeasedEndpoint, NextEvent, Read, StoreError, Then};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How long an endpoint is held beyond the longest attempt: the time of the reads and writes around it.
const MARGIN: Duration = Duration::from_secs(5);
/// The longest pause before a look at an endpoint that is not delivered to: another process may have enabled it.
const LOOK: Duration = Duration::from_secs(5);
/// The pause after a failure of the database.
const REST: Duration = Duration::from_secs(1);
/// The number of events that the endpoint does not get, after which the cursor moves over them.
const PASSED_MAX: i64 = 1000;
/// The number of events of wanted types that one look prepares.
const PREPARED_MAX: usize = 50;
/// How long an event waits for the tool of its call: the MCP server of the tool may be connecting.
const TOOL_WAIT: Duration = Duration::from_secs(60);

/// When to look at an endpoint again, unless an operator enables it before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NextLook {
    /// When the tenant has new events.
    News,
    /// After this time. New events change nothing before.
    After(Duration),
}

/// What the receiver gets next.
enum NextDelivery<'a> {
    Send(Box<Outgoing<'a>>),
    /// The receiver gets none of the events up to `passed`.
    NoneUpTo {
        passed: i64,
        /// Whether later rows were not looked at.
        more: bool,
        /// Whether events of wanted types are among the passed ones. They are not looked at again.
        skipped: bool,
    },
    /// The next event is about a call whose tool the server lacks. The round waits for the tool.
    NoTool,
}

/// What a process knows of the endpoint between two rounds.
#[derive(Debug, Clone, Copy, Default)]
struct EndpointMemory {
    /// The endpoint gets none of the events between its cursor and this number.
    passed: i64,
    /// Whether the events after the cursor were looked at for a gap.
    gap_checked: bool,
    /// Whether the last round failed.
    fails: bool,
    /// Since when the server lacks the tool of the next call.
    no_tool_since: Option<Instant>,
}

impl Deliveries {
    /// Runs until the process stops.
    pub(super) async fn run_endpoint(self: Arc<Self>, place: usize) {
        let Some(receiver) = self.receivers.get(place) else { return };
        // Before the first look at the rows: an event that gets its number in between is in the news.
        let mut news = self.feed.tenant_signal(&receiver.wanted.tenant_id);
        let mut known = EndpointMemory::default();
        while !self.tasks.is_stopping() {
            // In a task: database work must not be dropped midway, and a panic ends this round only.
            let (deliveries, before) = (self.clone(), known);
            let round = self.tasks.spawn(async move {
                let mut known = before;
                let again = deliveries.round(place, &mut known).await;
                (again, known)
            });
            let again = match round.await {
                Ok((Ok(again), after)) => {
                    known = EndpointMemory { fails: false, ..after };
                    again
                }
                Ok((Err(error), after)) => {
                    if !known.fails {
                        tracing::warn!(endpoint = receiver.name, %error, "events could not be delivered");
                    }
                    known = EndpointMemory { fails: true, ..after };
                    NextLook::After(REST)
                }
                Err(error) => {
                    tracing::error!(
                        endpoint = receiver.name,
                        panicked = error.is_panic(),
                        "a round of deliveries failed"
                    );
                    NextLook::After(REST)
                }
            };
            let due = async {
                match again {
                    NextLook::News => news.next().await,
                    NextLook::After(time) => tokio::time::sleep(time).await,
                }
            };
            tokio::select! {
                () = due => {}
                () = receiver.enabled.notified() => {}
                () = self.tasks.stopping() => return,
            }
        }
    }

    /// Delivers all events that are due.
    async fn round(&self, place: usize, known: &mut EndpointMemory) -> Result<NextLook, StoreError> {
        let Some(receiver) = self.receivers.get(place) else { return Ok(NextLook::News) };
        let read = self.store.timed_read().await?;
        let Some(LeasedEndpoint { endpoint, held }) = read.endpoint(&receiver.name).await? else {
            return Ok(NextLook::After(LOOK));
        };
        if endpoint.state.is_disabled() {
            known.gap_checked = false;
            return Ok(NextLook::After(LOOK));
        }
        if !known.gap_checked {
            known.gap_checked = true;
            if endpoint.has_gap(read.oldest_event().await?) {
                tracing::error!(
                    endpoint = receiver.name,
                    cursor = endpoint.cursor,
                    "events after the cursor of an endpoint are gone, and are not delivered"
                );
            }
        }
        let waits_for_tool = known.no_tool_since.is_none_or(|since| since.elapsed() < TOOL_WAIT);
        let after = endpoint.cursor.max(known.passed);
        let next = self.next(&read, receiver, after, waits_for_tool).await?;
        let now = read.now();
        let quiet_until = match &next {
            NextDelivery::Send(first) => self.quiet_until(&read, receiver, first, now).await?,
            NextDelivery::NoneUpTo { .. } | NextDelivery::NoTool => None,
        };
        // A view keeps a connection.
        drop(read);
        known.no_tool_since = match next {
            NextDelivery::NoTool => known.no_tool_since.or_else(|| Some(Instant::now())),
            NextDelivery::Send(_) | NextDelivery::NoneUpTo { .. } => None,
        };
        let outgoing = match next {
            NextDelivery::Send(outgoing) => outgoing,
            NextDelivery::NoneUpTo { passed, more, skipped } => {
                known.passed = passed;
                if skipped || passed - endpoint.cursor >= PASSED_MAX {
                    let write = self.store.write().await?;
                    write.pass_events(&endpoint, passed).await?;
                    write.commit().await?;
                }
                return Ok(if more { NextLook::After(Duration::ZERO) } else { NextLook::News });
            }
            NextDelivery::NoTool => return Ok(NextLook::After(REST)),
        };
        if let Some(until) = quiet_until {
            return Ok(NextLook::After(until.since(now).min(LOOK)));
        }
        if let Some(wait) = self.wait(&endpoint, held.as_ref(), now) {
            return Ok(NextLook::After(wait.min(LOOK)));
        }
        self.deliver(receiver, endpoint, outgoing).await
    }

    /// Returns how long an attempt has to wait, if it has to: for its time, or for another process.
    fn wait(
        &self,
        endpoint: &Endpoint,
        held: Option<&(String, Timestamp)>,
        now: Timestamp,
    ) -> Option<Duration> {
        let until = match (&endpoint.state, held) {
            (_, Some((holder, until))) if *holder != self.holder => Some(*until),
            (EndpointState::Failing { next_attempt_at, .. }, _) => Some(*next_attempt_at),
            _ => None,
        };
        until.map(|until| until.since(now)).filter(|wait| !wait.is_zero())
    }

    /// Takes the endpoint and delivers this event and those after it, until none is left or an attempt fails.
    async fn deliver<'a>(
        &self,
        receiver: &'a Receiver,
        endpoint: Endpoint,
        mut outgoing: Box<Outgoing<'a>>,
    ) -> Result<NextLook, StoreError> {
        let lease = receiver.timeout() + MARGIN;
        let mut held_since = Instant::now();
        let write = self.store.write().await?;
        let claimed = write.claim_endpoint(&endpoint, &self.holder, lease).await?;
        write.commit().await?;
        // Another process was faster. Its lease is at most this long.
        let Some(mut delivery) = claimed else { return Ok(NextLook::After(LOOK)) };
        let mut state = endpoint.state;
        loop {
            let earlier = receiver.earlier(&self.store, &outgoing).await?;
            let until = Instant::now() + receiver.timeout();
            if until > held_since + lease {
                // Slow reads and writes have used the time up. Another process may deliver now.
                return Ok(NextLook::After(Duration::ZERO));
            }
            outgoing.make_link(&self.approvals).await?;
            let time = AttemptTime { now: self.clock.now(), until };
            let attempt = receiver.attempt(&outgoing, earlier.as_ref(), time);
            let attempted = tokio::select! {
                attempted = attempt => attempted,
                () = self.tasks.aborted() => {
                    let write = self.store.write().await?;
                    write.release_endpoint(&delivery).await?;
                    write.commit().await?;
                    return Ok(NextLook::News);
                }
            };
            let attempted = match attempted {
                Ok(attempted) => attempted,
                Err(failed) => return self.failed(receiver, &delivery, &state, &outgoing, failed).await,
            };
            self.count(receiver, &outgoing, &attempted);
            state = EndpointState::Delivering;
            let seq = outgoing.due.event.seq;
            // A failed look must not keep the delivery from being recorded.
            let pauses = self.tasks.is_stopping() || receiver.quiet_until(self.clock.now()).is_some();
            let next = if pauses { None } else { self.after(receiver, seq).await.ok() };
            let (up_to, following) = match next {
                Some(NextDelivery::Send(following)) => (seq, Some(following)),
                Some(NextDelivery::NoneUpTo { passed, .. }) => (passed.max(seq), None),
                Some(NextDelivery::NoTool) | None => (seq, None),
            };
            let then = if following.is_some() { Then::Hold(lease) } else { Then::Release };
            held_since = Instant::now();
            let write = self.store.write().await?;
            let holds = write.delivered(&mut delivery, (&attempted, up_to), then).await?;
            write.commit().await?;
            match following {
                Some(following) if holds => outgoing = following,
                // There may be more: a look that failed, or a scan that ended early.
                _ => return Ok(NextLook::After(Duration::ZERO)),
            }
        }
    }

    /// Returns until when the events wait for the end of the quiet hours of the receiver. An urgent event ends the wait
    /// of those before it too, because the order stays.
    async fn quiet_until(
        &self,
        read: &Read,
        receiver: &Receiver,
        first: &Outgoing<'_>,
        now: Timestamp,
    ) -> Result<Option<Timestamp>, StoreError> {
        let Some(end) = receiver.quiet_until(now) else { return Ok(None) };
        let earlier = |until: Timestamp, outgoing: &Outgoing<'_>| {
            outgoing.urgent_at().map_or(until, |urgent| urgent.min(until))
        };
        let (mut until, mut after) = (earlier(end, first), first.due.event.seq);
        for _ in 0..PREPARED_MAX {
            if until <= now {
                break;
            }
            match self.next(read, receiver, after, true).await? {
                NextDelivery::Send(outgoing) => {
                    (until, after) = (earlier(until, &outgoing), outgoing.due.event.seq);
                }
                NextDelivery::NoneUpTo { passed, more: true, .. } => after = passed,
                NextDelivery::NoneUpTo { .. } | NextDelivery::NoTool => break,
            }
        }
        Ok(Some(until).filter(|until| *until > now))
    }

    async fn after<'a>(&self, receiver: &'a Receiver, seq: i64) -> Result<NextDelivery<'a>, StoreError> {
        self.next(&self.store.read().await?, receiver, seq, true).await
    }

    /// Returns what the receiver gets after this number. An event about a call whose tool the server lacks is passed
    /// over, unless the receiver `waits_for_tool`.
    async fn next<'a>(
        &self,
        read: &Read,
        receiver: &'a Receiver,
        mut after: i64,
        waits_for_tool: bool,
    ) -> Result<NextDelivery<'a>, StoreError> {
        let mut skipped = false;
        for _ in 0..PREPARED_MAX {
            let due = match read.next_event(&receiver.wanted, after).await? {
                NextEvent::Due(due) => *due,
                NextEvent::NoneUpTo { passed, more } => {
                    return Ok(NextDelivery::NoneUpTo { passed, more, skipped });
                }
            };
            let (seq, event_id) = (due.event.seq, due.event.event_id.clone());
            match receiver.prepare(&self.approvals, read, due).await? {
                PreparedEvent::Outgoing(outgoing) => return Ok(NextDelivery::Send(outgoing)),
                PreparedEvent::Unknown if waits_for_tool && !skipped => return Ok(NextDelivery::NoTool),
                // The cursor moves over the skipped events first.
                PreparedEvent::Unknown if waits_for_tool => {
                    return Ok(NextDelivery::NoneUpTo { passed: after, more: true, skipped });
                }
                PreparedEvent::Unknown => {
                    let endpoint = &receiver.name;
                    tracing::warn!(
                        endpoint,
                        event = event_id,
                        "no message: the server lacks the tool of the call"
                    );
                }
                PreparedEvent::Nothing => {}
            }
            (after, skipped) = (seq, true);
        }
        Ok(NextDelivery::NoneUpTo { passed: after, more: true, skipped })
    }

    /// Counts an attempt after which the delivery continues.
    fn count(&self, receiver: &Receiver, outgoing: &Outgoing<'_>, attempted: &Attempted) {
        let outcome = match attempted {
            Attempted::Accepted | Attempted::Posted(..) => "delivered",
            Attempted::Unneeded => return,
            Attempted::Refused(status) => {
                let (endpoint, event) = (&receiver.name, &outgoing.due.event.event_id);
                tracing::error!(endpoint, event, status, "a message was refused, and is not sent again");
                "refused"
            }
        };
        self.metrics.delivery_attempted(receiver.kind(), &receiver.name, outcome);
    }

    /// Records a failed attempt.
    async fn failed(
        &self,
        receiver: &Receiver,
        delivery: &Delivery,
        state: &EndpointState,
        outgoing: &Outgoing<'_>,
        failed: FailedAttempt,
    ) -> Result<NextLook, StoreError> {
        self.metrics.delivery_attempted(receiver.kind(), &receiver.name, "failed");
        let FailedAttempt { failure, action, why } = failed;
        let write = self.store.write().await?;
        let now = write.now();
        let state = state.failed(failure, action, now);
        let recorded = write.failed(delivery, &state).await?;
        write.commit().await?;
        let (name, event) = (&receiver.name, &outgoing.due.event.event_id);
        Ok(match state {
            EndpointState::Failing { next_attempt_at, failures } if recorded => {
                let wait = next_attempt_at.since(now);
                let attempts = failures.count;
                tracing::warn!(endpoint = name, event, why, attempts, ?wait, "a delivery failed");
                NextLook::After(wait.min(LOOK))
            }
            EndpointState::Disabled { reason, .. } if recorded => {
                tracing::error!(
                    endpoint = name,
                    event,
                    why,
                    ?reason,
                    "an endpoint is disabled, and its cursor is kept; enable it to go on"
                );
                NextLook::After(LOOK)
            }
            _ => NextLook::After(Duration::ZERO),
        })
    }
}
