//! Text in a readable form, for terminals and logs.

use icu_properties::props::{DefaultIgnorableCodePoint, GeneralCategory};
use icu_properties::{CodePointMapData, CodePointSetData};
use serde_json::{Map, Value};

/// Returns the text with escapes in place of characters that a reader cannot recognise: controls, controls of
/// the text direction, and invisible characters such as tags, variation selectors and soft hyphens.
pub(crate) fn visible(text: &str) -> String {
    let mut visible = String::with_capacity(text.len());
    text.chars().for_each(|c| push_visible(&mut visible, c));
    visible
}

/// Returns the text in this form, with its lines and tabs.
pub(crate) fn visible_lines(text: &str) -> String {
    let mut visible = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' | '\t' => visible.push(c),
            c => push_visible(&mut visible, c),
        }
    }
    visible
}

/// Escapes such characters in the texts of a schema. So the model reads nothing that an approver does not.
pub(crate) fn show_texts(schema: &mut Map<String, Value>) {
    for (key, value) in schema {
        match value {
            Value::String(text) if matches!(key.as_str(), "title" | "description" | "$comment") => {
                *text = visible_lines(text);
            }
            value => show_texts_in(value),
        }
    }
}

fn show_texts_in(value: &mut Value) {
    match value {
        Value::Object(fields) => show_texts(fields),
        Value::Array(items) => items.iter_mut().for_each(show_texts_in),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Appends one character in this form.
pub(crate) fn push_visible(text: &mut String, c: char) {
    if is_visible(c) {
        text.push(c);
    } else {
        text.extend(c.escape_default());
    }
}

/// Whether a reader can recognise the character.
pub(crate) fn is_visible(c: char) -> bool {
    if c.is_ascii() {
        return !c.is_ascii_control();
    }
    // Characters that move a cursor, end a line, or change the text direction.
    let controls = matches!(
        CodePointMapData::<GeneralCategory>::new().get(c),
        GeneralCategory::Control
            | GeneralCategory::Format
            | GeneralCategory::LineSeparator
            | GeneralCategory::ParagraphSeparator
    );
    !controls && !CodePointSetData::new::<DefaultIgnorableCodePoint>().contains(c)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_bidirectional_and_invisible_characters_are_escaped() {
        assert_eq!(visible("a\u{1b}[2Kb\rc\n\u{9b}d\u{7f}e"), "a\\u{1b}[2Kb\\rc\\n\\u{9b}d\\u{7f}e");
        let bidi = ['\u{61c}', '\u{200e}', '\u{200f}'].into_iter();
        let bidi = bidi.chain('\u{202a}'..='\u{202e}').chain('\u{2066}'..='\u{2069}');
        let no_width =
            ['\u{200b}', '\u{200c}', '\u{200d}', '\u{2060}', '\u{feff}', '\u{ad}', '\u{34f}', '\u{180e}'];
        let selectors = ('\u{fe00}'..='\u{fe0f}').chain('\u{e0100}'..='\u{e01ef}');
        let others =
            ('\u{e0000}'..='\u{e007f}').chain('\u{2028}'..='\u{2029}').chain('\u{fff9}'..='\u{fffb}');
        let fillers = ['\u{115f}', '\u{1160}', '\u{3164}', '\u{ffa0}'];
        for c in bidi.chain(no_width).chain(selectors).chain(others).chain(fillers).chain('\u{80}'..='\u{9f}')
        {
            assert_eq!(visible(&format!("a{c}b")), format!("a\\u{{{:x}}}b", u32::from(c)));
        }
    }

    #[test]
    fn visible_text_is_unchanged() {
        let text = "plain \\u{202e} {\"a\":1} é e\u{301} ß 漢字 עברית العربية 🙂 € \u{a0}\u{fffd}";
        assert_eq!(visible(text), text);
    }
}
