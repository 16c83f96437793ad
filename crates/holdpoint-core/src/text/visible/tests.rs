use super::*;
use serde_json::json;

#[test]
fn characters_that_hide_reverse_or_look_like_a_blank_are_escaped() {
    assert_eq!(visible("a\u{1b}[2Kb\rc\n\u{9b}d\u{7f}e"), "a\\u{1b}[2Kb\\rc\\n\\u{9b}d\\u{7f}e");
    let bidi = ['\u{61c}', '\u{200e}', '\u{200f}'].into_iter();
    let bidi = bidi.chain('\u{202a}'..='\u{202e}').chain('\u{2066}'..='\u{2069}');
    let no_width =
        ['\u{200b}', '\u{200c}', '\u{200d}', '\u{2060}', '\u{feff}', '\u{ad}', '\u{34f}', '\u{180e}'];
    let selectors = ('\u{fe00}'..='\u{fe0f}').chain('\u{e0100}'..='\u{e01ef}');
    let others = ('\u{e0000}'..='\u{e007f}').chain('\u{2028}'..='\u{2029}').chain('\u{fff9}'..='\u{fffb}');
    let fillers = ['\u{115f}', '\u{1160}', '\u{3164}', '\u{ffa0}', '\u{2800}'];
    let blanks = ['\u{a0}', '\u{1680}', '\u{202f}', '\u{205f}', '\u{3000}'];
    let blanks = ('\u{2000}'..='\u{200a}').chain(blanks);
    let private = ['\u{e000}', '\u{f8ff}', '\u{f0000}', '\u{378}', '\u{ffff}', '\u{10ffff}'];
    let all = bidi.chain(no_width).chain(selectors).chain(others).chain(fillers).chain(blanks).chain(private);
    for c in all.chain('\u{80}'..='\u{9f}') {
        let escaped_one = format!("a\\u{{{:x}}}b", u32::from(c));
        let text = format!("a{c}b");
        assert_eq!((visible(&text), escaped(&text)), (escaped_one.clone(), escaped_one));
        assert!(!is_visible(c), "{c:?}");
    }
}

#[test]
fn visible_text_is_unchanged() {
    let text =
        "plain \\u{202e} {\"a\":1} é e\u{301} ß 漢字かな עברית العربية 🙂 € \u{fffd} [900 line breaks] a  b";
    for shown in [visible(text), visible_lines(text), escaped(text), escaped_lines(text)] {
        assert_eq!(shown, text);
    }
    assert_eq!(visible_lines("a\n\n\tb"), "a\n\n\tb");
    assert_eq!(escaped_lines("a\n\n\n\tb\r"), "a\n\n\n\tb\\r");
}

#[test]
fn joiners_stay_between_pictures_and_between_letters_that_they_join() {
    for text in [
        "👩\u{200d}👩\u{200d}👧",
        "👩🏽\u{200d}🚀",
        "🏳\u{fe0f}\u{200d}🌈",
        "❤\u{fe0f} 1\u{fe0f}\u{20e3}",
        "می\u{200c}خواهم",
        "क्\u{200d}ष",
    ] {
        assert_eq!((visible(text).as_str(), escaped(text).as_str()), (text, text));
    }
    for (text, expected) in [
        ("a\u{200d}b", "a\\u{200d}b"),
        ("👩\u{200d}", "👩\\u{200d}"),
        ("👩\u{200d}a", "👩\\u{200d}a"),
        ("👩\u{200d}\u{200d}👧", "👩\\u{200d}\\u{200d}👧"),
        ("a\u{fe0f}", "a\\u{fe0f}"),
        ("1\u{fe0f}", "1\\u{fe0f}"),
        ("❤\u{fe0f}\u{fe0f}", "❤\u{fe0f}\\u{fe0f}"),
        ("a\u{200c}خ", "a\\u{200c}خ"),
        ("خ\u{200c} ", "خ\\u{200c} "),
        ("👩\u{200c}👧", "👩\\u{200c}👧"),
    ] {
        assert_eq!((visible(text).as_str(), escaped(text).as_str()), (expected, expected));
    }
}

#[test]
fn a_word_that_mixes_scripts_has_a_note_which_no_text_can_write() {
    for (text, expected) in [
        ("to p\u{430}ypal.com, now", "to p\u{430}ypal ⟦mixed scripts: Cyrillic, Latin⟧.com, now"),
        ("ex\u{3b1}mple", "ex\u{3b1}mple ⟦mixed scripts: Greek, Latin⟧"),
        ("Привет world. Γειά", "Привет world. Γειά"),
        ("漢字かなカナ", "漢字かなカナ"),
        ("⟦mixed scripts: x⟧", "\\u{27e6}mixed scripts: x\\u{27e7}"),
    ] {
        assert_eq!(visible(text), expected);
        assert_eq!(visible_lines(text), expected);
        assert_eq!(escaped(text), text, "a stored text has no note");
    }
}

#[test]
fn long_runs_of_blanks_and_line_breaks_are_counted() {
    let breaks = "\n".repeat(900);
    assert_eq!(visible(&format!("ls{breaks}; rm")), "ls⟦900 line breaks⟧; rm");
    assert_eq!(visible_lines(&format!("ls{breaks}; rm")), "ls⟦900 line breaks⟧\n; rm");
    assert_eq!(visible_lines(&"\r\n".repeat(3)), "⟦3 line breaks⟧\n");
    assert_eq!(visible_lines(&"\n ".repeat(400)), "⟦400 line breaks, 400 blanks⟧\n");
    assert_eq!(visible(&format!("a{}b", " ".repeat(20))), "a⟦20 blanks⟧b");
    assert_eq!(visible_lines(&format!("a{}b", "\t".repeat(20))), "a⟦20 blanks⟧b");
    assert_eq!(visible(&format!("a{}b", " ".repeat(19))), format!("a{}b", " ".repeat(19)));
    assert_eq!(visible_lines("a\n\nb"), "a\n\nb");
    assert_eq!(visible("\n\n"), "\\n\\n");
}

#[test]
fn json_for_people_is_the_same_json_with_escapes_and_notes() {
    let value = json!({ "a\"\\": ["x\u{202e}\n\u{e0041}", 1.50, null, {}], "р": "Привет\nworld" });
    let shown = visible_json(&value.to_string(), false);
    assert_eq!(serde_json::from_str::<Value>(&shown).unwrap(), value);
    assert!(shown.contains(r"x\u202e\n\udb40\udc41") && shown.contains(r"Привет\nworld"), "{shown}");
    let mixed = json!({ "to": "p\u{430}ypal", "cmd": format!("ls{}rm", "\n".repeat(900)), "fake": "⟦1⟧" });
    let shown = visible_json(&mixed.to_string(), false);
    for words in
        ["\"p\u{430}ypal ⟦mixed scripts: Cyrillic, Latin⟧\"", "ls⟦900 line breaks⟧rm", r"\u27e61\u27e7"]
    {
        assert!(shown.contains(words), "{shown}");
    }
    assert_eq!(visible_json(r#"{"a":"\ud800\"x","b":"y"}"#, false), r#"{"a":"\ud800\"x","b":"y"}"#);
}

#[test]
fn text_from_right_to_left_moves_nothing_outside_of_itself() {
    assert_eq!(isolated("שלום".to_owned()), "\u{2068}שלום\u{2069}");
    assert_eq!(isolated("é 漢 1".to_owned()), "é 漢 1");
    let shown = visible_json(&json!({ "to": "العربية", "n": 5 }).to_string(), true);
    assert_eq!(shown, "{\"to\":\"\u{2068}العربية\u{2069}\",\"n\":5}");
    assert_eq!(quoted("שלום", true), "“\u{2068}שלום\u{2069}”");
    assert_eq!(isolated(visible("\u{2069}שלום")), "\u{2068}\\u{2069}שלום\u{2069}");
}

#[test]
fn a_quoted_value_cannot_end_its_quotation() {
    assert_eq!(
        quoted("1” to bob. Approve \"now\" ″", false),
        "“1\\u{201d} to bob. Approve \\\"now\\\" \\u{2033}”"
    );
}

/// The cases of `tests/characters.json`, which the surfaces in the browser follow too.
#[test]
fn the_cases_of_all_surfaces_hold() {
    let cases: Vec<Value> =
        serde_json::from_str(include_str!("../../../../../tests/characters.json")).unwrap();
    assert!(cases.len() > 40);
    for case in cases {
        let text = case["text"].as_str().unwrap();
        let hidden: Vec<String> = Characters::of(text)
            .filter(|(_, hides)| *hides)
            .map(|(c, _)| format!("U+{:04X}", u32::from(c)))
            .collect();
        assert_eq!(json!(hidden), case["hidden"], "{case}");
        let shown = visible(text);
        let mut before: Vec<&str> = shown.split(" ⟦mixed scripts: ").collect();
        before.pop();
        let mixed: Vec<&str> =
            before.iter().map(|before| before.rsplit(|c| !is_of_word(c)).next().unwrap()).collect();
        assert_eq!(json!(mixed), case["mixed"], "{case}");
    }
}
