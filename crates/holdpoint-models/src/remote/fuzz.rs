//! The fuzz target for the parser of model answers: answers as servers of each wire send them, complete and
//! damaged, in any chunks.

use super::tests::{Dice, Part, Position, Read, read};
use super::*;
use holdpoint_fuzz::for_a_while;
use proptest::prelude::*;
use proptest::sample::Index;

fn words() -> impl Strategy<Value = String> {
    let odd =
        prop::sample::select(vec!['"', '\\', '\n', '\r', '\u{2028}', '\0', '\u{feff}', '{', ':', 'é', '🦀']);
    let letter = prop_oneof![3 => prop::char::range('a', 'z'), 2 => odd, 1 => any::<char>()];
    prop::collection::vec(letter, 1..24).prop_map(String::from_iter)
}

fn json_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        words().prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((words(), inner), 0..4)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

fn part() -> impl Strategy<Value = Part> {
    let arguments = prop::collection::vec((words(), json_value()), 0..4);
    let call = ("[a-z]{1,8}", "[a-z_]{1,12}", arguments).prop_map(|(id, name, fields)| Part::Call {
        id,
        name,
        arguments: fields.into_iter().collect(),
    });
    let source = (words(), prop::option::of(words())).prop_map(|(url, title)| Part::Source(url, title));
    let file =
        (words(), prop::collection::vec(any::<u8>(), 0..24)).prop_map(|(kind, data)| Part::File(kind, data));
    prop_oneof![
        3 => words().prop_map(Part::Text),
        2 => words().prop_map(Part::Reasoning),
        2 => call,
        1 => source,
        1 => file,
    ]
}

fn answers() -> impl Strategy<Value = (Vec<Part>, Dice)> {
    let dice = prop::collection::vec(any::<u8>(), 1..64).prop_map(Dice::new);
    (prop::collection::vec(part(), 0..8), dice)
}

/// Returns the answer as a server of this wire streams it.
fn stream_of(wire: Wire, answer: &[Part], dice: &mut Dice) -> Vec<u8> {
    let streams = wire.sample.streams;
    let mut events = Vec::new();
    let mut calls = 0;
    for (position, part) in answer.iter().enumerate() {
        if (streams.has)(part) {
            (streams.write)(part, Position { part: position, call: calls }, dice, &mut events);
        }
        calls += usize::from(matches!(part, Part::Call { .. }));
    }
    (streams.finish)(calls > 0, &mut events);
    framed(wire, &events, dice)
}

fn framed(wire: Wire, events: &[Value], dice: &mut Dice) -> Vec<u8> {
    let newline = if dice.roll(3) == 0 { "\r\n" } else { "\n" };
    let mut out = if dice.roll(8) == 0 { "\u{feff}".to_owned() } else { String::new() };
    for event in events {
        if wire.framing == Framing::JsonLines {
            out.push_str(&format!("{event}{newline}"));
            continue;
        }
        if dice.roll(6) == 0 {
            out.push_str(&format!(": keep-alive{newline}{newline}"));
        }
        if let Some(name) = event["type"].as_str().filter(|_| dice.roll(2) == 0) {
            out.push_str(&format!("event: {name}{newline}"));
        }
        let space = if dice.roll(4) == 0 { "" } else { " " };
        out.push_str(&format!("data:{space}{event}{newline}{newline}"));
    }
    if let Some(done) = wire.sample.streams.done
        && dice.roll(3) > 0
    {
        out.push_str(&format!("data: {done}"));
        out.push_str(&newline.repeat(dice.roll(3)));
    }
    out.into_bytes()
}

/// Joins adjacent texts, and adjacent pieces of reasoning.
fn folded<'a>(answer: impl IntoIterator<Item = &'a Part>) -> Vec<Part> {
    let mut folded: Vec<Part> = Vec::new();
    for part in answer {
        match (folded.last_mut(), part) {
            (Some(Part::Text(text)), Part::Text(more))
            | (Some(Part::Reasoning(text)), Part::Reasoning(more)) => {
                text.push_str(more);
            }
            _ => folded.push(part.clone()),
        }
    }
    folded
}

/// Separates each text, and each piece of reasoning, from the one before it by a blank line.
fn separate(parts: &mut [Part]) {
    let mut last: [Option<String>; 2] = [None, None];
    for part in parts {
        let (kind, text) = match part {
            Part::Text(text) => (0, text),
            Part::Reasoning(text) => (1, text),
            Part::Call { .. } | Part::Source(..) | Part::File(..) => continue,
        };
        let own = text.clone();
        if let Some(last) = &last[kind] {
            let ends = last.chars().rev().take_while(|it| *it == '\n').count();
            text.insert_str(0, &"\n".repeat(2_usize.saturating_sub(ends)));
        }
        last[kind] = Some(own);
    }
}

/// Returns whether a person sees the part.
fn has_content(part: &Part) -> bool {
    match part {
        Part::Text(text) | Part::Reasoning(text) => !text.trim().is_empty(),
        Part::Call { .. } | Part::Source(..) | Part::File(..) => true,
    }
}

/// Returns the parts that were read, joined in the same way. Ids are left out, because some wires have none.
fn read_parts(read: &Read) -> Vec<Part> {
    let mut read_parts: Vec<Part> = Vec::new();
    let mut calls: Vec<(usize, String)> = Vec::new();
    for event in &read.events {
        match event {
            ModelEvent::Text(text) => read_parts.push(Part::Text(text.clone())),
            ModelEvent::Reasoning(text) => read_parts.push(Part::Reasoning(text.clone())),
            ModelEvent::CallStarted { tool_name, .. } => {
                calls.push((read_parts.len(), String::new()));
                let name = tool_name.clone();
                read_parts.push(Part::Call { id: String::new(), name, arguments: Map::new() });
            }
            ModelEvent::CallArguments { index, delta } => calls[*index].1.push_str(delta),
            ModelEvent::Source { url, title } => read_parts.push(Part::Source(url.clone(), title.clone())),
            ModelEvent::File { media_type, data } => {
                read_parts.push(Part::File(media_type.clone(), data.clone()))
            }
            ModelEvent::Alive | ModelEvent::CallFinished { .. } | ModelEvent::Finished { .. } => {}
        }
    }
    for (position, text) in calls {
        if let Part::Call { arguments, .. } = &mut read_parts[position] {
            *arguments = serde_json::from_str(if text.is_empty() { "{}" } else { &text }).unwrap();
        }
    }
    folded(&read_parts)
}

/// Checks the properties of any answer, also of a damaged one.
fn is_in_order(read: &Read) -> Result<(), String> {
    // `finished` is the index of the last complete call plus one.
    let (mut started, mut finished, mut over) = (0, 0, false);
    for event in &read.events {
        let in_order = !over
            && match event {
                ModelEvent::Alive
                | ModelEvent::Text(_)
                | ModelEvent::Reasoning(_)
                | ModelEvent::Source { .. }
                | ModelEvent::File { .. } => finished == 0,
                ModelEvent::CallStarted { index, tool_name, .. } => {
                    started += 1;
                    finished == 0 && *index + 1 == started && !tool_name.is_empty()
                }
                ModelEvent::CallArguments { index, delta } => {
                    finished == 0 && *index < started && !delta.is_empty()
                }
                ModelEvent::CallFinished { index } => {
                    let ascends = *index >= finished;
                    finished = *index + 1;
                    *index < started && ascends
                }
                ModelEvent::Finished { .. } => {
                    over = true;
                    true
                }
            };
        if !in_order {
            return Err(format!("out of order: {event:?}"));
        }
    }
    if over == read.error.is_some() {
        return Err(format!("over: {over}, and yet {:?}", read.error));
    }
    Ok(())
}

#[test]
fn fuzz_upstream_answers_are_read_as_they_were_sent() {
    let cases = (prop::sample::select(WIRES.to_vec()), answers());
    for_a_while("upstream, whole", &cases, |(wire, (answer, mut dice))| {
        let streams = wire.sample.streams;
        let bytes = stream_of(wire, &answer, &mut dice);
        let read = read(wire, dice.cut(&bytes));
        if !answer.iter().any(|part| (streams.has)(part) && has_content(part)) {
            prop_assert!(read.error.is_some(), "a blank answer: {:?}", read);
            return Ok(());
        }
        prop_assert_eq!(&read.error, &None);
        prop_assert_eq!(is_in_order(&read), Ok(()));
        let whole = read.events.iter().filter(|event| matches!(event, ModelEvent::CallFinished { .. }));
        let calls = answer.iter().filter(|part| matches!(part, Part::Call { .. }));
        prop_assert_eq!(whole.count(), calls.count());
        let mut sent: Vec<_> = answer.iter().filter(|part| (streams.has)(part)).cloned().collect();
        if streams.separates {
            separate(&mut sent);
        }
        let mut expected = folded(&sent);
        for part in &mut expected {
            if let Part::Call { id, .. } = part {
                id.clear();
            }
        }
        prop_assert_eq!(read_parts(&read), expected);
        let usage = Some(holdpoint_core::message::Usage { input_tokens: 3, output_tokens: 4 });
        let ends_so =
            matches!(read.events.last(), Some(ModelEvent::Finished { usage: it, .. }) if *it == usage);
        prop_assert!(ends_so, "{:?}", read.events.last());
        Ok(())
    });
}

#[test]
fn fuzz_upstream_damaged_answers_end_in_order_and_alike_in_any_cuts() {
    let damage = prop::collection::vec((any::<Index>(), any::<u8>(), 0..6_u8), 1..12);
    let cases = (prop::sample::select(WIRES.to_vec()), answers(), damage);
    for_a_while("upstream, damaged", &cases, |(wire, (answer, mut dice), damage)| {
        let mut bytes = stream_of(wire, &answer, &mut dice);
        for (at, byte, how) in damage {
            if bytes.is_empty() {
                break;
            }
            let at = at.index(bytes.len());
            match how {
                0 => bytes[at] = byte,
                1 => bytes.insert(at, byte),
                2 => drop(bytes.remove(at)),
                3 => bytes.truncate(at),
                // Duplicates a piece.
                4 => {
                    let piece = bytes[at..].iter().copied().take(usize::from(byte)).collect::<Vec<_>>();
                    bytes.splice(at..at, piece);
                }
                _ => drop(bytes.drain(at..(at + usize::from(byte)).min(bytes.len()))),
            }
        }
        let whole = read(wire, vec![Bytes::from(bytes.clone())]);
        prop_assert_eq!(is_in_order(&whole), Ok(()));
        prop_assert_eq!(&read(wire, dice.cut(&bytes)), &whole);
        Ok(())
    });
}
