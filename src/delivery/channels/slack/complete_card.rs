//! Whatever a call is, a message that offers its approval shows the complete card.

use super::blocks::blocks;
use crate::delivery::letter::{Letter, sample};
use crate::delivery::occasion::Occasion;
use crate::delivery::shared::sample_shared;
use holdpoint_core::card::CardPart;
use holdpoint_core::card::preview::Preview;
use holdpoint_fuzz::shown_again::{pieces, read, read_json, stripped, stripped_json};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

/// A letter whose parts have lengths around the limits.
fn letters() -> impl Strategy<Value = Letter> {
    let preview = prop_oneof![
        pieces().prop_map(|text| Some(Preview::text(&text))),
        pieces().prop_map(|why| Some(Preview::failed(&why))),
        Just(None),
    ];
    let object = || pieces().prop_map(|text| Map::from_iter([("a".to_owned(), json!([text, 1.5]))]));
    let bits = any::<[bool; 3]>();
    let parts = (object(), proptest::option::of(object()), preview, bits);
    parts.prop_map(|(inputs, constants, preview, [accepted, shares, has_secrets])| {
        let has = |part: &CardPart| match part {
            CardPart::Inputs => true,
            CardPart::Secrets => has_secrets,
            CardPart::Constants => constants.is_some(),
            CardPart::Preview => preview.is_some(),
            CardPart::Definition => !accepted,
        };
        let card_parts = CardPart::ALL.into_iter().filter(has).collect();
        let mut shared = sample_shared(&Value::Object(inputs).to_string());
        shared.constants = constants.map(|constants| Value::Object(constants).to_string());
        shared.preview = preview;
        Letter { card_parts, shared: Some(shared).filter(|_| shares), ..sample(Occasion::Held) }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn a_message_that_offers_an_approval_shows_the_complete_card(letter in letters()) {
        let blocks = blocks(&letter, "desk");
        let all = blocks.as_array().unwrap();
        prop_assert!(all.len() <= 50);
        let texts: Vec<&str> = all.iter().filter_map(|block| block["text"]["text"].as_str()).collect();
        prop_assert!(texts.iter().all(|text| (1..=3000).contains(&text.chars().count())));
        if !blocks.to_string().contains("holdpoint_approve") {
            return Ok(());
        }
        // The header and the sections, as a person reads them one after the other.
        let text = read(&texts.join("\n"));
        prop_assert!(!letter.card_parts.contains(&CardPart::Definition));
        prop_assert!(!letter.card_parts.contains(&CardPart::Secrets), "a message shows masks");
        let shared = letter.shared.as_ref().unwrap();
        let json = |json: &str| stripped_json(serde_json::from_str(json).unwrap());
        prop_assert_eq!(read_json(&text, "Inputs:"), json(&shared.inputs));
        if let Some(constants) = &shared.constants {
            prop_assert_eq!(read_json(&text, "Inputsthattheoperatorsets:"), json(constants));
        }
        if let Some(Preview::Text(preview) | Preview::Failed(preview)) = &shared.preview {
            prop_assert!(text.ends_with(&stripped(preview)), "{}", text);
        }
    }
}
