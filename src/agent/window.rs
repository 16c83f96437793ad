//! The window: the part of a long conversation that a model gets.
//!
//! While a conversation fits into the limit of tokens, the model gets all of it. Otherwise the results of older calls are
//! shortened first, and then the oldest turns are left out. A turn is a message of the user with all that follows up to
//! the next one, so a call and its answer stay together. The window moves by a quarter of the limit, and only forward:
//! between two moves each request begins with the request before it.
//!
//! Nothing of this is stored. The window of a turn is computed from what does not change later: the texts, the tokens that
//! the server counted, and the turn in which the model read an outcome. So each later turn computes the same windows for
//! the turns before it, and the same form of a shortened text.

use crate::domain::model_texts;
use crate::domain::text::cut_with;
use crate::llm::{ModelMessage, ModelRequest, Speaker};
use parking_lot::Mutex;
use serde_json::Value;
use std::collections::BTreeMap;

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

    /// Records that a server refused this number of tokens, and took half of it. A window that moves below the limit of two
    /// thirds has that half again, so what was left out does not come back.
    pub(super) fn learn(&self, model: &str, refused: u64) {
        let limit = refused.saturating_sub(refused.div_ceil(3)).max(LEARNED_MIN);
        let mut learned = self.learned.lock();
        let known = learned.entry(model.to_owned()).or_insert(limit);
        *known = limit.min(*known);
    }
}

/// The messages for a model, by turns.
#[derive(Debug, Clone, Default)]
pub(super) struct Outline {
    turns: Vec<Turn>,
    rate: Rate,
}

/// A message of the user, with the notes before it and all that follows up to the next one.
#[derive(Debug, Clone)]
struct Turn {
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
    /// Returns the highest of the last counts. A request that was sent again after a refusal had fewer bytes than the
    /// window of its turn, so its count alone would be too low.
    fn of(counted: &[Self]) -> Self {
        let last = counted.iter().rev().take(COUNTS).copied();
        let higher =
            |one: Self, other: Self| if other.tokens(1 << 30) > one.tokens(1 << 30) { other } else { one };
        last.reduce(higher).unwrap_or_default()
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

/// The window in front of a turn.
#[derive(Debug, Clone, Default)]
struct View {
    /// The turns before this one are left out.
    first: usize,
    /// The results in the turns before this one are shortened.
    shortened: usize,
    /// The turns before `first` that are not left out, because the model has not read an outcome.
    unread: Vec<usize>,
}

impl Outline {
    /// Adds a turn that begins at this message and whose question ends before `asked`.
    pub(super) fn begin(&mut self, start: usize, asked: usize) {
        self.turns.push(Turn { start, asked, read_in: 0, counted: None });
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
    pub(super) fn tokens(&self, messages: &[ModelMessage], overhead: u64) -> u64 {
        self.rate.tokens(messages.iter().map(size).fold(overhead, u64::saturating_add))
    }

    /// Takes from the messages what is outside of the window of the last turn. `limit` is a number of tokens.
    pub(super) fn fit(&mut self, messages: &mut Vec<ModelMessage>, limit: u64, overhead: u64) {
        let view = self.view(messages, limit, overhead);
        let is_left_out = |turn: usize| turn < view.first && !view.unread.contains(&turn);
        self.take(messages, is_left_out, |turn| turn < view.shortened);
    }

    /// Makes a refused request smaller: to half of its bytes, if that is possible. Returns whether it is smaller now.
    pub(super) fn shrink(&mut self, messages: &mut Vec<ModelMessage>, overhead: u64) -> bool {
        let before: u64 = messages.iter().map(size).fold(0, u64::saturating_add);
        let target = before.saturating_add(overhead) / 2;
        let mut total = before.saturating_add(overhead);
        for message in messages.iter_mut() {
            if total <= target {
                return true;
            }
            let whole = size(message);
            shorten(message);
            total = total.saturating_sub(whole.saturating_sub(size(message)));
        }
        let sizes = self.sizes(messages);
        let mut left_out = 0;
        let last = self.last();
        for (turn, size) in sizes.iter().enumerate().take(last) {
            if total <= target {
                break;
            }
            left_out = turn.saturating_add(1);
            let is_read = self.turns.get(turn).is_some_and(|turn| turn.read_in <= last);
            total = total.saturating_sub(if is_read { size.whole } else { 0 });
        }
        let turns: Vec<_> = self.turns.iter().map(|turn| turn.read_in <= last).collect();
        let is_left_out = |turn: usize| turn < left_out && turns.get(turn) == Some(&true);
        self.take(messages, is_left_out, |_| false);
        total < before.saturating_add(overhead)
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

    /// Computes the window of each turn, and returns that of the last one.
    fn view(&mut self, messages: &[ModelMessage], limit: u64, overhead: u64) -> View {
        let (sizes, mut view, mut past) = (self.sizes(messages), View::default(), 0_u64);
        let target = limit.saturating_sub(limit / 4);
        let (mut before, mut counted) = (Size::default(), Vec::new());
        for (at, (turn, of_turn)) in self.turns.iter().zip(&sizes).enumerate() {
            past = past.saturating_add(before.whole);
            before = *of_turn;
            let sent = |turn: usize, view: &View| {
                let size = sizes.get(turn).copied().unwrap_or_default();
                if turn < view.shortened { size.short } else { size.whole }
            };
            let is_read = |turn: usize| self.turns.get(turn).is_some_and(|turn| turn.read_in <= at);
            let (read, unread) = view.unread.iter().partition::<Vec<usize>, _>(|turn| is_read(**turn));
            past = read.iter().fold(past, |past, turn| past.saturating_sub(sent(*turn, &view)));
            view.unread = unread;
            let tokens =
                |past: u64| self.rate.tokens(overhead.saturating_add(past).saturating_add(of_turn.asked));
            if tokens(past) > limit {
                while tokens(past) > target && view.shortened < at {
                    let size = sizes.get(view.shortened).copied().unwrap_or_default();
                    let is_sent = view.shortened >= view.first || view.unread.contains(&view.shortened);
                    past =
                        past.saturating_sub(if is_sent { size.whole.saturating_sub(size.short) } else { 0 });
                    view.shortened = view.shortened.saturating_add(1);
                }
                // The turn before this one stays: the message of the user is about it.
                while tokens(past) > target && view.first.saturating_add(1) < at {
                    match is_read(view.first) {
                        true => past = past.saturating_sub(sent(view.first, &view)),
                        false => view.unread.push(view.first),
                    }
                    view.first = view.first.saturating_add(1);
                }
            }
            if let Some((end, tokens)) = turn.counted {
                let answered = messages.get(turn.asked..end).unwrap_or_default();
                let request = overhead.saturating_add(past).saturating_add(of_turn.asked);
                let bytes = answered.iter().map(size).fold(request, u64::saturating_add);
                counted.push(Rate { tokens, bytes });
                self.rate = Rate::of(&counted);
            }
        }
        view
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
            turns.push(Turn { start, asked, read_in, counted: None });
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
mod tests {
    use super::*;
    use crate::llm::ModelCall;
    use proptest::prelude::*;
    use serde_json::Map;

    /// A turn of a test: the length of its result, and whether the model reads the outcome in a later turn.
    #[derive(Debug, Clone)]
    struct Planned {
        result: usize,
        read_in: usize,
        tokens: Option<u64>,
    }

    /// The messages of these turns: a question, a call with its answer, and words. The last turn has only its question.
    fn conversation(turns: &[Planned]) -> (Vec<ModelMessage>, Outline) {
        let (mut messages, mut outline) = (Vec::new(), Outline::default());
        for (at, planned) in turns.iter().enumerate() {
            let start = messages.len();
            messages.push(ModelMessage::User(format!("question {at}")));
            outline.begin(start, messages.len());
            if at == turns.len() - 1 {
                break;
            }
            let call =
                ModelCall { id: format!("call {at}"), tool_name: "look".to_owned(), input: Map::new() };
            let text = "r".repeat(planned.result);
            outline.is_read_in(planned.read_in);
            messages.push(ModelMessage::Assistant {
                text: String::new(),
                calls: vec![call],
                speaker: Speaker::Another,
            });
            messages.push(ModelMessage::Tool {
                call_id: format!("call {at}"),
                tool_name: "look".to_owned(),
                text,
            });
            if let Some(tokens) = planned.tokens {
                outline.counted(messages.len(), tokens);
            }
            let speaker = Speaker::Another;
            messages.push(ModelMessage::Assistant {
                text: format!("answer {at}"),
                calls: Vec::new(),
                speaker,
            });
        }
        (messages, outline)
    }

    fn fitted(turns: &[Planned], limit: u64) -> Vec<ModelMessage> {
        let (mut messages, mut outline) = conversation(turns);
        outline.fit(&mut messages, limit, 0);
        messages
    }

    fn plain(result: usize) -> Planned {
        Planned { result, read_in: 0, tokens: None }
    }

    fn has(messages: &[ModelMessage], words: &str) -> bool {
        messages.iter().any(|message| format!("{message:?}").contains(words))
    }

    fn result(messages: &[ModelMessage], turn: usize) -> Option<&str> {
        messages.iter().find_map(|message| match message {
            ModelMessage::Tool { call_id, text, .. } if *call_id == format!("call {turn}") => {
                Some(text.as_str())
            }
            _ => None,
        })
    }

    fn is_short(text: &str) -> bool {
        text.ends_with(model_texts::SHORTENED)
    }

    #[test]
    fn results_are_shortened_before_turns_are_left_out() {
        let turns = [vec![plain(9000); 3], vec![plain(10)]].concat();
        let whole = conversation(&turns).0;
        assert_eq!(fitted(&turns, u64::MAX), whole);
        // 27,000 bytes are 9,000 tokens. The results alone are enough.
        let shortened = fitted(&turns, 4000);
        assert!(has(&shortened, "question 0") && has(&shortened, model_texts::SHORTENED), "{shortened:#?}");
        assert!(!has(&shortened, model_texts::LEFT_OUT));
        let turns = [vec![plain(900); 30], vec![plain(10)]].concat();
        let left_out = fitted(&turns, 4000);
        assert_eq!(left_out[0], ModelMessage::User(model_texts::LEFT_OUT.to_owned()));
        assert!(
            !has(&left_out, "question 0\"") && has(&left_out, "question 29") && has(&left_out, "question 30")
        );
        assert!(left_out.len() > 4 * 5, "a quarter of the limit is the head-room: {}", left_out.len());
    }

    #[test]
    fn a_turn_with_an_unread_outcome_is_never_left_out() {
        let mut turns = [vec![plain(900); 30], vec![plain(10)]].concat();
        turns[2].read_in = usize::MAX;
        turns[3].read_in = 31;
        turns[4].read_in = 30;
        let left_out = fitted(&turns, 4000);
        let asked = |turn: usize| has(&left_out, &format!("question {turn}\""));
        assert_eq!([1, 2, 3, 4, 5].map(asked), [false, true, true, false, false]);
        let (mut messages, mut outline) = conversation(&turns);
        assert!(outline.shrink(&mut messages, 0));
        let asked = |turn: usize| has(&messages, &format!("question {turn}\""));
        assert_eq!([1, 2, 3, 4, 5].map(asked), [false, true, true, false, false]);
    }

    #[test]
    fn what_the_server_counted_is_the_measure() {
        let few = Planned { tokens: Some(100), ..plain(900) };
        let turns = [vec![few; 30], vec![plain(10)]].concat();
        assert_eq!(fitted(&turns, 4000), conversation(&turns).0, "the server counts few tokens");
        let many = Planned { tokens: Some(9000), ..plain(900) };
        let turns = [vec![many; 3], vec![plain(10)]].concat();
        assert!(fitted(&turns, 4000).len() < conversation(&turns).0.len(), "the server counts many tokens");
    }

    #[test]
    fn the_count_of_a_request_that_was_sent_again_shorter_changes_no_window() {
        let right = Planned { tokens: Some(9000), ..plain(900) };
        let again = Planned { tokens: Some(100), ..plain(900) };
        let turns = [vec![right; 3], vec![again, plain(10)]].concat();
        assert!(fitted(&turns, 4000).len() < conversation(&turns).0.len());
    }

    #[test]
    fn a_window_that_is_refused_keeps_its_sentence() {
        let turns = [vec![plain(900); 30], vec![plain(10)]].concat();
        let (mut messages, mut outline) = conversation(&turns);
        outline.fit(&mut messages, 4000, 0);
        let before = messages.len();
        assert!(outline.shrink(&mut messages, 0));
        assert_eq!(messages[0], ModelMessage::User(model_texts::LEFT_OUT.to_owned()));
        assert!(
            matches!(&messages[1], ModelMessage::User(text) if text.starts_with("question ")),
            "{messages:#?}"
        );
        assert!(messages.len() < before && has(&messages, "question 30"));
        assert_eq!(messages.iter().filter(|it| format!("{it:?}").contains(model_texts::LEFT_OUT)).count(), 1);
    }

    #[test]
    fn a_refused_request_becomes_half_as_long_or_stays() {
        let (mut messages, mut outline) = conversation(&[plain(90_000), plain(10)]);
        assert!(outline.shrink(&mut messages, 0));
        assert!(has(&messages, "question 0") && has(&messages, model_texts::SHORTENED));
        let (mut messages, mut outline) = conversation(&[plain(10)]);
        let before = messages.clone();
        assert!(!outline.shrink(&mut messages, 0), "one question cannot be shortened");
        assert_eq!(messages, before);
    }

    #[test]
    fn a_limit_is_learned_by_model_and_only_falls() {
        let limits = Limits::new(Some(10_000));
        assert_eq!((limits.known("a"), Limits::new(None).known("a")), (Some(10_000), None));
        limits.learn("a", 8000);
        limits.learn("a", 9000);
        assert_eq!((limits.of("a"), limits.of("b")), (5333, 10_000));
        assert!(limits.of("a") - limits.of("a") / 4 <= 8000 / 2, "a window after the refusal is no larger");
        limits.learn("a", 1);
        assert_eq!(limits.of("a"), LEARNED_MIN);
    }

    fn turns() -> impl Strategy<Value = Vec<Planned>> {
        let later = prop_oneof![8 => Just(0_usize), 1 => 1..12_usize, 1 => Just(usize::MAX)];
        let turn = (0..4000_usize, later, prop::option::of(500..3000_u64));
        let turn = turn.prop_map(|(result, later, tokens)| Planned { result, read_in: later, tokens });
        prop::collection::vec(turn, 2..30)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        /// From one turn to the next a request begins with the request before it, or the window has moved forward: it has
        /// no turn that was left out before, and no result whole that was shortened before.
        #[test]
        fn the_window_only_moves_forward(mut turns in turns(), limit in 1100..6000_u64) {
            for (at, turn) in turns.iter_mut().enumerate() {
                turn.read_in = if turn.read_in == 0 || turn.read_in == usize::MAX { turn.read_in } else { at + 1 + turn.read_in };
            }
            let mut before: Vec<ModelMessage> = Vec::new();
            for count in 2..=turns.len() {
                // In this turn the model has not yet read what it reads later.
                let known = turns[..count].iter().map(|turn| Planned {
                    read_in: if turn.read_in > count { usize::MAX } else { turn.read_in }, ..turn.clone()
                });
                let now = fitted(&known.collect::<Vec<_>>(), limit);
                let calls = now.iter().filter(|it| matches!(it, ModelMessage::Assistant { calls, .. } if !calls.is_empty()));
                let results = now.iter().filter(|it| matches!(it, ModelMessage::Tool { .. }));
                prop_assert_eq!(calls.count(), results.count());
                let last = format!("question {}\"", count - 2);
                prop_assert!(has(&now, &last), "the turn before stays");
                // No turn comes back, and a moved window leaves out or shortens.
                for turn in 0..count.saturating_sub(2) {
                    let asked = format!("question {turn}\"");
                    prop_assert!(has(&before, &asked) || !has(&now, &asked), "turn {turn} came back");
                    let is_whole = |messages: &[ModelMessage]| result(messages, turn).is_none_or(|text| !is_short(text));
                    prop_assert!(is_whole(&before) || result(&now, turn).is_none_or(is_short), "turn {turn} is whole again");
                }
                for (turn, planned) in turns[..count - 1].iter().enumerate() {
                    let unread = planned.read_in >= count;
                    prop_assert!(!unread || has(&now, &format!("question {turn}\"")), "turn {turn} is unread");
                }
                before = now;
            }
        }
    }
}
