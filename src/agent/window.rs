//! The window: the part of a long conversation that a model gets.
//!
//! While a conversation fits into the limit of tokens, the model gets all of it. Otherwise the results of older calls are
//! shortened first, and then the oldest turns are left out. A turn is a message of the user with all that follows up to
//! the next one, so a call and its answer stay together. The window moves by a quarter of the limit, and only forward:
//! between two moves each request begins with the request before it.
//!
//! The window of a request is stored with its step, and so is the number of tokens that the server refused before. The window
//! of a turn begins where the last one of the same model was, so it does not move back: not in another process, and not with
//! another limit or other tools. How far it moves is computed from the texts, the tokens that the server counted, and the
//! turn in which the model read an outcome.

use holdpoint_core::message::Window;
use holdpoint_core::text::cut_with;
use holdpoint_core::text::model_texts;
use holdpoint_models::{ModelMessage, ModelRequest, Speaker};
use parking_lot::Mutex;
use serde_json::Value;
use std::collections::{BTreeMap, HashSet};

/// The bytes for one token as long as no server has counted: few, so that the first estimate is not too small.
const BYTES_PER_TOKEN: u64 = 3;
/// The number of last counts that are looked at.
const COUNTS: usize = 3;
/// The bytes that a message costs beside its texts.
const MESSAGE_BYTES: u64 = 24;
/// The longest result of a call in its shortened form.
const SHORT_BYTES: usize = 1024;

/// The fewest tokens that a refusal teaches.
const LEARNED_MIN: u64 = 1024;

/// The most tokens of a request to each model: as configured, or fewer where a server refused a longer conversation.
#[derive(Debug, Default)]
pub(crate) struct Limits {
    configured: Option<u64>,
    learned: Mutex<BTreeMap<String, u64>>,
}

impl Limits {
    pub(super) const fn new(configured: Option<u64>) -> Self {
        Self { configured, learned: Mutex::new(BTreeMap::new()) }
    }

    pub(crate) fn known(&self, model: &str) -> Option<u64> {
        let learned = self.learned.lock().get(model).copied();
        self.configured.into_iter().chain(learned).min()
    }

    pub(super) fn of(&self, model: &str) -> u64 {
        self.known(model).unwrap_or(u64::MAX)
    }

    /// Records that a server refused this number of tokens, and took half of it.
    pub(super) fn learn(&self, model: &str, refused: u64) {
        let limit = limit_after(refused);
        let mut learned = self.learned.lock();
        let known = learned.entry(model.to_owned()).or_insert(limit);
        *known = limit.min(*known);
    }
}

/// Returns the limit after a server refused this number of tokens, and took half of it. A window that moves below two thirds
/// has that half again.
fn limit_after(refused: u64) -> u64 {
    refused.saturating_sub(refused.div_ceil(3)).max(LEARNED_MIN)
}

/// The messages for a model, by turns.
#[derive(Debug, Clone, Default)]
pub(super) struct Outline {
    turns: Vec<Turn>,
    rate: Rate,
    /// The narrowest window of this model so far.
    window: Window,
}

/// A message of the user, with the notes before it and all that follows up to the next one.
#[derive(Debug, Clone)]
struct Turn {
    /// How many turns of the conversation are before it.
    number: usize,
    /// The window that it was sent with, to whichever model.
    sent_in: Window,
    /// The index of its first message.
    start: usize,
    /// The index after the message of the user.
    asked: usize,
    /// The first turn in which the model has read the outcomes of its calls.
    read_in: usize,
    /// The last request of the turn that the server counted: the number of messages up to its end, and the tokens.
    counted: Option<(usize, u64)>,
}

/// How many tokens the server counts for how many bytes.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Rate {
    tokens: u64,
    bytes: u64,
}

impl Default for Rate {
    fn default() -> Self {
        Self { tokens: 1, bytes: BYTES_PER_TOKEN }
    }
}

impl Rate {
    /// Returns the higher one. A request that was sent again after a refusal had fewer bytes than the window of its turn, so
    /// its count alone would be too low.
    fn or_higher(self, other: Self) -> Self {
        if other.tokens(1 << 30) > self.tokens(1 << 30) { other } else { self }
    }

    fn tokens(self, bytes: u64) -> u64 {
        let tokens = u128::from(bytes) * u128::from(self.tokens) / u128::from(self.bytes.max(1));
        u64::try_from(tokens).unwrap_or(u64::MAX)
    }
}

/// The bytes of a turn.
#[derive(Debug, Clone, Copy, Default)]
struct Size {
    whole: u64,
    /// With shortened results.
    short: u64,
    /// Up to the message of the user.
    asked: u64,
}

impl Outline {
    /// Adds a turn that begins at this message and whose question ends before `asked`. It was sent with these windows before,
    /// to any model and to this one.
    pub(super) fn begin(&mut self, start: usize, asked: usize, [sent_in, own]: [Window; 2]) {
        let number = self.turns.len();
        self.turns.push(Turn { number, sent_in, start, asked, read_in: 0, counted: None });
        self.window = self.window.narrowed_by(own);
    }

    /// The index of the last turn.
    fn last(&self) -> usize {
        self.turns.len().saturating_sub(1)
    }

    /// Records that the model reads an outcome of the last turn in the given turn at the earliest: `usize::MAX` if it has
    /// not read it yet.
    pub(super) fn is_read_in(&mut self, turn: usize) {
        if let Some(last) = self.turns.last_mut() {
            last.read_in = last.read_in.max(turn);
        }
    }

    /// Records the tokens of the request that these messages were.
    pub(super) fn counted(&mut self, messages: usize, tokens: u64) {
        if let Some(last) = self.turns.last_mut().filter(|_| tokens > 0) {
            last.counted = Some((messages, tokens));
        }
    }

    /// Returns the tokens of a request with these messages, and `overhead` bytes before them.
    fn tokens(&self, messages: &[ModelMessage], overhead: u64) -> u64 {
        self.rate.tokens(messages.iter().map(size).fold(overhead, u64::saturating_add))
    }

    /// Takes from the messages what is outside of the window of the last turn, and returns this window. `limit` is a number of
    /// tokens.
    pub(super) fn fit(&mut self, messages: &mut Vec<ModelMessage>, limit: u64, overhead: u64) -> Window {
        let limit = self.window.refused.map_or(limit, |refused| limit.min(limit_after(refused)));
        let (window, unread) = (self.moved(messages, limit, overhead), self.unread());
        // The results of this turn are shortened after a refusal only.
        let shortened = window.shortened.min(self.last());
        self.take(
            messages,
            |turn| turn < window.left_out && !unread.contains(&turn),
            |turn| turn < shortened,
        );
        self.window = window;
        Window { refused: None, ..window }
    }

    /// Makes a refused request smaller: to half of its bytes, if that is possible. Returns the window of the smaller one, with
    /// the tokens that were refused. Later turns have a window at most as wide.
    pub(super) fn shrink(&mut self, messages: &mut Vec<ModelMessage>, overhead: u64) -> Option<Window> {
        let mut window =
            Window { refused: Some(self.tokens(messages, overhead).max(1)), ..Window::default() };
        let before: u64 = messages.iter().map(size).fold(overhead, u64::saturating_add);
        let (target, mut total) = (before / 2, before);
        for (at, message) in messages.iter_mut().enumerate() {
            if total <= target {
                break;
            }
            let whole = size(message);
            shorten(message);
            let less = whole.saturating_sub(size(message));
            let turn = self.turns.iter().rfind(|turn| turn.start <= at).filter(|_| less > 0);
            window.shortened = turn.map_or(window.shortened, |turn| turn.number.saturating_add(1));
            total = total.saturating_sub(less);
        }
        let (sizes, unread) = (self.sizes(messages), self.unread());
        let mut left_out = 0;
        for (at, (turn, size)) in self.turns.iter().zip(&sizes).enumerate().take(self.last()) {
            if total <= target {
                break;
            }
            (left_out, window.left_out) = (at.saturating_add(1), turn.number.saturating_add(1));
            total = total.saturating_sub(if unread.contains(&at) { 0 } else { size.whole });
        }
        self.take(messages, |turn| turn < left_out && !unread.contains(&turn), |_| false);
        if total >= before {
            return None;
        }
        self.window = self.window.narrowed_by(window);
        Some(self.window)
    }

    /// The turns with an outcome that the model has not read before the last turn.
    fn unread(&self) -> HashSet<usize> {
        let last = self.last();
        let unread = self.turns.iter().enumerate().filter(|(_, turn)| turn.read_in > last);
        unread.map(|(at, _)| at).collect()
    }

    fn sizes(&self, messages: &[ModelMessage]) -> Vec<Size> {
        let ends = self.turns.iter().skip(1).map(|turn| turn.start).chain([messages.len()]);
        let of = |turn: &Turn, end: usize| {
            let mut sizes = Size::default();
            for (at, message) in messages.iter().enumerate().take(end).skip(turn.start) {
                let whole = size(message);
                sizes.whole = sizes.whole.saturating_add(whole);
                sizes.short = sizes.short.saturating_add(short_size(message));
                sizes.asked = sizes.asked.saturating_add(if at < turn.asked { whole } else { 0 });
            }
            sizes
        };
        self.turns.iter().zip(ends).map(|(turn, end)| of(turn, end)).collect()
    }

    /// Returns the bytes of the turns before this one in a request with this window.
    fn past(&self, at: usize, window: Window, sizes: &[Size]) -> u64 {
        let before = self.turns.iter().zip(sizes).enumerate().take(at);
        let sent = before.map(|(turn, (of, size))| match turn {
            turn if turn < window.left_out && of.read_in <= at => 0,
            turn if turn < window.shortened => size.short,
            _ => size.whole,
        });
        sent.fold(0, u64::saturating_add)
    }

    /// Returns what the server counted for a turn, if it did.
    fn rate_of(&self, at: usize, window: Window, sizes: &[Size], messages: &[ModelMessage]) -> Option<Rate> {
        let turn = self.turns.get(at)?;
        let (end, tokens) = turn.counted?;
        let answered = messages.get(turn.asked..end).unwrap_or_default().iter().map(size);
        let asked = sizes.get(at).map_or(0, |size| size.asked);
        let bytes = answered.fold(self.past(at, window, sizes).saturating_add(asked), u64::saturating_add);
        Some(Rate { tokens, bytes })
    }

    /// Computes the window of the last turn, which begins where the window was before.
    fn moved(&mut self, messages: &[ModelMessage], limit: u64, overhead: u64) -> Window {
        let (sizes, at, mut window) = (self.sizes(messages), self.last(), self.window);
        let with_overhead = |rate: Rate| Rate { bytes: rate.bytes.saturating_add(overhead), ..rate };
        let counted = self.turns.iter().enumerate().take(at).rev();
        let counted = counted.filter_map(|(at, turn)| self.rate_of(at, turn.sent_in, &sizes, messages));
        let counted: Vec<Rate> = counted.take(COUNTS).map(with_overhead).collect();
        self.rate = counted.iter().copied().reduce(Rate::or_higher).unwrap_or_default();
        let size_of = |turn: usize| sizes.get(turn).copied().unwrap_or_default();
        let request = overhead.saturating_add(size_of(at).asked);
        let tokens = |past: u64| self.rate.tokens(request.saturating_add(past));
        let is_read = |turn: usize| self.turns.get(turn).is_some_and(|turn| turn.read_in <= at);
        let target = limit.saturating_sub(limit / 4);
        let mut past = self.past(at, window, &sizes);
        if tokens(past) > limit {
            while tokens(past) > target && window.shortened < at {
                let (turn, size) = (window.shortened, size_of(window.shortened));
                let is_sent = turn >= window.left_out || !is_read(turn);
                past = past.saturating_sub(if is_sent { size.whole.saturating_sub(size.short) } else { 0 });
                window.shortened = turn.saturating_add(1);
            }
            // The turn before this one stays: the message of the user is about it.
            while tokens(past) > target && window.left_out.saturating_add(1) < at {
                let (turn, size) = (window.left_out, size_of(window.left_out));
                let sent = if turn < window.shortened { size.short } else { size.whole };
                past = past.saturating_sub(if is_read(turn) { sent } else { 0 });
                window.left_out = turn.saturating_add(1);
            }
        }
        if let Some(own) = self.rate_of(at, window, &sizes, messages) {
            let before = counted.into_iter().take(COUNTS.saturating_sub(1));
            self.rate = before.fold(with_overhead(own), Rate::or_higher);
        }
        window
    }

    /// Leaves out turns and shortens others. A sentence replaces what is left out.
    fn take(
        &mut self,
        messages: &mut Vec<ModelMessage>,
        is_left_out: impl Fn(usize) -> bool,
        is_shortened: impl Fn(usize) -> bool,
    ) {
        let count = self.turns.len();
        if !(0..count).any(|turn| is_left_out(turn) || is_shortened(turn)) {
            return;
        }
        let mut kept = Vec::with_capacity(messages.len());
        let mut turns = Vec::with_capacity(count);
        let all = std::mem::take(messages);
        let mut rest = all.into_iter();
        let ends: Vec<usize> = self.turns.iter().skip(1).map(|turn| turn.start).chain([usize::MAX]).collect();
        // A sentence of an earlier window is before the first turn.
        let sentence = self.turns.first().map_or(0, |turn| turn.start);
        rest.by_ref().take(sentence).for_each(drop);
        if sentence > 0 || (0..count).any(&is_left_out) {
            kept.push(ModelMessage::User(model_texts::LEFT_OUT.to_owned()));
        }
        for (at, (turn, end)) in self.turns.drain(..).zip(ends).enumerate() {
            let of_turn = rest.by_ref().take(end.saturating_sub(turn.start));
            if is_left_out(at) {
                of_turn.for_each(drop);
                continue;
            }
            let start = kept.len();
            kept.extend(of_turn.map(|mut message| {
                if is_shortened(at) {
                    shorten(&mut message);
                }
                message
            }));
            let asked = start.saturating_add(turn.asked.saturating_sub(turn.start));
            // The indexes are those of the turns that are left. Whether all is read is decided for the last turn.
            let read_in = if turn.read_in <= count.saturating_sub(1) { 0 } else { usize::MAX };
            turns.push(Turn {
                number: turn.number,
                sent_in: turn.sent_in,
                start,
                asked,
                read_in,
                counted: None,
            });
        }
        (*messages, self.turns) = (kept, turns);
    }
}

/// Returns about how many bytes a request has before its messages.
pub(super) fn overhead(request: &ModelRequest) -> u64 {
    let tools = request.tools.iter().map(|tool| {
        let words = bytes(tool.name.len()).saturating_add(bytes(tool.description.len()));
        words.saturating_add(json_size(&tool.input_schema))
    });
    let system = request.system.as_deref().unwrap_or_default();
    tools.fold(bytes(system.len()), u64::saturating_add)
}

/// Shortens the result of a call.
fn shorten(message: &mut ModelMessage) {
    if let ModelMessage::Tool { text, .. } = message {
        *text = cut_with(std::mem::take(text), SHORT_BYTES, model_texts::SHORTENED);
    }
}

fn short_size(message: &ModelMessage) -> u64 {
    match message {
        ModelMessage::Tool { text, .. } if text.len() > SHORT_BYTES => {
            bytes(SHORT_BYTES).saturating_add(MESSAGE_BYTES)
        }
        other => size(other),
    }
}

/// Returns about how many bytes a message has in a request.
fn size(message: &ModelMessage) -> u64 {
    let content = match message {
        ModelMessage::User(text) | ModelMessage::Tool { text, .. } => bytes(text.len()),
        ModelMessage::Assistant { text, calls, speaker } => {
            let state = match speaker {
                Speaker::Same { provider_state: Some(state) } => json_size(state),
                Speaker::Same { provider_state: None } | Speaker::Another => 0,
            };
            let calls = calls.iter().map(|call| {
                let fields =
                    call.input.iter().map(|(name, value)| bytes(name.len()).saturating_add(json_size(value)));
                fields.fold(bytes(call.tool_name.len()).saturating_add(MESSAGE_BYTES), u64::saturating_add)
            });
            calls.fold(bytes(text.len()).saturating_add(state), u64::saturating_add)
        }
    };
    content.saturating_add(MESSAGE_BYTES)
}

/// Returns about how many bytes a value has as JSON.
fn json_size(value: &Value) -> u64 {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 5,
        Value::String(text) => bytes(text.len()).saturating_add(3),
        Value::Array(items) => items.iter().map(json_size).fold(2, u64::saturating_add),
        Value::Object(fields) => {
            let fields =
                fields.iter().map(|(name, value)| bytes(name.len()).saturating_add(json_size(value)));
            fields.map(|field| field.saturating_add(4)).fold(2, u64::saturating_add)
        }
    }
}

fn bytes(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
