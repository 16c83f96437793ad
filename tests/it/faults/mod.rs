//! Faults.

mod clocks;
mod many;
mod migrations;
mod pooler;
mod postgres;
mod restarts;
mod sqlite;
mod unknown_commit;

use crate::support::Answer;
use serde_json::{Value, json};

/// Nobody knows what became of it, and asking again is safe.
fn assert_unavailable(answer: &Answer) {
    assert_eq!((answer.status, answer.code()), (503, "unavailable"), "{:?}", answer.body);
    assert!(answer.header("retry-after").is_some(), "it says when to ask again");
}

/// A page's first message, under its own name.
fn question() -> Value {
    json!({ "id": "page-1", "message": { "id": "m1", "role": "user", "content": "hi" } })
}
