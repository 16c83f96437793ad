//! Halves of surrogate pairs in JSON texts.
//!
//! JavaScript cuts texts between UTF-16 units, so `JSON.stringify` writes a cut emoji as the escape of one half.
//! No Rust text can hold a half, and `serde_json` refuses the whole JSON text.

use std::borrow::Cow;

/// Returns the JSON text with `\ufffd` in place of each escape of a lone half. All other bytes stay, and so
/// does their number. A text that is not JSON is returned with the same change, and no parser accepts it.
pub fn without_lone_halves(json: &str) -> Cow<'_, str> {
    replaced(json, |mended, _| mended.push_str("\\ufffd"))
}

/// Returns the JSON text with a mark in place of each escape of a lone half: a character that no text uses.
/// [`joined`] reads the marks. So a half can wait for the other half in the next text.
pub fn marked(json: &str) -> Cow<'_, str> {
    replaced(json, |marked, unit| marked.extend(mark(unit)))
}

/// Joins the marked halves of a text, after a text that ended with the mark `before`. A half without its other
/// half becomes U+FFFD. Returns the text, and the mark of a first half at its end.
pub fn joined(before: Option<char>, text: &str) -> (String, Option<char>) {
    let mut whole = String::with_capacity(text.len());
    let mut high = before.and_then(unit);
    for it in text.chars() {
        let earlier = match unit(it) {
            Some(first @ HIGH_FIRST..=HIGH_LAST) => high.replace(first),
            Some(second) => {
                let pair = [high.take().unwrap_or(second), second];
                whole.extend(char::decode_utf16(pair).next().and_then(Result::ok).or(Some(REPLACEMENT)));
                None
            }
            None => {
                let earlier = high.take();
                whole.extend(earlier.map(|_| REPLACEMENT));
                whole.push(it);
                None
            }
        };
        whole.extend(earlier.map(|_| REPLACEMENT));
    }
    (whole, high.and_then(mark))
}

/// Returns a JSON text with the escapes in place of their marks. A parser refuses these escapes.
pub fn restored(marked: &str) -> String {
    let mut json = String::with_capacity(marked.len());
    for it in marked.chars() {
        match unit(it) {
            Some(unit) => json.push_str(&format!("\\u{unit:04x}")),
            None => json.push(it),
        }
    }
    json
}

/// Returns whether the text has a mark.
pub fn has_marks(text: &str) -> bool {
    text.chars().any(|it| unit(it).is_some())
}

fn mark(unit: u16) -> Option<char> {
    char::from_u32(MARK_FIRST.checked_add(u32::from(unit.checked_sub(HIGH_FIRST)?))?)
}

fn unit(mark: char) -> Option<u16> {
    u16::try_from(u32::from(mark).checked_sub(MARK_FIRST)?).ok()?.checked_add(HIGH_FIRST)
}

/// Returns the JSON text with a replacement for each escape of a lone half.
fn replaced(json: &str, replace: impl Fn(&mut String, u16)) -> Cow<'_, str> {
    let mut mended: Option<String> = None;
    let mut copied = 0;
    let mut at = 0;
    while let Some(found) = json.get(at..).and_then(|rest| rest.find('\\')) {
        let start = at.saturating_add(found);
        let after = start.saturating_add(ESCAPE_BYTES);
        at = match unit_at(json, start) {
            // A pair.
            Some(HIGH_FIRST..=HIGH_LAST)
                if unit_at(json, after).is_some_and(|unit| (LOW_FIRST..=LOW_LAST).contains(&unit)) =>
            {
                after.saturating_add(ESCAPE_BYTES)
            }
            Some(half @ HIGH_FIRST..=LOW_LAST) => {
                let mended = mended.get_or_insert_with(|| String::with_capacity(json.len()));
                mended.push_str(json.get(copied..start).unwrap_or_default());
                replace(mended, half);
                copied = after;
                after
            }
            Some(_) => after,
            // An escape of one character, which may be a backslash.
            None => start.saturating_add(2),
        };
    }
    match mended {
        None => Cow::Borrowed(json),
        Some(mut mended) => {
            mended.push_str(json.get(copied..).unwrap_or_default());
            Cow::Owned(mended)
        }
    }
}

/// The length of `\ud83d`.
const ESCAPE_BYTES: usize = 6;
const HIGH_FIRST: u16 = 0xD800;
const HIGH_LAST: u16 = 0xDBFF;
const LOW_FIRST: u16 = 0xDC00;
const LOW_LAST: u16 = 0xDFFF;
/// The first mark. The marks are the last characters for private use.
const MARK_FIRST: u32 = 0x10_F800;
const REPLACEMENT: char = char::REPLACEMENT_CHARACTER;

/// Returns the UTF-16 unit of the escape at this byte, if it is one of four digits.
fn unit_at(json: &str, start: usize) -> Option<u16> {
    let escape = json.get(start..start.saturating_add(ESCAPE_BYTES))?;
    let digits = escape.strip_prefix("\\u")?;
    if !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    u16::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_lone_half_becomes_the_replacement_character() {
        for (written, read) in [
            (r#""cut \ud83d""#, "cut \u{fffd}"),
            (r#""\uDE00 bye""#, "\u{fffd} bye"),
            (r#""\ud83d\ud83d\ude00""#, "\u{fffd}😀"),
            (r#""\ude00\ud83d""#, "\u{fffd}\u{fffd}"),
            (r#""\ud83dx\ude00é""#, "\u{fffd}x\u{fffd}é"),
            (r#""\ud83d\n\\\ud83d""#, "\u{fffd}\n\\\u{fffd}"),
            (r#""\\\\\ud83d\\ud83d""#, "\\\\\u{fffd}\\ud83d"),
        ] {
            assert!(serde_json::from_str::<String>(written).is_err(), "{written}");
            let mended = without_lone_halves(written);
            assert_eq!(serde_json::from_str::<String>(&mended).unwrap(), read, "{written}");
            assert_eq!(mended.len(), written.len(), "{written}");
        }
    }

    #[test]
    fn a_text_without_lone_halves_is_borrowed() {
        let texts = [
            r#""\ud83d\ude00 \u00e9 \uFFFF""#,
            r#""\\ud83d \\\\ud83d""#,
            r#"{"a":"é","b":[1,"\n"]}"#,
            "",
            "\\",
            "\\u12",
            "\\é",
            "\\ud8é9",
            "\\u+d83",
        ];
        for text in texts {
            assert!(matches!(without_lone_halves(text), Cow::Borrowed(same) if same == text), "{text}");
        }
    }

    #[test]
    fn a_half_waits_for_the_other_half_in_the_next_text() {
        let read = |pieces: &[&str]| {
            let mut half = None;
            let mut text = String::new();
            for piece in pieces {
                let piece: String = serde_json::from_str(&marked(piece)).unwrap();
                let (more, rest) = joined(half, &piece);
                text.push_str(&more);
                text.push('|');
                half = rest;
            }
            (text, half.is_some())
        };
        assert_eq!(read(&[r#""hi \ud83d""#, r#""\ude00 bye""#]), ("hi |😀 bye|".to_owned(), false));
        assert_eq!(read(&[r#""\ud83d""#, r#""""#, r#""\ude00""#]), ("||😀|".to_owned(), false));
        assert_eq!(read(&[r#""\ud83d""#, r#""x\ude00""#]), ("|\u{fffd}x\u{fffd}|".to_owned(), false));
        assert_eq!(read(&[r#""\ud83d\ud83d""#]), ("\u{fffd}|".to_owned(), true));
        assert_eq!(restored(&marked(r#"{"a":"\ud83d😀\ude00"}"#)), r#"{"a":"\ud83d😀\ude00"}"#);
        assert!(has_marks(&marked(r"\ud83d")) && !has_marks("😀\u{fffd}"));
    }

    proptest! {
        #[test]
        fn a_text_of_javascript_is_read_as_javascript_reads_it(
            units in prop::collection::vec(prop_oneof![0xD7F0_u16..0xE010, 0x20_u16..0x80, Just(0x5C)], 0..24)
        ) {
            let escaped = |unit: &u16| match unit {
                0x5C => "\\\\".to_owned(),
                0xD7F0.. => format!("\\u{unit:04x}"),
                _ => char::from_u32((*unit).into()).filter(|it| *it != '"').unwrap_or(' ').to_string(),
            };
            let text: String = units.iter().map(escaped).collect();
            let meant: Vec<u16> =
                units.iter().map(|unit| if *unit == 0x22 { 0x20 } else { *unit }).collect();
            let read: String = serde_json::from_str(&without_lone_halves(&format!("\"{text}\""))).unwrap();
            prop_assert_eq!(read, String::from_utf16_lossy(&meant));
        }
    }
}
