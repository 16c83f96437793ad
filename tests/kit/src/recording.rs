//! Transactions of a server and their costs, recorded on the wire to Postgres.

use super::statements::{Purpose, plain};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex};

/// The code of a request for an encrypted connection, which a client sends before its first message.
const SSL_REQUEST: [u8; 4] = [0x04, 0xd2, 0x16, 0x2f];

/// A transaction, or a statement outside one.
#[derive(Debug, Clone, Default)]
pub struct Transaction {
    /// The texts of its statements, frames included.
    pub statements: Vec<String>,
    /// How often the client waited for the server. The preparation of statements, once for each connection, and
    /// checks of unused connections do not count.
    round_trips: usize,
    /// The transactions without work before this one, over the same connection.
    empty: usize,
}

impl Transaction {
    /// A transaction with these statements, frames included.
    pub(super) fn of(statements: Vec<String>) -> Self {
        Self { statements, ..Self::default() }
    }

    /// The purpose of its statements.
    pub fn purpose(&self) -> Purpose {
        let purposes: Vec<_> = self.work().map(|text| Purpose::of(text)).collect();
        match purposes.first() {
            None => Purpose::Frame,
            Some(first) if !purposes.contains(&Purpose::Work) => *first,
            Some(_) => Purpose::Work,
        }
    }

    /// Whether one of its statements begins so.
    pub fn executes(&self, words: &str) -> bool {
        self.statements.iter().any(|text| text.starts_with(words))
    }

    /// The number of statements with which it numbers events.
    pub fn numbering(&self) -> usize {
        self.work().filter(|text| Purpose::of(text) == Purpose::Numbering).count()
    }

    /// The texts of its statements without frames.
    fn work(&self) -> impl Iterator<Item = &String> {
        self.statements.iter().filter(|text| Purpose::of(text) != Purpose::Frame)
    }
}

/// The cost of some work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cost {
    /// The statements without frames and without the numbering of events.
    pub statements: usize,
    /// The transactions, and the statements outside a transaction.
    pub transactions: usize,
    /// How often the server waited for the database; 0 on SQLite, which is in the process.
    pub round_trips: usize,
}

impl Cost {
    /// The least of each part.
    pub fn least(self, other: Self) -> Self {
        Self {
            statements: self.statements.min(other.statements),
            transactions: self.transactions.min(other.transactions),
            round_trips: self.round_trips.min(other.round_trips),
        }
    }

    /// Whether no part of it is above the budget.
    pub fn fits(self, budget: Self) -> bool {
        self.statements <= budget.statements
            && self.transactions <= budget.transactions
            && self.round_trips <= budget.round_trips
    }
}

/// Transactions in the order of their ends.
#[derive(Debug, Clone, Default)]
pub struct Transactions(pub Vec<Transaction>);

impl Transactions {
    pub fn with(mut self, purpose: Purpose) -> Self {
        self.0.retain(|transaction| transaction.purpose() == purpose);
        self
    }

    /// The number of all statements, with the two of each empty transaction.
    pub fn executed(&self) -> usize {
        self.0.iter().map(|one| one.statements.len() + 2 * one.empty).sum()
    }

    /// The cost. It leaves out the statements that number events: on SQLite they are part of each transaction with
    /// events, and on Postgres transactions of their own.
    pub fn cost(&self) -> Cost {
        Cost {
            statements: self.0.iter().map(|one| one.work().count() - one.numbering()).sum(),
            transactions: self.0.iter().map(|one| 1 + one.empty).sum(),
            round_trips: self.0.iter().map(|one| one.round_trips).sum(),
        }
    }
}

/// Each statement with its number, the most frequent first; then the transactions.
impl fmt::Display for Transactions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut calls: BTreeMap<&str, usize> = BTreeMap::new();
        for text in self.0.iter().flat_map(|one| &one.statements) {
            *calls.entry(text).or_default() += 1;
        }
        let mut calls: Vec<_> = calls.into_iter().collect();
        calls.sort_by_key(|(_, calls)| usize::MAX - calls);
        for (text, calls) in calls {
            write!(f, "\n{calls:>5} {}", short(text))?;
        }
        for one in &self.0 {
            write!(f, "\n{:?}, {} round trips, after {} empty", one.purpose(), one.round_trips, one.empty)?;
            one.work().try_for_each(|text| write!(f, "\n    {}", short(text)))?;
        }
        Ok(())
    }
}

fn short(text: &str) -> String {
    text.chars().take(300).collect()
}

/// What is recorded of all connections of a server.
#[derive(Debug, Clone, Default)]
pub struct Recording(Arc<Mutex<RecordedTransactions>>);

#[derive(Debug, Default)]
struct RecordedTransactions {
    ended: Vec<Transaction>,
    /// The connections with an open transaction or an unanswered message.
    busy: usize,
}

impl Recording {
    /// Records another connection.
    pub(super) fn tap(&self) -> Tap {
        Tap {
            recording: self.clone(),
            client: Vec::new(),
            server: Vec::new(),
            has_started: false,
            prepared: HashMap::new(),
            portal: String::new(),
            unit: MessageUnit::default(),
            sent: VecDeque::new(),
            open: Transaction::default(),
            in_transaction: false,
            is_busy: false,
        }
    }

    /// Removes and returns the transactions that have ended.
    pub fn take(&self) -> Transactions {
        Transactions(std::mem::take(&mut self.0.lock().unwrap().ended))
    }

    /// The transactions that have ended.
    pub fn so_far(&self) -> Transactions {
        Transactions(self.0.lock().unwrap().ended.clone())
    }

    /// Whether no connection has an open transaction or an unanswered message.
    pub fn is_quiet(&self) -> bool {
        self.0.lock().unwrap().busy == 0
    }
}

/// Messages that end with one `ReadyForQuery` of the server.
#[derive(Debug, Default)]
struct MessageUnit {
    statements: Vec<String>,
    prepares: bool,
    /// Whether no other unit was unanswered when the client sent this one.
    waits: bool,
}

/// Reads the messages of one connection.
#[derive(Debug)]
pub(super) struct Tap {
    recording: Recording,
    /// The bytes of incomplete messages.
    client: Vec<u8>,
    server: Vec<u8>,
    has_started: bool,
    /// The texts of the prepared statements, by their names.
    prepared: HashMap<String, String>,
    /// The text that the client has bound.
    portal: String,
    unit: MessageUnit,
    sent: VecDeque<MessageUnit>,
    open: Transaction,
    in_transaction: bool,
    is_busy: bool,
}

impl Tap {
    pub(super) fn client_sends(&mut self, bytes: &[u8]) {
        self.client.extend_from_slice(bytes);
        loop {
            // The first message has no type.
            let kind = usize::from(self.has_started);
            let Some(message) = cut(&mut self.client, kind) else { break };
            match (self.has_started, message.first()) {
                (false, _) => self.has_started = message[4..8] != SSL_REQUEST,
                (true, Some(b'Q')) => {
                    let texts = texts(&message[5..]);
                    let statements = texts[0].split(';').map(plain).filter(|text| !text.is_empty());
                    self.unit.statements.extend(statements);
                    self.send();
                }
                (true, Some(b'P')) => {
                    let texts = texts(&message[5..]);
                    self.prepared.insert(texts[0].clone(), plain(&texts[1]));
                    self.unit.prepares = true;
                }
                (true, Some(b'B')) => {
                    let name = &texts(&message[5..])[1];
                    self.portal = self.prepared.get(name).cloned().unwrap_or_default();
                }
                (true, Some(b'E')) => self.unit.statements.push(self.portal.clone()),
                (true, Some(b'S')) => self.send(),
                (true, _) => {}
            }
        }
        self.mark();
    }

    fn send(&mut self) {
        let waits = self.sent.is_empty();
        self.sent.push_back(MessageUnit { waits, ..std::mem::take(&mut self.unit) });
    }

    pub(super) fn server_sends(&mut self, bytes: &[u8]) {
        self.server.extend_from_slice(bytes);
        // The refusal of encryption is one byte.
        if !self.has_started && self.server.first() == Some(&b'N') {
            self.server.remove(0);
        }
        while let Some(message) = cut(&mut self.server, 1) {
            if message[0] == b'Z' {
                self.answered(message[5]);
            }
        }
        self.mark();
    }

    /// The server is ready, with this status of the transaction.
    fn answered(&mut self, status: u8) {
        // The first one follows the start of the connection.
        let Some(unit) = self.sent.pop_front() else { return };
        if unit.statements.is_empty() && self.open.statements.is_empty() {
            // The pool checks the connection, or the client prepares a statement.
            return;
        }
        let round_trips = usize::from(unit.waits && !(unit.prepares && unit.statements.is_empty()));
        self.in_transaction = status != b'I';
        self.open.round_trips += round_trips;
        self.open.statements.extend(unit.statements);
        if self.in_transaction || self.open.statements.is_empty() {
            return;
        }
        if self.open.purpose() == Purpose::Frame {
            self.open.empty += 1;
            self.open.statements.clear();
        } else {
            self.recording.0.lock().unwrap().ended.push(std::mem::take(&mut self.open));
        }
    }

    fn mark(&mut self) {
        let is_busy = self.in_transaction || !self.sent.is_empty();
        if is_busy != self.is_busy {
            let mut recorded = self.recording.0.lock().unwrap();
            recorded.busy = if is_busy { recorded.busy + 1 } else { recorded.busy - 1 };
            self.is_busy = is_busy;
        }
    }
}

impl Drop for Tap {
    fn drop(&mut self) {
        (self.in_transaction, self.sent) = (false, VecDeque::new());
        self.mark();
    }
}

/// Cuts the first message off if it is complete. Its length follows these bytes.
fn cut(bytes: &mut Vec<u8>, before: usize) -> Option<Vec<u8>> {
    let length = bytes.get(before..before + 4)?.try_into().unwrap();
    let end = before + usize::try_from(u32::from_be_bytes(length)).unwrap();
    (bytes.len() >= end).then(|| bytes.drain(..end).collect())
}

/// The texts that end with a zero, at the beginning of a message.
fn texts(bytes: &[u8]) -> Vec<String> {
    bytes.split(|byte| *byte == 0).map(|text| String::from_utf8_lossy(text).into_owned()).collect()
}
