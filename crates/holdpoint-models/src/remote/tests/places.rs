//! Answers that say the same in other places: in pieces, in a closing frame, in the whole message, in several of
//! these, once or twice, before and after an early reason. All of them are read as what was meant.

use super::*;
use holdpoint_fuzz::for_a_while;
use proptest::prelude::*;

/// What an answer means.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::remote) struct MeantAnswer {
    pub(in crate::remote) reasoning: String,
    pub(in crate::remote) text: String,
    pub(in crate::remote) calls: Vec<MeantCall>,
}

#[derive(Debug, Clone, PartialEq)]
pub(in crate::remote) struct MeantCall {
    pub(in crate::remote) id: String,
    pub(in crate::remote) name: String,
    pub(in crate::remote) input: Value,
}

/// Writes the events of an answer that says this in some of its places.
pub(in crate::remote) type AnswerWriter = fn(&MeantAnswer, &mut Dice) -> Vec<String>;

impl MeantAnswer {
    pub(in crate::remote) fn reason(&self, stop: &'static str, calls: &'static str) -> &'static str {
        if self.calls.is_empty() { stop } else { calls }
    }
}

fn meant() -> impl Strategy<Value = (MeantAnswer, Dice)> {
    let words = "[a-zé🦀 ]{0,24}[a-z]{16}";
    let arguments = prop::collection::vec(("[a-z]{1,4}", "[a-z{}\"\\\\ ]{0,8}"), 0..3);
    let call = ("[a-z]{3,6}", arguments).prop_map(|(name, fields)| {
        let fields: Map<_, _> = fields.into_iter().map(|(field, value)| (field, value.into())).collect();
        (name, Value::from(fields))
    });
    let said = (prop::option::of(words), prop::option::of(words), prop::collection::vec(call, 0..3));
    let dice = prop::collection::vec(any::<u8>(), 8..64).prop_map(Dice::new);
    (said, dice).prop_map(|((reasoning, text, calls), dice)| {
        let calls: Vec<_> = (0..)
            .zip(calls)
            .map(|(n, (name, input))| MeantCall { id: format!("c{n}"), name, input })
            .collect();
        let text = text.or_else(|| calls.is_empty().then(|| "no calls and no words".to_owned()));
        (
            MeantAnswer { reasoning: reasoning.unwrap_or_default(), text: text.unwrap_or_default(), calls },
            dice,
        )
    })
}

/// Draws some of the places, at least one.
pub(in crate::remote) fn places<const N: usize>(dice: &mut Dice) -> [bool; N] {
    let mut drawn = [false; N];
    for place in &mut drawn {
        *place = dice.roll(2) == 0;
    }
    drawn[dice.roll(N)] = true;
    drawn
}

/// Writes the arguments as an object, or as text.
pub(in crate::remote) fn object_or_text(input: &Value, dice: &mut Dice) -> Value {
    if dice.roll(3) == 0 { input.clone() } else { input.to_string().into() }
}

/// Returns what was read, as text.
fn understood(read: &Read) -> Result<(MeantAnswer, bool), String> {
    let mut meant = MeantAnswer { reasoning: String::new(), text: String::new(), calls: Vec::new() };
    let mut calls: Vec<(String, String, String, bool)> = Vec::new();
    let mut counted = false;
    for event in &read.events {
        match event {
            ModelEvent::Text(text) => meant.text.push_str(text),
            ModelEvent::Reasoning(text) => meant.reasoning.push_str(text),
            ModelEvent::CallStarted { provider_call_id, tool_name, .. } => {
                calls.push((provider_call_id.clone(), tool_name.clone(), String::new(), false));
            }
            ModelEvent::CallArguments { index, delta } => calls[*index].2.push_str(delta),
            ModelEvent::CallFinished { index } => calls[*index].3 = true,
            ModelEvent::Finished { usage, .. } => {
                counted = usage.is_some_and(|it| (it.input_tokens, it.output_tokens) == (3, 4));
            }
            ModelEvent::Alive | ModelEvent::Source { .. } | ModelEvent::File { .. } => {}
        }
    }
    for (id, name, arguments, ended) in calls {
        let arguments = if arguments.is_empty() { "{}" } else { &arguments };
        let input = serde_json::from_str(arguments).map_err(|error| format!("{arguments}: {error}"))?;
        if !ended {
            return Err(format!("call {id} did not end"));
        }
        meant.calls.push(MeantCall { id, name, input });
    }
    // A call that only the whole message has follows the others.
    meant.calls.sort_by(|one, other| one.id.cmp(&other.id));
    match &read.error {
        None => Ok((meant, counted)),
        Some(error) => Err(error.clone()),
    }
}

#[test]
fn fuzz_an_answer_is_read_as_it_is_meant_wherever_and_how_often_it_is_said() {
    let cases = (prop::sample::select(WIRES.to_vec()), meant());
    for_a_while("answers in other places", &cases, |(wire, (meant, mut dice))| {
        let events = (wire.sample.elsewhere)(&meant, &mut dice);
        let bytes: String = events.iter().map(|event| framed(wire, event)).collect();
        let read = read(wire, vec![Bytes::from(bytes)]);
        let read = understood(&read).map_err(|why| TestCaseError::fail(format!("{why}: {events:#?}")))?;
        prop_assert_eq!(read, (meant, true), "{:?}: {:#?}", wire, events);
        Ok(())
    });
}
