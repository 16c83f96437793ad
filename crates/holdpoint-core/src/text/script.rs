//! Scripts of characters: words that mix them, letters that are written from right to left, and the places in which an
//! invisible character changes how its neighbours look.

use icu_properties::props::{
    BidiClass, EmojiModifier, ExtendedPictographic, GeneralCategory, GeneralCategoryGroup, Script,
};
use icu_properties::{CodePointMapData, CodePointSetData, PropertyNamesLong};

/// The scripts in which a zero-width joiner or non-joiner between two letters changes how they are written.
const JOINING: [Script; 12] = [
    Script::Arabic,
    Script::Syriac,
    Script::Devanagari,
    Script::Bengali,
    Script::Gurmukhi,
    Script::Gujarati,
    Script::Oriya,
    Script::Tamil,
    Script::Telugu,
    Script::Kannada,
    Script::Malayalam,
    Script::Sinhala,
];
/// The scripts that Japanese, Korean and Chinese mix inside of a word.
const TOGETHER: [&[Script]; 3] = [
    &[Script::Latin, Script::Han, Script::Hiragana, Script::Katakana],
    &[Script::Latin, Script::Han, Script::Hangul],
    &[Script::Latin, Script::Han, Script::Bopomofo],
];

/// Returns the names of the scripts that a word mixes, if no language mixes them.
pub(super) fn mixed(word: &str) -> Option<String> {
    if word.is_ascii() {
        return None;
    }
    let mut scripts: Vec<Script> = Vec::new();
    for script in word.chars().filter(|c| !is_number(*c)).map(script) {
        let counts = !matches!(script, Script::Common | Script::Inherited | Script::Unknown);
        if counts && !scripts.contains(&script) {
            scripts.push(script);
        }
    }
    let is_usual = scripts.len() < 2
        || TOGETHER.iter().any(|together| scripts.iter().all(|script| together.contains(script)));
    if is_usual {
        return None;
    }
    let name = |script: Script| PropertyNamesLong::<Script>::new().get(script).unwrap_or("unknown");
    let mut names: Vec<String> = scripts.into_iter().map(|script| name(script).replace('_', " ")).collect();
    names.sort();
    Some(names.join(", "))
}

/// Whether the text has a letter that is written from right to left, and so moves the text beside it.
pub(super) fn has_right_to_left(text: &str) -> bool {
    let strong = |c| matches!(direction(c), BidiClass::RightToLeft | BidiClass::ArabicLetter);
    !text.is_ascii() && text.chars().any(strong)
}

/// Whether the character is a letter, a mark or a digit of a word.
pub(super) fn is_of_word(c: char) -> bool {
    if c.is_ascii() { c.is_ascii_alphanumeric() } else { is_letter(c) || is_mark(c) || is_number(c) }
}

/// Whether the character is drawn on the one before it.
pub(super) fn is_mark(c: char) -> bool {
    !c.is_ascii() && GeneralCategoryGroup::Mark.contains(category(c))
}

/// Whether a joiner or a non-joiner between these characters changes how they are written.
pub(super) fn joins(before: char, after: char) -> bool {
    let (before, after) = (letter_script(before), letter_script(after));
    before.is_some_and(|script| JOINING.contains(&script)) && before == after
}

/// Whether the character is a picture, without what may follow one.
pub(super) fn is_picture(c: char) -> bool {
    !c.is_ascii() && CodePointSetData::new::<ExtendedPictographic>().contains(c)
}

/// Whether the character changes the colour of the picture before it.
pub(super) fn is_skin_tone(c: char) -> bool {
    !c.is_ascii() && CodePointSetData::new::<EmojiModifier>().contains(c)
}

fn letter_script(c: char) -> Option<Script> {
    (is_letter(c) || is_mark(c)).then(|| script(c))
}

fn is_letter(c: char) -> bool {
    GeneralCategoryGroup::Letter.contains(category(c))
}

fn is_number(c: char) -> bool {
    GeneralCategoryGroup::Number.contains(category(c))
}

fn category(c: char) -> GeneralCategory {
    CodePointMapData::<GeneralCategory>::new().get(c)
}

fn script(c: char) -> Script {
    CodePointMapData::<Script>::new().get(c)
}

fn direction(c: char) -> BidiClass {
    CodePointMapData::<BidiClass>::new().get(c)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_of_two_scripts_is_mixed_unless_a_language_mixes_them() {
        for (word, names) in [
            ("p\u{430}ypal", Some("Cyrillic, Latin")),
            ("ex\u{3b1}mple", Some("Greek, Latin")),
            ("\u{440}\u{430}\u{443}\u{3c1}", Some("Cyrillic, Greek")),
            ("漢字かな", None),
            ("カタカナと漢字", None),
            ("한국漢字", None),
            ("Tシャツ", None),
            ("あ한", Some("Hangul, Hiragana")),
            ("ㄅ漢", None),
            ("한국カ", Some("Hangul, Katakana")),
            ("e\u{301}te\u{301}9", None),
            ("Привет", None),
            ("paypal", None),
            ("5µm", None),
        ] {
            assert_eq!(mixed(word).as_deref(), names, "{word}");
        }
    }
}
