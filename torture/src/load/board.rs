//! The held calls of the run.

use super::people::Person;
use crate::clock::Micros;
use parking_lot::Mutex;
use serde_json::Value;
use std::collections::HashSet;

/// A held call.
#[derive(Debug, Clone)]
pub(crate) struct Known {
    pub(crate) call: String,
    pub(crate) thread: String,
    pub(crate) owner: Person,
    pub(crate) tool: String,
    pub(crate) inputs: Value,
    /// The time at which the load first read of the call.
    pub(crate) since: Micros,
}

/// All held calls, in the order in which the load read of them.
#[derive(Debug, Default)]
pub(super) struct Board(Mutex<(HashSet<String>, Vec<Known>)>);

impl Board {
    /// Adds a call. Returns whether the call is new.
    pub(super) fn add(&self, known: &Known) -> bool {
        let mut board = self.0.lock();
        let is_new = board.0.insert(known.call.clone());
        if is_new {
            board.1.push(known.clone());
        }
        is_new
    }

    /// Returns the latest calls.
    pub(super) fn latest(&self, count: usize) -> Vec<Known> {
        self.0.lock().1.iter().rev().take(count).cloned().collect()
    }

    pub(super) fn len(&self) -> usize {
        self.0.lock().1.len()
    }
}
