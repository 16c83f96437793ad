//! The checks: each promise of holdpoint is a function from the records of a run to the violations of the
//! promise.

mod case;
mod deciding;
mod effects;
mod life;
mod others;
mod telling;
#[cfg(test)]
mod tests;

pub(crate) use case::Cases;
pub(crate) use telling::threads;

use crate::clock::Micros;
use crate::files::{self, Hit, LedgerLine};
use crate::record::{Asked, Deciding, Deed, Intrusion, LogLine, Sight, Turn};
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

/// All records of a run.
#[derive(Debug, Clone)]
pub(crate) struct Records {
    pub(crate) began: Micros,
    pub(crate) rows: Rows,
    pub(crate) ledger: Vec<LedgerLine>,
    pub(crate) hits: Vec<Hit>,
    pub(crate) decidings: Vec<Deciding>,
    pub(crate) sights: Vec<Sight>,
    pub(crate) turns: Vec<Turn>,
    pub(crate) intrusions: Vec<Intrusion>,
    pub(crate) asked: Vec<Asked>,
    pub(crate) deeds: Vec<Deed>,
    pub(crate) logs: Vec<LogLine>,
    pub(crate) broken: Vec<(Micros, String)>,
    pub(crate) others: HashMap<&'static str, (u64, u64)>,
    /// The number of commits without a delivered answer, and of lost connections.
    pub(crate) wires: (u64, u64),
}

impl Records {
    pub(crate) fn gather(rows: Rows, world: &World) -> Result<Self> {
        let book = &world.shared.book;
        let mut ledger: Vec<LedgerLine> = files::lines(&world.ledger())?;
        ledger.retain(|line| !line.call.is_empty());
        let harmed = world.proxies.iter().map(crate::proxy::Proxy::harmed);
        Ok(Self {
            began: world.shared.clock.began(),
            rows,
            ledger,
            hits: files::lines(&world.hits())?,
            decidings: book.decidings.lock().clone(),
            sights: book.sights.lock().clone(),
            turns: book.turns.lock().clone(),
            intrusions: book.intrusions.lock().clone(),
            asked: book.asked.lock().clone(),
            deeds: book.deeds.lock().clone(),
            logs: book.logs.lock().clone(),
            broken: book.broken.lock().clone(),
            others: book.others.lock().clone(),
            wires: harmed.fold((0, 0), |(a, b), (c, d)| (a + c, b + d)),
        })
    }
}

type Check = fn(&Records, &Cases<'_>) -> Vec<Violation>;

/// Every check, by the id of its promise.
pub(crate) const CHECKS: [(&str, Check); 25] = [
    ("S1", effects::s1),
    ("S2", effects::s2),
    ("S3", effects::s3),
    ("S4", deciding::s4),
    ("S5", life::s5),
    ("S6", effects::s6),
    ("S7", effects::s7),
    ("D1", deciding::d1),
    ("D2", life::d2),
    ("D3", life::d3),
    ("I1", life::i1),
    ("I2", life::i2),
    ("D4", telling::d4),
    ("D5", telling::d5),
    ("H1", telling::h1),
    ("H2", telling::h2),
    ("H3", telling::h3),
    ("N1", telling::n1),
    ("C1", deciding::c1),
    ("C2", deciding::c2),
    ("C3", deciding::c3),
    ("C4", deciding::c4),
    ("T1", others::t1),
    ("V1", effects::v1),
    ("SQL", life::sql),
];

/// The checks of the logs and the answers of the servers.
const COMPLAINTS: [(&str, Check); 3] = [("G", others::g), ("P", others::p), ("E", others::e)];

impl Violation {
    fn of(id: &'static str, call: &str, what: impl Into<String>) -> Self {
        Self { id, call: Some(call.to_owned()), what: what.into() }
    }
}

/// Returns all violations.
pub(crate) fn all(records: &Records) -> Vec<Violation> {
    let cases = records.cases();
    let checks = CHECKS.iter().chain(&COMPLAINTS);
    let mut found: Vec<Violation> = checks.flat_map(|(_, check)| check(records, &cases)).collect();
    found.sort();
    found.dedup();
    found
}
