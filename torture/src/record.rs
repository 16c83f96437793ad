//! The records of a run: all requests, answers and deeds, in one book.

use crate::clock::Micros;
use crate::json::JsonPointer;
use crate::stream::{Dialect, StreamContent};
use parking_lot::Mutex;
use serde_json::Value;
use std::collections::HashMap;

/// The times of a request and of its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) started: Micros,
    pub(crate) ended: Micros,
}

/// The verdict of a user on a call.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Verdict {
    /// An approval, with these inputs in place of the model's inputs if there are any.
    Approve(Option<Value>),
    Reject,
}

/// The route of a decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Surface {
    /// `POST /qa/validate_tool`.
    One,
    /// `POST /qa/validate_tools`.
    Batch,
    /// The routes of the run or of the session, which do not wait for the outcome.
    RunOrSession,
    /// An approval part in the POST of a page, whose answer does not report the decision.
    Page,
}

/// The answer to a decision.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Answer {
    /// The received answer.
    Received { status: u16, body: Value, replayed: bool },
    /// No answer, with the reason. The decision may have been stored or not.
    Unknown(String),
}

#[derive(Debug, Clone)]
pub(crate) struct DecisionRequest {
    pub(crate) call: String,
    /// `user:<sub>`
    pub(crate) actor: String,
    pub(crate) replica: usize,
    pub(crate) surface: Surface,
    pub(crate) verdict: Verdict,
    pub(crate) span: Span,
    pub(crate) answer: Answer,
}

/// The route name of the observations at the end of the run, when no call is open.
pub(crate) const FINAL_READ: &str = "final";

/// An observation of a call's state.
#[derive(Debug, Clone)]
pub(crate) struct Observation {
    pub(crate) call: String,
    pub(crate) replica: usize,
    pub(crate) route: &'static str,
    pub(crate) span: Span,
    pub(crate) state: String,
    pub(crate) validated: Option<bool>,
    /// The inputs of a user in place of the model's inputs.
    pub(crate) edit: Option<Value>,
    pub(crate) result: Option<String>,
}

/// A turn in the view of its client.
#[derive(Debug, Clone)]
pub(crate) struct Turn {
    pub(crate) thread: String,
    pub(crate) replica: usize,
    pub(crate) dialect: Dialect,
    /// Whether the client attached to a running turn with a GET, instead of starting one.
    pub(crate) attached: bool,
    pub(crate) span: Span,
    pub(crate) status: u16,
    pub(crate) content: StreamContent,
    /// The reason why the stream is incomplete.
    pub(crate) cut: Option<String>,
}

/// A request of another user for a foreign call.
#[derive(Debug, Clone)]
pub(crate) struct Intrusion {
    pub(crate) call: String,
    pub(crate) route: String,
    pub(crate) at: Micros,
    pub(crate) status: u16,
    pub(crate) body: Value,
}

#[derive(Debug, Clone)]
pub(crate) struct ModelRequest {
    pub(crate) at: Micros,
    /// The name of the conversation, from the plan in its messages.
    pub(crate) conversation: String,
    pub(crate) messages: Vec<Value>,
    /// The reason why a provider would refuse the request.
    pub(crate) refusal: Option<String>,
}

/// A deed of the nemesis, or a start or an end of a process.
#[derive(Debug, Clone)]
pub(crate) struct Deed {
    pub(crate) at: Micros,
    pub(crate) until: Micros,
    pub(crate) kind: DeedKind,
    pub(crate) replica: Option<usize>,
    /// The id of the process.
    pub(crate) pid: Option<u32>,
    pub(crate) what: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum DeedKind {
    Start,
    /// `kill -9`.
    Kill,
    /// A process ended by itself, at a failpoint or because of an error.
    Died,
    /// A remote tool ended by itself, because of the inputs of a call.
    Crashed,
    /// A process was stopped with SIGSTOP for longer than a lease, and then continued.
    Pause,
    /// A process was stopped with SIGTERM, and another build started.
    Deploy,
    /// The database was down for a while.
    Outage,
    /// A connection to the database was cut, swallowed or delayed.
    Cut,
    /// The nemesis held the write lock of the SQLite file.
    Lock,
}

/// A line of a server's log, at level `warn` or above.
#[derive(Debug, Clone)]
pub(crate) struct LogLine {
    pub(crate) at: Micros,
    pub(crate) replica: usize,
    pub(crate) text: String,
}

#[derive(Debug, Default)]
pub(crate) struct Book {
    pub(crate) decision_requests: Mutex<Vec<DecisionRequest>>,
    pub(crate) observations: Mutex<Vec<Observation>>,
    pub(crate) turns: Mutex<Vec<Turn>>,
    pub(crate) intrusions: Mutex<Vec<Intrusion>>,
    pub(crate) model_requests: Mutex<Vec<ModelRequest>>,
    pub(crate) deeds: Mutex<Vec<Deed>>,
    pub(crate) logs: Mutex<Vec<LogLine>>,
    /// The requests without a list of their own, by name: the number of good answers, and the number of all
    /// requests.
    pub(crate) request_counts: Mutex<HashMap<&'static str, (u64, u64)>>,
    /// Answers with 500, and servers that did not stop.
    pub(crate) broken: Mutex<Vec<(Micros, String)>>,
}

impl Observation {
    /// Returns the observation of a call in the format of `GET /tool_calls/{id}`.
    pub(crate) fn of(shown: &Value, replica: usize, route: &'static str, span: Span) -> Option<Self> {
        Some(Self {
            call: shown.at("/tool_call_id").as_str()?.to_owned(),
            replica,
            route,
            span,
            state: shown.at("/state").as_str()?.to_owned(),
            validated: shown.at("/validated").as_bool(),
            edit: shown.get("validated_inputs").filter(|inputs| inputs.is_object()).cloned(),
            result: shown.at("/result").as_str().map(str::to_owned),
        })
    }
}

impl Book {
    /// Records a decision before its request. The outcome is unknown until the answer arrives.
    pub(crate) fn record_decision(&self, request: DecisionRequest) -> usize {
        let mut decision_requests = self.decision_requests.lock();
        decision_requests.push(request);
        decision_requests.len() - 1
    }

    /// Records the answer to a decision.
    pub(crate) fn record_answer(&self, index: usize, ended: Micros, answer: Answer) {
        if let Some(request) = self.decision_requests.lock().get_mut(index) {
            request.span.ended = ended;
            request.answer = answer;
        }
    }

    /// Counts a request of which only the success is recorded.
    pub(crate) fn count(&self, what: &'static str, well: bool) {
        let mut counts = self.request_counts.lock();
        let (good, all) = counts.entry(what).or_default();
        *good += u64::from(well);
        *all += 1;
    }
}
