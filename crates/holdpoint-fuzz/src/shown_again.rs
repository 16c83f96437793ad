//! For tests of surfaces: texts that are hard to show, and the text that a reader takes from what a surface shows.

use proptest::prelude::*;
use serde_json::Value;

const PIECES: [&str; 14] = [
    "a",
    "é",
    "p\u{430} ",
    "שלום",
    "\u{202e}",
    "\u{200b}",
    " ",
    "\n",
    "⟦",
    "\"",
    "\\",
    "🙂",
    "\u{e0041}",
    "\u{a0}",
];

/// Texts of few and of many such pieces.
pub fn pieces() -> impl Strategy<Value = String> {
    let times = prop_oneof![1..5_usize, 1..2500_usize];
    let run = (proptest::sample::select(&PIECES[..]), times).prop_map(|(piece, times)| piece.repeat(times));
    proptest::collection::vec(run, 0..4).prop_map(|runs| runs.concat())
}

/// Returns what a reader takes from a shown text: without notes, without what isolates a text, without the marks of
/// lines, and without blanks and line breaks, which notes count.
pub fn read(shown: &str) -> String {
    let (mut read, mut in_note) = (String::new(), false);
    for c in shown.chars() {
        match c {
            '⟦' => in_note = true,
            '⟧' => in_note = false,
            '\u{2068}' | '\u{2069}' | '|' | ' ' | '\n' => {}
            c if !in_note => read.push(c),
            _ => {}
        }
    }
    read
}

/// Returns the JSON after this title in such a text.
pub fn read_json(read: &str, title: &str) -> Value {
    let (_, json) = read.split_once(title).expect("the title is shown");
    let first = serde_json::Deserializer::from_str(json).into_iter().next();
    stripped_json(first.expect("there is a value").expect("it is whole"))
}

/// Returns a stored text as a reader takes it from a surface.
pub fn stripped(text: &str) -> String {
    text.replace([' ', '\n'], "").replace('⟦', "\\u{27e6}")
}

/// Returns the value with such texts.
pub fn stripped_json(value: Value) -> Value {
    match value {
        Value::String(text) => text.replace([' ', '\n'], "").into(),
        Value::Array(items) => items.into_iter().map(stripped_json).collect(),
        Value::Object(fields) => fields
            .into_iter()
            .map(|(name, value)| (name, stripped_json(value)))
            .collect::<serde_json::Map<_, _>>()
            .into(),
        other => other,
    }
}
