//! The blocks of a message in Slack about a held call.
//!
//! Each text of a call is `plain_text`: Slack would read links and mentions in `mrkdwn`.

use super::application::plain;
use super::button::{Button, ButtonDecision};
use crate::delivery::letter::Letter;
use holdpoint_core::card::{CardPart, may_offer_approval};
use holdpoint_core::text::visible::visible;
use serde_json::{Value, json};

/// Maximum length of the text of a section, in characters.
const SECTION_MAX: usize = 3000;
/// The most sections with the text of the message. Slack limits the blocks of a message together too.
const SECTIONS_MAX: usize = 4;
/// Maximum length of the text of a header, in characters.
const HEADER_MAX: usize = 150;
/// Maximum length of the text of a button, in characters.
const BUTTON_MAX: usize = 75;
/// Maximum lengths of the title, the text and the buttons of a confirmation, in characters.
const CONFIRM_TITLE_MAX: usize = 100;
const CONFIRM_TEXT_MAX: usize = 300;
const CONFIRM_BUTTON_MAX: usize = 30;

/// Returns the blocks of a message. The buttons that decide are there while the call waits, and name the call and the
/// hash of what the message is about. An approver has to have seen what runs, so the button that approves is there only
/// if the message shows the complete card.
pub(super) fn blocks(letter: &Letter, endpoint: &str) -> Value {
    let written = letter.written();
    let (sections, bytes) = sections(written.text.trim_end());
    let shown = written.parts_in(bytes);
    let mut blocks = vec![json!({ "type": "header", "text": plain(&letter.title_line(), HEADER_MAX) })];
    let section = |text: &str| json!({ "type": "section", "text": plain(text, SECTION_MAX) });
    blocks.extend(sections.iter().map(|text| section(text)));
    let mut buttons = Vec::new();
    if letter.occasion.waits() {
        let value = Button::new(endpoint, &letter.call_id, &letter.input_hash).text();
        let button = |decision: ButtonDecision, words, style| {
            json!({
                "type": "button",
                "action_id": decision.action_id(),
                "text": plain(words, BUTTON_MAX),
                "style": style,
                "value": value,
            })
        };
        if letter.may_approve && may_offer_approval(&letter.card_parts, &shown) {
            let mut approve = button(ButtonDecision::Approve, "Approve", "primary");
            if let Some(button) = approve.as_object_mut().filter(|_| letter.risk != "low") {
                button.insert("confirm".to_owned(), confirmation(letter));
            }
            buttons.push(approve);
        } else if letter.may_approve {
            blocks.push(section(&incomplete(&letter.card_parts, &shown)));
        } else if let Some(obstacle) = &letter.obstacle {
            blocks.push(section(&visible(obstacle)));
        }
        buttons.push(button(ButtonDecision::Reject, "Reject", "danger"));
    }
    if let Some(url) = letter.url() {
        let text = plain("Open the call", BUTTON_MAX);
        buttons.push(json!({ "type": "button", "action_id": "holdpoint_open", "text": text, "url": url }));
    }
    if !buttons.is_empty() {
        blocks.push(json!({ "type": "actions", "elements": buttons }));
    }
    Value::Array(blocks)
}

/// Returns why the message has no button that approves.
fn incomplete(complete: &[CardPart], shown: &[CardPart]) -> String {
    let missing: Vec<&str> =
        complete.iter().filter(|part| !shown.contains(part)).map(|part| part.name()).collect();
    format!("To approve the call, open it: this message does not show {} whole.", missing.join(", "))
}

/// Returns what Slack asks before it reports the approval of a call that can do harm.
fn confirmation(letter: &Letter) -> Value {
    let shared = letter.shared.as_ref();
    let title = shared
        .and_then(|shared| shared.headline())
        .unwrap_or_else(|| format!("Approve: {}?", letter.short_title()));
    let mut text = format!("{}, for {}, {} risk.", letter.tool(), letter.requested_by(), letter.risk);
    if let Some(preview) = shared.and_then(|shared| shared.preview()) {
        text.push_str(" Preview: ");
        text.push_str(&preview);
    }
    json!({
        "title": plain(&title, CONFIRM_TITLE_MAX),
        "text": plain(&text, CONFIRM_TEXT_MAX),
        "confirm": plain("Approve", CONFIRM_BUTTON_MAX),
        "deny": plain("Not now", CONFIRM_BUTTON_MAX),
    })
}

/// Returns the text in pieces for sections, and how many bytes of the text they show.
fn sections(text: &str) -> (Vec<String>, usize) {
    let (mut sections, mut rest) = (Vec::new(), text);
    while !rest.is_empty() && sections.len() < SECTIONS_MAX {
        let (piece, later) = split(rest);
        sections.push(piece.to_owned());
        rest = later;
    }
    let mut shown = text.len() - rest.len();
    if let Some(last) = sections.last_mut().filter(|_| !rest.is_empty()) {
        // In place of a character or a line break, so that the section keeps its length.
        shown = shown.saturating_sub(1 + last.pop().map_or(0, char::len_utf8));
        last.push('…');
    }
    (sections, shown)
}

/// Splits a text after at most the length of a section, at the end of a line if that is not far before. The line break is
/// in neither part.
fn split(text: &str) -> (&str, &str) {
    let Some((end, _)) = text.char_indices().nth(SECTION_MAX) else { return (text, "") };
    let Some((head, tail)) = text.split_at_checked(end) else { return (text, "") };
    match head.rsplit_once('\n') {
        Some((lines, line)) if line.len() < lines.len() => {
            (lines, text.split_at_checked(lines.len() + 1).map_or("", |(_, later)| later))
        }
        _ => (head, tail),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::delivery::letter::sample;
    use crate::delivery::occasion::{EndReason, Occasion};
    use crate::delivery::shared::sample_shared;
    use holdpoint_core::card::preview::Preview;

    fn letter(occasion: Occasion, inputs: &str) -> Letter {
        Letter { shared: Some(sample_shared(inputs)), ..sample(occasion) }
    }

    fn actions(letter: &Letter) -> Vec<String> {
        let blocks = blocks(letter, "desk");
        let actions = blocks.as_array().unwrap().last().unwrap()["elements"].as_array().unwrap();
        actions.iter().map(|it| it["action_id"].as_str().unwrap().to_owned()).collect()
    }

    const REST: [&str; 2] = ["holdpoint_reject", "holdpoint_open"];
    const ALL: [&str; 3] = ["holdpoint_approve", "holdpoint_reject", "holdpoint_open"];

    #[test]
    fn the_buttons_of_a_call_that_waits_name_it_and_its_inputs_and_no_text_is_markup() {
        let letter = letter(Occasion::Held, r#"{"note":"<!channel> <https://evil.example|Approve>"}"#);
        let blocks = blocks(&letter, "desk");
        let text = blocks.to_string();
        assert!(!text.contains("mrkdwn"), "{text}");
        let section = blocks[1]["text"]["text"].as_str().unwrap();
        assert!(section.chars().count() <= SECTION_MAX && section.contains("<!channel>"), "{section}");
        assert_eq!(actions(&letter), ALL);
        let value: Value = serde_json::from_str(blocks[2]["elements"][0]["value"].as_str().unwrap()).unwrap();
        assert_eq!(value, json!({ "endpoint": "desk", "call": "0190", "input_hash": "abc" }));
    }

    #[test]
    fn a_message_that_shows_less_than_the_card_has_no_button_that_approves_and_says_why() {
        let long = format!("{{\"a\":\"{}\"}}", "é".repeat(10_000));
        let said = |letter: &Letter| {
            assert_eq!(actions(letter), REST);
            let blocks = blocks(letter, "desk");
            let blocks = blocks.as_array().unwrap();
            let text = &blocks[blocks.len() - 2]["text"]["text"];
            let text = text
                .as_str()
                .unwrap()
                .strip_prefix("To approve the call, open it: this message does not show ");
            text.unwrap().to_owned()
        };
        let held = || letter(Occasion::Held, "{}");
        assert_eq!(said(&Letter { shared: None, ..held() }), "the inputs whole.");
        assert_eq!(said(&letter(Occasion::Reminded, &long)), "the inputs whole.");
        for part in [CardPart::Constants, CardPart::Preview, CardPart::Definition] {
            let lacks = Letter { card_parts: vec![CardPart::Inputs, part], ..held() };
            assert_eq!(said(&lacks), format!("{} whole.", part.name()));
        }
        let mut shows = held();
        shows.card_parts = vec![CardPart::Inputs, CardPart::Constants, CardPart::Preview];
        let shared = shows.shared.as_mut().unwrap();
        (shared.constants, shared.preview) = (Some("{}".to_owned()), Some(Preview::text("pays")));
        assert_eq!(actions(&shows), ALL);
        shows.shared.as_mut().unwrap().constants = Some(long);
        assert_eq!(said(&shows), "the inputs that the operator sets whole.");
    }

    #[test]
    fn a_long_preview_is_whole_in_several_sections() {
        let mut letter = letter(Occasion::Held, &format!("{{\"a\":\"{}\"}}", "x".repeat(3500)));
        letter.card_parts = vec![CardPart::Inputs, CardPart::Preview];
        letter.shared.as_mut().unwrap().preview = Some(Preview::text(&"line of a preview\n".repeat(400)));
        let all = blocks(&letter, "desk");
        let sections: Vec<&str> =
            all.as_array().unwrap().iter().filter_map(|it| it["text"]["text"].as_str()).collect();
        assert!(
            sections.len() > 4 && sections.iter().all(|it| it.chars().count() <= SECTION_MAX),
            "{sections:?}"
        );
        assert_eq!(sections.concat().matches("line of a preview").count(), 400);
        assert_eq!(actions(&letter), ALL);
    }

    #[test]
    fn slack_asks_again_before_the_approval_of_a_call_that_can_do_harm() {
        let mut letter = letter(Occasion::Held, "{}");
        letter.shared.as_mut().unwrap().preview = Some(Preview::text(&"pays\n".repeat(200)));
        let confirm = |letter: &Letter| blocks(letter, "desk")[2]["elements"][0]["confirm"].clone();
        let asked = confirm(&letter);
        assert_eq!(asked["title"], plain("Pay “<!channel>”?", 100));
        let text = asked["text"]["text"].as_str().unwrap();
        assert!(text.starts_with("Pay (pay), for user:alice, high risk. Preview: pays\\npays"), "{text}");
        assert_eq!(text.chars().count(), CONFIRM_TEXT_MAX);
        letter.shared.as_mut().unwrap().headline = None;
        assert_eq!(confirm(&letter)["title"], plain("Approve: Pay?", 100));
        letter.risk = "low";
        assert_eq!(confirm(&letter), Value::Null);
    }

    #[test]
    fn one_who_cannot_approve_has_no_such_button_and_reads_why() {
        let mut voted = Letter { may_approve: false, ..letter(Occasion::Voted, "{}") };
        assert_eq!(actions(&voted), REST);
        assert_eq!(blocks(&voted, "desk").as_array().unwrap().len(), 3);
        voted.obstacle = Some("You have approved.".to_owned());
        assert_eq!(blocks(&voted, "desk")[2]["text"]["text"], "You have approved.");
    }

    #[test]
    fn an_ended_call_has_no_button_that_decides() {
        assert_eq!(actions(&letter(Occasion::Ended(EndReason::Approved), "{}")), ["holdpoint_open"]);
    }
}
