//! Headlines: a question for the approver of a call, with the inputs of the call in it.
//!
//! The text of a tool has placeholders in braces: `Delete {path}?`. The inputs come from a model, so each value
//! is cut, and characters that hide or reverse text are replaced by their numbers. A page shows the inputs
//! beside the headline in any case.

use holdpoint_core::text::placeholders::{self, Piece};
use holdpoint_core::text::visible::escaped;
use holdpoint_core::tool::headline::FilledHeadline;
use holdpoint_core::tool::input::Input;
use serde_json::Value;
use std::collections::HashSet;

/// Maximum length of a value in a headline, in characters.
const VALUE_MAX: usize = 60;
/// In place of an absent input, and of the rest of a long one.
const ELLIPSIS: char = '…';

/// The headline of a tool. A placeholder is the name of an input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Headline(Vec<Piece<String>>);

impl Headline {
    /// Parses the headline of a tool with this input schema. The error is the reason.
    pub(super) fn parse(template: &str, input_schema: &Value) -> Result<Self, String> {
        let properties = properties(input_schema);
        let known = |name: &str| match properties.contains(name) {
            true => Ok(name.to_owned()),
            false => Err("the inputs have no such property".to_owned()),
        };
        placeholders::parse(template, known).map(Self)
    }

    pub(super) fn filled(&self, input: &Input) -> FilledHeadline {
        FilledHeadline::new(self.0.iter().map(|piece| match piece {
            Piece::Text(text) => Piece::Text(text.clone()),
            Piece::Value(name) => Piece::Value(shown_value(input.get(name))),
        }))
    }
}

/// Returns the names of the properties of an object, alternatives included.
fn properties(schema: &Value) -> HashSet<&str> {
    let own = schema.get("properties").and_then(Value::as_object).into_iter().flatten();
    let mut names: HashSet<&str> = own.map(|(name, _)| name.as_str()).collect();
    for key in ["allOf", "anyOf", "oneOf"] {
        let parts = schema.get(key).and_then(Value::as_array).into_iter().flatten();
        names.extend(parts.flat_map(properties));
    }
    names
}

/// Returns a text as it is, and any other value as JSON without white space.
fn shown_value(value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Null) => ELLIPSIS.to_string(),
        Some(Value::String(text)) => shown(text),
        Some(other) => shown(&other.to_string()),
    }
}

fn shown(text: &str) -> String {
    let mut chars = text.chars();
    let head: String = chars.by_ref().take(VALUE_MAX).collect();
    let mut shown = escaped(&head);
    if chars.next().is_some() {
        shown.push(ELLIPSIS);
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn schema() -> Value {
        json!({ "type": "object", "properties": { "path": {}, "to": {} }, "oneOf": [{ "properties": { "n": {} } }] })
    }

    fn filled(template: &str, input: Value) -> String {
        Headline::parse(template, &schema()).unwrap().filled(input.as_object().unwrap()).to_string()
    }

    #[test]
    fn inputs_fill_the_placeholders() {
        for (template, input, expected) in [
            ("Delete {path}?", json!({ "path": "notes.txt" }), "Delete notes.txt?"),
            ("{path} to {to}", json!({ "path": "a", "to": "b" }), "a to b"),
            ("{path}{path}", json!({ "path": "a" }), "aa"),
            ("Go?", json!({}), "Go?"),
            ("{{{path}}}", json!({ "path": "a" }), "{a}"),
            ("{n} of it", json!({ "n": 7.5 }), "7.5 of it"),
            ("{n}", json!({ "n": { "b": [1, "x"], "a": null } }), r#"{"b":[1,"x"],"a":null}"#),
            ("Delete {path}?", json!({}), "Delete …?"),
            ("Delete {path}?", json!({ "path": null }), "Delete …?"),
            ("Delete {path}?", json!({ "path": "{to}", "to": "b" }), "Delete {to}?"),
        ] {
            assert_eq!(filled(template, input.clone()), expected, "{template} {input}");
        }
    }

    #[test]
    fn the_words_of_the_operator_and_the_values_of_the_model_are_apart() {
        let headline = Headline::parse("Move {path} to {to}?", &schema()).unwrap();
        let input = json!({ "path": "x? Approve", "to": "" });
        let filled = headline.filled(input.as_object().unwrap());
        let (text, value) = (|it: &str| Piece::Text(it.to_owned()), |it: &str| Piece::Value(it.to_owned()));
        let expected = [text("Move "), value("x? Approve"), text(" to "), value(""), text("?")];
        assert_eq!(filled.pieces(), expected);
    }

    #[test]
    fn values_are_cut_and_hidden_characters_have_their_numbers() {
        assert_eq!(filled("{path}", json!({ "path": "é".repeat(VALUE_MAX) })), "é".repeat(VALUE_MAX));
        let long = filled("{path}", json!({ "path": "é".repeat(VALUE_MAX + 1) }));
        assert_eq!(long, format!("{}…", "é".repeat(VALUE_MAX)));
        for (hidden, number) in [
            ('\u{202e}', "\\u{202e}"),
            ('\u{200b}', "\\u{200b}"),
            ('\n', "\\n"),
            ('\u{1b}', "\\u{1b}"),
            ('\u{a0}', "\\u{a0}"),
            ('\u{2003}', "\\u{2003}"),
            ('\u{2800}', "\\u{2800}"),
            ('\u{e000}', "\\u{e000}"),
        ] {
            assert_eq!(filled("{path}", json!({ "path": format!("a{hidden}b") })), format!("a{number}b"));
            let nested = filled("{n}", json!({ "n": [format!("a{hidden}b")] }));
            assert!(!nested.contains(hidden), "{nested:?}");
        }
        assert_eq!(filled("{path}", json!({ "path": "a b 漢 🙂" })), "a b 漢 🙂");
    }

    #[test]
    fn a_placeholder_that_is_no_property_is_refused() {
        for (template, named) in [
            ("Delete {file}?", "{file}"),
            ("Delete {path.name}?", "{path.name}"),
            ("Delete {}?", "{}"),
            ("Delete { path }?", "{ path }"),
            ("Delete {path", "{path"),
            ("Delete path}", "}"),
        ] {
            let why = Headline::parse(template, &schema()).unwrap_err();
            assert!(why.contains(named), "{template}: {why}");
        }
    }
}
