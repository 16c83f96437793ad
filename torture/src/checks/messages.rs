//! The checks of streams and requests to the model: they contain only stored facts, and never contradict each
//! other.

use super::case::{Case, Cases, same};
use super::{Records, Violation};
use crate::json::JsonPointer;
use crate::plan::Plan;
use crate::record::{ModelRequest, Turn};
use crate::rows::CallRow;
use crate::stream::{FactKind, StreamContent};
use crate::world::WORKER_TOOLS;
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};

/// The beginning of the message that reports the outcome of a call after the model read that there is none yet.
const OUTCOME: &str = "[tool outcome]";

/// The words of the model where it said nothing between two messages of the user.
const NO_REPLY: &str = "(no reply)";

type IsTrue = fn(&CallRow) -> bool;

/// The texts in place of a missing outcome, each with a test whether the text is true of a call.
const PLACEHOLDERS: [(&str, IsTrue); 3] = [
    ("Awaiting approval by a person.", |row| row.held),
    ("Approved by a person and under way.", |row| row.held && row.validated == Some(true)),
    // A call that needs no approval begins at once, or waits for a worker.
    ("Under way, or cut off:", |row| {
        !row.held && (row.exec_id.is_some() || WORKER_TOOLS.contains(&row.name.as_str()))
    }),
];

/// D4: the calls and texts of a stream match the rows, and a stream has an end. A complete stream has every
/// held call of the steps whose texts it has.
pub(super) fn d4(records: &Records, cases: &Cases<'_>) -> Vec<Violation> {
    let mut steps: HashMap<&str, Vec<(i64, String)>> = HashMap::new();
    for step in &records.rows.steps {
        steps.entry(step.message_id.as_str()).or_default().push((step.n, step.text()));
    }
    steps.values_mut().for_each(|steps| steps.sort());
    let mut held: HashMap<&str, Vec<(i64, &str)>> = HashMap::new();
    for case in cases.values().filter(|case| case.row.held) {
        let of_message = held.entry(case.row.message_id.as_str()).or_default();
        of_message.push((case.row.step, case.row.tool_call_id.as_str()));
    }
    let mut found = Vec::new();
    for turn in &records.turns {
        for fact in &turn.content.facts {
            let Some(case) = cases.get(fact.call.as_str()) else { continue };
            match &fact.kind {
                FactKind::Stored { tool, inputs } if !is_as_stored(case, tool, inputs, turn) => {
                    found.push(Violation::of("D4", &fact.call, format!("streamed as {tool} of {inputs}")));
                }
                FactKind::Pending if !case.row.held => {
                    found.push(Violation::of("D4", &fact.call, "streamed as held, and the call is not held"));
                }
                _ => {}
            }
        }
        let content = &turn.content;
        // Without a running turn there is nothing to attach to.
        let nothing_to_read = turn.attached && *content == StreamContent::default();
        let has_an_end =
            content.finished || content.failure.is_some() || turn.cut.is_some() || nothing_to_read;
        if turn.status == 200 && !has_an_end {
            let what = format!("the {:?} stream of a turn of {} has no end", turn.dialect, turn.thread);
            found.push(Violation { id: "D4", call: None, what });
        }
        let whole = content.finished && content.failure.is_none() && turn.cut.is_none();
        let Some(message) = content.message_id.as_deref().filter(|_| whole) else { continue };
        let (steps, held) = (steps.get(message), held.get(message));
        let is_streamed = |call: &str| content.facts.iter().any(|fact| fact.call == call);
        let all_streamed = |from: i64, to: i64| {
            let mut of_steps = held.into_iter().flatten().filter(|(step, _)| (from..=to).contains(step));
            of_steps.all(|(_, call)| is_streamed(call))
        };
        if !content.text.is_empty()
            && !consists_of_steps(steps.map_or(&[], Vec::as_slice), &content.text, all_streamed)
        {
            let what =
                format!("the message {message} was streamed as {:?}, and its rows differ", content.text);
            found.push(Violation { id: "D4", call: None, what });
        }
    }
    found
}

/// Whether a text consists of the complete texts of consecutive steps, and `is_right` accepts the range of
/// these steps.
fn consists_of_steps(steps: &[(i64, String)], text: &str, is_right: impl Fn(i64, i64) -> bool) -> bool {
    (0..steps.len()).any(|first| {
        let mut rest = text;
        for (n, step_text) in steps.iter().skip(first) {
            let Some(more) = rest.strip_prefix(step_text.as_str()) else { return false };
            rest = more;
            let from = steps.get(first).map_or(*n, |(n, _)| *n);
            if rest.is_empty() && is_right(from, *n) {
                return true;
            }
        }
        false
    })
}

fn is_as_stored(case: &Case<'_>, tool: &str, inputs: &Value, turn: &Turn) -> bool {
    let proposed: Value = serde_json::from_str(&case.row.arguments).unwrap_or_default();
    let effective = case.row.effective_inputs().unwrap_or_default();
    // A stream does not show the inputs of an invalid call.
    let shown = case.row.state == "invalid" || same(inputs, &proposed) || same(inputs, &effective);
    let message = turn.content.message_id.as_ref();
    case.row.name == tool && shown && message.is_none_or(|message| *message == case.row.message_id)
}

/// D5: a streamed outcome is durable.
pub(super) fn d5(records: &Records, cases: &Cases<'_>) -> Vec<Violation> {
    let mut found = Vec::new();
    for turn in &records.turns {
        for fact in &turn.content.facts {
            let Some(case) = cases.get(fact.call.as_str()) else { continue };
            if !agrees(case, &fact.kind) {
                let what = format!("streamed {:?}, and the call is {}", fact.kind, case.row.state);
                found.push(Violation::of("D5", &fact.call, what));
            }
        }
    }
    found
}

fn agrees(case: &Case<'_>, kind: &FactKind) -> bool {
    let row = case.row;
    match kind {
        FactKind::Stored { .. } | FactKind::Pending => true,
        FactKind::Output(output) => {
            let stored = row.output.as_ref().and_then(|output| serde_json::from_str(output).ok());
            row.state == "succeeded" && stored.is_some_and(|stored: Value| same(&stored, output))
        }
        FactKind::Error(_) => !row.is_open() && (row.state != "succeeded" || case.was_interrupted()),
        FactKind::State(state) => match state.as_str() {
            "pending" => row.held,
            "approved" => row.validated == Some(true),
            "interrupted" => case.was_interrupted(),
            other => row.state == other,
        },
    }
}

/// H1: a provider accepts every history.
pub(super) fn h1(records: &Records, _cases: &Cases<'_>) -> Vec<Violation> {
    let refused = records.model_requests.iter().filter_map(|request| {
        let what = format!("{}: {}", request.conversation, request.refusal.as_ref()?);
        Some(Violation { id: "H1", call: None, what })
    });
    refused.collect()
}

/// H2: every answer for the model is true, or reports that there is no outcome yet.
pub(super) fn h2(records: &Records, cases: &Cases<'_>) -> Vec<Violation> {
    let mut found = Vec::new();
    for (call, text) in answers(records, cases) {
        let Some(case) = cases.get(call) else { continue };
        let result = case.row.result.as_deref().unwrap_or_default();
        let placeholder =
            PLACEHOLDERS.iter().any(|(prefix, is_true)| text.starts_with(prefix) && is_true(case.row));
        let unknown = text.contains("unknown") && case.was_interrupted();
        let honest = match case.row.state.as_str() {
            "rejected" => result.contains("rejected"),
            "expired" => result.contains("expired"),
            "cancelled" => {
                result.contains("did not run") || result.contains("has not run") || result.contains("lready")
            }
            "interrupted" => result.contains("unknown"),
            _ => true,
        };
        if !honest || !(text == result || placeholder || unknown) {
            found.push(Violation::of(
                "H2",
                call,
                format!("the call is {}, and the model read: {text}", case.row.state),
            ));
        }
    }
    found
}

/// H3: a text for the model never changes after the first request. Of two requests of a conversation, the
/// longer [continues](continues) the shorter, and the rows contain the sent texts.
pub(super) fn h3(records: &Records, cases: &Cases<'_>) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut conversations: BTreeMap<&str, Vec<&ModelRequest>> = BTreeMap::new();
    for request in records.model_requests.iter().filter(|request| request.refusal.is_none()) {
        conversations.entry(&request.conversation).or_default().push(request);
    }
    for (name, mut requests) in conversations {
        requests.sort_by_key(|request| request.messages.len());
        for (shorter, longer) in requests.iter().zip(requests.iter().skip(1)) {
            if !continues(&longer.messages, &shorter.messages) {
                let at = shorter.messages.iter().zip(&longer.messages).position(|(one, other)| one != other);
                let what = format!("{name}: a sent message has changed at {at:?}");
                found.push(Violation { id: "H3", call: None, what });
            }
        }
    }
    for (call, text) in answers(records, cases) {
        let first = cases.get(call).and_then(|case| case.sent.iter().find(|sent| sent.n == 0).copied());
        if first.is_none_or(|sent| sent.text != text) {
            found.push(Violation::of("H3", call, format!("the model read a text without a row: {text}")));
        }
    }
    found
}

/// Returns whether a request may follow an earlier one: it starts with the earlier messages.
///
/// The request to the model leaves before the commit of the user's message. If that commit fails, the user posts the
/// message again. Outcomes that were reported in between then stand before the message.
fn continues(messages: &[Value], earlier: &[Value]) -> bool {
    if messages.starts_with(earlier) {
        return true;
    }
    // The words between two messages of the user move with them.
    let [messages, earlier] = [messages, earlier].map(spoken);
    let Some((posted, before)) = earlier.split_last() else { return true };
    let Some(since) = messages.strip_prefix(before) else { return false };
    let new = since.iter().skip_while(|message| is_outcome(message));
    *posted.at("/role") == "user" && !is_outcome(posted) && new.take(1).eq([posted])
}

/// Returns the messages that a person, a model or a tool made.
fn spoken(messages: &[Value]) -> Vec<Value> {
    let is_spoken =
        |message: &&Value| *message.at("/role") != "assistant" || *message.at("/content") != NO_REPLY;
    messages.iter().filter(is_spoken).cloned().collect()
}

fn is_outcome(message: &Value) -> bool {
    let text = message.at("/content").as_str().unwrap_or_default();
    *message.at("/role") == "user" && text.starts_with(OUTCOME)
}

/// Returns the thread of each conversation. The messages of the user contain the name of the conversation.
pub(crate) fn threads(records: &Records) -> HashMap<String, &str> {
    let planned = |text: &String| serde_json::from_str::<Plan>(text).ok();
    let named = records.rows.messages.iter().filter_map(|message| {
        let plan = message.content.as_ref().and_then(planned)?;
        Some((plan.conversation, message.thread_id.as_str()))
    });
    named.collect()
}

/// Returns the answers that the model read, by call.
fn answers<'a>(records: &'a Records, cases: &Cases<'a>) -> Vec<(&'a str, &'a str)> {
    let threads = threads(records);
    let calls: HashMap<(&str, &str), &'a str> = cases
        .values()
        .map(|case| case.row)
        .map(|row| ((row.thread_id.as_str(), row.wire_call_id.as_str()), row.tool_call_id.as_str()))
        .collect();
    let mut found = Vec::new();
    for request in &records.model_requests {
        let Some(thread) = threads.get(&request.conversation) else { continue };
        for message in request.messages.iter().filter(|message| *message.at("/role") == "tool") {
            let id = message.at("/tool_call_id").as_str().unwrap_or_default();
            let text = message.at("/content").as_str().unwrap_or_default();
            found.extend(calls.get(&(*thread, id)).map(|call| (*call, text)));
        }
    }
    found.sort_unstable();
    found.dedup();
    found
}

/// N1: a request to the model reports a late outcome at most once.
pub(super) fn n1(records: &Records, _cases: &Cases<'_>) -> Vec<Violation> {
    let mut found = Vec::new();
    for request in &records.model_requests {
        let texts = request.messages.iter().filter_map(|message| message.at("/content").as_str());
        let mut notes: Vec<&str> = texts.filter(|text| text.starts_with(OUTCOME)).collect();
        notes.sort_unstable();
        let all = notes.len();
        notes.dedup();
        if notes.len() < all {
            let what = format!("{}: one request reports an outcome twice", request.conversation);
            found.push(Violation { id: "N1", call: None, what });
        }
    }
    found.sort();
    found.dedup();
    found
}
