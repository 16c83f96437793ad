//! The parts of a generated answer, and the form in which a server of each wire streams them.

use bytes::Bytes;
use serde_json::{Map, Value};

#[derive(Debug, Clone, PartialEq)]
pub(in crate::remote) enum Part {
    Text(String),
    Reasoning(String),
    Call { id: String, name: String, arguments: Map<String, Value> },
    Source(String, Option<String>),
    File(String, Vec<u8>),
}

/// The position of a part in its answer.
#[derive(Debug, Clone, Copy)]
pub(in crate::remote) struct Position {
    /// The number of parts before this one.
    pub(in crate::remote) part: usize,
    /// The number of calls before this one.
    pub(in crate::remote) call: usize,
}

#[derive(Debug, Clone, Copy)]
pub(in crate::remote) struct StreamWriter {
    /// Returns whether the wire has parts of this kind.
    pub(in crate::remote) has: fn(&Part) -> bool,
    /// Appends the events of a part.
    pub(in crate::remote) write: fn(&Part, Position, &mut Dice, &mut Vec<Value>),
    /// Adds the events around the parts, with 3 input tokens and 4 output tokens. The flag says whether the
    /// answer has calls.
    pub(in crate::remote) finish: fn(bool, &mut Vec<Value>),
    /// Whether each text is an item of its own, separated from the others.
    pub(in crate::remote) separates: bool,
    /// The data of a last event that some servers send.
    pub(in crate::remote) done: Option<&'static str>,
}

/// The random choices of a case: where a text is cut, and whether a comment separates two events.
#[derive(Debug, Clone)]
pub(in crate::remote) struct Dice {
    rolls: Vec<u8>,
    next: usize,
}

impl Dice {
    pub(in crate::remote) fn new(rolls: Vec<u8>) -> Self {
        Self { rolls, next: 0 }
    }

    pub(in crate::remote) fn roll(&mut self, sides: usize) -> usize {
        self.next += 1;
        usize::from(self.rolls[self.next % self.rolls.len()]) % sides
    }

    pub(in crate::remote) fn pieces(&mut self, text: &str) -> Vec<String> {
        let mut pieces = vec![String::new()];
        for it in text.chars() {
            if self.roll(4) == 0 {
                pieces.push(String::new());
            }
            pieces.last_mut().unwrap().push(it);
        }
        pieces
    }

    pub(in crate::remote) fn cut(&mut self, bytes: &[u8]) -> Vec<Bytes> {
        let mut rest = bytes;
        let mut cut = Vec::new();
        while !rest.is_empty() {
            let (piece, more) = rest.split_at((1 + self.roll(40)).min(rest.len()));
            cut.push(Bytes::copy_from_slice(piece));
            rest = more;
        }
        cut
    }
}
