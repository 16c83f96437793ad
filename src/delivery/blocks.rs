//! The blocks of a message in Slack about a held call.
//!
//! Each text of a call is `plain_text`: Slack would read links and mentions in `mrkdwn`.

use super::letter::{Letter, Shared};
use crate::slack::{Button, Decision};
use jiff::tz::TimeZone;
use serde_json::{Value, json};

/// Maximum length of the text of a section, in characters.
const SECTION_MAX: usize = 3000;
/// Maximum length of the text of a header, in characters.
const HEADER_MAX: usize = 150;

/// Returns the blocks of a message. The buttons that decide are there while the call waits, and name the call and the
/// hash of the inputs that the message is about. An approver has to have seen what runs, so the button that approves is
/// there only if the message shows all of the inputs.
pub(super) fn blocks(letter: &Letter, endpoint: &str, zone: &TimeZone) -> Value {
    let text = letter.text(zone);
    let mut blocks = vec![
        json!({ "type": "header", "text": plain(&letter.title_line(), HEADER_MAX) }),
        json!({ "type": "section", "text": plain(text.trim_end(), SECTION_MAX) }),
    ];
    let mut buttons = Vec::new();
    if letter.occasion.waits() {
        let value = Button::new(endpoint, &letter.call_id, &letter.input_hash).text();
        let mut decides = |decision: Decision, words, style| {
            buttons.push(json!({
                "type": "button",
                "action_id": decision.action_id(),
                "text": plain(words, HEADER_MAX),
                "style": style,
                "value": value,
            }));
        };
        let shows_all = letter.shared.as_ref().is_some_and(Shared::has_whole_inputs)
            && text.trim_end().chars().count() <= SECTION_MAX;
        if shows_all {
            decides(Decision::Approve, "Approve", "primary");
        }
        decides(Decision::Reject, "Reject", "danger");
    }
    if let Some(url) = letter.url() {
        let text = plain("Open the call", HEADER_MAX);
        buttons.push(json!({ "type": "button", "action_id": "holdpoint_open", "text": text, "url": url }));
    }
    if !buttons.is_empty() {
        blocks.push(json!({ "type": "actions", "elements": buttons }));
    }
    Value::Array(blocks)
}

fn plain(text: &str, chars_max: usize) -> Value {
    let short: String = match text.char_indices().nth(chars_max) {
        Some(_) => text.chars().take(chars_max.saturating_sub(1)).chain(['…']).collect(),
        None => text.to_owned(),
    };
    json!({ "type": "plain_text", "text": short, "emoji": false })
}

#[cfg(test)]
mod tests {
    use super::super::letter::{End, Occasion};
    use super::*;

    fn letter(occasion: Occasion, inputs: &str) -> Letter {
        Letter {
            occasion,
            event_id: "e".to_owned(),
            hold_id: None,
            actor: "user:olga".to_owned(),
            title: "Pay".to_owned(),
            tool_name: "pay".to_owned(),
            call_id: "0190".to_owned(),
            requester: "user:ann".to_owned(),
            risk: "high",
            input_hash: "abc".to_owned(),
            deadline: None,
            urgent_at: None,
            shared: Some(Shared {
                headline: Some("<!channel> <https://evil.example|Approve>".to_owned()),
                reason: None,
                inputs: inputs.to_owned(),
            }),
            console: Some("https://chat.example".to_owned()),
            link: None,
        }
    }

    #[test]
    fn the_buttons_of_a_call_that_waits_name_it_and_its_inputs_and_no_text_is_markup() {
        let blocks = blocks(&letter(Occasion::Held, "{}"), "desk", &TimeZone::UTC);
        let text = blocks.to_string();
        assert!(!text.contains("mrkdwn"), "{text}");
        let section = blocks[1]["text"]["text"].as_str().unwrap();
        assert!(section.chars().count() <= SECTION_MAX && section.contains("<!channel>"), "{section}");
        let buttons = blocks[2]["elements"].as_array().unwrap();
        let actions: Vec<&str> = buttons.iter().map(|it| it["action_id"].as_str().unwrap()).collect();
        assert_eq!(actions, ["holdpoint_approve", "holdpoint_reject", "holdpoint_open"]);
        let value: Value = serde_json::from_str(buttons[0]["value"].as_str().unwrap()).unwrap();
        assert_eq!(value, json!({ "endpoint": "desk", "call": "0190", "input_hash": "abc" }));
    }

    #[test]
    fn a_message_without_the_whole_inputs_has_no_button_that_approves() {
        let actions = |letter: &Letter| -> Vec<Value> {
            let blocks = blocks(letter, "desk", &TimeZone::UTC);
            blocks[2]["elements"].as_array().unwrap().iter().map(|it| it["action_id"].clone()).collect()
        };
        let rest = ["holdpoint_reject", "holdpoint_open"];
        assert_eq!(actions(&Letter { shared: None, ..letter(Occasion::Held, "{}") }), rest);
        // Too long for the section, and too long for any message.
        for length in [2990, 10_000] {
            assert_eq!(actions(&letter(Occasion::Reminded, &"é".repeat(length))), rest, "{length}");
        }
    }

    #[test]
    fn an_ended_call_has_no_button_that_decides() {
        let ended = letter(Occasion::Ended(End::Approved), "{}");
        let blocks = blocks(&ended, "desk", &TimeZone::UTC);
        let buttons = blocks[2]["elements"].as_array().unwrap();
        assert_eq!((buttons.len(), &buttons[0]["action_id"]), (1, &json!("holdpoint_open")));
    }
}
