//! Halves of surrogate pairs in JSON texts.
//!
//! JavaScript cuts texts between UTF-16 units, so `JSON.stringify` writes a cut emoji as the escape of one half.
//! No Rust text can hold a half, and `serde_json` refuses the whole JSON text.

use std::borrow::Cow;

/// Returns the JSON text with `\ufffd` in place of each escape of a lone half. All other bytes stay, and so
/// does their number. A text that is not JSON is returned with the same change, and no parser accepts it.
pub(crate) fn without_lone_halves(json: &str) -> Cow<'_, str> {
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
            Some(HIGH_FIRST..=LOW_LAST) => {
                let mended = mended.get_or_insert_with(|| String::with_capacity(json.len()));
                mended.push_str(json.get(copied..start).unwrap_or_default());
                mended.push_str("\\ufffd");
                copied = after;
                after
            }
            Some(_) => after,
            // An escape of one character, which may be a backslash.
            None => start.saturating_add(2),
        };
        if !json.is_char_boundary(at) {
            break;
        }
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
