//! The held calls of the run.

use super::users::User;
use crate::clock::Micros;
use parking_lot::Mutex;
use serde_json::Value;
use std::collections::HashSet;

#[derive(Debug, Clone)]
pub(crate) struct HeldCall {
    pub(crate) call: String,
    pub(crate) thread: String,
    pub(crate) owner: User,
    pub(crate) tool: String,
    pub(crate) inputs: Value,
    /// The time at which the load first read of the call.
    pub(crate) since: Micros,
}

/// All held calls, in the order in which the load read of them.
#[derive(Debug, Default)]
pub(super) struct HeldCalls(Mutex<(HashSet<String>, Vec<HeldCall>)>);

impl HeldCalls {
    /// Adds a call. Returns whether the call is new.
    pub(super) fn add(&self, held: &HeldCall) -> bool {
        let mut calls = self.0.lock();
        let is_new = calls.0.insert(held.call.clone());
        if is_new {
            calls.1.push(held.clone());
        }
        is_new
    }

    pub(super) fn latest(&self, count: usize) -> Vec<HeldCall> {
        self.0.lock().1.iter().rev().take(count).cloned().collect()
    }

    pub(super) fn len(&self) -> usize {
        self.0.lock().1.len()
    }
}
