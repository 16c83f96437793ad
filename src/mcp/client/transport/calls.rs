//! The calls of a connection that a form of its server can belong to.
//!
//! A request of a server with a session does not name its call. It is attributed only to a call that is the only possible
//! one: any other person must not read it. A call is possible until it is settled, or has an owner in the database. A call
//! that was given up is possible until the server has answered it, or its deadline is reached: the server may still
//! execute it.

use holdpoint_core::card::progress::Progress;
use holdpoint_store::request_sender::RequestSender;
use holdpoint_store::waited::UnsettledExecution;
use parking_lot::Mutex;
use rmcp::model::{
    CallToolRequestParams, ProgressNotificationParam, ProgressToken, RequestId, RequestMetaObject,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// The field of the metadata that carries the id of a flight to the transport, which takes it out.
const FLIGHT: &str = "holdpoint/flight";

/// The calls of a connection that are possible senders of a form.
pub(in crate::mcp) struct Calls {
    /// How long a call may still be executed after it was given up.
    given_up_for: Duration,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    calls: BTreeMap<u64, Call>,
    next: u64,
}

struct Call {
    /// The right to ask, until the call is given up or over.
    sender: Option<RequestSender>,
    /// The request that the server has not answered.
    request: Option<RequestId>,
    /// By this token the server reports progress.
    progress: Option<ProgressToken>,
    /// Since the call was given up without an answer: until when the server may execute it.
    possible_until: Option<Instant>,
    execution: UnsettledExecution,
}

impl Call {
    fn is_possible(&self, now: Instant) -> bool {
        self.execution.is_open() || self.possible_until.is_some_and(|until| now < until)
    }
}

/// A call in flight. Dropped before it has landed, it counts as given up.
pub(in crate::mcp) struct Flight {
    of: Arc<Calls>,
    id: u64,
    landed: bool,
}

impl Calls {
    /// No call so far. A call that is given up counts for `given_up_for`.
    pub(in crate::mcp) fn new(given_up_for: Duration) -> Self {
        Self { given_up_for, state: Mutex::default() }
    }

    /// Adds a call.
    pub(in crate::mcp) fn begin(self: &Arc<Self>, sender: RequestSender) -> Flight {
        let (execution, now) = (sender.unsettled(), Instant::now());
        let call =
            Call { sender: Some(sender), request: None, progress: None, possible_until: None, execution };
        let mut state = self.state.lock();
        let id = state.next;
        state.next = id.wrapping_add(1);
        state.calls.retain(|_, call| call.is_possible(now));
        state.calls.insert(id, call);
        drop(state);
        Flight { of: self.clone(), id, landed: false }
    }

    /// The transport is about to send this request. Takes the mark of its flight out of it.
    pub(in crate::mcp) fn sent(
        &self,
        id: &RequestId,
        params: &mut CallToolRequestParams,
        progress: Option<ProgressToken>,
    ) {
        let Some(meta) = &mut params.meta else { return };
        let flight = meta.remove(FLIGHT).and_then(|flight| flight.as_u64());
        if meta.is_empty() {
            params.meta = None;
        }
        let mut state = self.state.lock();
        if let Some(call) = flight.and_then(|flight| state.calls.get_mut(&flight)) {
            call.request = Some(id.clone());
            call.progress = progress;
        }
    }

    /// The server has reported progress. What it says of a call after its answer says nothing.
    pub(in crate::mcp) fn progressed(&self, report: &ProgressNotificationParam) {
        let ProgressNotificationParam { progress_token, progress, total, message, .. } = report;
        let state = self.state.lock();
        let is_of = |call: &&Call| call.request.is_some() && call.progress.as_ref() == Some(progress_token);
        let of = state.calls.values().find(is_of);
        if let Some(sender) = of.and_then(|call| call.sender.as_ref()) {
            sender.report_progress(Progress::new(message.as_deref(), Some(*progress), *total));
        }
    }

    /// The transport has received the answer to this request.
    pub(in crate::mcp) fn answered(&self, id: &RequestId) {
        let mut state = self.state.lock();
        if let Some(call) = state.calls.values_mut().find(|call| call.request.as_ref() == Some(id)) {
            call.request = None;
            call.possible_until = None;
        }
    }

    /// Returns the one call that a form which has arrived now can belong to.
    pub(in crate::mcp) fn only(&self, now: Instant) -> Option<RequestSender> {
        let mut state = self.state.lock();
        state.calls.retain(|_, call| call.is_possible(now));
        let mut calls = state.calls.values();
        let only = calls.next().filter(|call| call.request.is_some())?.sender.clone()?;
        calls.next().is_none().then_some(only)
    }
}

impl Flight {
    /// Marks a request of this call for the transport.
    pub(in crate::mcp) fn mark(&self, params: &mut CallToolRequestParams) {
        params.meta.get_or_insert_with(RequestMetaObject::default).insert(FLIGHT.to_owned(), self.id.into());
    }

    /// The server has answered the call.
    pub(in crate::mcp) fn landed(mut self) {
        self.landed = true;
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        let mut state = self.of.state.lock();
        if let Some(call) = state.calls.get_mut(&self.id) {
            call.sender = None;
            if self.landed {
                call.request = None;
            } else {
                call.possible_until = Instant::now().checked_add(self.of.given_up_for);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcp::client::transport::silent::SilentPeople;

    const GIVEN_UP_FOR: Duration = Duration::from_secs(60);

    fn calls() -> Arc<Calls> {
        Arc::new(Calls::new(GIVEN_UP_FOR))
    }

    fn only(calls: &Calls) -> bool {
        calls.only(Instant::now()).is_some()
    }

    fn begin(calls: &Arc<Calls>) -> (Flight, RequestSender) {
        let execution = Arc::new(SilentPeople::default()).sender();
        (calls.begin(execution.clone()), execution)
    }

    /// Sends the request of a flight, as the transport does.
    fn send(calls: &Calls, flight: &Flight, id: i64) {
        let mut params = CallToolRequestParams::new("t");
        flight.mark(&mut params);
        calls.sent(&RequestId::Number(id), &mut params, None);
        assert_eq!(params, CallToolRequestParams::new("t"), "the server gets no mark");
    }

    #[test]
    fn a_form_belongs_to_the_only_call_whose_request_is_not_answered() {
        let calls = calls();
        assert!(!only(&calls));
        let (first, ann) = begin(&calls);
        assert!(!only(&calls), "its request is not sent");
        send(&calls, &first, 1);
        assert!(only(&calls));
        let (second, bob) = begin(&calls);
        assert!(!only(&calls), "two calls");
        send(&calls, &second, 2);
        calls.answered(&RequestId::Number(2));
        second.landed();
        assert!(!only(&calls), "the second call is not settled");
        drop(bob);
        assert!(only(&calls));
        calls.answered(&RequestId::Number(1));
        assert!(!only(&calls), "it is answered");
        drop((first, ann));
    }

    #[test]
    fn a_call_that_was_given_up_counts_until_its_answer_or_its_deadline() {
        let calls = calls();
        for answered in [true, false] {
            let (given_up, ann) = begin(&calls);
            send(&calls, &given_up, 1);
            drop((given_up, ann));
            let (flight, bob) = begin(&calls);
            send(&calls, &flight, 2);
            assert!(!only(&calls), "the server may still execute the first call");
            let deadline = Instant::now() + GIVEN_UP_FOR;
            if answered {
                calls.answered(&RequestId::Number(1));
                assert!(only(&calls));
            } else {
                assert!(calls.only(deadline).is_some());
            }
            calls.answered(&RequestId::Number(2));
            flight.landed();
            drop(bob);
        }
    }

    #[test]
    fn a_call_that_was_given_up_before_it_was_sent_counts_too() {
        let calls = calls();
        let (given_up, ann) = begin(&calls);
        let mut late = CallToolRequestParams::new("t");
        given_up.mark(&mut late);
        drop((given_up, ann));
        let (flight, _bob) = begin(&calls);
        send(&calls, &flight, 2);
        assert!(!only(&calls));
        calls.sent(&RequestId::Number(3), &mut late, None);
        assert!(!only(&calls));
        calls.answered(&RequestId::Number(3));
        assert!(only(&calls));
    }
}
