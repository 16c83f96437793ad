//! Text in a readable form, for terminals, messages and logs: the one list of the characters that hide text, reverse it
//! or look like a blank, and the notes about a text that shows something else than it has.
//!
//! A note of this module is between `⟦` and `⟧`. In a text that is shown, these two characters are numbers, so no text
//! can write a note.

use crate::text::script::{self, has_right_to_left, is_mark, is_of_word, is_picture, is_skin_tone};
use icu_properties::props::{DefaultIgnorableCodePoint, GeneralCategory};
use icu_properties::{CodePointMapData, CodePointSetData};
use serde_json::{Map, Value};
use std::fmt::Write;
use std::mem;

/// The begin and the end of a note.
const NOTE: [char; 2] = ['⟦', '⟧'];
/// The length of a run of line breaks, and of blanks, that becomes a note.
const BREAKS_MIN: usize = 3;
const BLANKS_MIN: usize = 20;
/// The most marks on one letter. More would cover other lines.
const MARKS_MAX: usize = 5;
const ZERO_WIDTH_NON_JOINER: char = '\u{200c}';
const ZERO_WIDTH_JOINER: char = '\u{200d}';
/// The character that asks for the coloured form of the picture before it.
const COLOURED: char = '\u{fe0f}';
const KEYCAP: char = '\u{20e3}';
/// The characters around a text that is not to move the text beside it.
const ISOLATE: [char; 2] = ['\u{2068}', '\u{2069}'];

/// How characters are written that are not shown as they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CharacterForm {
    /// In one line: `\n`, `\u{202e}`.
    Line,
    /// With line breaks and tabs: `\u{202e}`.
    Lines,
    /// As in a string of JSON: `\n`, `\"`, `\u202e`.
    Json,
}

/// Returns the text in one line, with numbers in place of characters that a reader cannot recognise: controls, controls
/// of the text direction, unusual blanks, and invisible characters such as tags and soft hyphens. Long runs of blanks
/// and line breaks become a note, and a word that mixes scripts gets one.
pub fn visible(text: &str) -> String {
    noted(text, CharacterForm::Line)
}

/// Returns the text in this form, with its lines and tabs.
pub fn visible_lines(text: &str) -> String {
    noted(text, CharacterForm::Lines)
}

/// Returns valid JSON with its strings in this form. The characters that are not shown as they are become escapes of
/// JSON. With `isolates` a text from right to left moves nothing outside of its quotation marks.
pub fn visible_json(json: &str, isolates: bool) -> String {
    let mut shown = String::with_capacity(json.len());
    let mut chars = json.chars();
    while let Some(c) = chars.next() {
        shown.push(c);
        if c != '"' {
            continue;
        }
        let (mut raw, mut is_escape) = (String::new(), false);
        for c in chars.by_ref() {
            if c == '"' && !is_escape {
                break;
            }
            is_escape = c == '\\' && !is_escape;
            raw.push(c);
        }
        // A string with half of a surrogate pair is not readable as text.
        let text: Result<String, _> = serde_json::from_str(&format!("\"{raw}\""));
        let text = text.map_or_else(|_| visible(&raw), |text| noted(&text, CharacterForm::Json));
        shown.push_str(&if isolates { isolated(text) } else { text });
        shown.push('"');
    }
    shown
}

/// Returns a value in one line and between quotation marks, none of which it can write itself.
pub fn quoted(value: &str, isolates: bool) -> String {
    let mut text = String::with_capacity(value.len());
    for c in visible(value).chars() {
        match c {
            '"' => text.push_str("\\\""),
            '“' | '”' | '„' | '‟' | '″' | '＂' | '❝' | '❞' | '〝' | '〞' | '〟' => {
                text.extend(c.escape_unicode());
            }
            c => text.push(c),
        }
    }
    format!("“{}”", if isolates { isolated(text) } else { text })
}

/// Returns a visible text in one line so that it does not move the text beside it: text from right to left is between
/// the two characters that isolate it.
pub fn isolated(visible: String) -> String {
    let [first, last] = ISOLATE;
    if has_right_to_left(&visible) { format!("{first}{visible}{last}") } else { visible }
}

/// Returns the text in one line with numbers in place of hidden characters, and without notes: for a text that is
/// stored or hashed, and shown later.
pub fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    Characters::of(text)
        .for_each(|(c, hides)| push(&mut escaped, c, hides || c == '\n', CharacterForm::Line));
    escaped
}

/// Returns the text in this form, with its lines and tabs.
pub fn escaped_lines(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    Characters::of(text).for_each(|(c, hides)| push(&mut escaped, c, hides, CharacterForm::Lines));
    escaped
}

/// Escapes such characters in the texts of a schema. So the model reads nothing that an approver does not.
pub fn show_texts(schema: &mut Map<String, Value>) {
    for (key, value) in schema {
        match value {
            Value::String(text) if matches!(key.as_str(), "title" | "description" | "$comment") => {
                *text = escaped_lines(text);
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

/// Appends one character, or its number.
pub fn push_visible(text: &mut String, c: char) {
    push(text, c, !is_visible(c), CharacterForm::Line);
}

/// Whether a reader can recognise the character in every place.
pub fn is_visible(c: char) -> bool {
    if c.is_ascii() {
        return !c.is_ascii_control();
    }
    let hides = matches!(
        CodePointMapData::<GeneralCategory>::new().get(c),
        GeneralCategory::Control
            | GeneralCategory::Format
            | GeneralCategory::Unassigned
            | GeneralCategory::PrivateUse
            | GeneralCategory::Surrogate
            | GeneralCategory::SpaceSeparator
            | GeneralCategory::LineSeparator
            | GeneralCategory::ParagraphSeparator
    );
    // The last one is a letter of Braille without a dot.
    !hides && !CodePointSetData::new::<DefaultIgnorableCodePoint>().contains(c) && c != '\u{2800}'
}

/// The characters of a text, each with whether it hides something in its place. A line break hides nothing.
struct Characters<'a> {
    rest: std::str::Chars<'a>,
    before: Option<char>,
    /// Whether a picture ends before the next character.
    after_picture: bool,
    /// The number of marks before the next character.
    marks: usize,
}

impl<'a> Characters<'a> {
    fn of(text: &'a str) -> Self {
        Self { rest: text.chars(), before: None, after_picture: false, marks: 0 }
    }

    /// Whether the character changes how its neighbours look, as readers of these scripts expect.
    fn belongs(&self, c: char, after: Option<char>) -> bool {
        let before = self.before;
        let joins = || before.zip(after).is_some_and(|(before, after)| script::joins(before, after));
        match c {
            ZERO_WIDTH_JOINER => (self.after_picture && after.is_some_and(is_picture)) || joins(),
            ZERO_WIDTH_NON_JOINER => joins(),
            COLOURED => {
                let is_key = |c: char| matches!(c, '0'..='9' | '#' | '*');
                (self.after_picture && before != Some(COLOURED))
                    || (before.is_some_and(is_key) && after == Some(KEYCAP))
            }
            _ => false,
        }
    }
}

impl Iterator for Characters<'_> {
    type Item = (char, bool);

    fn next(&mut self) -> Option<Self::Item> {
        let c = self.rest.next()?;
        let after = self.rest.clone().next();
        let is_mark = is_mark(c);
        let hides = !is_visible(c) || (is_mark && self.marks >= MARKS_MAX);
        let hides = c != '\n' && hides && !self.belongs(c, after);
        self.marks = if is_mark { self.marks + 1 } else { 0 };
        self.after_picture = is_picture(c) || (self.after_picture && (is_skin_tone(c) || c == COLOURED));
        self.before = Some(c);
        Some((c, hides))
    }
}

/// A run of blanks and line breaks.
#[derive(Default)]
struct BlankRun {
    text: String,
    breaks: usize,
    blanks: usize,
}

impl BlankRun {
    /// Appends a character. Returns false if it belongs to no run.
    fn take(&mut self, c: char) -> bool {
        match c {
            ' ' | '\t' => self.blanks += 1,
            '\n' if self.text.ends_with('\r') => {}
            '\n' | '\r' => self.breaks += 1,
            _ => return false,
        }
        self.text.push(c);
        true
    }

    fn end(&mut self, shown: &mut String, form: CharacterForm) {
        let Self { text, breaks, blanks } = mem::take(self);
        if breaks < BREAKS_MIN && blanks < BLANKS_MIN {
            let is_kept = |c| c == ' ' || (form == CharacterForm::Lines && c != '\r');
            text.chars().for_each(|c| push(shown, c, !is_kept(c), form));
            return;
        }
        let counted = |count: usize, one: &str| match count {
            0 => None,
            1 => Some(format!("1 {one}")),
            more => Some(format!("{more} {one}s")),
        };
        let counts: Vec<String> =
            [counted(breaks, "line break"), counted(blanks, "blank")].into_iter().flatten().collect();
        push_note(shown, &counts.join(", "));
        if form == CharacterForm::Lines && breaks > 0 {
            shown.push('\n');
        }
    }
}

fn noted(text: &str, form: CharacterForm) -> String {
    let mut shown = String::with_capacity(text.len());
    let (mut word, mut gap) = (String::new(), BlankRun::default());
    let end_word = |shown: &mut String, word: &mut String| {
        shown.push_str(word);
        if let Some(scripts) = script::mixed(word) {
            shown.push(' ');
            push_note(shown, &format!("mixed scripts: {scripts}"));
        }
        word.clear();
    };
    for (c, hides) in Characters::of(text) {
        let joins = !is_visible(c) && c != '\n';
        if !hides && (is_of_word(c) || joins) {
            gap.end(&mut shown, form);
            word.push(c);
            continue;
        }
        end_word(&mut shown, &mut word);
        if gap.take(c) {
            continue;
        }
        gap.end(&mut shown, form);
        push(&mut shown, c, hides || NOTE.contains(&c), form);
    }
    end_word(&mut shown, &mut word);
    gap.end(&mut shown, form);
    shown
}

fn push_note(shown: &mut String, note: &str) {
    let [first, last] = NOTE;
    shown.push(first);
    shown.push_str(note);
    shown.push(last);
}

/// Appends a character, or its number if a reader would not recognise it.
fn push(shown: &mut String, c: char, hides: bool, form: CharacterForm) {
    match (form, c) {
        (CharacterForm::Json, '"' | '\\') => shown.extend(['\\', c]),
        (CharacterForm::Json, '\n') => shown.push_str("\\n"),
        (CharacterForm::Json, '\r') => shown.push_str("\\r"),
        (CharacterForm::Json, '\t') => shown.push_str("\\t"),
        (CharacterForm::Json, c) if hides => {
            for unit in c.encode_utf16(&mut [0; 2]) {
                // Writing to memory cannot fail.
                let _infallible = write!(shown, "\\u{unit:04x}");
            }
        }
        (CharacterForm::Lines, '\n' | '\t') => shown.push(c),
        (_, c) if hides => shown.extend(c.escape_default()),
        (_, c) => shown.push(c),
    }
}

#[cfg(test)]
mod tests;
