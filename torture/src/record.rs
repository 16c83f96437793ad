//! What everybody saw and did: the one book of a run.

use crate::clock::Micros;
use crate::json::At;
use crate::told::{Dialect, Told};
use parking_lot::Mutex;
use serde_json::Value;
use std::collections::HashMap;

/// From when to when something was asked and answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) begun: Micros,
    pub(crate) ended: Micros,
}

/// What somebody said about a call.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Verdict {
    /// Yes, with these inputs in place of the model's if there are any.
    Approve(Option<Value>),
    /// No.
    Reject,
}

/// Where they said it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Surface {
    /// `POST /qa/validate_tool`.
    One,
    /// `POST /qa/validate_tools`.
    Batch,
    /// At its run, or in its session, which do not wait for what comes of it.
    Elsewhere,
    /// The parts of a page's POST, whose answer says nothing of a decision.
    Page,
}

/// What they were told.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Answer {
    /// This, for sure.
    Said { status: u16, body: Value, replayed: bool },
    /// It may have been done or not.
    Unknown(String),
}

/// A decision, asked for.
#[derive(Debug, Clone)]
pub(crate) struct Deciding {
    pub(crate) call: String,
    /// `user:<sub>`
    pub(crate) actor: String,
    pub(crate) replica: usize,
    pub(crate) surface: Surface,
    pub(crate) verdict: Verdict,
    pub(crate) span: Span,
    pub(crate) answer: Answer,
}

/// The route of what everybody is shown in the end, when nothing is under way any more.
pub(crate) const LAST_LOOK: &str = "final";

/// How somebody saw a call stand.
#[derive(Debug, Clone)]
pub(crate) struct Sight {
    pub(crate) call: String,
    pub(crate) replica: usize,
    pub(crate) route: &'static str,
    pub(crate) span: Span,
    pub(crate) state: String,
    pub(crate) validated: Option<bool>,
    /// The inputs that a person put in place of the model's.
    pub(crate) edit: Option<Value>,
    pub(crate) result: Option<String>,
}

/// A turn, as its client read it.
#[derive(Debug, Clone)]
pub(crate) struct Turn {
    pub(crate) thread: String,
    pub(crate) replica: usize,
    pub(crate) dialect: Dialect,
    /// Whether it was to be read along, if there was one.
    pub(crate) attached: bool,
    pub(crate) span: Span,
    pub(crate) status: u16,
    pub(crate) told: Told,
    /// Why it is not whole.
    pub(crate) cut: Option<String>,
}

/// A stranger's try.
#[derive(Debug, Clone)]
pub(crate) struct Intrusion {
    pub(crate) call: String,
    pub(crate) route: String,
    pub(crate) at: Micros,
    pub(crate) status: u16,
    /// Without the request's own id.
    pub(crate) body: Value,
}

/// A request to the model.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub(crate) at: Micros,
    /// The conversation's name, which stands in its first words.
    pub(crate) conversation: String,
    pub(crate) messages: Vec<Value>,
    /// Why no provider would take it.
    pub(crate) wrong: Option<String>,
}

/// What the nemesis did.
#[derive(Debug, Clone)]
pub(crate) struct Deed {
    pub(crate) at: Micros,
    pub(crate) until: Micros,
    pub(crate) kind: DeedKind,
    pub(crate) replica: Option<usize>,
    /// Of the process that it hit.
    pub(crate) pid: Option<u32>,
    pub(crate) what: String,
}

/// Which deed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum DeedKind {
    /// A process began.
    Start,
    /// `kill -9`.
    Kill,
    /// A process died where a failpoint said so.
    Died,
    /// Stopped for longer than a lease.
    Pause,
    /// Asked to stop, and another build begun.
    Deploy,
    /// The database was gone for a while.
    Outage,
    /// A connection to the database was cut, swallowed or delayed.
    Cut,
    /// Somebody else held the lock of the SQLite file.
    Lock,
}

/// A line of a server's log that warns.
#[derive(Debug, Clone)]
pub(crate) struct LogLine {
    pub(crate) at: Micros,
    pub(crate) replica: usize,
    pub(crate) text: String,
}

/// All of it.
#[derive(Debug, Default)]
pub(crate) struct Book {
    pub(crate) decidings: Mutex<Vec<Deciding>>,
    pub(crate) sights: Mutex<Vec<Sight>>,
    pub(crate) turns: Mutex<Vec<Turn>>,
    pub(crate) intrusions: Mutex<Vec<Intrusion>>,
    pub(crate) asked: Mutex<Vec<Asked>>,
    pub(crate) deeds: Mutex<Vec<Deed>>,
    pub(crate) logs: Mutex<Vec<LogLine>>,
    /// Requests that no other list has, by whether their end is known and good.
    pub(crate) others: Mutex<HashMap<&'static str, (u64, u64)>>,
    /// A 500 is never an honest answer.
    pub(crate) broken: Mutex<Vec<(Micros, String)>>,
}

impl Sight {
    /// How a call stands that is shown in the shape of `GET /tool_calls/{id}`.
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
    /// Writes down that somebody is about to say something; whether it counts is not known until they are answered.
    pub(crate) fn decides(&self, deciding: Deciding) -> usize {
        let mut decidings = self.decidings.lock();
        decidings.push(deciding);
        decidings.len() - 1
    }

    /// What they were told.
    pub(crate) fn answered(&self, place: usize, ended: Micros, answer: Answer) {
        if let Some(deciding) = self.decidings.lock().get_mut(place) {
            deciding.span.ended = ended;
            deciding.answer = answer;
        }
    }

    /// Counts a request that says nothing but whether it went well.
    pub(crate) fn count(&self, what: &'static str, well: bool) {
        let mut others = self.others.lock();
        let (good, all) = others.entry(what).or_default();
        *good += u64::from(well);
        *all += 1;
    }
}
