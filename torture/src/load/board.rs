//! The calls that people were asked about.

use super::people::Person;
use crate::clock::Micros;
use parking_lot::Mutex;
use serde_json::Value;
use std::collections::HashSet;

/// A call that somebody was asked about.
#[derive(Debug, Clone)]
pub(crate) struct Known {
    pub(crate) call: String,
    pub(crate) thread: String,
    pub(crate) owner: Person,
    pub(crate) tool: String,
    pub(crate) inputs: Value,
    /// When it was first heard of.
    pub(crate) since: Micros,
}

/// All of them, in the order in which they were heard of.
#[derive(Debug, Default)]
pub(super) struct Board(Mutex<(HashSet<String>, Vec<Known>)>);

impl Board {
    /// True if nobody had heard of it.
    pub(super) fn add(&self, known: &Known) -> bool {
        let mut board = self.0.lock();
        let is_new = board.0.insert(known.call.clone());
        if is_new {
            board.1.push(known.clone());
        }
        is_new
    }

    /// The latest of them.
    pub(super) fn latest(&self, count: usize) -> Vec<Known> {
        self.0.lock().1.iter().rev().take(count).cloned().collect()
    }

    pub(super) fn len(&self) -> usize {
        self.0.lock().1.len()
    }
}
