//! The checks: each promise of holdpoint is a function from the records of a run to the violations of the
//! promise.

mod access;
mod case;
mod decisions;
mod effects;
mod errors;
mod lifecycle;
mod messages;
mod reports;
#[cfg(test)]
mod tests;
mod unnamed;

pub(crate) use case::Cases;
pub(crate) use messages::threads;

use crate::clock::Micros;
use crate::files::{self, FailpointHit, LedgerLine};
use crate::record::{DecisionRequest, Deed, Intrusion, LogLine, ModelRequest, Observation, Turn};
use crate::rows::Rows;
use crate::world::World;
use anyhow::Result;
use std::collections::HashMap;

/// A broken promise.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Violation {
    /// The id of the promise in `docs/invariants.md`.
    pub(crate) id: &'static str,
    /// The call that breaks the promise.
    pub(crate) call: Option<String>,
    pub(crate) what: String,
}

#[derive(Debug, Clone)]
pub(crate) struct Records {
    pub(crate) began: Micros,
    pub(crate) rows: Rows,
    pub(crate) ledger: Vec<LedgerLine>,
    pub(crate) hits: Vec<FailpointHit>,
    pub(crate) decision_requests: Vec<DecisionRequest>,
    pub(crate) observations: Vec<Observation>,
    pub(crate) turns: Vec<Turn>,
    pub(crate) intrusions: Vec<Intrusion>,
    pub(crate) model_requests: Vec<ModelRequest>,
    pub(crate) deeds: Vec<Deed>,
    pub(crate) logs: Vec<LogLine>,
    pub(crate) broken: Vec<(Micros, String)>,
    pub(crate) request_counts: HashMap<&'static str, (u64, u64)>,
    /// The number of commits without a delivered answer, and of lost connections.
    pub(crate) wires: (u64, u64),
}

impl Records {
    pub(crate) fn gather(rows: Rows, world: &World) -> Result<Self> {
        let book = &world.shared.book;
        let mut ledger: Vec<LedgerLine> = files::lines(&world.ledger())?;
        unnamed::name_calls(&mut ledger, &rows);
        ledger.retain(|line| !line.call.is_empty());
        let harmed = world.proxies.iter().map(crate::proxy::Proxy::harmed);
        Ok(Self {
            began: world.shared.clock.began(),
            rows,
            ledger,
            hits: files::lines(&world.hits())?,
            decision_requests: book.decision_requests.lock().clone(),
            observations: book.observations.lock().clone(),
            turns: book.turns.lock().clone(),
            intrusions: book.intrusions.lock().clone(),
            model_requests: book.model_requests.lock().clone(),
            deeds: book.deeds.lock().clone(),
            logs: book.logs.lock().clone(),
            broken: book.broken.lock().clone(),
            request_counts: book.request_counts.lock().clone(),
            wires: harmed.fold((0, 0), |(a, b), (c, d)| (a + c, b + d)),
        })
    }
}

type Check = fn(&Records, &Cases<'_>) -> Vec<Violation>;

/// Every check, by the id of its promise.
pub(crate) const CHECKS: [(&str, Check); 27] = [
    ("S1", effects::s1),
    ("S2", effects::s2),
    ("S3", effects::s3),
    ("S4", decisions::s4),
    ("S5", lifecycle::s5),
    ("S6", effects::s6),
    ("S7", effects::s7),
    ("D1", decisions::d1),
    ("D2", lifecycle::d2),
    ("D3", lifecycle::d3),
    ("I1", lifecycle::i1),
    ("I2", lifecycle::i2),
    ("D4", messages::d4),
    ("D5", messages::d5),
    ("D9", reports::d9),
    ("H1", messages::h1),
    ("H2", messages::h2),
    ("H3", messages::h3),
    ("N1", messages::n1),
    ("C1", decisions::c1),
    ("C2", decisions::c2),
    ("C3", decisions::c3),
    ("C4", decisions::c4),
    ("T1", access::t1),
    ("V1", effects::v1),
    ("SQL", lifecycle::sql),
    ("R1", lifecycle::r1),
];

/// The checks of the logs and the answers of the servers.
const SERVER_CHECKS: [(&str, Check); 3] = [("G", errors::g), ("P", errors::p), ("E", errors::e)];

impl Violation {
    fn of(id: &'static str, call: &str, what: impl Into<String>) -> Self {
        Self { id, call: Some(call.to_owned()), what: what.into() }
    }
}

pub(crate) fn all(records: &Records) -> Vec<Violation> {
    let cases = records.cases();
    let checks = CHECKS.iter().chain(&SERVER_CHECKS);
    let mut found: Vec<Violation> = checks.flat_map(|(_, check)| check(records, &cases)).collect();
    found.sort();
    found.dedup();
    found
}
