//! Whatever a call is, the terminal that offers its approval shows the complete card.

use super::call::Call;
use super::offer::Sheet;
use super::screen::{Screen, ScreenForm};
use super::show::card_parts;
use holdpoint_core::card::preview::Preview;
use holdpoint_fuzz::shown_again::{pieces, read, read_json, stripped, stripped_json};
use proptest::prelude::*;
use serde_json::{Value, json};

/// Calls whose parts have lengths around the limits.
fn calls() -> impl Strategy<Value = Value> {
    let object = || pieces().prop_map(|text| json!({ "a": [text, 1.5] }));
    let optional = |it: BoxedStrategy<Value>| prop_oneof![it, Just(Value::Null)];
    let preview = pieces().prop_map(|text| {
        let (Preview::Text(text) | Preview::Failed(text)) = Preview::text(&text);
        json!({ "text": text })
    });
    let definition = pieces().prop_map(|text| {
        json!({ "cause": "changed", "hash": "x", "changes": [{ "field": "description", "current": text }] })
    });
    let parts = (
        object(),
        optional(object().boxed()),
        optional(preview.boxed()),
        optional(definition.boxed()),
        any::<[bool; 2]>(),
    );
    parts.prop_map(|(input, constants, preview, definition, [lists, has_secrets])| {
        let mut words = vec!["inputs"];
        words.extend(has_secrets.then_some("secrets"));
        for (word, value) in [("constants", &constants), ("preview", &preview), ("definition", &definition)] {
            words.extend((!value.is_null()).then_some(word));
        }
        json!({
            "tool_call_id": "1", "tool_name": "pay", "state": "pending", "input": input, "constants": constants,
            "preview": preview, "unaccepted_definition": definition, "card_parts": lists.then_some(words),
            "secret_inputs": has_secrets.then_some(["/a"]), "risk_level": "high",
        })
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn a_terminal_that_offers_an_approval_has_shown_the_complete_card(
        item in calls(),
        full in any::<bool>(),
        opened in any::<bool>(),
    ) {
        let mut call: Call = serde_json::from_value(item.clone()).unwrap();
        call.is_revealed = opened;
        let hides = call.secret_inputs.is_some() && !opened;
        let mut screen = Screen::new(ScreenForm::without_terminal(full));
        let drawn = card_parts(&mut screen, &call);
        let (text, is_cut) = screen.finish();
        let sheet = Sheet { text, is_cut, drawn, draws_edit: None };
        if sheet.lacks(&call).is_some() {
            prop_assert!(!full || hides, "everything is shown in full");
            return Ok(());
        }
        prop_assert!(!hides, "a masked value counts as unseen");
        let text = read(&sheet.text);
        prop_assert_eq!(read_json(&text, "Inputsasthemodelproposedthem"), stripped_json(item["input"].clone()));
        if !item["constants"].is_null() {
            prop_assert_eq!(read_json(&text, "Inputsthattheoperatorsets"), stripped_json(item["constants"].clone()));
        }
        for shown in [&item["preview"]["text"], &item["unaccepted_definition"]["changes"][0]["current"]] {
            if let Some(shown) = shown.as_str() {
                let expected = stripped(&holdpoint_core::text::visible::escaped_lines(shown));
                prop_assert!(text.contains(&expected), "{}", text);
            }
        }
    }
}
