//! JSON as text: the JSON of the server with all its digits, for programs and for people.

use holdpoint_core::text::visible::{is_visible, visible_json};
use serde_json::value::RawValue;
use std::fmt::Write;

/// Returns the JSON in one line. The value is the same: a character that is not visible is an escape, so the
/// line cannot control a terminal.
pub(crate) fn line(raw: &RawValue) -> String {
    laid_out(raw.get(), false)
}

/// Returns the JSON with each value in a line of its own, for people: with notes in its strings.
pub(crate) fn indented(raw: &RawValue) -> String {
    laid_out(&visible_json(raw.get(), false), true)
}

/// Returns the JSON in one line, for people.
pub(crate) fn compact(raw: &RawValue) -> String {
    laid_out(&visible_json(raw.get(), false), false)
}

/// Copies valid JSON, with other white space. The numbers are not parsed, because they would lose digits.
fn laid_out(json: &str, indents: bool) -> String {
    let mut text = String::with_capacity(json.len());
    let (mut in_string, mut is_escape, mut is_open, mut depth) = (false, false, false, 0_usize);
    let new_line = |text: &mut String, depth: usize| {
        if indents {
            text.push('\n');
            text.extend(std::iter::repeat_n("  ", depth));
        }
    };
    for c in json.chars() {
        if in_string {
            push_escaped(&mut text, c);
            in_string = is_escape || c != '"';
            is_escape = !is_escape && c == '\\';
            continue;
        }
        if c.is_ascii_whitespace() {
            continue;
        }
        let is_end = matches!(c, '}' | ']');
        match (is_open, is_end) {
            (true, false) => {
                depth = depth.saturating_add(1);
                new_line(&mut text, depth);
            }
            (false, true) => {
                depth = depth.saturating_sub(1);
                new_line(&mut text, depth);
            }
            (true, true) | (false, false) => {}
        }
        text.push(c);
        is_open = matches!(c, '{' | '[');
        in_string = c == '"';
        match c {
            ',' => new_line(&mut text, depth),
            ':' if indents => text.push(' '),
            _ => {}
        }
    }
    text
}

fn push_escaped(text: &mut String, c: char) {
    if is_visible(c) {
        text.push(c);
        return;
    }
    for unit in c.encode_utf16(&mut [0; 2]) {
        // Writing to memory cannot fail.
        let _infallible = write!(text, "\\u{unit:04x}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn raw(json: &str) -> Box<RawValue> {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn a_line_has_the_same_value_and_nothing_invisible() {
        let json = "{ \"a\\\"b\" : [ 1.50, 12345678901234567890123 , { } , [ ] ],\n\t\"c\\\\\": \"x y\u{9b}2J\u{202e}\u{e0041}\\u001b[2K é\" }";
        let line = line(&raw(json));
        let expected = "{\"a\\\"b\":[1.50,12345678901234567890123,{},[]],\"c\\\\\":\"x y\\u009b2J\\u202e\\udb40\\udc41\\u001b[2K é\"}";
        assert_eq!(line, expected);
        let [before, after] = [json, &line].map(|json| serde_json::from_str::<Value>(json).unwrap());
        assert_eq!(before, after);
    }

    #[test]
    fn an_indented_value_has_a_line_for_each_part() {
        let text = indented(&raw(r#"{"a":{"b":[1,"x, {y}: z"],"c":{}},"d":null}"#));
        let expected = r#"{
  "a": {
    "b": [
      1,
      "x, {y}: z"
    ],
    "c": {}
  },
  "d": null
}"#;
        assert_eq!(text, expected);
    }
}
